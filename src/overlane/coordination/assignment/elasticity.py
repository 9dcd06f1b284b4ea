"""Elasticity: how many routing brokers there should be.

It grows by what is missing when the mean load has been above 70 % for 30 s. It shrinks by one when for 300 s one fewer
would have stayed below 50 %, and below 90 % after the failure of another. Growing is quick and shrinking slow, and
between the two limits nothing happens: that keeps it from swinging. The limits are those of [routing] in the file;
these are the defaults. Where a plan expects more load soon (`load_outlook`), that load is judged instead of the present
one.
"""

from dataclasses import dataclass
from math import ceil

from overlane.core.units import NEVER, SECOND, Nanos

LOAD_AFTER_GROWTH = 6 / 7
"""Of the limit above which it grows: what it grows to is below that by as much."""
LOAD_AFTER_FAILURE_MAX = 0.90
"""What each may have to carry when one of those that are left fails."""


@dataclass(frozen=True, slots=True)
class Bounds:
    brokers_min: int = 1
    brokers_max: int = 1_000
    grow_above: float = 0.70
    grow_after: Nanos = 30 * SECOND
    shrink_below: float = 0.50
    shrink_after: Nanos = 300 * SECOND


@dataclass(slots=True)
class Elasticity:
    bounds: Bounds
    _high_since: Nanos | None = None
    _low_since: Nanos | None = None

    def wanted(self, loads: list[float], now: Nanos, growth: float = 1.0) -> int:
        """How many there should be, given the loads of those that take bundles, and how much they will soon grow."""
        bounds, count, total = self.bounds, len(loads), sum(loads) * growth
        if count < bounds.brokers_min:
            self._high_since = self._low_since = None
            return bounds.brokers_min
        is_high = total / count > bounds.grow_above
        is_low = count > 1 and total / (count - 1) < bounds.shrink_below and self._survives(total, count - 1)
        self._high_since = (self._high_since if self._high_since is not None else now) if is_high else None
        self._low_since = (self._low_since if self._low_since is not None else now) if is_low else None
        if self._high_since is not None and now - self._high_since >= bounds.grow_after:
            self._high_since = now  # those that come need time before it is judged again
            return min(bounds.brokers_max, max(count + 1, ceil(total / (LOAD_AFTER_GROWTH * bounds.grow_above))))
        if self._low_since is not None and now - self._low_since >= bounds.shrink_after:
            self._low_since = now
            return max(bounds.brokers_min, count - 1)
        return min(bounds.brokers_max, count)

    def next_deadline(self) -> Nanos:
        """When a load that stays as it is would change the number."""
        high = NEVER if self._high_since is None else self._high_since + self.bounds.grow_after
        low = NEVER if self._low_since is None else self._low_since + self.bounds.shrink_after
        return min(high, low)

    @staticmethod
    def _survives(total: float, count: int) -> bool:
        return count < 2 or total / (count - 1) < LOAD_AFTER_FAILURE_MAX
