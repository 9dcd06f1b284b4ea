"""What the admin API answers: every value it gives, typed, in one place.

The OpenAPI document is made from these, and the commands that ask a broker read the answers back into them. Times are
durations, so that no clocks need to agree. Whatever grows with the number of clients or topics comes in pages.
"""

from typing import Literal, TypeAlias

import msgspec

from overlane.network.plan import Plan

BrokerState: TypeAlias = Literal["serving", "draining"]
StoreState: TypeAlias = Literal["none", "writing", "failing"]
LinkCondition: TypeAlias = Literal["up", "suspect", "failed", "down"]
DatagramsState: TypeAlias = Literal["probing", "open", "doubted"]
EventKind: TypeAlias = Literal["link", "route", "deadline"]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, or a part of one."""


class TrafficView(View, frozen=True, kw_only=True):
    """PUBLISH packets of clients and bytes of all their packets, since the broker started."""

    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int


class RatesView(View, frozen=True, kw_only=True):
    """The same a second, over the last second or so."""

    messages_in: float
    messages_out: float
    bytes_in: float
    bytes_out: float


class QueuesView(View, frozen=True, kw_only=True):
    """Messages of QoS 1 and 2 that clients have not acknowledged: waiting, and of these sent at least once."""

    messages: int
    bytes: int
    in_flight: int


class RetainedView(View, frozen=True, kw_only=True):
    messages: int
    bytes: int
    messages_max: int
    bytes_max: int


class StoreView(View, frozen=True, kw_only=True):
    """The durable store. Latency is from the end of a turn to its records on disk, of the last commits."""

    state: StoreState
    trouble: str
    """Why nothing is written at present; empty while all is well."""
    commits: int
    pending: int
    latency_p50_us: int
    latency_p99_us: int
    quarantined: int
    """Damaged records that were put aside at the start."""


class LoopView(View, frozen=True, kw_only=True):
    """How late the event loop was with what was due, over the last ten seconds."""

    lag_us: int
    """On average."""
    lag_max_us: int


class ProcessView(View, frozen=True, kw_only=True):
    id: int
    memory_bytes: int
    cpu_s: float


class BrokerView(View, frozen=True, kw_only=True):
    name: str
    version: str
    incarnation: int
    uptime_s: float
    state: BrokerState
    not_ready: tuple[str, ...]
    """Why clients had better not come here now; empty if it is ready."""
    listeners: dict[str, str]
    connections: int
    clients: int
    """Clients that are connected, and have been let in."""
    sessions: int
    """Those of connected clients, and those that are kept for others."""
    subscriptions: int
    topics: int
    retained: RetainedView
    queues: QueuesView
    traffic: TrafficView
    rates: RatesView
    throttled: int
    """How often a client was read more slowly because it published too fast."""
    dead_letters: int
    dropped: dict[str, int]
    """Messages that did not reach a client, by the reason."""
    refused: dict[str, int]
    """Clients and packets that were turned away, by the reason."""
    overlay: dict[str, int]
    """What the overlay's core counts."""
    links: int
    links_up: int
    store: StoreView
    loop: LoopView
    process: ProcessView


class ConnectionView(View, frozen=True, kw_only=True):
    address: str
    listener: str
    version: str
    is_secure: bool
    connected_s: float
    silent_s: float
    keep_alive_s: float | None
    """After so much silence the client counts as gone."""
    traffic: TrafficView
    unsent_bytes: int
    """What lies ready for the client to read."""


class ClientView(View, frozen=True, kw_only=True):
    """A session, and its connection if there is one."""

    id: str
    user: str | None
    connection: ConnectionView | None
    session_expiry_s: int
    expires_s: float | None
    """When the session ends if the client stays away; None while it is connected, or if never."""
    subscriptions: int
    queue: QueuesView


class SubscriptionView(View, frozen=True, kw_only=True):
    client: str
    filter: str
    group: str
    """Of a shared subscription; empty if it is none."""
    qos: int
    identifier: int
    no_local: bool
    retain_as_published: bool
    deadline_ms: float | None
    reliable: bool


class ClientDetail(View, frozen=True, kw_only=True):
    client: ClientView
    subscriptions: tuple[SubscriptionView, ...]


class TopicView(View, frozen=True, kw_only=True):
    """What clients have published here on one topic since it was first counted: messages, and bytes of payloads."""

    topic: str
    messages: int
    bytes: int
    deadline_ms: float | None
    reliability: str
    is_retained: bool


class EmulationView(View, frozen=True, kw_only=True):
    """How this end of a link is made to behave."""

    latency_ms: float
    jitter_ms: float
    loss: float
    rate_bps: int | None
    is_cut: bool


class DatagramsView(View, frozen=True, kw_only=True):
    """The path of datagrams beside the connection of a link, for what has a deadline."""

    state: DatagramsState
    """probing: only probes go over it. open: frames do. doubted: they go over both, since nothing was heard lately."""
    rtt_ms: float | None
    window_bytes: int
    """How many bytes it takes before it is heard of them."""
    frames_bytes_max: int
    """What is larger takes the connection."""
    sent: int
    received: int
    lost: int
    """Of those sent."""
    refused: dict[str, int]
    """Of those received, by reason: malformed, forged, replayed."""


class LinkView(View, frozen=True, kw_only=True):
    """A link to a neighbour, as this end of it believes it to be. `down`: there is no connection."""

    peer: str
    state: LinkCondition
    latency_ms: float | None
    """One way; None before it was measured, as jitter and loss."""
    jitter_ms: float | None
    loss: float | None
    queue_parcels: int
    queue_bytes: int
    queue_bytes_max: int
    bytes_in: int = 0
    """Over the present connection, as `bytes_out`: all frames, greetings and routing included."""
    bytes_out: int = 0
    datagrams: DatagramsView | None = None
    """None: all goes over the connection."""
    emulation: EmulationView | None = None


