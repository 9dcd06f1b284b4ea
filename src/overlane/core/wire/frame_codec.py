"""Bytes between brokers: every frame's layout, and every limit, in one place.

A frame is a length, a type and a body. Numbers are big-endian.

     0           4      5
    +-----------+------+---------------------+
    | length    | type | body                |     length counts type and body
    +-----------+------+---------------------+

    HELLO     magic "OVLN" | version u8 | incarnation u32 | instance u64 | tier u8 | name length u8 | name
    PING      token u32
    PONG      token u32
    HOP_ACK   highest u32 | delay u16 (16 us) | missing       hop acknowledgement; bit i of missing: highest-1-i has not
              come; at most 8 bytes, little-endian, zero bytes at the end left out
    CONTROL   sequence u32 | message (msgpack, see control_messages.py)
    CONFIRMATION, ESTABLISHED, RECEIPT    answers to the source of a route (route_answers.py)
    PARCEL    the header below | end-to-end part (parcel.py)
    ROUTE     an Establish message (msgpack), ahead of a parcel whose receiver may not have been told of its route
    DETOUR    hops u8 | this hop u8 | ids u64 x hops | the long header below | end-to-end part
    FRAGMENT  a part of one of the last three (fragments.py)

    PARCEL header, rewritten by each hop (age, hop sequence) while the rest passes untouched:

     0        4      5       6     12         18       22         24
    +--------+------+-------+-----+----------+--------+----------+ - - - - - - - + - - - - - +
    | length | type | flags | key | sequence | age us | messages | deadline us   | hop       |
    +--------+------+-------+-----+----------+--------+----------+ - - - - - - - + - - - - - +
                                                                  OWN_DEADLINE    WATCHED       each u32, if flagged

    The key stands for origin, incarnation, route and version: six bytes of a hash of them, so that every broker that
    has been told of the route knows the key too. A deadline that is the route's is not repeated.

    Long header, of a parcel that follows no route:

    +-------+---------+--------+-------------+----------+-------+--------+-------------+----------+-----+
    | flags | version | origin | incarnation | sequence | route | age us | deadline us | messages | hop |
    | u8    | u16     | u64    | u32         | u64      | u32   | u32    | u32         | u32      | u32 |
    +-------+---------+--------+-------------+----------+-------+--------+-------------+----------+-----+

    Without a route, version 1 stands for encrypted links only.

The first frame of a connection is a HELLO. CONTROL frames are numbered from 0 on each connection, so that a frame
that was replayed, lost or inserted is detected. Any other frame is a protocol violation: the link of its sender is
closed.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from overlane.errors import ProtocolViolation

MAGIC = b"OVLN"
VERSION = 6
NAME_BYTES_MAX = 64
TIER_MAX = 2
FRAME_BYTES_MAX = (1 << 20) + (1 << 16)
"""The largest message, and what stands in front of it."""
HOPS_MAX = 64
AGE_US_MAX = (1 << 32) - 1
MESSAGES_MAX = (1 << 16) - 1
SEQUENCE_MAX = (1 << 48) - 1
PLACE_MAX = (1 << 16) - 1
KEYS_REMEMBERED = 10_000
KEY_BYTES = 6


class FrameType(IntEnum):
    HELLO = 1
    PING = 2
    PONG = 3
    HOP_ACK = 4
    CONTROL = 5
    PARCEL = 6
    DETOUR = 7
    ROUTE = 8
    CONFIRMATION = 9
    ESTABLISHED = 10
    FRAGMENT = 11
    RECEIPT = 12


class ParcelFlag(IntFlag):
    RELIABLE = 1
    ACK_REQUESTED = 2
    """The receiver answers with a HOP_ACK, soon."""
    ACK_AT_ONCE = 4
    """The receiver answers with a HOP_ACK at once."""
    HISTORY = 8
    """Messages of the past, for a subscriber that came late."""
    REPAIR = 16
    """Hops may send it again, or around, while it can still be in time."""
    DIRECT = 32
    """On a detour: to be delivered at its end, regardless of the route."""
    OWN_DEADLINE = 64
    """Another one than its route's."""
    CONFIRM = 128
    """Its destinations confirm its arrival to the source, with the last hop (path_trust.py)."""


