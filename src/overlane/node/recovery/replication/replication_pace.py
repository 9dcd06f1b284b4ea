"""Pacing of a replication connection, where the file gives the rate of the link between two hosts.

Copies are not urgent; parcels with a deadline are. So replication takes at most half of the rate. Where the overlay
link to that host is driven by this process, both draw on the pace of that one link: what replication has sent, the link
counts as sent, and neither puts more into the line than it takes. A parcel with a deadline waits for one part at most.

Without a rate there is no pacing: replication competes like any other connection.
"""

from collections.abc import Callable

from overlane.core.units import MS, SECOND, Nanos
from overlane.node.links.pacing import Pace

SHARE_PERCENT = 50
PART_BYTES_MIN = 512
"""Less is not worth a packet."""
WAITING: Nanos = 100 * MS
"""So much of the line's time may wait in the connection before a snapshot waits for it: heartbeats are behind it."""


class ReplicationPace:
    def __init__(self, rate_bps: int, line: Callable[[], Pace | None] = lambda: None) -> None:
        self._own = Pace(max(1, rate_bps * SHARE_PERCENT // 100))
        self._line = line
        self.room_bytes_max = max(PART_BYTES_MIN, rate_bps * SHARE_PERCENT // 100 * WAITING // (8 * SECOND))
        """What may wait before a snapshot does."""

    def part_bytes(self, now: Nanos) -> int:
        """How much may be sent at once; 0: nothing before `next_room`."""
        if now < self.next_room:
            return 0
        line = self._line()
        room_bytes = self._own.room_bytes(now)
        return max(PART_BYTES_MIN, room_bytes if line is None else min(room_bytes, line.room_bytes(now)))

    @property
    def next_room(self) -> Nanos:
        line = self._line()
        return self._own.next_room if line is None else max(self._own.next_room, line.next_room)

    def sent(self, size: int, now: Nanos) -> None:
        self._own.streamed(size, now)
        if (line := self._line()) is not None:
            line.streamed(size, now)
