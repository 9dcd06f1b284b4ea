"""Configuration of a broker, and views of its routes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from overlane.core.federation import OPEN, Federation
from overlane.core.qos import QosClass, QosTable
from overlane.core.requirements import Unmet
from overlane.core.units import MS, Nanos

PLAIN = "plain"
EDGE = "edge"
ROUTING = "routing"
BACKUP = "backup"
ROLES = (PLAIN, EDGE, ROUTING, BACKUP)
"""Of a broker: plain ones tell each other everything; edges have clients, and tell routing brokers what concerns the
bundles that these carry; a backup stands by to be a routing broker."""


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    name: str
    qos: QosTable
    scheduling: str = "edf-shed"
    ping_interval_ns: Nanos = 500 * MS
    failure: float = 0.0
    link_failure: dict[str, float] = field(default_factory=dict)
    queue_bytes_max: int = 256 * 1024
    link_queue_bytes_max: dict[str, int] = field(default_factory=dict)
    """By neighbour, where it differs from `queue_bytes_max`."""
    retention_bytes_max: int = 64 << 20
    federation: Federation = OPEN
    named: frozenset[str] = frozenset()
    """Brokers that are trusted without proof: those of the network file."""
    brokers_max: int = 1024
    """How many other brokers are admitted."""
    routes_max: int = 0
    """Routes with several destinations in a class; 0: as many as there are sets of destinations."""
    role: str = PLAIN
    assignment: Mapping[int, str] = field(default_factory=dict)
    """Bundles, and the routing brokers that carry them, as far as they are assigned."""
    standbys: Mapping[int, str] = field(default_factory=dict)
    """Bundles, and the routing brokers that would carry them next: edges tell these the same as the carriers."""
    direct: frozenset[str] = frozenset()
    """Neighbours, edges like this one, by links that serve deadlines only: nothing but links is told over them."""
    domains: Mapping[str, str] = field(default_factory=dict)
    """Of the named brokers; empty for one that is a domain of its own."""
    encrypted: frozenset[str] = frozenset()
    """Neighbours whose links are encrypted by other means than TLS, as the configuration says."""

    def needs_restart(self, other: "BrokerConfig") -> list[str]:
        """The fields that differ and cannot change while the broker runs."""
        fixed = (
            "name",
            "scheduling",
            "ping_interval_ns",
            "failure",
            "queue_bytes_max",
            "retention_bytes_max",
            "federation",
        )
        found = [field_name for field_name in fixed if getattr(self, field_name) != getattr(other, field_name)]
        if self.role not in (other.role, PLAIN):
            found.append("role")
        return found if self.qos.histories == other.qos.histories else [*found, "history"]


Destinations = tuple[str, ...]
RouteKind = tuple[QosClass, Destinations]
"""What messages have in common that are sent alike: their class, and the brokers that need them."""


@dataclass(frozen=True, slots=True)
class RouteDemand:
    """What has been sent of one kind so far, where routes are shared."""

    qos: QosClass
    destinations: Destinations
    sent_bytes: int
    """Of the bodies of its messages. It does not shrink while the kind is in use."""


@dataclass(frozen=True, slots=True)
class SourceRoute:
    """A route of this source, for people and tests."""

    id: int
    version: int
    qos: QosClass
    destinations: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    latency_ns: dict[str, Nanos]
    cause: str
    established: bool
    avoided: tuple[tuple[str, str], ...] = ()
    """Links that the route avoids because parcels over them do not arrive."""
    unmet: tuple[Unmet, ...] = ()
    """Requirements of its class that it does not meet."""
    quality: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Of classes that ask for quality: loss and resiliency, by destination."""


@dataclass(frozen=True, slots=True)
class InboundRouteView:
    """A route of another broker that ends here."""

    origin: str
    links: tuple[tuple[str, str], ...]
    deadline_ns: Nanos
