"""The content of a network file, as frozen values in plain units.

Durations are integer nanoseconds, rates bits per second, sizes bytes. The order is that of the file, so that everything
derived from it is the same on every machine; only events are sorted, by time. An absent value is None: no rate means
unlimited, no stop means the end of the run, no lifespan means unlimited.
"""

from typing import Literal, TypeAlias, get_args

import msgspec

from overlane.core.units import NEVER
from overlane.mediation.rule import MediationRule
from overlane.membership.endpoint import Endpoint as Endpoint
from overlane.membership.membership import LINK_QUEUE_BYTES
from overlane.membership.membership import Emulated as Emulated
from overlane.membership.membership import Ends as Ends
from overlane.membership.membership import Role as Role
from overlane.network.login_schema import LoginHook, Tokens
from overlane.pubsub.access import Rule
from overlane.pubsub.limits import Limits
from overlane.pubsub.reservations.advertisement import Excess
from overlane.quantities import MS, SECOND
from overlane.topic_names import NameRule as NameRule

Reliability: TypeAlias = Literal["reliable", "best-effort"]
Order: TypeAlias = Literal["strict", "deadline"]
Routing: TypeAlias = Literal["single", "multipath", "flood", "adaptive", "thrifty"]
Scheduling: TypeAlias = Literal["edf-shed", "edf", "laxity"]
Ownership: TypeAlias = Literal["shared", "exclusive"]
Durability: TypeAlias = Literal["local", "mirrored"]
Transport: TypeAlias = Literal["datagram", "stream"]
ClientCertificate: TypeAlias = Literal["required", "optional"]
History: TypeAlias = int | Literal["all"]
MqttVersion: TypeAlias = Literal["5", "3.1.1"]
AddressSyntax: TypeAlias = Literal["slashes", "dots"]
SaslMechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
Launcher: TypeAlias = Literal["local", "command", "systemd", "kubernetes"]

RELIABILITIES: tuple[Reliability, ...] = get_args(Reliability)
DdsFormat: TypeAlias = Literal["cdr", "json"]
DDS_FORMATS: tuple[DdsFormat, ...] = get_args(DdsFormat)
ORDERS: tuple[Order, ...] = get_args(Order)
ROUTINGS: tuple[Routing, ...] = get_args(Routing)
OWNERSHIPS: tuple[Ownership, ...] = get_args(Ownership)
DURABILITIES: tuple[Durability, ...] = get_args(Durability)
SCHEDULINGS: tuple[Scheduling, ...] = get_args(Scheduling)
TRANSPORTS: tuple[Transport, ...] = get_args(Transport)
CLIENT_CERTIFICATES: tuple[ClientCertificate, ...] = get_args(ClientCertificate)
ROLES: tuple[Role, ...] = get_args(Role)
MQTT_VERSIONS: tuple[MqttVersion, ...] = get_args(MqttVersion)
ADDRESS_SYNTAXES: tuple[AddressSyntax, ...] = get_args(AddressSyntax)
SASL_MECHANISMS: tuple[SaslMechanism, ...] = get_args(SaslMechanism)
LAUNCHERS: tuple[Launcher, ...] = get_args(Launcher)
EXCESSES: tuple[Excess, ...] = get_args(Excess)
STRATEGIES = ("least-loaded", "topics", "latency")
EMBEDDED = "embedded"
"""Instead of addresses: `overlane up` runs ZooKeeper itself."""

# Not zero: were nothing expected to fail, a second path would be worth nothing and disjoint paths no better than one.
BROKER_FAILURE = 0.001
LINK_FAILURE = 0.002

QUEUE_BYTES = LINK_QUEUE_BYTES


