"""One direction of a path between two sites: whether and when a packet arrives.

A packet first waits for transmission: packets leave one after the other at the rate, and a packet that would exceed the
queue is dropped (tail drop). Then it may be lost at random. Otherwise it arrives after the latency plus jitter.

Jitter varies slowly: it is drawn at points that are four times the jitter apart, and interpolated linearly between
them, so the latency never decreases faster than time passes. Packets therefore keep their order, as in the queues that
cause jitter in real networks, and the mean latency is as configured, whatever the packet rate.

No I/O; randomness is passed in. Time is integer nanoseconds.
"""

from random import Random

import msgspec

from overlane.core.units import SECOND, Nanos

QUEUE_BYTES = 256 * 1024


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """What one direction is like. No rate is no limit, and then there is no queue."""

    latency_ns: Nanos = 0
    jitter_ns: Nanos = 0
    loss: float = 0.0
    rate_bps: int | None = None
    queue_bytes: int = QUEUE_BYTES
    is_cut: bool = False


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What one direction has done so far. Bytes are of whole packets, with their IP headers."""

    packets: int = 0
    bytes: int = 0
    lost: int = 0
    overflowed: int = 0
    cut: int = 0


class Direction:
    __slots__ = (
        "_bytes",
        "_conditions",
        "_cut",
        "_free_ns",
        "_knot_ns",
        "_knot_offset_ns",
        "_lost",
        "_luck",
        "_overflowed",
        "_packets",
        "_step_ns",
    )

    def __init__(self, conditions: Conditions, luck: Random) -> None:
        self._conditions = conditions
        self._luck = luck
        self._free_ns: Nanos = 0  # when the last packet that was taken will have left
        self._knot_ns: Nanos = 0  # the next knot of the jitter, and the offsets there and before it
        self._knot_offset_ns: Nanos = 0
        self._step_ns: Nanos = 0
        self._packets = self._bytes = self._lost = self._overflowed = self._cut = 0

    @property
    def conditions(self) -> Conditions:
        return self._conditions

    def change(self, conditions: Conditions) -> None:
        """From now on. What is under way stays as it was."""
        self._conditions = conditions
        self._knot_ns = 0

    def carried(self) -> Carried:
        return Carried(
            packets=self._packets, bytes=self._bytes, lost=self._lost, overflowed=self._overflowed, cut=self._cut
        )

    def arrival(self, size_bytes: int, now: Nanos) -> Nanos | None:
        """When a packet that enters now is at the other end; None if it never is."""
        conditions = self._conditions
        if conditions.is_cut:
            self._cut += 1
            return None
        leaves_ns = now
        if conditions.rate_bps is not None:
            leaves_ns = self._leaves(size_bytes, now, conditions.rate_bps, conditions.queue_bytes)
            if leaves_ns < 0:
                self._overflowed += 1
                return None
        if conditions.loss and self._luck.random() < conditions.loss:
            self._lost += 1
            return None
        self._packets += 1
        self._bytes += size_bytes
        if conditions.jitter_ns:
            return max(leaves_ns, leaves_ns + conditions.latency_ns + self._offset(leaves_ns, conditions.jitter_ns))
        return leaves_ns + conditions.latency_ns

    def _leaves(self, size_bytes: int, now: Nanos, rate_bps: int, queue_bytes: int) -> Nanos:
        """When the packet's last bit has left, or -1 if there is no room for it."""
        starts_ns = max(now, self._free_ns)
        waiting_bytes = (starts_ns - now) * rate_bps // (8 * SECOND)
        # A packet that needs not wait always leaves, however small the queue.
        if waiting_bytes and waiting_bytes + size_bytes > queue_bytes:
            return -1
        self._free_ns = starts_ns + size_bytes * 8 * SECOND // rate_bps
        return self._free_ns

    def _offset(self, now: Nanos, jitter_ns: Nanos) -> Nanos:
        span_ns = 4 * jitter_ns
        if now >= self._knot_ns:
            first_ns = self._knot_offset_ns if now < self._knot_ns + span_ns else self._draw(jitter_ns)
            self._knot_offset_ns = self._draw(jitter_ns)
            self._step_ns = self._knot_offset_ns - first_ns
            self._knot_ns = (self._knot_ns if now < self._knot_ns + span_ns else now) + span_ns
        return self._knot_offset_ns - self._step_ns * (self._knot_ns - now) // span_ns

    def _draw(self, jitter_ns: Nanos) -> Nanos:
        return int((2.0 * self._luck.random() - 1.0) * jitter_ns)