_FRAME = struct.Struct("!IB")
_HELLO = struct.Struct("!4sBIQBB")
_TOKEN = struct.Struct("!I")
_HOP_ACK = struct.Struct("!IH")
_HEADER = struct.Struct("!BHQIQIIIII")
_PARCEL = struct.Struct("!IBB6sHIIH")
_PARCEL_BODY = struct.Struct("!B6sHIIH")
_ROUTE_NAME = struct.Struct("!QQQH")
_DETOUR = struct.Struct("!BB")
_IDENTITY = struct.Struct("!Q")

FRAME_OVERHEAD = _FRAME.size
CONTENT_BYTES_MAX = FRAME_BYTES_MAX - 1 - _DETOUR.size - 8 * HOPS_MAX - _HEADER.size
"""The end-to-end part of a parcel, whatever way it goes."""
PARCEL_BYTES = _PARCEL.size
"""What the frame of a plain parcel has ahead of the end-to-end part."""
unpack_parcel = _PARCEL.unpack_from
"""Length, type, flags, key, the upper 16 and the lower 32 bits of the sequence, age, messages."""
_AGE_AT = 18
_AGE_END = _AGE_AT + 4
_AGE_IN_HEADER = 27
_U32 = struct.Struct("!I")
_pack_u32 = _U32.pack
_HEADER_BYTES = _HEADER.size
_PARCEL_BODY_BYTES = _PARCEL_BODY.size
_HOP_ACK_BYTES = _HOP_ACK.size
_EARLIER_MASK = (1 << 64) - 1
_OWN_DEADLINE = int(ParcelFlag.OWN_DEADLINE)
_ACK_REQUESTED = int(ParcelFlag.ACK_REQUESTED)
_EXTRAS = _OWN_DEADLINE | _ACK_REQUESTED
_PARCEL_TYPE = int(FrameType.PARCEL)
_DETOUR_TYPE = int(FrameType.DETOUR)
_ROUTE_TYPE = int(FrameType.ROUTE)
_FRAGMENT_TYPE = int(FrameType.FRAGMENT)
_ANSWERS = (int(FrameType.PONG), int(FrameType.HOP_ACK))


def broker_id(name: str) -> int:
    """A broker's name in the eight bytes that parcels carry."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest())


ENCRYPTED_ONLY = 1
"""The version in the header of a parcel that follows no route, and may take encrypted links only."""


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


def needs_encryption(header: Header) -> bool:
    """Of a parcel that follows no route: a route says so itself."""
    return not header.route and header.version == ENCRYPTED_ONLY


class RouteName(NamedTuple):
    """The header fields that follow from the version of a route."""

    version: int
    origin: int
    incarnation: int
    route: int
    deadline_us: int


NO_ROUTE = RouteName(0, 0, 0, 0, 0)

_AGE = Header._fields.index("age_us")
_MESSAGES = Header._fields.index("messages")
_SEQUENCE = Header._fields.index("sequence")
_new_tuple = tuple.__new__


@dataclass(frozen=True, slots=True)
class Hello:
    name: str
    incarnation: int
    instance: int = 0
    """Identifies the broker's store, through all its incarnations; 0 if unknown."""
    tier: int = 0
    """0 for a plain broker, 1 for an edge, 2 for a routing broker."""


class HopAck(NamedTuple):
    highest: int
    delay_us: int
    earlier: int


class Detour(NamedTuple):
    """A parcel that carries its own path: the ids of the brokers to pass, the last being where it is going."""

    hops: tuple[int, ...]
    position: int
    parcel: "memoryview"  # quoted: compiled modules cannot evaluate it


@lru_cache(maxsize=KEYS_REMEMBERED)
def route_key(origin: int, incarnation: int, route: int, version: int) -> bytes:
    """What parcels on a version of a route carry in its place."""
    return blake2b(_ROUTE_NAME.pack(origin, incarnation, route, version), digest_size=KEY_BYTES).digest()


def hello(name: str, incarnation: int, instance: int = 0, tier: int = 0) -> bytes:
    encoded = name.encode()
    if not 0 < len(encoded) <= NAME_BYTES_MAX:
        raise ValueError(f"a broker's name has 1 to {NAME_BYTES_MAX} bytes, not {len(encoded)}")
    return frame(FrameType.HELLO, _HELLO.pack(MAGIC, VERSION, incarnation, instance, tier, len(encoded)) + encoded)


def ping(token: int) -> bytes:
    return frame(FrameType.PING, _TOKEN.pack(token))


def pong(token: int) -> bytes:
    return frame(FrameType.PONG, _TOKEN.pack(token))


