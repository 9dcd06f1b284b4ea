"""Control messages between brokers, as typed values; their bytes are msgpack inside CONTROL frames.

The decoder checks types and limits before anything else of a message is looked at. Names of brokers and topic filters
are well formed behind it: they become keys of records and parts of topics.

What is flooded comes from several neighbours and goes to several: equal bytes are decoded and checked once, a message
is encoded once. Messages are therefore shared, and nobody changes one. What is remembered for that is bounded.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Annotated, assert_never

import msgspec
from msgspec import Meta

from overlane.core.limits import LABELS_MAX, TOPIC_BYTES_MAX
from overlane.core.topics import BadTopic, check_filter, check_topic
from overlane.core.wire.frame_codec import HOPS_MAX, NAME_BYTES_MAX
from overlane.core.wire.message_fields import (
    BEHIND_MAX,
    BEHIND_PERCENT_MAX,
    BROKERS_MAX,
    CLAIMED_US_MAX,
    LIFETIME_S,
    LIFETIME_S_MAX,
    NEIGHBOUR_BYTES_MAX,
    PAGE_MAX,
    PROOF_BYTES_MAX,
    REASON_LENGTH_MAX,
    RECEIPT_HOPS_MAX,
    U32,
    Bound,
    BundleSet,
    Count,
    Filters,
    Groups,
    Label,
    Millionths,
    Name,
    OptionalName,
    Places,
    RouteVersions,
    Version,
)
from overlane.errors import OverlaneError, ProtocolViolation

REMEMBERED = 1024
REMEMBERED_BYTES_MAX = 1024
"""How many messages are remembered with their bytes, and how large they may be."""

NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_BYTES_MAX - 1}}}")
"""As in the network file."""
NAMES_CHECKED = 4096
"""How many names that were found well formed are remembered."""


class LinkClaim(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The claim of a broker about one of its own links, in the direction away from it."""

    peer: Name
    latency_us: Annotated[int, Meta(ge=0, le=CLAIMED_US_MAX)]
    jitter_us: Annotated[int, Meta(ge=0, le=CLAIMED_US_MAX)]
    loss_millionths: Millionths
    risk_millionths: Millionths
    """How likely the link is in trouble at any time, from its recent past and from what was configured."""
    state: Annotated[int, Meta(ge=0, le=3)]
    swing_us: Annotated[int, Meta(ge=0, le=CLAIMED_US_MAX)] = 0
    """By how much its latency rose at once, lately."""
    encrypted: bool = False
    """Whether nobody but its ends can read what passes."""