class Uplink(msgspec.Struct, frozen=True, kw_only=True):
    """One of several ways in which a broker is connected: what it adds to all links that go through it."""

    name: str
    latency_ns: int = 0
    jitter_ns: int = 0
    loss: float = 0.0
    rate_bps: int | None = None
    queue_bytes: int = QUEUE_BYTES
    interface: str | None = None
    """The network interface of a broker that runs; None: it is known by an address in `reach`."""


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker; its clock reads true time x (1 + drift / 10^6) + offset.

    The endpoints are as the file says; `overlane.network.endpoints` gives those it listens on, defaults included.
    """

    name: str
    failure: float = BROKER_FAILURE
    latitude: float | None = None
    longitude: float | None = None
    clock_offset_ns: int = 0
    clock_drift_ppm: float = 0.0
    listeners: dict[str, Endpoint] = {}
    """Where clients connect, by the name of the listener (`overlane.network.listeners`)."""
    overlay: Endpoint | None = None
    admin: Endpoint | None = None
    reach: tuple[Endpoint, ...] | None = None
    """Where its neighbours dial it, tried in turn. None: where it listens. Empty: nowhere, it dials them."""
    uplinks: tuple[Uplink, ...] = ()
    """None: it is connected in one way, which adds nothing."""
    datagrams: bool = True
    """Whether it offers its neighbours datagrams beside connections, for what has a deadline."""
    domain: str = ""
    """Brokers of one domain have the same; empty: a domain of its own."""
    role: Role = "plain"
    capacity: float | None = None
    """Messages per second that it can carry; None: that of [placement]."""

    def addresses(self) -> dict[str, Endpoint]:
        """All that the file gives it to listen on, by field."""
        of_overlay = {"overlay": self.overlay, "admin": self.admin}
        return self.listeners | {field: at for field, at in of_overlay.items() if at is not None}


class Back(msgspec.Struct, frozen=True, kw_only=True):
    """What a link is like from its second end to its first, where that is not the same."""

    latency_ns: int
    jitter_ns: int = 0
    loss: float = 0.0
    rate_bps: int | None = None
    queue_bytes: int = QUEUE_BYTES


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A link, the same in both directions unless it says how it is back. On a datagram link loss loses a frame, unless
    it is one that must arrive; on a stream it delays it."""

    ends: Ends
    latency_ns: int
    jitter_ns: int = 0
    loss: float = 0.0
    rate_bps: int | None = None
    failure: float = LINK_FAILURE
    queue_bytes: int = QUEUE_BYTES
    transport: Transport = "datagram"
    carrier: str | None = None
    """The MQTT broker that carries it, with a prefix of topics: `mqtt://host:port/prefix`; then it is a stream."""
    emulate: Emulated | None = None
    back: Back | None = None
    encrypted: bool = False
    """Whether it is encrypted by other means than TLS, such as a virtual private network."""

    def from_end(self, end: str) -> "Link | Back":
        """What it is like for what this end sends."""
        return self if self.back is None or end == self.ends[0] else self.back


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """The quality of service of all topics that match the filter."""

    filter: str
    deadline_ns: int = NEVER
    reliability: Reliability = "best-effort"
    routing: Routing = "adaptive"
    paths: int = 2
    lifespan_ns: int | None = None
    history: History = 0
    order: Order = "strict"
    durability: Durability = "local"
    encrypted: bool = False
    """Whether all links of its paths have to be encrypted."""
    through: tuple[str, ...] = ()
    """The brokers (`broker:NAME`) and domains (`domain:NAME`) that may pass its messages on. Empty: any."""
    avoid: tuple[str, ...] = ()
    """Those that must not get its messages."""
    loss_max: float = 1.0
    resiliency_min: float = 0.0
    liveliness_ns: int | None = None
    """A publisher that is silent for this long is lost."""
    period_ns: int | None = None
    """Each publisher publishes at least this often."""
    ownership: Ownership = "shared"


class Publisher(msgspec.Struct, frozen=True, kw_only=True):
    broker: str
    topic: str
    rate_hz: float
    size_bytes: int = 64
    start_ns: int = 0
    stop_ns: int | None = None


class Subscriber(msgspec.Struct, frozen=True, kw_only=True):
    broker: str
    topic: str
    start_ns: int = 0
    stop_ns: int | None = None


class Advertised(msgspec.Struct, frozen=True, kw_only=True):
    """What publishers of a broker are going to publish."""

    broker: str
    filter: str
    message_bytes: int | None = None
    size_min_bytes: int | None = None
    size_max_bytes: int | None = None
    rate_hz: float | None = None
    rate_max_hz: float | None = None
    period_ns: int | None = None
    excess: Excess = "best-effort"


class ReservationRules(msgspec.Struct, frozen=True, kw_only=True):
    """What may be reserved, and how long a subscriber waits for the answer."""

    share: float = 0.8
    answer_ns: int = 2 * SECOND


class Slow(msgspec.Struct, frozen=True, tag="slow", tag_field="event"):
    """The link's latency becomes this."""

    at_ns: int
    ends: Ends
    latency_ns: int


class Lossy(msgspec.Struct, frozen=True, tag="loss", tag_field="event"):
    """The link loses this share of what it carries."""

    at_ns: int
    ends: Ends
    loss: float


class Cut(msgspec.Struct, frozen=True, tag="cut", tag_field="event"):
    """The link passes nothing more."""

    at_ns: int
    ends: Ends


class Partition(msgspec.Struct, frozen=True, tag="partition", tag_field="event"):
    """Every link between these brokers and all others is cut."""

    at_ns: int
    brokers: tuple[str, ...]


class Heal(msgspec.Struct, frozen=True, tag="heal", tag_field="event"):
    """The link has the values of the file again; without ends, every link does."""

    at_ns: int
    ends: Ends | None


