"""Control messages between brokers, as typed values; their bytes are msgpack inside CONTROL frames.

The decoder checks types and limits before anything else of a message is looked at.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from overlane.core.wire import NAME_BYTES_MAX
from overlane.errors import ProtocolViolation

BROKERS_MAX = 4096
LINKS_MAX = 65536
REASON_LENGTH_MAX = 256
BEHIND_MAX = 64
BEHIND_PERCENT_MAX = 1000
PROOF_BYTES_MAX = 16384

Name = Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Filters = Annotated[list[Annotated[str, Meta(min_length=1, max_length=65535)]], Meta(max_length=1 << 20)]
Places = Annotated[list[Annotated[int, Meta(ge=0, lt=BROKERS_MAX)]], Meta(max_length=2 * LINKS_MAX)]
"""Indices into a list of brokers."""
U32 = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
"""What parcels carry."""
Millionths = Annotated[int, Meta(ge=0, le=1_000_000)]


class LinkClaim(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a broker says of one of its own links, in the direction away from it."""

    peer: Name
    latency_us: Annotated[int, Meta(ge=0, lt=1 << 40)]
    jitter_us: Annotated[int, Meta(ge=0, lt=1 << 40)]
    loss_millionths: Millionths
    risk_millionths: Millionths
    """How likely the link is in trouble at any time, from its recent past and from what was configured."""
    state: Annotated[int, Meta(ge=0, le=3)]
    swing_us: Annotated[int, Meta(ge=0, lt=1 << 40)] = 0
    """By how much its latency rose at once, lately."""


class Advert(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """All the links of one broker; the newest by (incarnation, sequence) wins."""

    broker: Name
    incarnation: Count
    sequence: Count
    links: Annotated[list[LinkClaim], Meta(max_length=BROKERS_MAX)]
    processing_us: Annotated[dict[str, Count], Meta(max_length=256)]
    """Measured processing latency (matching and queueing) per QoS class, by the class's label."""
    failure_millionths: Millionths
    left: bool = False


class Interest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """A change of the topic filters a broker needs, from one sequence number to the next; base -1 tells all of them."""

    broker: Name
    incarnation: Count
    sequence: Count
    base: Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]
    added: Filters
    removed: Filters
    part: Count = 0
    parts: Annotated[int, Meta(ge=1, le=256)] = 1
    """A change too large for a frame comes in parts, one after the other."""


class InterestWanted(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """A gap was noticed: tell me all that this broker needs."""

    broker: Name


class Known(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    broker: Name
    advert: tuple[Count, Count]
    interest: tuple[Count, Count]


class Summary(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    """What a new neighbour knows, by (incarnation, sequence); it is sent whatever is newer."""

    known: Annotated[list[Known], Meta(max_length=BROKERS_MAX)]


class Establish(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5):
    """RT_EST: a version of a route. Links are pairs of places in `brokers`; `obsolete` were in the version before."""

    origin: Name
    incarnation: U32
    route: U32
    version: Annotated[int, Meta(ge=0, le=0xFFFF)]
    brokers: Annotated[list[Name], Meta(max_length=BROKERS_MAX)]
    kept: Places
    added: Places
    obsolete: Places
    destinations: Places
    ahead_us: Annotated[list[Count], Meta(max_length=BROKERS_MAX)]
    """Per broker, the latency still to go to its farthest destination."""
    deadline_us: U32
    latency_us: Count
    hops: Count
    refresh: Count = 0
    """Grows each time the source tells the same version again; each is passed on once."""


class Established(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=6):
    """The acknowledgement, from the leaves back."""

    origin: Name
    incarnation: Count
    route: Count
    version: Annotated[int, Meta(ge=0, le=0xFFFF)]


class Teardown(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=7):
    origin: Name
    incarnation: Count
    route: Count


class Receipt(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=8):
    """End to end: of this flow, all below `next` and those with a bit set in `beyond` (bit i = next+1+i) have come.

    Those in `held` (bit i = next+i) are there, but not taken yet: they need not be sent again, and may be forgotten.
    `behind` names topics whose readers do not keep up, and how full their queues are, in per cent.
    """

    to: Name
    sender: Name
    hops_left: Annotated[int, Meta(ge=0, le=255)]
    incarnation: Count
    flow: Count
    next: Count
    beyond: Annotated[bytes, Meta(max_length=1024)]
    held: Annotated[bytes, Meta(max_length=1024)] = b""
    behind: Annotated[
        dict[Annotated[str, Meta(max_length=65535)], Annotated[int, Meta(ge=0, le=BEHIND_PERCENT_MAX)]],
        Meta(max_length=BEHIND_MAX),
    ] = {}


class Farewell(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=9):
    """The last frame before a link is closed on purpose: why."""

    reason: Annotated[str, Meta(max_length=REASON_LENGTH_MAX)]


class Birth(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=10):
    """A life of a broker, and the proof of it, where brokers have such; ahead of all that it says in that life."""

    broker: Name
    incarnation: U32
    proof: Annotated[bytes, Meta(min_length=1, max_length=PROOF_BYTES_MAX)]


class Proven(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=11):
    """Of whom which life is proven to a new neighbour; it is sent the births that it lacks."""

    lives: Annotated[dict[Name, U32], Meta(max_length=BROKERS_MAX)]


Message = (
    Advert
    | Interest
    | InterestWanted
    | Summary
    | Establish
    | Established
    | Teardown
    | Receipt
    | Farewell
    | Birth
    | Proven
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def check(message: Message) -> Message:
    """What the types alone cannot refuse."""
    match message:
        case Advert(broker=broker, links=links):
            peers = {link.peer for link in links}
            if broker in peers or len(peers) < len(links):
                raise ProtocolViolation(f"an advert of {broker} with a link to itself, or with a link twice")
        case Establish(brokers=brokers, destinations=destinations, ahead_us=ahead):
            places = [*message.kept, *message.added, *message.obsolete, *destinations]
            if any(len(ends) % 2 for ends in (message.kept, message.added, message.obsolete)):
                raise ProtocolViolation("a route with half a link")
            if max(places, default=0) >= len(brokers) or len(ahead) != len(brokers):
                raise ProtocolViolation("a route over brokers it does not name")
            if len(set(brokers)) < len(brokers) or message.origin not in brokers:
                raise ProtocolViolation("a route that names a broker twice, or not its own source")
        case _:
            pass
    return message


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode(data: memoryview) -> Message:
    try:
        return check(_decoder.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise ProtocolViolation(f"a control message that is not one: {wrong}") from None
