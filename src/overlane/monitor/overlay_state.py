"""The state of an overlay at one moment, and the delta between two states.

A state consists of named items: brokers, links, routes, topics. A delta contains new and modified items in full, and
the names of removed ones. A page that has an initial state and all deltas since shows what the monitor shows.

Values are rounded to displayed precision before comparison, so noise is not a change.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from overlane.monitor.timeline_events import TimelineEvent

BrokerState: TypeAlias = Literal["serving", "draining", "lost", "unknown"]
LinkState: TypeAlias = Literal["up", "suspect", "failed", "down", "unknown"]
Path: TypeAlias = tuple[str, ...]


class Mirror(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A copy of a broker at another host."""

    host: str
    in_sync: bool = False
    lag_bytes: int = 0
    lag_ms: float = 0.0


class Copies(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a broker with mirrors runs, and which hosts may continue it."""

    host: str
    epoch: int
    mirrors: tuple[Mirror, ...] = ()


class ForeignBroker(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A broker of another technology that a gateway joins to one of the overlay."""

    gateway: str
    to: str
    state: str
    """`up`, `connecting` or `down`; `why` is the reason of the last two."""
    why: str = ""
    in_hz: float = 0.0
    """Messages per second into the overlay; `out_hz`: out of it."""
    out_hz: float = 0.0
    waiting: int = 0
    """Messages that have not crossed yet, in both directions."""


class BrokerStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`lost`: does not respond; `why` is the reason. `unknown`: has never responded."""

    state: BrokerState
    latitude: float | None = None
    longitude: float | None = None
    why: str = ""
    incarnation: int = 0
    clients: int = 0
    subscriptions: int = 0
    in_hz: float = 0.0
    """Messages per second from clients; `out_hz`: to clients."""
    out_hz: float = 0.0
    queue_messages: int = 0
    dropped: int = 0
    lag_ms: float = 0.0
    cpu: float = 0.0
    """Share of one CPU core."""
    memory_mib: int = 0
    in_time: float | None = None
    """Recent share in time of messages from other brokers."""
    address: str = ""
    role: str = ""
    """`edge`, `routing` or `backup`; empty for a plain broker, whose place says nothing of its part."""
    domain: str = ""
    is_leader: bool = False
    bundles: int = 0
    """Bundles of topics that a routing broker carries."""
    copies: Copies | None = None
    """None without [recovery]."""
    gateways: tuple[ForeignBroker, ...] = ()


class LinkDirection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One direction of a link, as measured by its sender."""

    state: LinkState = "unknown"
    latency_ms: float | None = None
    jitter_ms: float | None = None
    loss: float | None = None
    rate_bps: float = 0.0
    queue_bytes: int = 0
    queue_bytes_max: int = 0
    emulated: str = ""
    """Emulated conditions, if any."""
    reserved: float = 0.0
    """Share of the rate that reservations have."""


class Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`ways`: from the first end to the second, and back. `state`: the worse of the states at both ends."""

    ends: tuple[str, str]
    state: LinkState
    ways: tuple[LinkDirection, LinkDirection] = (LinkDirection(), LinkDirection())


class Route(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The current paths of a class of topics from a source to its destinations. `filters`: of the network file."""

    source: str
    destinations: tuple[str, ...]
    filters: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    paths: dict[str, tuple[Path, ...]] = {}
    """Per destination."""
    latency_ms: dict[str, float] = {}
    deadline_ms: float | None = None
    reliable: bool = False
    routing: str = ""
    cause: str = ""
    version: int = 0
    is_established: bool = True
    unmet: dict[str, str] = {}
    """Per destination, a requirement that is not met."""


class Figures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Delivery figures of a period. A message counts once per broker that delivers it."""

    published: int = 0
    delivered: int = 0
    in_time: int = 0
    lost: int = 0
    """Overdue messages. A reliable message no longer counts once its retransmission has arrived."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


class Topic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The topics of one filter of the network file: recent and total figures."""

    deadline_ms: float | None = None
    reliable: bool = False
    routing: str = ""
    rate_hz: float = 0.0
    lately: Figures = Figures()
    total: Figures = Figures()


class OverlayState(msgspec.Struct, frozen=True, kw_only=True):
    at_s: float
    brokers: dict[str, BrokerStatus] = {}
    links: dict[str, Link] = {}
    routes: dict[str, Route] = {}
    topics: dict[str, Topic] = {}


class OverlayDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`gone`: names of removed items, by kind."""

    at_s: float
    brokers: dict[str, BrokerStatus] = {}
    links: dict[str, Link] = {}
    routes: dict[str, Route] = {}
    topics: dict[str, Topic] = {}
    gone: dict[str, tuple[str, ...]] = {}
    happenings: tuple[TimelineEvent, ...] = ()

    @property
    def size(self) -> int:
        """Number of items."""
        return len(self.brokers) + len(self.links) + len(self.routes) + len(self.topics) + len(self.happenings)


PATHS_SHOWN = 8
"""Per route and destination."""
TOPICS_SHOWN = 20
"""Per route."""

_SEVERITY: tuple[LinkState, ...] = ("unknown", "up", "suspect", "down", "failed")

KINDS = ("brokers", "links", "routes", "topics")

Item = TypeVar("Item")


def state_delta(before: OverlayState, after: OverlayState, happenings: tuple[TimelineEvent, ...] = ()) -> OverlayDelta:
    """The delta from one state to the next."""
    changed: dict[str, Any] = {}
    gone: dict[str, tuple[str, ...]] = {}
    for kind in KINDS:
        old, new = getattr(before, kind), getattr(after, kind)
        changed[kind] = _news(old, new)
        if missing := tuple(sorted(old.keys() - new.keys())):
            gone[kind] = missing
    return OverlayDelta(at_s=after.at_s, gone=gone, happenings=happenings, **changed)


def apply_delta(before: OverlayState, change: OverlayDelta) -> OverlayState:
    """The state after a delta."""
    things = {kind: _updated(getattr(before, kind), getattr(change, kind), change.gone.get(kind, ())) for kind in KINDS}
    return OverlayState(at_s=change.at_s, **things)


def _news(old: Mapping[str, Item], new: Mapping[str, Item]) -> dict[str, Item]:
    return {name: thing for name, thing in new.items() if old.get(name) != thing}


def _updated(old: dict[str, Item], news: dict[str, Item], gone: tuple[str, ...]) -> dict[str, Item]:
    return {name: thing for name, thing in (old | news).items() if name not in gone}


def worse(one: LinkState, other: LinkState) -> LinkState:
    return max(one, other, key=_SEVERITY.index)


def link_name(one: str, other: str) -> str:
    """The same from both ends; broker names contain no `|`."""
    return f"{min(one, other)}|{max(one, other)}"


def rounded(value: float, digits: int = 3) -> float:
    """Rounded to significant digits."""
    return float(f"{value:.{digits}g}")
