"""Brokers that are not needed at a low load: a state of the domain like a failure, chosen instead of suffered.

The master compares the load with the capacity of the brokers in use. After `off_after` below `off_below` it drains one
more, the least loaded first, if the policy of the resulting state keeps every limit under the load of now; after a
failure, or when the load exceeds the bound with those in use, all are used again at once. `brokers_min` are kept.
"""

from collections.abc import Mapping

from overlane.core.units import NEVER, Nanos
from overlane.items.policy import Places
from overlane.network.schema import Placement

MARGIN = 1.25
"""All are used again when the load exceeds the bound by so much: between the two nothing changes."""


class SwitchingOff:
    def __init__(self) -> None:
        self.off: frozenset[str] = frozenset()
        self._low_since: Nanos = NEVER

    def candidate(
        self,
        settings: Placement,
        capacities: Mapping[str, float],
        rates: Mapping[str, float],
        places: Places,
        failed: frozenset[str],
        now: Nanos,
    ) -> str | None:
        """The broker to be drained next, if any; `off` is emptied where that has to end. `capacities`: of all brokers
        that are there, drained by an operator or not at all left out."""
        self.off &= frozenset(capacities)
        if settings.off_below is None or failed:
            self.off, self._low_since = frozenset(), NEVER
            return None
        used = {name: capacity for name, capacity in capacities.items() if name not in self.off}
        load = sum(rates.values()) / max(sum(used.values()), 1e-9)
        if self.off and load > settings.off_below * MARGIN:
            self.off, self._low_since = frozenset(), NEVER
            return None
        if load >= settings.off_below or len(used) <= settings.brokers_min:
            self._low_since = NEVER
            return None
        self._low_since = min(self._low_since, now)
        if now < self._low_since + settings.off_after_ns:
            return None
        carried = dict.fromkeys(used, 0.0)
        for item, place in places.items():
            if place.primary in carried:
                carried[place.primary] += rates.get(item, 0.0)
        return min(carried, key=lambda name: (carried[name], name))

    def switch_off(self, name: str) -> None:
        self.off |= {name}
        self._low_since = NEVER
