"""Fragmentation on a link with reservations: a large frame does not keep a reserved one waiting (compare RFC 2686).

A link sends one frame after the other. Without fragments a reserved parcel would wait for the whole frame that is under
way: 64 KiB are 53 ms of a line of 10 Mbit/s. So frames larger than the fragment size leave in parts. Whenever a part
has left, the most urgent goes on: reserved frames in the order of the virtual clock (reserved_lane.py), whether they
have begun or not, and after them the frame of best effort that has begun.

`Reassembly` is the other end. Parts may be lost or overtake each other, as all data may: a frame of which a part is
missing is forgotten when there is no room for others.
"""

import struct
from dataclasses import dataclass
from heapq import heappop, heappush

from overlane.core.units import NEVER, US, Nanos
from overlane.core.wire import frame_codec
from overlane.core.wire.fragments import NUMBER_MAX, Fragment, fragment
from overlane.errors import ProtocolViolation

INCOMPLETE_MAX = 64
"""Frames of which a part is missing."""
INCOMPLETE_BYTES_MAX = 4 * frame_codec.FRAME_BYTES_MAX


class Fragmenter:
    """The frames of a link that have left in part."""

    def __init__(self, fragment_bytes: int) -> None:
        self.fragment_bytes = fragment_bytes
        """Of each part, without its head."""
        self.rest_bytes = 0
        """What has still to leave of frames that have begun."""
        self._started: list[tuple[Nanos, int, _Outgoing]] = []
        """By the time at which they should have left."""
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._started)

    @property
    def finish_ns(self) -> Nanos:
        """When the most urgent of them should have left: NEVER for best effort, and if there is none."""
        return self._started[0][0] if self._started else NEVER

    def begin(self, frame: bytes, finish_ns: Nanos, now: Nanos) -> bytes:
        """The frame itself if it is small, and its first part if not."""
        if len(frame) <= self.fragment_bytes:
            return frame
        self._numbers = (self._numbers + 1) & NUMBER_MAX
        self.rest_bytes += len(frame)
        return self._part(finish_ns, self._numbers, _Outgoing(frame, now), now)

    def go_on(self, now: Nanos) -> bytes:
        """The next part of the most urgent frame; there has to be one."""
        return self._part(*heappop(self._started), now)

    def _part(self, finish_ns: Nanos, number: int, frame: "_Outgoing", now: Nanos) -> bytes:
        end = frame.offset + self.fragment_bytes
        part = memoryview(frame.data)[frame.offset : end]
        self.rest_bytes -= len(part)
        is_last = end >= len(frame.data)
        found = fragment(number, frame.index, is_last, (now - frame.began_ns) // US, part)
        if not is_last:
            frame.offset = end
            frame.index += 1
            heappush(self._started, (finish_ns, number, frame))
        return found


@dataclass(slots=True)
class _Outgoing:
    data: bytes
    began_ns: Nanos
    offset: int = 0
    index: int = 0


class Reassembly:
    """Frames of a neighbour that have come in part."""

    def __init__(self) -> None:
        self._frames: dict[int, _Incomplete] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, came: Fragment) -> bytes | None:
        """The frame, or frames, that the part completes."""
        known = self._frames.get(came.frame)
        if known is None:
            known = self._frames[came.frame] = _Incomplete()
        elif came.position in known.parts:
            return None
        self._bytes += len(came.part)
        if not known.add(came):
            self._forget(came.frame)
            raise ProtocolViolation("fragments that make no frame")
        if known.is_complete:
            self._forget(came.frame)
            try:
                return frame_codec.older(known.whole(), known.waited_us)
            except (IndexError, struct.error):
                raise ProtocolViolation("fragments that make no frame") from None
        while len(self._frames) > INCOMPLETE_MAX or self._bytes > INCOMPLETE_BYTES_MAX:
            self._forget(next(iter(self._frames)))
        return None

    def _forget(self, number: int) -> None:
        self._bytes -= self._frames.pop(number).size


class _Incomplete:
    __slots__ = ("_last", "parts", "size", "waited_us")

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.size = 0
        self.waited_us = 0
        self._last = -1

    def add(self, came: Fragment) -> bool:
        """False if the parts contradict each other, or are too large."""
        self.parts[came.position] = bytes(came.part)
        self.size += len(came.part)
        if came.is_last:
            if self._last >= 0:
                return False
            self._last, self.waited_us = came.position, came.waited_us
        is_behind = 0 <= self._last < max(self.parts)
        return not is_behind and self.size <= 2 * frame_codec.FRAME_BYTES_MAX

    @property
    def is_complete(self) -> bool:
        return 0 <= self._last == len(self.parts) - 1

    def whole(self) -> bytes:
        return b"".join(self.parts[index] for index in range(len(self.parts)))