class Crash(msgspec.Struct, frozen=True, tag="crash", tag_field="event"):
    """The broker stops at once: its memory is lost, its durable store is not."""

    at_ns: int
    broker: str


class Restart(msgspec.Struct, frozen=True, tag="restart", tag_field="event"):
    """The crashed broker starts again from its durable store."""

    at_ns: int
    broker: str


class Leave(msgspec.Struct, frozen=True, tag="leave", tag_field="event"):
    """The broker announces that it leaves, and ends."""

    at_ns: int
    broker: str


class Join(msgspec.Struct, frozen=True, tag="join", tag_field="event"):
    """The broker comes into the overlay, new or after it had left."""

    at_ns: int
    broker: str


class Unplug(msgspec.Struct, frozen=True, tag="unplug", tag_field="event"):
    """An uplink of the broker fails; while it has another, that one takes over."""

    at_ns: int
    broker: str
    uplink: str


class Plug(msgspec.Struct, frozen=True, tag="plug", tag_field="event"):
    """An uplink of the broker works again."""

    at_ns: int
    broker: str
    uplink: str


Event: TypeAlias = Slow | Lossy | Cut | Partition | Heal | Crash | Restart | Leave | Join | Unplug | Plug


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """How a simulation runs. Time zero, from which all times count, comes after the brokers have had `settle`."""

    duration_ns: int = 60 * SECOND
    seed: int = 0
    settle_ns: int = 10 * SECOND


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for the whole network, the file's table [network]."""

    routing: Routing = "adaptive"
    scheduling: Scheduling = "edf-shed"
    ping_interval_ns: int = 500 * MS


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """Who may connect, and how brokers prove who they are. Files are paths; nothing secret stands in a network file."""

    anonymous: bool | None = None  # None: only clients on the same machine
    users: str | None = None
    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None
    client_certificate: ClientCertificate = "required"  # where there is a client_ca
    admin_token: str | None = None
    overlay_secret: str | None = None
    overlay_tls: bool = False  # with the same certificate and authority as clients
    overlay_open: bool = False  # whether a broker on another machine is believed its mere name
    jwt: Tokens | None = None
    hook: LoginHook | None = None


class Border(msgspec.Struct, frozen=True, kw_only=True):
    """What may leave a broker's domain for another broker, and enter it from there; `*` is any. None: no rule."""

    broker: str
    other: str = "*"
    leave: tuple[str, ...] | None = None
    enter: tuple[str, ...] | None = None


ANY_ORIGIN = "*"


class Web(msgspec.Struct, frozen=True, kw_only=True):
    """The listeners `http` and `http_tls`."""

    origins: tuple[str, ...] = ()
    """Of web pages that may use them besides pages of the broker's own host; "*" is every page."""
    url: str | None = None
    """Scheme and host under which subscribers reach the broker. None: as each request says."""
    callback_networks: tuple[str, ...] = ()
    """Where callbacks may be besides the public internet."""
    connections: int = 1_000


class Gateway(msgspec.Struct, frozen=True, kw_only=True):
    """A process that joins a broker of the overlay and a foreign broker, and passes messages on between them."""

    name: str
    broker: str
    """The broker of the overlay."""
    to: str
    """Where the foreign broker is: `mqtt://host:port`, several addresses separated by commas."""
    topics: tuple[NameRule, ...] = ()
    version: MqttVersion = "5"
    qos: int = 1
    """The highest QoS with which messages cross."""
    backlog_rate: int | None = 1_000
    """Messages a second in each direction while what has waited is passed on."""
    stream: str | None = None
    """A JetStream stream that has what comes from NATS."""
    address: str = "{}"
    """How an AMQP broker writes the address of a topic; `{}` is its name."""
    syntax: AddressSyntax = "slashes"
    queue: str | None = None
    """The address of an AMQP queue that has what comes from there."""
    user: str | None = None
    password_file: str | None = None
    sasl: SaslMechanism = "PLAIN"
    """How it logs in at Kafka."""
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    overlay_user: str | None = None
    """How it logs in at the broker of the overlay."""
    overlay_password_file: str | None = None


class DdsGateway(msgspec.Struct, frozen=True, kw_only=True):
    """A process that joins a broker of the overlay and a DDS domain."""

    name: str
    broker: str
    domain: int = 0
    topics: tuple[str, ...] = ("*",)
    """Patterns of the DDS topics that may cross."""
    prefix: str = "dds"
    """Gateways with the same prefix interoperate; the topics of the overlay begin with it."""
    format: DdsFormat = "cdr"


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """What brokers record of themselves, and how much room that takes."""

    enabled: bool | None = None  # None: where a broker has a directory for it
    file_bytes: int = 32 * 2**20  # of the rows before they are compressed
    file_age_ns: int = 300 * SECOND
    disk_bytes: int = 2**30  # of all files of one broker
    deliveries_per_second: int = 100


