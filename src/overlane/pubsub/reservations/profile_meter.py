"""Profile meter: which token buckets the traffic of a flow would have fitted.

A bucket of rate r is deep enough if it holds the backlog of a queue that is served at r. The meter follows that for a
few rates around the one that is advertised. So it is known later how deep a bucket has to be at each of them, without
keeping messages. Sizes are those of payloads, as publishers tell them.
"""

from overlane.core.units import SECOND, Nanos

FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)


class ProfileMeter:
    def __init__(self, rate: float, now: Nanos) -> None:
        """`rate`: bytes per second."""
        self.messages = 0
        self.payload_bytes = 0
        self.size_max = 0
        self._at_ns = now
        self._rate = 0.0
        self.rates: tuple[float, ...] = ()
        self._levels: list[float] = []
        self._deepest: list[float] = []
        self.change(rate)

    def change(self, rate: float) -> None:
        if rate != self._rate:
            self._rate = rate
            self.rates = tuple(factor * rate for factor in FACTORS)
            self._levels = [0.0] * len(FACTORS)
            self._deepest = [0.0] * len(FACTORS)

    def note(self, size: int, now: Nanos) -> None:
        """A message was published."""
        self.messages += 1
        self.payload_bytes += size
        self.size_max = max(self.size_max, size)
        elapsed_s = max(0, now - self._at_ns) / SECOND
        self._at_ns = max(now, self._at_ns)
        levels, deepest = self._levels, self._deepest
        for place, rate in enumerate(self.rates):
            level = levels[place] - elapsed_s * rate
            level = level + size if level > 0 else float(size)
            levels[place] = level
            if level > deepest[place]:
                deepest[place] = level

    def take_depths(self) -> tuple[float, ...]:
        """How deep buckets had to be since the last call, by rate."""
        found = tuple(self._deepest)
        self._deepest = [0.0] * len(FACTORS)
        return found
