"""The request and response bodies of the admin API, typed.

The OpenAPI document is generated from these types, and clients of the API decode responses into them. Times are
durations, so clocks need not agree. Lists that grow with the number of clients or topics are paginated.
"""

from typing import Literal, TypeAlias

import msgspec

from overlane.network.plan import Plan

BrokerState: TypeAlias = Literal["serving", "draining"]
StoreState: TypeAlias = Literal["none", "writing", "failing"]
LinkCondition: TypeAlias = Literal["up", "suspect", "failed", "down"]
DatagramsState: TypeAlias = Literal["probing", "open", "doubted"]
PathState: TypeAlias = Literal["in_use", "copies", "standby", "silent", "probing", "gone"]
EventKind: TypeAlias = Literal["link", "route", "deadline", "path", "name-conflict", "brokers-refused"]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A response body, or a part of one."""


class TrafficView(View, frozen=True, kw_only=True):
    """PUBLISH packets, and bytes of all packets, exchanged with clients since the broker started."""

    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int


class RatesView(View, frozen=True, kw_only=True):
    """The same per second, averaged over about the last second."""

    messages_in: float
    messages_out: float
    bytes_in: float
    bytes_out: float


class QueuesView(View, frozen=True, kw_only=True):
    """QoS 1 and 2 messages not yet acknowledged by clients; `in_flight` of them were sent at least once."""

    messages: int
    bytes: int
    in_flight: int


class RetainedView(View, frozen=True, kw_only=True):
    messages: int
    bytes: int
    messages_max: int
    bytes_max: int


class StoreView(View, frozen=True, kw_only=True):
    """The durable store. Latency: from the end of a turn until its records are on disk, over recent commits."""

    state: StoreState
    trouble: str
    """Why the store cannot write; empty if it can."""
    commits: int
    pending: int
    latency_p50_us: int
    latency_p99_us: int
    quarantined: int
    """Damaged records set aside at startup."""
    unknown: int = 0
    """Records of kinds that this release does not know: it keeps them as they are."""


class LoopView(View, frozen=True, kw_only=True):
    """Lag of the event loop over the last ten seconds."""

    lag_us: int
    """Average."""
    lag_max_us: int


class ProcessView(View, frozen=True, kw_only=True):
    id: int
    memory_bytes: int
    cpu_s: float


OVERLAY_LOSSES = (
    "queue_full_dropped",
    "expired_dropped",
    "unroutable_dropped",
    "link_lost_dropped",
    "overtaken_dropped",
    "lifespan_ended_dropped",
    "destination_left_dropped",
)
"""Counters of the overlay core that count lost messages. A second copy that is dropped is not lost."""


class CoordinationView(View, frozen=True, kw_only=True):
    """The overlay as ZooKeeper describes it, as far as this broker has read it."""

    role: str
    domain: str
    is_connected: bool
    """Whether ZooKeeper can be reached."""
    leader: str
    """Empty while there is none."""
    bundles: dict[str, int]
    """How many bundles of topics each routing broker carries."""
    members: dict[str, tuple[str, str]]
    """Role and domain of the brokers that this one knows."""


class MirrorView(View, frozen=True, kw_only=True):
    """A copy of the broker at another host, as its primary knows it."""

    host: str
    in_sync: bool
    """Whether acknowledgements wait for it, and it may continue the broker."""
    lag_batches: int | None
    """Batches that are not known to be on its disk; None while it has nothing of this epoch."""
    lag_bytes: int
    heard_ms: float | None
    """Age of its latest sign of life."""


class RecoveryView(View, frozen=True, kw_only=True):
    """The copies of the broker. `epoch` is 0 where it has none: there is no `[recovery]`."""

    host: str = ""
    epoch: int = 0
    mirrors: tuple[MirrorView, ...] = ()
    alarms: dict[str, int] = {}
    """How often what was reported since the start."""


class BrokerView(View, frozen=True, kw_only=True):
    name: str
    version: str
    incarnation: int
    uptime_s: float
    state: BrokerState
    not_ready: tuple[str, ...]
    """Reasons why the broker is not ready for clients; empty if it is ready."""
    listeners: dict[str, str]
    connections: int
    clients: int
    """Connected and authorized clients."""
    sessions: int
    """Sessions of connected clients, and persistent sessions of disconnected ones."""
    subscriptions: int
    topics: int
    retained: RetainedView
    queues: QueuesView
    traffic: TrafficView
    rates: RatesView
    throttled: int
    """How often reading from a client was throttled because it published too fast."""
    dead_letters: int
    dropped: dict[str, int]
    """Messages that were not delivered to a client, by reason."""
    refused: dict[str, int]
    """Rejected clients and packets, by reason."""
    internal_errors: dict[str, int] = {}
    """Unexpected exceptions of the broker itself that were isolated, by what they concerned."""
    overlay: dict[str, int]
    """Counters of the overlay core."""
    links: int
    links_up: int
    store: StoreView
    loop: LoopView
    process: ProcessView
    coordination: CoordinationView | None = None
    """None without [coordination]."""

    @property
    def overlay_lost(self) -> dict[str, int]:
        """Messages lost on their way to other brokers, by reason, where there are any."""
        found = ((name, self.overlay.get(name, 0)) for name in OVERLAY_LOSSES)
        return {name.removesuffix("_dropped").replace("_", " "): number for name, number in found if number}


class ConnectionView(View, frozen=True, kw_only=True):
    address: str
    listener: str
    via: str | None = None
    """The broker of the domain that the client has reached, if it has passed the connection on."""
    protocol: str = "MQTT"
    version: str
    """Of the protocol."""
    is_secure: bool
    connected_s: float
    silent_s: float
    keep_alive_s: float | None
    """The client is disconnected after this time without a packet."""
    traffic: TrafficView
    unsent_bytes: int
    """Bytes queued for the client."""


class ClientView(View, frozen=True, kw_only=True):
    """A session, and its connection if the client is connected."""

    id: str
    user: str | None
    connection: ConnectionView | None
    session_expiry_s: int
    expires_s: float | None
    """Time until the session expires; None while the client is connected, or if it never expires."""
    subscriptions: int
    queue: QueuesView


class SubscriptionView(View, frozen=True, kw_only=True):
    client: str
    filter: str
    group: str
    """Group of a shared subscription; empty for other subscriptions."""
    qos: int
    identifier: int
    no_local: bool
    retain_as_published: bool
    deadline_ms: float | None
    reliable: bool
    where: str = ""
    """Content filter; empty for subscriptions without one."""


class ClientDetail(View, frozen=True, kw_only=True):
    client: ClientView
    subscriptions: tuple[SubscriptionView, ...]


class TopicView(View, frozen=True, kw_only=True):
    """Messages and payload bytes published by clients of this broker on one topic."""

    topic: str
    messages: int
    bytes: int
    deadline_ms: float | None
    reliability: str
    is_retained: bool


class EmulationView(View, frozen=True, kw_only=True):
    """Emulated conditions of one direction of a link."""

    latency_ms: float
    jitter_ms: float
    loss: float
    rate_bps: int | None
    is_cut: bool


class DatagramsView(View, frozen=True, kw_only=True):
    """The UDP path beside a link's TCP connection, for messages with a deadline."""

    state: DatagramsState
    """probing: carries probes only. open: carries frames. doubted: silent lately, so frames go over both paths."""
    rtt_ms: float | None
    window_bytes: int
    """Bytes that may be unacknowledged."""
    frames_bytes_max: int
    """Larger frames use the TCP connection."""
    sent: int
    received: int
    lost: int
    """Sent datagrams that were lost."""
    refused: dict[str, int]
    """Received datagrams that were rejected, by reason: malformed, forged, replayed."""


