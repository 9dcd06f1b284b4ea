"""Stream meter: divides what a connection sends into parts, as the line takes them.

A bulk parcel has up to 64 KiB: 50 ms of a line of 10 Mbit/s, for which datagrams with a deadline would wait. The
connection is a byte stream, so the rest of a parcel can follow later, and datagrams can be sent in between. The size of
a part is limited by the pace of the line if its rate is known, otherwise by the window (`stream_window.py`).
"""

import asyncio

from overlane.core.units import MS, Nanos
from overlane.node.links.streams.tcp import under_way_bytes
from overlane.node.links.streams.window import StreamWindow

PART_BYTES_MIN = 4 * 1024
"""Less is not worth a packet: 3 ms of a line of 10 Mbit/s."""
REST_BYTES_MAX = 256 * 1024
LOOK_BYTES = 16 * 1024
"""The kernel is asked what is under way when the window could be full after so much more."""
LOOK_AGAIN_NS: Nanos = 2 * MS
"""How often, where the window is full."""


class StreamMeter:
    def __init__(self) -> None:
        self.rest = b""
        """Of frames of which the connection has been given a part; and frames behind it."""
        self.under_way_bytes_max = 0
        """At most so much of what the connection was given is not acknowledged."""

    @property
    def is_full(self) -> bool:
        return len(self.rest) > REST_BYTES_MAX

    def room_bytes(self, window: StreamWindow, transport: asyncio.Transport, bytes_max: int, now: Nanos) -> int:
        """How much of that the window allows."""
        if not window.holds(now):
            return bytes_max
        if self.under_way_bytes_max + LOOK_BYTES > window.bytes:
            self.under_way_bytes_max = under_way_bytes(transport)
        return min(bytes_max, window.room_bytes(self.under_way_bytes_max, now))

    def part(self, data: bytes, room_bytes: int, bytes_max: int) -> bytes:
        """What of it is given now: all, where there is as much room as can be."""
        if room_bytes >= bytes_max:
            return data
        size = max(room_bytes, PART_BYTES_MIN)
        self.rest = data[size:]
        return data[:size]

    def take_rest(self) -> bytes:
        rest, self.rest = self.rest, b""
        return rest

    def joins(self, frames: bytes) -> bool:
        """Whether the frames have to wait for a rest; they follow it."""
        if self.rest:
            self.rest += frames
            return True
        return False