class Advert(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """All the links of one broker; the newest by (incarnation, sequence) wins."""

    broker: Name
    incarnation: U32
    sequence: Count
    links: Annotated[list[LinkClaim], Meta(max_length=BROKERS_MAX)]
    processing_us: Annotated[dict[Label, Count], Meta(max_length=LABELS_MAX)]
    """Measured processing latency (matching and queueing) per QoS class, by the class's label."""
    failure_millionths: Millionths
    left: bool = False
    instance: Count = 0
    """Distinguishes brokers with the same name; 0 if unknown."""
    lifetime_s: Annotated[int, Meta(ge=1, le=LIFETIME_S_MAX)] = LIFETIME_S
    """How long it is valid after it was received: it is repeated well before."""


class InterestUpdate(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """A change of the topic filters a broker needs, from one sequence number to the next; base -1 tells all of them.

    All of them may come in parts, one after the other. A message whose base is its sequence number brings nothing but
    that number.
    """

    broker: Name
    incarnation: U32
    sequence: Count
    base: Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]
    added: Filters
    removed: Filters
    part: Count = 0
    more: bool = False
    """Whether another part follows."""


class InterestRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """A gap was detected: request the complete interest of this broker."""

    broker: Name


class KnownVersions(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    broker: Name
    advert: tuple[U32, Count]
    interest: tuple[U32, Count]


class GossipSummary(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    """What a new neighbour knows, by (incarnation, sequence); it is sent whatever is newer.

    It comes in pages. Each is of the brokers whose names are greater than `after` and no greater than `until`, where
    these are not empty.
    """

    known: Annotated[list[KnownVersions], Meta(max_length=PAGE_MAX)]
    after: Bound = ""
    until: Bound = ""


class Establish(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5):
    """RT_EST: a version of a route. Links are pairs of places in `brokers`; `obsolete` were in the version before.

    Brokers that do not concern the receiver have empty names.
    """

    origin: Name
    incarnation: U32
    route: U32
    version: Version
    brokers: Annotated[list[OptionalName], Meta(max_length=BROKERS_MAX)]
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
    """Grows each time the source describes the same version again, since it was not acknowledged; each is passed on
    once."""
    confined: bool = False
    """Whether parcels may take no other links than these: hops send them again, but not around."""
    encrypted: bool = False
    """Whether they may take encrypted links only."""
    shared: bool = False
    """Whether destinations drop what they have not asked for."""


class EstablishReserved(Establish, frozen=True, array_like=True, forbid_unknown_fields=True, tag=22):
    """RT_EST of a route whose parcels belong to a reserved flow of its origin."""

    reservation: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0


class NumberedEstablish(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=23):
    """As Establish, with brokers by the numbers that they have on this connection (name_table.py)."""

    names: Annotated[list[Name], Meta(max_length=BROKERS_MAX)]
    """Those that were not named before on this connection: they have the next numbers, from 1 on."""
    body: Annotated[bytes, Meta(min_length=1)]
    """Everything else, as numbers (route_packing.py)."""


class Teardown(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=7):
    origin: Name
    incarnation: U32
    route: Count


class RouteRefresh(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=13):
    """Routes of a source that go on as they are, with their versions."""

    origin: Name
    incarnation: U32
    refresh: Count
    """Grows with each refresh; each is passed on once."""
    routes: RouteVersions


class RouteRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=14):
    """Of a refresh, what its receiver does not know: it is to be described."""

    origin: Name
    incarnation: U32
    routes: RouteVersions


class Receipt(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=8):
    """End to end: of this flow, all below `next` and those with a bit set in `beyond` (bit i = next+1+i) have come.

    Those in `held` (bit i = next+i) are there, but not taken yet: they need not be sent again, and may be forgotten.
    `behind` names topics whose readers do not keep up, and how full their queues are, in per cent.

    With `heard` it acknowledges nothing, but confirms that the parcel of this number has come: over which last hop, and
    how old. On a route that is done by a CONFIRMATION frame (frame_codec.py), as long as the way back is not broken.

    It takes `path`, the brokers still to pass, the last of which it is for; without one, or where that is broken, every
    broker sends it the quickest way. A path that is the quickest is not named.
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
        dict[Annotated[str, Meta(max_length=TOPIC_BYTES_MAX)], Annotated[int, Meta(ge=0, le=BEHIND_PERCENT_MAX)]],
        Meta(max_length=BEHIND_MAX),
    ] = {}
    path: Annotated[list[Name], Meta(max_length=HOPS_MAX)] = []
    heard: Count = 0
    came_from: Annotated[str, Meta(max_length=NAME_BYTES_MAX)] = ""
    age_us: Count = 0


def arrived(
    to: str, incarnation: int, sender: str, came_from: str, number: int, age_us: int, path: list[str] | None = None
) -> Receipt:
    """The confirmation of a parcel that came on no route, or whose way back is broken."""
    beyond = b""
    return Receipt(
        to,
        sender,
        RECEIPT_HOPS_MAX,
        incarnation,
        0,
        0,
        beyond,
        path=path or [],
        heard=number,
        came_from=came_from,
        age_us=age_us,
    )


class Farewell(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=9):
    """The last frame before a link is closed on purpose: why."""

    reason: Annotated[str, Meta(max_length=REASON_LENGTH_MAX)]
    is_name_taken: bool = False
    """Whether another broker that has the same name is linked with already."""


class Namesake(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=12):
    """To a neighbour: another broker with its name wanted to link with us, and was refused."""

    detail: Annotated[str, Meta(max_length=REASON_LENGTH_MAX)]


class IncarnationProof(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=10):
    """An incarnation of a broker, and the proof of it; sent before everything else in that incarnation."""

    broker: Name
    incarnation: U32
    proof: Annotated[bytes, Meta(min_length=1, max_length=PROOF_BYTES_MAX)]


class ProvenIncarnations(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=11):
    """Which incarnations are proven to a new neighbour; it is sent the proofs that it lacks. In pages, as a summary."""

    incarnations: Annotated[dict[Name, U32], Meta(max_length=PAGE_MAX)]
    after: Bound = ""
    until: Bound = ""


class ScopedInterest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=15):
    """Between an edge and a routing broker: a change of what the sender tells this neighbour of a broker's filters.

    Each connection begins with nothing told. `covers`: the bundles for which the sender has that broker's word.
    `renewed`: the broker began to need `added` lately, perhaps after a time without; whoever knows these filters from
    an earlier connection treats them as new.
    """

    broker: Name
    covers: BundleSet
    added: Filters
    removed: Filters
    renewed: bool = False


class PublishScope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=16):
    """From an edge: a change of the groups in which it publishes, of the bundles that its neighbour carries.

    Each connection begins with nothing told.
    """

    serial: Count
    """Grows with each change."""
    added: Groups
    removed: Groups
    asked: Annotated[list[Name], Meta(max_length=PAGE_MAX)] = []
    """Brokers of which it is to be told for which bundles they have spoken."""


class ScopeComplete(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=17):
    """Of these bundles, everything that the receiver is to know was told, for its groups up to this serial."""

    serial: Count
    bundles: BundleSet


class ForNeighbour(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=20):
    """From a part above the core to the same part of a neighbour; the core does not look at it."""

    body: Annotated[bytes, Meta(max_length=NEIGHBOUR_BYTES_MAX)]


ControlMessage = (
    Advert
    | InterestUpdate
    | InterestRequest
    | GossipSummary
    | Establish
    | EstablishReserved
    | NumberedEstablish
    | Teardown
    | RouteRefresh
    | RouteRequest
    | Receipt
    | Farewell
    | IncarnationProof
    | ProvenIncarnations
    | Namesake
    | ScopedInterest
    | PublishScope
    | ScopeComplete
    | ForNeighbour
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[ControlMessage] = msgspec.msgpack.Decoder(ControlMessage)


def pages(names: list[str]) -> Iterator[tuple[list[str], str, str]]:
    """Sorted names in pages, each with the bounds of its range; together these leave no name out."""
    after = ""
    for start in range(0, max(1, len(names)), PAGE_MAX):
        page = names[start : start + PAGE_MAX]
        until = page[-1] if start + PAGE_MAX < len(names) else ""
        yield page, after, until
        after = until


def is_between(name: str, after: str, until: str) -> bool:
    """Whether a page with these bounds is about the broker of this name."""
    return name > after and (not until or name <= until)


def _names_in(message: ControlMessage) -> Iterable[str]:
    match message:
        case Advert(broker=broker, links=links):
            return [broker, *(link.peer for link in links)]
        case GossipSummary(known, after, until):
            return [*(entry.broker for entry in known), after, until]
        case Establish(origin=origin, brokers=brokers):
            return [origin, *brokers]
        case NumberedEstablish(names=names):
            return names
        case ProvenIncarnations(incarnations, after, until):
            return [*incarnations, after, until]
        case Receipt(to=to, sender=sender, path=path, came_from=came_from):
            return to, sender, came_from, *path
        case InterestUpdate() | InterestRequest() | IncarnationProof() | ScopedInterest():
            return (message.broker,)
        case Teardown() | RouteRefresh() | RouteRequest():
            return (message.origin,)
        case PublishScope(asked=asked):
            return asked
        case Farewell() | Namesake() | ScopeComplete() | ForNeighbour():
            return ()
        case _:
            assert_never(message)


def check(message: ControlMessage) -> ControlMessage:
    """What the types alone cannot refuse."""
    for name in _names_in(message):
        if name and not is_name(name):
            raise ProtocolViolation(f"{name[:20]!a} is not a broker's name")
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
            if not all(map(brokers.__getitem__, places)):
                raise ProtocolViolation("a route over brokers it does not name")
            if len(set(brokers)) - ("" in brokers) < len(brokers) - brokers.count("") or message.origin not in brokers:
                raise ProtocolViolation("a route that names a broker twice, or not its own source")
        case InterestUpdate(added=added, removed=removed) | ScopedInterest(added=added, removed=removed):
            _check_topics(check_filter, added)
            _check_topics(check_filter, removed)
        case Receipt(behind=behind):
            _check_topics(check_topic, behind)
        case _:
            pass
    return message


def _check_topics(check_one: Callable[[str], None], topics: Iterable[str]) -> None:
    try:
        for topic in topics:
            check_one(topic)
    except BadTopic as bad:
        raise ProtocolViolation(str(bad)) from None


@lru_cache(maxsize=NAMES_CHECKED)
def is_name(name: str) -> bool:
    """Whether a broker may be called so."""
    return NAME.fullmatch(name) is not None


def encode(message: ControlMessage) -> bytes:
    return _encoder.encode(message)


class Unsendable(OverlaneError, ValueError):
    """A message of our own that its receiver would refuse."""

    error_code = "OVL-902"


_sendable: dict[int, tuple[ControlMessage, bytes]] = {}
"""Messages that were encoded and checked lately, oldest first, by their identity in memory: they are kept, so that no
other can have it."""


def encode_checked(message: ControlMessage) -> bytes:
    """As `encode`, of a message that is to be sent: it is read as its receiver will read it, or Unsendable."""
    known = _sendable.get(id(message))
    if known is not None:
        return known[1]
    try:
        data = _encoder.encode(message)
        decode(memoryview(data))
    except (ProtocolViolation, OverflowError, UnicodeEncodeError) as wrong:
        raise Unsendable(f"a message of our own is beyond its limits: {wrong}") from None
    if len(data) <= REMEMBERED_BYTES_MAX:
        if len(_sendable) >= REMEMBERED:
            del _sendable[next(iter(_sendable))]
        _sendable[id(message)] = message, data
    return data


def decode(data: memoryview) -> ControlMessage:
    try:
        return _decode_small(bytes(data)) if len(data) <= REMEMBERED_BYTES_MAX else check(_decoder.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise ProtocolViolation(f"a control message that is not one: {wrong}") from None


@lru_cache(maxsize=REMEMBERED)
def _decode_small(data: bytes) -> ControlMessage:
    return check(_decoder.decode(data))
