"""Pacing of a link whose rate is known: no more is sent at once than the line takes.

Anything handed to the kernel beyond that waits in a FIFO queue outside the broker: probes, hop acknowledgements and
urgent parcels would wait behind the rest, until both ends suspect the link. In the queue of the core it is ordered, and
what can no longer be in time is not sent. So the line is kept busy, but never gets more than AHEAD of its time.
Connection and datagrams share the rate.
"""

from overlane.core.units import MS, SECOND, Nanos

AHEAD: Nanos = 5 * MS
USED_PERCENT = 90
"""The rest is for what the kernel sends unasked, acknowledgements and repetitions. Without it a queue that has once
grown somewhere on the way would stay."""
SEGMENT_BYTES, SEGMENT_HEADERS = 1_400, 52
"""What TCP sends at once, and its headers and IP's."""
DATAGRAM_HEADERS = 28


class Pace:
    def __init__(self, rate_bps: int) -> None:
        self._rate_bps = max(1, rate_bps * USED_PERCENT // 100)
        self._busy_until: Nanos = 0
        """When the line will have sent what it was given."""

    @property
    def next_room(self) -> Nanos:
        """When something may be sent again."""
        return self._busy_until - AHEAD

    def room_bytes(self, now: Nanos) -> int:
        """How much may be sent at once, from `next_room` on at least a byte: what is sent for it may be more."""
        idle_ns = now + AHEAD - max(now, self._busy_until)
        return max(1, idle_ns * self._rate_bps // (8 * SECOND)) if now >= self.next_room else 0

    def streamed(self, size: int, now: Nanos) -> None:
        """So many bytes were given to the connection."""
        self._spend(size + SEGMENT_HEADERS * -(-size // SEGMENT_BYTES), now)

    def sent(self, size: int, now: Nanos) -> None:
        """A datagram of this size was sent."""
        self._spend(size + DATAGRAM_HEADERS, now)

    def _spend(self, size: int, now: Nanos) -> None:
        self._busy_until = max(now, self._busy_until) + size * 8 * SECOND // self._rate_bps
