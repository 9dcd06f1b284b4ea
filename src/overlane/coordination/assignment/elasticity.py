"""Elasticity: how many routing brokers there should be.

It grows by what is missing when the mean load has been above 70 % for 30 s. It shrinks by one when for 300 s one fewer
would have stayed below 50 %, and below 90 % after the failure of another. Growing is quick and shrinking slow, and
between the two limits nothing happens: that keeps it from swinging.
"""

from dataclasses import dataclass
from math import ceil

from overlane.core.units import SECOND, Nanos

LOAD_HIGH, HIGH_FOR = 0.70, 30 * SECOND
LOAD_LOW, LOW_FOR = 0.50, 300 * SECOND
LOAD_AFTER_GROWTH = 0.60
LOAD_AFTER_FAILURE_MAX = 0.90
"""What each may have to carry when one of those that are left fails."""


@dataclass(slots=True)
class Elasticity:
    brokers_min: int
    brokers_max: int
    _high_since: Nanos | None = None
    _low_since: Nanos | None = None

    def wanted(self, loads: list[float], now: Nanos) -> int:
        """How many there should be, given the loads of those that take bundles."""
        count, total = len(loads), sum(loads)
        if count < self.brokers_min:
            self._high_since = self._low_since = None
            return self.brokers_min
        is_high = total / count > LOAD_HIGH
        is_low = count > 1 and total / (count - 1) < LOAD_LOW and self._survives(total, count - 1)
        self._high_since = (self._high_since if self._high_since is not None else now) if is_high else None
        self._low_since = (self._low_since if self._low_since is not None else now) if is_low else None
        if self._high_since is not None and now - self._high_since >= HIGH_FOR:
            self._high_since = now  # those that come need time before it is judged again
            return min(self.brokers_max, max(count + 1, ceil(total / LOAD_AFTER_GROWTH)))
        if self._low_since is not None and now - self._low_since >= LOW_FOR:
            self._low_since = now
            return max(self.brokers_min, count - 1)
        return min(self.brokers_max, count)

    @staticmethod
    def _survives(total: float, count: int) -> bool:
        return count < 2 or total / (count - 1) < LOAD_AFTER_FAILURE_MAX
