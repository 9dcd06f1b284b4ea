"""How loaded a broker is: the greatest of processor, links and lag of the event loop, averaged over time."""

from dataclasses import dataclass

SMOOTHING = 0.1
"""Of an average that is updated once a second: ten seconds."""
LAG_FULL_S = 0.1
"""An event loop that is so late is as loaded as it can be."""
REPORTED_STEP = 0.05


@dataclass(slots=True)
class LoadMeter:
    load: float = 0.0
    reported: float = 0.0
    """As told to others: it changes only by steps, since every report costs a write."""
    _cpu_s: float | None = None
    _bytes_out: int = 0

    def measure(self, past_s: float, cpu_s: float, bytes_out: int, rate_bps: int | None, lag_s: float) -> None:
        """`cpu_s` of this thread and `bytes_out` of all links count from the start; `rate_bps` is what the links can
        carry together, if that is known."""
        if self._cpu_s is not None and past_s > 0:
            links = 8 * max(0, bytes_out - self._bytes_out) / past_s / rate_bps if rate_bps else 0.0
            now = max((cpu_s - self._cpu_s) / past_s, links, min(1.0, lag_s / LAG_FULL_S))
            self.load += SMOOTHING * (now - self.load)
        self._cpu_s, self._bytes_out = cpu_s, bytes_out
        if abs(self.load - self.reported) >= REPORTED_STEP:
            self.reported = round(self.load, 2)