class RouteView(View, frozen=True, kw_only=True):
    """A route from this broker: how a class of topics gets to its destinations."""

    id: int
    version: int
    destinations: tuple[str, ...]
    paths: dict[str, tuple[tuple[str, ...], ...]]
    """To each destination, those of fewer hops first."""
    latency_ms: dict[str, float]
    """To each destination that can be reached."""
    deadline_ms: float | None
    reliable: bool
    routing: str
    cause: str
    """Why it is as it is."""
    is_established: bool
    topics: tuple[str, ...]
    """Some that went along it lately."""


class ClientPage(View, frozen=True, kw_only=True):
    """`total`: how many there are that match; `next`: what to ask for the next page with, as `after`."""

    items: tuple[ClientView, ...]
    total: int
    next: str | None


class SubscriptionPage(View, frozen=True, kw_only=True):
    items: tuple[SubscriptionView, ...]
    total: int
    next: str | None


class TopicPage(View, frozen=True, kw_only=True):
    items: tuple[TopicView, ...]
    total: int
    next: str | None


class LinkList(View, frozen=True, kw_only=True):
    items: tuple[LinkView, ...]


class RouteList(View, frozen=True, kw_only=True):
    items: tuple[RouteView, ...]


class EventView(View, frozen=True, kw_only=True):
    """Something that the overlay's side of this broker did, with its number in this life of the broker.

    link: the link to `peer` is `state` now. route: what goes to `destinations` takes these `paths` from now on, because
    of `cause`. deadline: no way to `peer` is quick enough.
    """

    number: int
    ago_s: float
    kind: EventKind
    peer: str = ""
    state: str = ""
    cause: str = ""
    route: int = 0
    destinations: tuple[str, ...] = ()
    paths: dict[str, tuple[tuple[str, ...], ...]] = {}
    latency_ms: float | None = None
    deadline_ms: float | None = None
    topics: tuple[str, ...] = ()
    """Some that went along the route lately."""


class EventList(View, frozen=True, kw_only=True):
    """Oldest first; `newest` is the number of the last one there was."""

    items: tuple[EventView, ...]
    newest: int


class PublishedView(View, frozen=True, kw_only=True):
    """What clients have published here, of the topics of one filter of the network file; empty: of no filter."""

    filter: str
    messages: int


class DeliveryView(View, frozen=True, kw_only=True):
    """Messages of one filter that came from one other broker and were handed to clients here, since the start."""

    filter: str
    origin: str
    messages: int
    in_time: int
    missing: int
    """Best-effort parcels that others came after, and that have not come themselves."""
    ages_us: tuple[tuple[int, int], ...]
    """How old they were: (no more than so many microseconds, so many messages), in growing order."""


class DeliveryList(View, frozen=True, kw_only=True):
    published: tuple[PublishedView, ...]
    items: tuple[DeliveryView, ...]


class GlanceView(View, frozen=True, kw_only=True):
    """Everything that a monitor wants to know, at once."""

    broker: BrokerView
    links: tuple[LinkView, ...]
    routes: tuple[RouteView, ...]
    events: EventList
    deliveries: DeliveryList


class HealthView(View, frozen=True, kw_only=True):
    alive: Literal[True]


class ReadyView(View, frozen=True, kw_only=True):
    ready: bool
    reasons: tuple[str, ...]


class ErrorView(View, frozen=True, kw_only=True):
    """What is wrong with a request."""

    error: str


class KeptPlanView(View, frozen=True, kw_only=True):
    """A plan that the broker could follow again."""

    version: int
    made_ns: int
    source: str


class PlanView(View, frozen=True, kw_only=True):
    version: int
    """Of the plan that is followed; 0: none."""
    newest: int
    """The newest version that there was; a plan must be newer."""
    plan: Plan | None
    kept: tuple[KeptPlanView, ...]


class StreamView(View, frozen=True, kw_only=True):
    """A durable log of a subscription. `first`: the oldest offset that is kept. `next`: the one that comes next."""

    broker: str
    name: str
    filter: str
    scope: Literal["here", "everywhere"]
    user: str | None
    """Whose rights it has; null: an operator's."""
    since_ns: int
    """When it was made; offsets of a stream that was made at another time mean nothing here."""
    first: int
    next: int
    messages: int
    bytes: int
    lost: int
    """Messages that made room for later ones before they were committed."""


class StreamList(View, frozen=True, kw_only=True):
    items: tuple[StreamView, ...]


class LoggedView(View, frozen=True, kw_only=True, array_like=True):
    offset: int
    arrived_ns: int
    """Since 1970, by the broker's clock."""
    topic: str
    payload: bytes
    qos: int
    retain: bool
    user_properties: tuple[tuple[str, str], ...]


class LoggedPage(View, frozen=True, kw_only=True):
    """`next`: the offset to go on from."""

    since_ns: int
    next: int
    messages: tuple[LoggedView, ...]


class NoteView(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A message to be published."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False


class PartView(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a writer's batch, from the place `start` in it."""

    batch: int
    start: int
    messages: tuple[NoteView, ...]


class PlaceView(View, frozen=True, kw_only=True):
    """How far a writer has come."""

    count: int
    """Messages of its batch that are published."""
    refused: str
    """Why no more of them were, if so; it may try again."""