def hop_ack(highest: int, delay_us: int, earlier: int) -> bytes:
    missing = (~earlier & _EARLIER_MASK).to_bytes(8, "little").rstrip(b"\0")
    return frame(FrameType.HOP_ACK, _HOP_ACK.pack(highest, min(delay_us >> 4, 0xFFFF)) + missing)


def control(sequence: int, message: bytes) -> bytes:
    if len(message) + 5 > FRAME_BYTES_MAX:
        raise ValueError(f"a control message of {len(message)} bytes does not fit a frame of {FRAME_BYTES_MAX}")
    return frame(FrameType.CONTROL, _TOKEN.pack(sequence) + message)


def route(message: bytes) -> bytes:
    if len(message) + 1 > FRAME_BYTES_MAX:
        return b""  # without it a parcel is dropped where its route is not known yet
    return frame(FrameType.ROUTE, message)


def parcel(
    header: Header, rest: bytes | memoryview, age_us: int | None = None, hop_sequence: int | None = None
) -> bytes:
    """With a greater age, and with the hop sequence if one is given."""
    flags, version, origin, incarnation, sequence, route, age, deadline_us, messages, hop = header
    extras = b""
    if flags & _EXTRAS:
        if flags & _OWN_DEADLINE:
            extras = _U32.pack(deadline_us)
        if flags & _ACK_REQUESTED:
            extras += _U32.pack(hop if hop_sequence is None else hop_sequence)
    head = _PARCEL.pack(
        1 + _PARCEL_BODY_BYTES + len(extras) + len(rest),
        _PARCEL_TYPE,
        flags,
        route_key(origin, incarnation, route, version),
        sequence >> 32,
        sequence & 0xFFFFFFFF,
        age if age_us is None else age_us,
        messages,
    )
    return b"".join((head, extras, rest))


def is_urgent(chunk: bytes) -> bool:
    """Whether a chunk of the DATA lane is worth more soon than surely: probes, answers, and parcels with a deadline."""
    kind = chunk[4]
    if kind == _PARCEL_TYPE:
        return bool(chunk[5] & _ACK_REQUESTED)
    if kind == _ROUTE_TYPE:  # the parcel behind it decides
        return is_urgent(chunk[4 + int(_U32.unpack_from(chunk)[0]) :])
    if kind == _FRAGMENT_TYPE:
        return False
    return kind != _DETOUR_TYPE or bool(chunk[5 + _DETOUR.size + 8 * chunk[5]] & _ACK_REQUESTED)


def carries_parcel(chunk: bytes) -> bool:
    """Whether a chunk of the DATA lane has a parcel in it: all but probes and answers."""
    return chunk[4] in (_PARCEL_TYPE, _ROUTE_TYPE, _DETOUR_TYPE, _FRAGMENT_TYPE)


def older(chunk: bytes, by_us: int) -> bytes:
    """A chunk of the DATA lane with its parcel, if it has one, older by so much."""
    kind = chunk[4]
    if kind == _PARCEL_TYPE:
        at = _AGE_AT
    elif kind == _ROUTE_TYPE:  # ahead of the parcel that needs it
        at = 4 + int(_U32.unpack_from(chunk)[0]) + _AGE_AT
    elif kind == _DETOUR_TYPE:
        at = 5 + _DETOUR.size + 8 * chunk[5] + _AGE_IN_HEADER
    else:
        return chunk
    age_us = min(AGE_US_MAX, int(_U32.unpack_from(chunk, at)[0]) + by_us)
    return b"".join((chunk[:at], _U32.pack(age_us), chunk[at + 4 :]))


def is_answer(chunk: bytes) -> bool:
    """Whether it only answers what the neighbour has sent."""
    return chunk[4] in _ANSWERS


def aged(frame: bytes, age_us: int) -> bytes:
    """A parcel frame with another age."""
    return frame[:_AGE_AT] + _pack_u32(age_us) + frame[_AGE_END:]


def detour(hops: tuple[int, ...], position: int, header: Header, rest: bytes | memoryview) -> bytes:
    path = b"".join(map(_IDENTITY.pack, hops))
    size = 1 + _DETOUR.size + len(path) + _HEADER.size + len(rest)
    return b"".join(
        (_FRAME.pack(size, _DETOUR_TYPE), _DETOUR.pack(len(hops), position), path, _HEADER.pack(*header), rest)
    )


