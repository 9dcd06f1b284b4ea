"""Throttle: of each kind of event a few are logged at once, the rest are counted and logged as a number.

A number of events of each kind passes in a period; those beyond are suppressed. At the end of the period, `due` returns
how many of each kind were suppressed. Nothing here reads a clock.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from overlane.core.units import Nanos

Kind = TypeVar("Kind", bound=Hashable)


@dataclass(slots=True)
class _Period:
    ends_ns: Nanos
    passed: int = 0
    held: int = 0


@dataclass(slots=True)
class Throttle(Generic[Kind]):
    events_max: int
    period_ns: Nanos
    _periods: dict[Kind, _Period] = field(default_factory=dict)

    def passes(self, kind: Kind, now: Nanos, count: int = 1) -> bool:
        """Whether to log it; `count` events pass together or not at all."""
        period = self._periods.get(kind)
        if period is None:
            period = self._periods[kind] = _Period(now + self.period_ns)
        if period.passed + count > self.events_max:
            period.held += count
            return False
        period.passed += count
        return True

    def due(self, now: Nanos) -> list[tuple[Kind, int]]:
        """Kinds whose period is over, and how many were held in it, where any were."""
        over = [kind for kind, period in self._periods.items() if period.ends_ns <= now]
        return [(kind, held) for kind in over if (held := self._periods.pop(kind).held)]
