"""Topics: their quality of service, what is advertised and may be reserved, and the items that are placed as one."""

import msgspec

from overlane.core.units import NEVER
from overlane.network.schema.choices import Durability, History, Order, Ownership, Reliability, Routing
from overlane.pubsub.reservations.advertisement import Excess
from overlane.quantities import SECOND


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
