"""Bytes between brokers: every frame's layout, and every limit, in one place.

A frame is a length, a type and a body. Numbers are big-endian.

     0           4      5
    +-----------+------+---------------------+
    | length    | type | body                |     length counts type and body
    +-----------+------+---------------------+

    HELLO     magic "OVLN" | version u8 | incarnation u32 | name length u8 | name
    PING      token u32
    PONG      token u32
    NOTICE    highest u32 | delay u16 (16 us) | earlier u64      hop acknowledgement; bit i of earlier: highest-1-i came
    CONTROL   sequence u32 | message (msgpack, see messages.py)
    PARCEL    the header below | end-to-end part (parcel.py)
    ROUTE     an Establish message (msgpack), ahead of a parcel that needs it
    DETOUR    hops u8 | this hop u8 | ids u64 x hops | PARCEL without its length and type

    PARCEL header, rewritten by each hop (age, hop sequence) while the rest passes untouched:

     0       4      5       6         8        16            20         28      32       36            40         44
    +-------+------+-------+---------+--------+-------------+----------+-------+--------+-------------+----------+-----+
    | length| type | flags | version | origin | incarnation | sequence | route | age us | deadline us | messages | hop |
    +-------+------+-------+---------+--------+-------------+----------+-------+--------+-------------+----------+-----+

The first frame of a connection is a HELLO. CONTROL frames are numbered from 0 on each connection, so that a frame
that was replayed, lost or inserted is noticed. Whoever sends what is not in this table is a violator: its link is
closed.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from hashlib import blake2b
from typing import NamedTuple

from overlane.errors import ProtocolViolation

MAGIC = b"OVLN"
VERSION = 1
NAME_BYTES_MAX = 64
FRAME_BYTES_MAX = 1 << 20
HOPS_MAX = 64
AGE_US_MAX = (1 << 32) - 1
NO_DEADLINE_US = 0


class FrameType(IntEnum):
    HELLO = 1
    PING = 2
    PONG = 3
    NOTICE = 4
    CONTROL = 5
    PARCEL = 6
    DETOUR = 7
    ROUTE = 8


class ParcelFlag(IntFlag):
    RELIABLE = 1
    WATCHED = 2
    """The receiver answers with a NOTICE, soon."""
    PROMPT = 4
    """The receiver answers with a NOTICE at once."""
    HISTORY = 8
    """Messages of the past, for a subscriber that came late."""
    REPAIR = 16
    """Hops may send it again, or around, while it can still be in time."""
    DIRECT = 32
    """On a detour: to be delivered at its end, whatever the route says."""


_FRAME = struct.Struct("!IB")
_HELLO = struct.Struct("!4sBIB")
_TOKEN = struct.Struct("!I")
_NOTICE = struct.Struct("!IHQ")
_HEADER = struct.Struct("!BHQIQIIIII")
_PARCEL = struct.Struct("!IBBHQIQIIIII")
_DETOUR = struct.Struct("!BB")
_IDENTITY = struct.Struct("!Q")

FRAME_OVERHEAD = _FRAME.size
PARCEL_BYTES = _PARCEL.size
"""What a parcel frame has ahead of the end-to-end part."""
unpack_parcel = _PARCEL.unpack_from
"""Length, type, and the fields of Header."""
_AGE_AT = 32
_U32 = struct.Struct("!I")
_HEADER_BYTES = _HEADER.size
_unpack_header = _HEADER.unpack_from
_PARCEL_TYPE = int(FrameType.PARCEL)
_DETOUR_TYPE = int(FrameType.DETOUR)


def broker_id(name: str) -> int:
    """A broker's name in the eight bytes that parcels carry."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest())


class Header(NamedTuple):
    """What a hop reads of a parcel."""

    flags: int
    version: int
    origin: int
    incarnation: int
    sequence: int
    route: int
    age_us: int
    deadline_us: int
    messages: int
    hop_sequence: int


_AGE = Header._fields.index("age_us")
_MESSAGES = Header._fields.index("messages")
_new_tuple = tuple.__new__


@dataclass(frozen=True, slots=True)
class Hello:
    name: str
    incarnation: int


class Notice(NamedTuple):
    highest: int
    delay_us: int
    earlier: int


class Detour(NamedTuple):
    """A parcel that carries its own path: the ids of the brokers to pass, the last being where it is going."""

    hops: tuple[int, ...]
    position: int
    parcel: memoryview


def hello(name: str, incarnation: int) -> bytes:
    encoded = name.encode()
    if not 0 < len(encoded) <= NAME_BYTES_MAX:
        raise ValueError(f"a broker's name has 1 to {NAME_BYTES_MAX} bytes, not {len(encoded)}")
    return _frame(FrameType.HELLO, _HELLO.pack(MAGIC, VERSION, incarnation, len(encoded)) + encoded)


def ping(token: int) -> bytes:
    return _frame(FrameType.PING, _TOKEN.pack(token))


def pong(token: int) -> bytes:
    return _frame(FrameType.PONG, _TOKEN.pack(token))


def notice(highest: int, delay_us: int, earlier: int) -> bytes:
    return _frame(FrameType.NOTICE, _NOTICE.pack(highest, min(delay_us >> 4, 0xFFFF), earlier))


def control(sequence: int, message: bytes) -> bytes:
    if len(message) + 5 > FRAME_BYTES_MAX:
        raise ValueError(f"a control message of {len(message)} bytes does not fit a frame of {FRAME_BYTES_MAX}")
    return _frame(FrameType.CONTROL, _TOKEN.pack(sequence) + message)


