"""Traffic counters of `overlane pub` and `overlane sub`: messages, bytes and a latency histogram in bounded memory.

Histogram buckets have 8 significant bits, so a percentile is accurate to 0.4 %. Whether a message is in time is decided
by its exact latency.
"""

from dataclasses import dataclass, field
from typing import TypedDict

from overlane.core.units import MS, NEVER, SECOND, Nanos

_BITS = 8


class Percentiles(TypedDict):
    p50: float
    p99: float
    p999: float
    max: float


class LatencyHistogram:
    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._max_ns: Nanos = 0
        self.count = 0

    def add(self, latency_ns: Nanos) -> None:
        # Clocks of two machines may disagree, and then a message seems to arrive before it was sent.
        latency_ns = max(0, latency_ns)
        shift = max(0, latency_ns.bit_length() - _BITS)
        bucket = latency_ns >> shift << shift
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self._max_ns = max(self._max_ns, latency_ns)
        self.count += 1

    def percentile_ns(self, share: float) -> Nanos:
        """The smallest latency not exceeded by at least this share of the messages."""
        wanted = share * self.count
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                middle = bucket + (1 << max(0, bucket.bit_length() - _BITS)) // 2
                return min(middle, self._max_ns)
        return self._max_ns

    def percentiles_ms(self) -> Percentiles | None:
        if not self.count:
            return None
        p50, p99, p999 = (round(self.percentile_ns(share) / MS, 4) for share in (0.5, 0.99, 0.999))
        return {"p50": p50, "p99": p99, "p999": p999, "max": round(self._max_ns / MS, 4)}


@dataclass(slots=True)
class Traffic:
    """Messages published or received since `began`."""

    began: Nanos
    deadline_ns: Nanos = NEVER
    messages: int = 0
    size_bytes: int = 0
    in_time: int = 0
    ended: Nanos = 0
    latencies: LatencyHistogram = field(default_factory=LatencyHistogram)
    _last_call_ns: Nanos = 0
    _last_counts: tuple[int, int] = (0, 0)

    def count(self, messages: int, size_bytes: int) -> None:
        self.messages += messages
        self.size_bytes += size_bytes

    def add_latency(self, latency_ns: Nanos) -> None:
        self.latencies.add(latency_ns)
        if latency_ns <= self.deadline_ns:
            self.in_time += 1

    @property
    def seconds(self) -> float:
        return max(0, self.ended - self.began) / SECOND

    @property
    def messages_per_second(self) -> float | None:
        """None if there are too few messages to measure it."""
        return self.messages / self.seconds if self.messages > 1 and self.ended - self.began > MS else None

    def recent(self, now: Nanos) -> tuple[float, float]:
        """Messages and bytes per second since the last call."""
        span_s = max(now - (self._last_call_ns or self.began), 1) / SECOND
        messages, size_bytes = self.messages - self._last_counts[0], self.size_bytes - self._last_counts[1]
        self._last_call_ns, self._last_counts = now, (self.messages, self.size_bytes)
        return messages / span_s, size_bytes / span_s