class PathView(View, frozen=True, kw_only=True):
    """One of several paths of a link: a pair of addresses."""

    local: str
    remote: str
    state: PathState
    """in_use: carries messages with a deadline. copies: carries copies too. standby: works. silent: does not answer.
    probing: does not answer for longer. gone: the interface or address of one end is gone."""
    has_connection: bool
    """Whether the TCP connection takes it; known at the end that dialled."""
    latency_ms: float | None
    """One way. None until measured."""
    loss: float
    sent: int
    received: int


class LinkView(View, frozen=True, kw_only=True):
    """A link to a neighbour, as seen from this end. `down`: not connected."""

    peer: str
    state: LinkCondition
    latency_ms: float | None
    """One way. Latency, jitter and loss are None until measured."""
    jitter_ms: float | None
    loss: float | None
    queue_parcels: int
    queue_bytes: int
    queue_bytes_max: int
    bytes_in: int = 0
    """`bytes_in`, `bytes_out`: all bytes of the current connection, including handshake and routing."""
    bytes_out: int = 0
    datagrams: DatagramsView | None = None
    """None: the link uses the TCP connection only."""
    paths: tuple[PathView, ...] = ()
    """Empty: there is one path."""
    emulation: EmulationView | None = None


class RouteView(View, frozen=True, kw_only=True):
    """A route from this broker: the paths of a class of topics to its destinations."""

    id: int
    version: int
    destinations: tuple[str, ...]
    paths: dict[str, tuple[tuple[str, ...], ...]]
    """Per destination, paths with fewer hops first."""
    latency_ms: dict[str, float]
    """Per reachable destination."""
    deadline_ms: float | None
    reliable: bool
    routing: str
    cause: str
    """Why these paths were chosen."""
    is_established: bool
    topics: tuple[str, ...]
    """A sample of the topics that used it recently."""
    suspects: tuple[str, ...] = ()
    """Brokers that it avoids, because messages sent over them did not arrive."""


