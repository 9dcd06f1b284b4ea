"""Fragments: a frame in parts, so that others can be sent in between.

    FRAGMENT  frame u32 | position u16 | is last u8 | waited us u32 | part

`frame` numbers the frames of a connection that are sent in parts, `position` the parts of a frame from 0. `waited` of
the last part is the time since the first one was sent: the parcel in the frame is older by so much.
"""

import struct
from typing import NamedTuple

from overlane.core.wire.frame_codec import AGE_US_MAX, FRAME_OVERHEAD, FrameType
from overlane.errors import ProtocolViolation

_HEAD = struct.Struct("!IB" + "IHBI")
_BODY = struct.Struct("!IHBI")

HEAD_BYTES = _HEAD.size
"""What stands ahead of each part."""
NUMBER_MAX = (1 << 32) - 1


class Fragment(NamedTuple):
    frame: int
    position: int
    is_last: bool
    waited_us: int
    part: memoryview


def fragment(frame: int, position: int, is_last: bool, waited_us: int, part: bytes | memoryview) -> bytes:
    length = HEAD_BYTES - FRAME_OVERHEAD + 1 + len(part)
    head = _HEAD.pack(length, FrameType.FRAGMENT, frame, position, is_last, min(waited_us, AGE_US_MAX))
    return b"".join((head, part))


def read_fragment(body: memoryview) -> Fragment:
    if len(body) <= _BODY.size:
        raise ProtocolViolation("a truncated fragment")
    frame, position, is_last, waited_us = _BODY.unpack_from(body)
    if is_last > 1:
        raise ProtocolViolation("a fragment with an unknown flag")
    return Fragment(frame, position, bool(is_last), waited_us, body[_BODY.size :])
