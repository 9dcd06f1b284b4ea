"""Frames in fragments of bounded size, so that a large one does not hold up a link that others share.

    fragment    u32 length of the whole frame | bytes          the first of a frame
                bytes                                          those that follow

Fragments of one connection come in order and complete. The length is checked when the first one comes; room is made for
what has arrived, not for what was announced.
"""

from collections.abc import Iterator

from overlane.errors import ProtocolViolation
from overlane.recovery.frames import FRAME_BYTES_MAX

FRAGMENT_BYTES_MAX = 64 * 1024
_LENGTH_BYTES = 4


def fragments(frame: bytes, size: int = FRAGMENT_BYTES_MAX) -> Iterator[bytes]:
    """Each of at most `size` bytes."""
    whole = len(frame).to_bytes(_LENGTH_BYTES) + frame
    for start in range(0, len(whole), size):
        yield whole[start : start + size]


class Reassembly:
    """The fragments of one connection."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._length = 0
        """Of the frame that has begun; 0 if none has."""
        self._received = bytearray()

    def receive(self, fragment: bytes) -> bytes | None:
        """A frame that is complete now. ProtocolViolation."""
        if len(fragment) > FRAGMENT_BYTES_MAX:
            raise ProtocolViolation(f"a fragment of {len(fragment)} bytes; at most {FRAGMENT_BYTES_MAX} are allowed")
        if not self._length:
            if len(fragment) <= _LENGTH_BYTES:
                raise ProtocolViolation("the first fragment of a frame has no content")
            length = int.from_bytes(fragment[:_LENGTH_BYTES])
            if not 0 < length <= self._bytes_max:
                raise ProtocolViolation(f"a frame of {length} bytes; allowed are 1 to {self._bytes_max}")
            self._length = length
            fragment = fragment[_LENGTH_BYTES:]
        elif not fragment:
            raise ProtocolViolation("an empty fragment")
        if len(self._received) + len(fragment) > self._length:
            raise ProtocolViolation(f"more than the {self._length} bytes that a frame was announced with")
        self._received += fragment
        if len(self._received) < self._length:
            return None
        frame = bytes(self._received)
        self._length, self._received = 0, bytearray()
        return frame
