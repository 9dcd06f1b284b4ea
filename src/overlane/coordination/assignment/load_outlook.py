"""Load outlook: by how much the load of the overlay is expected to grow in the next minutes, by the plan.

A plan has the expected rate of all topics together for each hour of the week to come. The load of routing brokers is
measured in other units, so only the ratio counts: the highest rate that is expected within `AHEAD_S` over the rate that
is expected now. It is never below 1: that load will fall is no reason to have fewer brokers before it has. Outside the
hours of the plan nothing is expected to change.
"""

from dataclasses import dataclass

AHEAD_S = 900
"""Routing brokers must have started, and taken over bundles, before the load comes."""
GROWTH_MAX = 4.0
"""More is not believed: a few messages at night make any ratio."""
HOUR_S = 3_600


@dataclass(frozen=True, slots=True)
class LoadOutlook:
    start_s: int
    """Of the first hour, since 1970."""
    rates: tuple[float, ...]
    """Messages per second, by the hour."""

    def growth(self, unix_s: int, ahead_s: int = AHEAD_S) -> float:
        now = self._rate(unix_s)
        if not now:
            return 1.0
        last = (unix_s + ahead_s - self.start_s) // HOUR_S
        first = (unix_s - self.start_s) // HOUR_S
        return min(GROWTH_MAX, max(self.rates[first : last + 1]) / now)

    def _rate(self, unix_s: int) -> float:
        hour = (unix_s - self.start_s) // HOUR_S
        return self.rates[hour] if 0 <= hour < len(self.rates) else 0.0