class Coordination(msgspec.Struct, frozen=True, kw_only=True):
    """Where ZooKeeper is, and how brokers log in there."""

    zookeeper: str = EMBEDDED
    """`HOST:PORT`, separated by commas."""
    path: str = "/overlane"
    """All znodes are below it."""
    servers: int = 3  # of an embedded ensemble
    user: str | None = None
    password_file: str | None = None
    ca: str | None = None  # with it, TLS
    certificate: str | None = None
    key: str | None = None


class RoutingTier(msgspec.Struct, frozen=True, kw_only=True):
    """How topics are shared among routing brokers, and how many there are."""

    strategy: str = STRATEGIES[0]
    brokers_min: int = 1
    brokers_max: int = 64
    rate_bps: int | None = None
    """What one routing broker can send over all links together. None: its links do not count in its load."""
    grow_above: float = 0.7
    grow_after_ns: int = 30 * SECOND
    shrink_below: float = 0.5
    shrink_after_ns: int = 300 * SECOND
    launcher: Launcher | None = None  # None: nobody starts any
    command: tuple[str, ...] = ()
    unit: str = "overlane-routing@"
    resource: str = "statefulset/overlane-routing"
    namespace: str = "default"


class Scoring(msgspec.Struct, frozen=True, kw_only=True):
    """How much what a host measures of itself counts when hosts for copies are chosen."""

    cpu: float = 1.0
    memory: float = 1.0
    bandwidth: float = 1.0
    battery: float = 1.0
    cpu_needed: float = 1.0  # GHz
    memory_needed_bytes: int = 512 * 2**20
    bandwidth_needed_bps: int = 10**6
    battery_needed_ns: int = 3_600 * SECOND
    command: tuple[str, ...] = ()
    """Prints a number from 0 to 1, which counts as much as a weight of 1."""


class CopiesOf(msgspec.Struct, frozen=True, kw_only=True):
    """Where copies of one broker may be."""

    name: str
    """Of the broker."""
    hosts: tuple[str, ...]
    """Best first."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of the durable state of brokers on other hosts of their domain."""

    mirrors: int = 0
    """Copies of each broker besides its own."""
    silence_ns: int = 600 * MS
    """After which a silent broker is continued elsewhere."""
    on_takeover: tuple[str, ...] = ()
    """A command that the host runs which has continued a broker."""
    together: tuple[tuple[str, ...], ...] = ()
    """Groups of hosts that are likely to fail together."""
    scoring: Scoring = Scoring()
    brokers: tuple[CopiesOf, ...] = ()


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """Topics that are placed as one: they have a primary broker and a mirror in every domain."""

    name: str
    topics: tuple[str, ...]
    """Filters."""
    critical: bool = False
    """Whether clients that follow the directory publish to both brokers at once."""
    domain: str = ""
    """Where it is placed; empty: in every domain."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """How items are placed on the brokers of a domain."""

    capacity: float = 10_000.0
    """Messages per second of a broker that has none of its own."""
    risk_max: float = 0.02
    """Pr(V > C) of every broker stays below it."""
    brokers_min: int = 2
    """So many are never switched off."""
    off_below: float | None = None
    """Brokers are switched off while the load is below this share of the capacity in use; None: never."""
    off_after_ns: int = 300 * SECOND
    master: str = "power"


class Network(msgspec.Struct, frozen=True, kw_only=True):
    brokers: tuple[Broker, ...] = ()
    links: tuple[Link, ...] = ()
    topics: tuple[Topic, ...] = ()
    publishers: tuple[Publisher, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()
    events: tuple[Event, ...] = ()
    simulation: Simulation = Simulation()
    defaults: Defaults = Defaults()
    security: Security = Security()
    access: tuple[Rule, ...] = ()
    limits: Limits = Limits()
    federation: tuple[Border, ...] = ()
    telemetry: Telemetry = Telemetry()
    web: Web = Web()
    gateways: tuple[Gateway, ...] = ()
    coordination: Coordination | None = None
    routing: RoutingTier = RoutingTier()
    recovery: Recovery = Recovery()
    reservations: ReservationRules = ReservationRules()
    advertisements: tuple[Advertised, ...] = ()
    mediation: tuple[MediationRule, ...] = ()
    dds: tuple[DdsGateway, ...] = ()
    items: tuple[Item, ...] = ()
    placement: Placement = Placement()

    def absent_at_start(self) -> tuple[str, ...]:
        """The brokers that are not there yet: those whose first coming or going is to join."""
        first: dict[str, Event] = {}
        for event in self.events:
            if isinstance(event, Leave | Join):
                first.setdefault(event.broker, event)
        return tuple(name for name, event in first.items() if isinstance(event, Join))
