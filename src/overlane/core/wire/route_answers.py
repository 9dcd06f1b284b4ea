"""Answers on routes: frames that return to the source of a route, from neighbour to neighbour against its links.

    ESTABLISHED   route                                       a version of a route is known to the sender and behind it
    CONFIRMATION  route | ends | sequence | age (16 us)       this parcel came to a destination over that last hop
    RECEIPT       route | ends | flow | next | beyond         as the control message, of what came on the route

`route` names its version by the number of the description on this connection (described_routes.py), or by 0 and the key
that parcels carry. `ends` are the destination and the last hop, by their places in the brokers of the description:
twice the destination where the last hop is the place before; otherwise that plus one, and the last hop. All but the key
and `beyond` are numbers in as many bytes as they need (varint.py).

A broker that does not know the route any more drops an answer.
"""

from typing import NamedTuple

from overlane.core.wire import varint
from overlane.core.wire.frame_codec import (
    AGE_US_MAX,
    KEY_BYTES,
    PLACE_MAX,
    SEQUENCE_MAX,
    FrameType,
    frame,
)
from overlane.errors import ProtocolViolation

NUMBER_MAX = (1 << 32) - 1
BEYOND_BYTES_MAX = 1024
AGE_UNIT_BITS = 4


class WayBack(NamedTuple):
    """The way to the source of a route, against the path that a parcel took."""

    key: bytes
    """Of the version of the route that the parcel was on."""
    destination: int
    last_hop: int
    """Places in the brokers of the route's description."""


class Confirmation(NamedTuple):
    key: bytes
    destination: int
    last_hop: int
    sequence: int
    age_us: int


class RouteReceipt(NamedTuple):
    key: bytes
    destination: int
    last_hop: int
    flow: int
    next: int
    beyond: bytes


Answer = Confirmation | RouteReceipt


class Answered(NamedTuple):
    """An answer as it comes: the key of its route is empty where there is a number."""

    number: int
    answer: Answer


def established(key: bytes, number: int = 0) -> bytes:
    return frame(FrameType.ESTABLISHED, _route(key, number))


def encode(answer: Answer, number: int = 0) -> bytes:
    """`number`: of its route on the connection that it is sent over; 0 if it has none."""
    route = _route(answer.key, number)
    ends = _ends(answer.destination, answer.last_hop)
    if isinstance(answer, Confirmation):
        numbers = varint.packed((*ends, answer.sequence, answer.age_us >> AGE_UNIT_BITS))
        return frame(FrameType.CONFIRMATION, route + numbers)
    return frame(FrameType.RECEIPT, route + varint.packed((*ends, answer.flow, answer.next)) + answer.beyond)


def _route(key: bytes, number: int) -> bytes:
    return varint.packed((number,)) if number else b"\0" + key


def _ends(destination: int, last_hop: int) -> tuple[int, ...]:
    return (2 * destination,) if last_hop == destination - 1 else (2 * destination + 1, last_hop)


def read_established(body: memoryview) -> tuple[int, bytes]:
    """The number of the route, or 0 and its key."""
    number, key, rest = _read_route(body)
    if len(rest):
        raise ProtocolViolation("an acknowledgement of a route of the wrong size")
    return number, key


def read_answer(kind: int, body: memoryview) -> Answered:
    """A CONFIRMATION or RECEIPT."""
    number, key, rest = _read_route(body)
    destination, last_hop, rest = _read_ends(rest)
    if kind == FrameType.CONFIRMATION:
        sequence, age = varint.unpacked(rest, (SEQUENCE_MAX, AGE_US_MAX >> AGE_UNIT_BITS), "a confirmation")
        return Answered(number, Confirmation(key, destination, last_hop, sequence, age << AGE_UNIT_BITS))
    (flow, following), rest = varint.first_of(rest, (varint.NUMBER_MAX, varint.NUMBER_MAX), "a receipt on a route")
    if len(rest) > BEYOND_BYTES_MAX:
        raise ProtocolViolation("a receipt on a route of the wrong size")
    return Answered(number, RouteReceipt(key, destination, last_hop, flow, following, bytes(rest)))


def _read_route(body: memoryview) -> tuple[int, bytes, memoryview]:
    (number,), rest = varint.first_of(body, (NUMBER_MAX,), "an answer on a route")
    if number:
        return number, b"", rest
    if len(rest) < KEY_BYTES:
        raise ProtocolViolation("a truncated answer on a route")
    return 0, bytes(rest[:KEY_BYTES]), rest[KEY_BYTES:]


def _read_ends(body: memoryview) -> tuple[int, int, memoryview]:
    (told,), rest = varint.first_of(body, (2 * PLACE_MAX + 1,), "an answer on a route")
    destination = told >> 1
    if told & 1:
        (last_hop,), rest = varint.first_of(rest, (PLACE_MAX,), "an answer on a route")
        return destination, last_hop, rest
    if not destination:
        raise ProtocolViolation("an answer on a route from before its first broker")
    return destination, destination - 1, rest
