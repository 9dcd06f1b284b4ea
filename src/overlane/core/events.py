"""The contract of a broker: events that go in, effects that come out.

Control is events and effects: `OverlayBroker.handle(event, now)` returns the effects, and the driver carries them out
in order, after it has made the `Save`s and `Erase`s of the same turn durable. The data path is bytes: `publish`,
`receive`, `flush` and `pull` of `OverlayBroker`.

Two lanes lead to each neighbour. What is sent on the CONTROL lane arrives, in order, or the link goes down. What is
sent on the DATA lane may be lost or overtaken. A stream transport may carry both on one connection.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from overlane.core.config import BrokerConfig
from overlane.core.qos import QosClass
from overlane.core.requirements import Unmet
from overlane.core.units import Nanos


class Lane(IntEnum):
    CONTROL = 0
    DATA = 1


# Events


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A new connection with this neighbour is open in both directions. It replaces one that was open before and not
    reported down."""

    peer: str
    is_encrypted: bool = False


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The connection with this neighbour is broken; bytes in flight may be lost."""

    peer: str


@dataclass(frozen=True, slots=True)
class PathChanged:
    """The link with this neighbour takes another path, of this round trip. If the old one is dead, everything that was
    not acknowledged has been sent again. The connection is the same."""

    peer: str
    rtt_ns: Nanos


@dataclass(frozen=True, slots=True)
class StandbyChanged:
    """The link with this neighbour can take another path, of this round trip, if its present one fails; 0: it
    cannot."""

    peer: str
    rtt_ns: Nanos


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A local subscriber wants a topic filter. Durable subscriptions survive a restart of the broker."""

    subscriber: str
    filter: str
    durable: bool = True


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    subscriber: str
    filter: str


@dataclass(frozen=True, slots=True)
class RenewInterest:
    """Subscribers begin to need a filter, perhaps after a time without: at an edge, routing brokers that know it from
    an earlier connection treat it as new. Nothing where there are no tiers."""

    filter: str


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of `OverlayBroker.next_deadline` has come."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The broker leaves for good: it informs all brokers, so that none keeps anything for it."""


@dataclass(frozen=True, slots=True)
class SetFailureRisk:
    """How likely this broker and its links are down, by their history. It overrides the configuration, which applies
    where a value is None or missing."""

    failure: float | None
    links: Mapping[str, float]
    """By neighbour."""


@dataclass(frozen=True, slots=True)
class SetConfig:
    """The configuration changes while the broker runs: its links, the classes of topics, the named brokers, how many
    others are admitted. Links that are gone are closed. All else has to be as it was."""

    config: BrokerConfig


@dataclass(frozen=True, slots=True)
class ReadersReady:
    """Local readers whose queues were full have room again."""


@dataclass(frozen=True, slots=True)
class CloseLink:
    """The driver cannot continue the connection to this neighbour; the neighbour gets the reason."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class NamesakeRefused:
    """Another broker with the name of a connected neighbour tried to connect."""

    peer: str
    address: str


@dataclass(frozen=True, slots=True)
class SendToNeighbour:
    """Bytes of a part above the core, for the same part of a neighbour (`NeighbourSaid`). They arrive, in order, or the
    link goes down; without a link they are dropped."""

    peer: str
    body: bytes


FlowKey = tuple[int, int]
"""A reserved flow: the identity of the broker where it begins, and its number there."""


@dataclass(frozen=True, slots=True)
class LinkReservation:
    """What one flow has on one link."""

    rate: int
    """Bytes per second."""
    bucket_bytes: int
    group: Hashable
    """The same for all flows that share it."""


@dataclass(frozen=True, slots=True)
class SetReservedTree:
    """The links that messages of a reserved flow take from here, and the brokers that they lead to; none: there is no
    such flow any more."""

    flow: int
    links: frozenset[tuple[str, str]]
    leaves: frozenset[str]


@dataclass(frozen=True, slots=True)
class SetLinkReservations:
    """The flows that have a reservation on the link to a neighbour, all of them."""

    peer: str
    flows: Mapping[FlowKey, LinkReservation]
    fragment_bytes: int
    """Larger frames leave in parts of this size, so that reserved ones can go in between."""


@dataclass(frozen=True, slots=True)
class SetChannels:
    """The routes that messages share (`flows.channels`): for each class that shares them and each set of destinations,
    the destinations of the routes that its messages take."""

    plan: Mapping[tuple[QosClass, tuple[str, ...]], tuple[tuple[str, ...], ...]]


Event = (
    NamesakeRefused
    | LinkUp
    | LinkDown
    | PathChanged
    | StandbyChanged
    | CloseLink
    | Subscribe
    | Unsubscribe
    | RenewInterest
    | Tick
    | Leave
    | SetFailureRisk
    | SetConfig
    | ReadersReady
    | SendToNeighbour
    | SetReservedTree
    | SetLinkReservations
    | SetChannels
)


# Effects


@dataclass(frozen=True, slots=True)
class Save:
    """Make this record durable before any other effect of the turn is carried out."""

    table: str
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Erase:
    table: str
    key: bytes


RecordChange = Save | Erase


class LocalDelivery(NamedTuple):
    """One message for local subscribers, each named once."""

    topic: str
    body: bytes
    flags: int
    subscribers: tuple[str, ...]


class Deliver(NamedTuple):
    """Messages (topic, flags, body) that arrived together, with their estimated age.

    `subscribers` lists the receivers per topic; a topic that is not in it has no subscriber here. A reserved name is in
    it without any if its last subscriber has gone while the message was under way. A mixed run, whose topic is empty,
    is for those who have subscribed to the topics in it, whoever they are. The core has to know how reliable messages
    were received (`OverlayBroker.delivered`); while readers have no room, they come again.
    """

    messages: list[tuple[str, int, bytes]]
    subscribers: Mapping[str, tuple[str, ...]]
    origin: str
    age_ns: Nanos
    deadline_ns: Nanos
    reliable: bool = False

    @property
    def deliveries(self) -> Iterator[LocalDelivery]:
        for topic, flags, body in self.messages:
            if subscribers := self.subscribers.get(topic):
                yield LocalDelivery(topic, body, flags, subscribers)


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection with this neighbour; the driver may connect again.

    `last_words` tell the neighbour the reason. They are sent before closing if the connection still takes them.
    """

    peer: str
    reason: str
    last_words: bytes = b""