def parcel_size(flags: int, rest: bytes | memoryview) -> int:
    extras = 4 * bool(flags & _OWN_DEADLINE) + 4 * bool(flags & _ACK_REQUESTED) if flags & _EXTRAS else 0
    return PARCEL_BYTES + extras + len(rest)


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
    if len(body) <= len(MAGIC):
        raise ProtocolViolation("a truncated greeting")
    if body[: len(MAGIC)] != MAGIC:
        raise ProtocolViolation("not an Overlane broker: wrong magic number")
    if (version := body[len(MAGIC)]) != VERSION:
        raise ProtocolViolation(f"speaks version {version} of the overlay protocol; this broker speaks {VERSION}")
    if len(body) < _HELLO.size:
        raise ProtocolViolation("a truncated greeting")
    _, _, incarnation, instance, tier, name_bytes = _HELLO.unpack_from(body)
    if tier > TIER_MAX:
        raise ProtocolViolation(f"a greeting of an unknown tier {tier}")
    name = bytes(body[_HELLO.size :])
    if len(name) != name_bytes or not 0 < name_bytes <= NAME_BYTES_MAX:
        raise ProtocolViolation("a greeting whose name has not the length it says")
    try:
        return Hello(name.decode(), incarnation, instance, tier)
    except UnicodeDecodeError:
        raise ProtocolViolation("a greeting whose name is not UTF-8") from None


def read_token(body: memoryview) -> int:
    if len(body) != _TOKEN.size:
        raise ProtocolViolation("a ping or pong of the wrong size")
    return int(_TOKEN.unpack(body)[0])


def read_hop_ack(body: memoryview) -> HopAck:
    if not _HOP_ACK_BYTES <= len(body) <= _HOP_ACK_BYTES + 8:
        raise ProtocolViolation("a hop acknowledgement of the wrong size")
    highest, delay = _HOP_ACK.unpack_from(body)
    missing = int.from_bytes(body[_HOP_ACK_BYTES:], "little")
    return HopAck(highest, delay << 4, ~missing & _EARLIER_MASK)


def read_control(body: memoryview) -> tuple[int, memoryview]:
    if len(body) < _TOKEN.size:
        raise ProtocolViolation("a truncated control frame")
    return int(_TOKEN.unpack_from(body)[0]), body[_TOKEN.size :]


def key_of(body: memoryview) -> bytes:
    """Of the route that a parcel is on."""
    return bytes(body[1:7])


def read_parcel(body: memoryview, name: RouteName, latency_us: int = 0) -> tuple[Header, memoryview]:
    """The header, older by the latency of the link that the parcel came over, and the rest. Its key means `name`."""
    if len(body) < _PARCEL_BODY_BYTES:
        raise ProtocolViolation("a truncated parcel")
    flags, _, high, low, age_us, messages = _PARCEL_BODY.unpack_from(body)
    if not messages:
        raise ProtocolViolation("a parcel without messages")
    version, origin, incarnation, route, deadline_us = name
    position, hop = _PARCEL_BODY_BYTES, 0
    if flags & _EXTRAS:
        try:
            if flags & _OWN_DEADLINE:
                (deadline_us,) = _U32.unpack_from(body, position)
                position += 4
            if flags & _ACK_REQUESTED:
                (hop,) = _U32.unpack_from(body, position)
                position += 4
        except struct.error:
            raise ProtocolViolation("a truncated parcel") from None
    age_us += latency_us
    if age_us > AGE_US_MAX:
        age_us = AGE_US_MAX
    sequence = high << 32 | low
    # As Header(...) does, without naming it all again: every hop does this for every parcel.
    header = _new_tuple(
        Header, (flags, version, origin, incarnation, sequence, route, age_us, deadline_us, messages, hop)
    )
    return header, body[position:]


def read_long(body: memoryview, latency_us: int = 0) -> tuple[Header, memoryview]:
    """As `read_parcel`, of a parcel that follows no route."""
    if len(body) < _HEADER_BYTES:
        raise ProtocolViolation("a truncated parcel")
    read = _HEADER.unpack_from(body)
    if not 0 < read[_MESSAGES] <= MESSAGES_MAX or read[_SEQUENCE] > SEQUENCE_MAX:
        raise ProtocolViolation("a parcel without messages, or with a number that nobody gives")
    age_us = read[_AGE] + latency_us
    if age_us > AGE_US_MAX:
        age_us = AGE_US_MAX
    return Header(*read)._replace(age_us=age_us), body[_HEADER_BYTES:]


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


def frame(kind: FrameType, body: bytes) -> bytes:
    return _FRAME.pack(1 + len(body), kind) + body
