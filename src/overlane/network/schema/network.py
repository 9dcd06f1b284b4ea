"""The whole network."""

import msgspec

from overlane.mediation.rule import MediationRule
from overlane.network.schema.choices import Routing, Scheduling
from overlane.network.schema.domains import Coordination, Recovery, RoutingTier
from overlane.network.schema.gateways import DdsGateway, DomainName, Gateway
from overlane.network.schema.overlay import Border, Broker, Link
from overlane.network.schema.security import Security, Web
from overlane.network.schema.simulation import Event, Join, Leave, Publisher, Simulation, Subscriber
from overlane.network.schema.topics import Advertised, Item, Placement, ReservationRules, Topic
from overlane.pubsub.access import Rule
from overlane.pubsub.limits import Limits
from overlane.quantities import MS, SECOND


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for the whole network, the file's table [network]."""

    routing: Routing = "adaptive"
    scheduling: Scheduling = "edf-shed"
    ping_interval_ns: int = 500 * MS


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """What brokers record of themselves, and how much room that takes."""

    enabled: bool | None = None  # None: where a broker has a directory for it
    file_bytes: int = 32 * 2**20  # of the rows before they are compressed
    file_age_ns: int = 300 * SECOND
    disk_bytes: int = 2**30  # of all files of one broker
    deliveries_per_second: int = 100


class Otlp(msgspec.Struct, frozen=True, kw_only=True):
    """Traces and metrics for an OpenTelemetry collector; none without `endpoint`."""

    endpoint: str | None = None
    sample: float = 0.01  # of messages whose publisher does not say
    topics: tuple[str, ...] = ("#",)
    metrics_ns: int | None = None  # None: no metrics


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
    otlp: Otlp = Otlp()
    web: Web = Web()
    gateways: tuple[Gateway, ...] = ()
    coordination: Coordination | None = None
    routing: RoutingTier = RoutingTier()
    recovery: Recovery = Recovery()
    reservations: ReservationRules = ReservationRules()
    advertisements: tuple[Advertised, ...] = ()
    mediation: tuple[MediationRule, ...] = ()
    dds: tuple[DdsGateway, ...] = ()
    names: tuple[DomainName, ...] = ()
    items: tuple[Item, ...] = ()
    placement: Placement = Placement()

    def absent_at_start(self) -> tuple[str, ...]:
        """The brokers that are not there yet: those whose first coming or going is to join."""
        first: dict[str, Event] = {}
        for event in self.events:
            if isinstance(event, Leave | Join):
                first.setdefault(event.broker, event)
        return tuple(name for name, event in first.items() if isinstance(event, Join))