@dataclass(frozen=True, slots=True)
class RouteChanged:
    """The source changed a route: its class and destinations, its links from now on, and the cause."""

    route: int
    version: int
    qos: QosClass
    destinations: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    cause: str
    latency_ns: Nanos


@dataclass(frozen=True, slots=True)
class RouteEstablished:
    """Every broker of this version of the route has acknowledged it."""

    route: int
    version: int


@dataclass(frozen=True, slots=True)
class DeadlineUnmeetable:
    """The best route to this destination takes longer than the deadline; messages are sent on it nevertheless."""

    qos: QosClass
    destination: str
    latency_ns: Nanos


@dataclass(frozen=True, slots=True)
class RequirementChanged:
    """A requirement of a class that the route to this destination does not meet, or meets again. For want of trust
    nothing is sent there; for want of quality the nearest route is used."""

    qos: QosClass
    unmet: Unmet
    is_met: bool = False


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """A link of this broker changed its state: up, suspect or failed."""

    peer: str
    state: str


@dataclass(frozen=True, slots=True)
class ScopeDigest:
    """The bundles that clients of an edge broker use: it needs a routing broker for each."""

    published: frozenset[int] = frozenset()
    subscribed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ScopeChanged:
    """The clients of this broker use other bundles than before."""

    digest: ScopeDigest


@dataclass(frozen=True, slots=True)
class DirectLinksWanted:
    """At an edge: the edges that it wants to be linked with directly from now on, all of them. `given_up`: those for
    which that is given up for a while, each with the reason."""

    peers: tuple[str, ...]
    given_up: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NeighbourSaid:
    """Bytes for a part above the core came from a neighbour (`SendToNeighbour`)."""

    peer: str
    body: bytes


@dataclass(frozen=True, slots=True)
class InterestChanged:
    """Another broker needs a filter, or needs it no more. At a routing broker all filters are reported, elsewhere those
    that begin with `$`. That it needs one may be reported again: there was perhaps a time without (`RenewInterest`)."""

    topic_filter: str
    broker: str
    is_needed: bool


class HeldMessageSent(NamedTuple):
    """A message that had to wait until it was known who needs it is sent to those. `served`: as given by its
    publisher (`Drafts.send`)."""

    topic: str
    flags: int
    body: bytes
    qos: QosClass
    served: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokersRefused:
    """A neighbour announces more brokers than are admitted: so many adverts were refused lately."""

    neighbour: str
    adverts: int
    brokers_max: int


@dataclass(frozen=True, slots=True)
class RefusedAtBorder:
    """So many messages of another broker arrived lately that may not enter here; the topic of one of them."""

    origin: str
    topic: str
    messages: int


@dataclass(frozen=True, slots=True)
class LaterIncarnationKnown:
    """Others know a later incarnation of this broker and would ignore this one: it must restart with at least
    this incarnation. Its store was lost, perhaps, and its clock is behind."""

    incarnation: int
    told_by: str


@dataclass(frozen=True, slots=True)
class NameConflict:
    """Another broker runs under the name of this one or of a neighbour."""

    broker: str
    detail: str


@dataclass(frozen=True, slots=True)
class PathSuspected:
    """Parcels on a path are acknowledged hop by hop but do not reach the destination, while over another path they do:
    `hops` do not forward over `links`, which are avoided from now on."""

    destination: str
    path: tuple[str, ...]
    hops: tuple[str, ...]
    links: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PathTrusted:
    """Parcels over these hops arrive again: they are no longer avoided."""

    destination: str
    path: tuple[str, ...]
    hops: tuple[str, ...]


ReportedEffect = (
    LinkChanged
    | RouteChanged
    | DeadlineUnmeetable
    | RequirementChanged
    | PathSuspected
    | PathTrusted
    | BrokersRefused
    | RefusedAtBorder
    | NameConflict
)
"""Effects that are reported to people: log, events of the admin API, telemetry."""

Effect = (
    DirectLinksWanted
    | Save
    | Erase
    | Deliver
    | Close
    | RouteEstablished
    | LaterIncarnationKnown
    | ScopeChanged
    | NeighbourSaid
    | InterestChanged
    | HeldMessageSent
    | ReportedEffect
)


# Answers


class Reception(NamedTuple):
    """How local readers have received reliable messages: all or none of them; and the topics whose readers fall
    behind, with how full the fullest queue is, in per cent."""

    is_taken: bool
    behind: Mapping[str, int]


TAKEN = Reception(True, {})


class PublishResult(IntEnum):
    ACCEPTED = 0
    BUSY = 1
    """Reliable retention is full: try again when acknowledgements have made room."""
    TOO_LARGE = 2
