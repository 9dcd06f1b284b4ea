"""A broker as a whole: whether it serves, its traffic, queues, store, event loop and process, what it knows from
ZooKeeper, and its copies."""

from typing import Literal, TypeAlias

import msgspec

from overlane.adminapi.views.view import View

BrokerState: TypeAlias = Literal["serving", "draining"]
StoreState: TypeAlias = Literal["none", "writing", "failing"]


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
    """Damaged records quarantined at startup."""
    unknown: int = 0
    """Records of unknown kinds, kept unchanged."""


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
ON_ENTRY = "border (enter)"
"""A message of another broker may not enter here. What may not leave is among what clients were refused."""


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
    """Whether acknowledgements wait for it, and it may take over the broker."""
    lag_batches: int | None
    """Batches not confirmed on its disk; None while it has none of this epoch."""
    lag_bytes: int
    lag_ms: float = 0.0
    """Age of the first change that it lacks; 0 if it has all."""
    heard_ms: float | None
    """Age of its latest message."""


class RecoveryView(View, frozen=True, kw_only=True):
    """The copies of the broker. `epoch` is 0 without `[recovery]`."""

    host: str = ""
    epoch: int = 0
    mirrors: tuple[MirrorView, ...] = ()
    alarms: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of reports since the start, by kind."""
    bytes_in: int = 0
    """Over replication connections since the start, without headers of TLS, TCP and IP."""
    bytes_out: int = 0


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
    internal_errors: dict[str, int] = msgspec.field(default_factory=dict)
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
    recovery: RecoveryView | None = None
    """None without [recovery]."""

    @property
    def overlay_lost(self) -> dict[str, int]:
        """Messages lost on their way to other brokers, by reason, where there are any."""
        found = ((name, self.overlay.get(name, 0)) for name in OVERLAY_LOSSES)
        return {name.removesuffix("_dropped").replace("_", " "): number for name, number in found if number}

    @property
    def turned_away(self) -> dict[str, int]:
        """Clients, packets and messages of other brokers that were refused, by reason, where there are any."""
        at_border = self.overlay.get("refused_at_border", 0)
        return self.refused | ({ON_ENTRY: at_border} if at_border else {})


class HealthView(View, frozen=True, kw_only=True):
    alive: bool
    """False if the process answers, but processes nothing else."""


class ReadyView(View, frozen=True, kw_only=True):
    ready: bool
    reasons: tuple[str, ...]