def route(message: bytes) -> bytes:
    return _frame(FrameType.ROUTE, message)


def parcel(
    header: Header, rest: bytes | memoryview, age_us: int | None = None, hop_sequence: int | None = None
) -> bytes:
    """Older than its header says, and numbered for the hop, where that is given."""
    flags, version, origin, incarnation, sequence, route, age, deadline_us, messages, hop = header
    return b"".join(
        (
            _PARCEL.pack(
                1 + _HEADER.size + len(rest),
                _PARCEL_TYPE,
                flags,
                version,
                origin,
                incarnation,
                sequence,
                route,
                age if age_us is None else age_us,
                deadline_us,
                messages,
                hop if hop_sequence is None else hop_sequence,
            ),
            rest,
        )
    )


def aged(frame: bytes, age_us: int) -> bytes:
    """A parcel frame with another age."""
    return b"".join((frame[:_AGE_AT], _U32.pack(age_us), frame[_AGE_AT + 4 :]))


def detour(hops: tuple[int, ...], position: int, header: Header, rest: bytes | memoryview) -> bytes:
    path = b"".join(map(_IDENTITY.pack, hops))
    size = 1 + _DETOUR.size + len(path) + _HEADER.size + len(rest)
    return b"".join(
        (_FRAME.pack(size, _DETOUR_TYPE), _DETOUR.pack(len(hops), position), path, _HEADER.pack(*header), rest)
    )


def parcel_size(rest: bytes | memoryview) -> int:
    return _PARCEL.size + len(rest)


def split(buffer: bytearray | bytes | memoryview) -> tuple[list[tuple[int, memoryview]], int]:
    """The whole frames at the start of a buffer as (type, body), and how many bytes they took.

    A frame that announces more than the limit is refused before a byte of its body is waited for.
    """
    frames: list[tuple[int, memoryview]] = []
    view = memoryview(buffer)
    position = 0
    end = len(view)
    if 5 <= end <= FRAME_BYTES_MAX:  # very often it is one frame and no more
        length, kind = _FRAME.unpack_from(view)
        if length == end - 4:
            return [(kind, view[5:])], end
    while end - position >= 5:
        length, kind = _FRAME.unpack_from(view, position)
        if not 0 < length <= FRAME_BYTES_MAX:
            raise ProtocolViolation(f"a frame of {length} bytes; allowed are 1 to {FRAME_BYTES_MAX}")
        after = position + 4 + length
        if after > end:
            break
        frames.append((kind, view[position + 5 : after]))
        position = after
    return frames, position


def read_hello(body: memoryview) -> Hello:
    if len(body) < _HELLO.size:
        raise ProtocolViolation("a truncated greeting")
    magic, version, incarnation, name_bytes = _HELLO.unpack_from(body)
    if magic != MAGIC:
        raise ProtocolViolation("not an Overlane broker: wrong magic number")
    if version != VERSION:
        raise ProtocolViolation(f"speaks version {version} of the overlay protocol; this broker speaks {VERSION}")
    name = bytes(body[_HELLO.size :])
    if len(name) != name_bytes or not 0 < name_bytes <= NAME_BYTES_MAX:
        raise ProtocolViolation("a greeting whose name has not the length it says")
    try:
        return Hello(name.decode(), incarnation)
    except UnicodeDecodeError:
        raise ProtocolViolation("a greeting whose name is not UTF-8") from None


def read_token(body: memoryview) -> int:
    if len(body) != _TOKEN.size:
        raise ProtocolViolation("a ping or pong of the wrong size")
    return int(_TOKEN.unpack(body)[0])


def read_notice(body: memoryview) -> Notice:
    if len(body) != _NOTICE.size:
        raise ProtocolViolation("a notice of the wrong size")
    highest, delay, earlier = _NOTICE.unpack(body)
    return Notice(highest, delay << 4, earlier)


def read_control(body: memoryview) -> tuple[int, memoryview]:
    if len(body) < _TOKEN.size:
        raise ProtocolViolation("a truncated control frame")
    return int(_TOKEN.unpack_from(body)[0]), body[_TOKEN.size :]


def read_parcel(body: memoryview, latency_us: int = 0) -> tuple[Header, memoryview]:
    """The header, older by the latency of the link that the parcel came over, and the rest."""
    if len(body) < _HEADER_BYTES:
        raise ProtocolViolation("a truncated parcel")
    read = _unpack_header(body)
    if not read[_MESSAGES]:
        raise ProtocolViolation("a parcel without messages")
    age_us = read[_AGE] + latency_us
    if age_us > AGE_US_MAX:
        age_us = AGE_US_MAX
    # As Header(...) does, without taking all apart and naming it again: every hop does this for every parcel.
    header = _new_tuple(Header, (*read[:_AGE], age_us, *read[_AGE + 1 :]))
    return header, body[_HEADER_BYTES:]


def read_detour(body: memoryview) -> Detour:
    if len(body) < _DETOUR.size:
        raise ProtocolViolation("a truncated detour")
    count, position = _DETOUR.unpack_from(body)
    end = _DETOUR.size + 8 * count
    if not 0 < count <= HOPS_MAX or position >= count or len(body) < end:
        raise ProtocolViolation(f"a detour at hop {position} of {count}; allowed are at most {HOPS_MAX}")
    hops = struct.unpack_from(f"!{count}Q", body, _DETOUR.size)
    if len(set(hops)) != count:
        raise ProtocolViolation("a detour that passes a broker twice")
    return Detour(hops, position, body[end:])


def _frame(kind: FrameType, body: bytes) -> bytes:
    return _FRAME.pack(1 + len(body), kind) + body
