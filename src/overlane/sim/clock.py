"""The clock of a broker: the true time, with an offset and a drift.

It is monotonic and starts anywhere, as clocks of machines do. The arithmetic is in whole numbers, since a rounding
error would change the run.
"""

from overlane.core.units import NEVER, SECOND, Nanos

BILLION = 1_000_000_000

# What clocks read at true time zero, before their offset: well above zero, as if the machines had been up for a day.
BASE_NS: Nanos = 86_400 * SECOND


class SkewedClock:
    __slots__ = ("_base", "_drift_ppb")

    def __init__(self, offset_ns: Nanos = 0, drift_ppm: float = 0.0) -> None:
        self._base = BASE_NS + offset_ns
        self._drift_ppb = round(drift_ppm * 1_000)

    def read(self, now: Nanos) -> Nanos:
        """The reading of this clock at the true time `now`."""
        if self._drift_ppb:
            return self._base + now + now * self._drift_ppb // BILLION
        return self._base + now

    def true_time(self, reading: Nanos) -> Nanos:
        """The first true time at which this clock reads `reading` or more."""
        if reading >= NEVER:
            return NEVER
        if not self._drift_ppb:
            return reading - self._base
        # `read` is the floor of `base + now * (BILLION + drift) / BILLION`: the first `now` at which that is not below
        # `reading` is the ceiling of this quotient.
        return -((self._base - reading) * BILLION // (BILLION + self._drift_ppb))