class ClientPage(View, frozen=True, kw_only=True):
    """`total`: number of matches on all pages. `next`: value of `after` for the next page; None on the last page."""

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
    """An event of the overlay at this broker, numbered since the broker started.

    link: the link to `peer` changed to `state`. route: the route to `destinations` changed to `paths` because of
    `cause`. deadline: no path to `peer` meets the deadline. path: `peer` is `suspect`, because messages to
    `destinations` over `paths` do not arrive, or is `trusted` again. name-conflict: another broker runs under the name
    `peer`, according to `cause`. brokers-refused: `peer` told of more brokers than there is room for; see `cause`.
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
    """A sample of the topics that used the route recently."""


class EventList(View, frozen=True, kw_only=True):
    """Oldest first. `newest`: number of the most recent event, listed or not."""

    items: tuple[EventView, ...]
    newest: int


class PublishedView(View, frozen=True, kw_only=True):
    """Messages published at this broker on topics of one filter of the network file; empty: topics without a filter."""

    filter: str
    messages: int


class DeliveryView(View, frozen=True, kw_only=True):
    """Messages of one filter from one other broker, delivered to clients of this broker since it started."""

    filter: str
    origin: str
    messages: int
    in_time: int
    missing: int
    """Best-effort parcels that have not arrived although later ones have."""
    ages_us: tuple[tuple[int, int], ...]
    """Histogram of their ages: (upper bound in microseconds, messages), in ascending order."""


class DeliveryList(View, frozen=True, kw_only=True):
    published: tuple[PublishedView, ...]
    items: tuple[DeliveryView, ...]


class SnapshotView(View, frozen=True, kw_only=True):
    """Status, links, routes, events and deliveries in one response, for monitors."""

    broker: BrokerView
    links: tuple[LinkView, ...]
    routes: tuple[RouteView, ...]
    events: EventList
    deliveries: DeliveryList


class HealthView(View, frozen=True, kw_only=True):
    alive: bool
    """False if the process answers, and yet serves nobody any more."""


class ReadyView(View, frozen=True, kw_only=True):
    ready: bool
    reasons: tuple[str, ...]


class ErrorView(View, frozen=True, kw_only=True):
    """Why a request failed."""

    error: str


class StoredPlanView(View, frozen=True, kw_only=True):
    """A plan that the broker keeps and can roll back to."""

    version: int
    made_ns: int
    source: str


class PlanView(View, frozen=True, kw_only=True):
    version: int
    """Version of the plan in use; 0: none."""
    newest: int
    """The highest version received; a new plan must have a higher one."""
    plan: Plan | None
    kept: tuple[StoredPlanView, ...]


class StreamView(View, frozen=True, kw_only=True):
    """A durable log of a subscription. `first`: the oldest offset kept. `next`: the offset of the next message."""

    broker: str
    name: str
    filter: str
    scope: Literal["here", "everywhere"]
    user: str | None
    """The user whose access rights apply; null: an operator."""
    since_ns: int
    """Creation time. Offsets are valid only together with it: a stream created again starts anew."""
    first: int
    next: int
    messages: int
    bytes: int
    lost: int
    """Messages discarded for lack of space before they were committed."""


class StreamList(View, frozen=True, kw_only=True):
    items: tuple[StreamView, ...]


class StreamMessageView(View, frozen=True, kw_only=True, array_like=True):
    offset: int
    arrived_ns: int
    """Nanoseconds since 1970, by the broker's clock."""
    topic: str
    payload: bytes
    qos: int
    retain: bool
    user_properties: tuple[tuple[str, str], ...]


class StreamMessagePage(View, frozen=True, kw_only=True):
    """`next`: the offset to continue from."""

    since_ns: int
    next: int
    messages: tuple[StreamMessageView, ...]


class WriterMessageView(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A message that a writer publishes."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False


class WriterBatchView(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a writer's batch: its messages from index `start` on."""

    batch: int
    start: int
    messages: tuple[WriterMessageView, ...]


class WriterProgressView(View, frozen=True, kw_only=True):
    """A writer's progress in its batch."""

    count: int
    """Messages of the batch published so far."""
    refused: str
    """Why the rest was not published; empty if all was. The writer may retry."""
