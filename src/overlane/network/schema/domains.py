"""Brokers of a domain together: ZooKeeper, the routing tier, and copies on other hosts."""

import msgspec

from overlane.network.schema.choices import STRATEGIES, Launcher
from overlane.quantities import MS, SECOND

EMBEDDED = "embedded"
"""Instead of addresses: `overlane up` runs ZooKeeper itself."""


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
