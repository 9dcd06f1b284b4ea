"""A picture of an overlay: what there is to see at one moment. A change: what is different in the next one.

A picture is made of things by name: brokers, links, routes, topics. A change has those that are new or different,
whole, and the names of those that are gone; so the picture after it follows from the picture before it, and a page that
was given one picture and all changes since sees what the monitor sees.

Values are rounded to what people can see before they are compared: what differs in the noise only has not changed.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from overlane.monitor.happenings import Happening

BrokerState: TypeAlias = Literal["serving", "draining", "lost", "unknown"]
LinkState: TypeAlias = Literal["up", "suspect", "failed", "down", "unknown"]
Path: TypeAlias = tuple[str, ...]


class Broker(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`lost`: it does not answer, `why` says how. `unknown`: it never did."""

    state: BrokerState
    latitude: float | None = None
    longitude: float | None = None
    why: str = ""
    incarnation: int = 0
    clients: int = 0
    subscriptions: int = 0
    in_hz: float = 0.0
    """Messages a second from clients; `out_hz` to clients."""
    out_hz: float = 0.0
    queue_messages: int = 0
    dropped: int = 0
    lag_ms: float = 0.0
    cpu: float = 0.0
    """Of one processor, as a share."""
    memory_mib: int = 0
    in_time: float | None = None
    """Of what other brokers sent here lately, the share that was in time."""
    address: str = ""


class Way(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One direction of a link, as its sender has measured it."""

    state: LinkState = "unknown"
    latency_ms: float | None = None
    jitter_ms: float | None = None
    loss: float | None = None
    rate_bps: float = 0.0
    queue_bytes: int = 0
    queue_bytes_max: int = 0
    emulated: str = ""
    """How it is made to behave, if it is."""


class Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`ways`: from the first of the ends to the second, and back. `state` is the worse of what both ends say."""

    ends: tuple[str, str]
    state: LinkState
    ways: tuple[Way, Way] = (Way(), Way())


class Route(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a class of topics gets from a source to its destinations now. `filters` of the network file, and topics."""

    source: str
    destinations: tuple[str, ...]
    filters: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    paths: dict[str, tuple[Path, ...]] = {}
    """To each destination."""
    latency_ms: dict[str, float] = {}
    deadline_ms: float | None = None
    reliable: bool = False
    routing: str = ""
    cause: str = ""
    version: int = 0
    is_established: bool = True


class Figures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of messages in some time. A message counts once for each broker that it is delivered at."""

    published: int = 0
    delivered: int = 0
    in_time: int = 0
    lost: int = 0
    """Should have come by now and have not. What is reliable is sent again, and counts no more when it has come."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


class Topic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Topics that one filter of the network file gives their quality: lately, and altogether."""

    deadline_ms: float | None = None
    reliable: bool = False
    routing: str = ""
    rate_hz: float = 0.0
    lately: Figures = Figures()
    total: Figures = Figures()


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    at_s: float
    brokers: dict[str, Broker] = {}
    links: dict[str, Link] = {}
    routes: dict[str, Route] = {}
    topics: dict[str, Topic] = {}


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`gone` has the names of things that are no more, by kind."""

    at_s: float
    brokers: dict[str, Broker] = {}
    links: dict[str, Link] = {}
    routes: dict[str, Route] = {}
    topics: dict[str, Topic] = {}
    gone: dict[str, tuple[str, ...]] = {}
    happenings: tuple[Happening, ...] = ()

    @property
    def size(self) -> int:
        """How many things it has."""
        return len(self.brokers) + len(self.links) + len(self.routes) + len(self.topics) + len(self.happenings)


DROPPED = ("expired_dropped", "queue_full_dropped", "unroutable_dropped", "overtaken_dropped")
"""What a core counts of parcels that were given up; that a second copy of one is dropped is as it should be."""

PATHS_SHOWN = 8
"""Of a route, to each destination."""
TOPICS_SHOWN = 20
"""Of a route."""

_BADNESS: tuple[LinkState, ...] = ("unknown", "up", "suspect", "down", "failed")

KINDS = ("brokers", "links", "routes", "topics")

Thing = TypeVar("Thing")


def difference(before: Picture, after: Picture, happenings: tuple[Happening, ...] = ()) -> Change:
    """What leads from one picture to the next."""
    changed: dict[str, Any] = {}
    gone: dict[str, tuple[str, ...]] = {}
    for kind in KINDS:
        old, new = getattr(before, kind), getattr(after, kind)
        changed[kind] = _news(old, new)
        if missing := tuple(sorted(old.keys() - new.keys())):
            gone[kind] = missing
    return Change(at_s=after.at_s, gone=gone, happenings=happenings, **changed)


def changed(before: Picture, change: Change) -> Picture:
    """The picture after a change."""
    things = {kind: _updated(getattr(before, kind), getattr(change, kind), change.gone.get(kind, ())) for kind in KINDS}
    return Picture(at_s=change.at_s, **things)


def _news(old: Mapping[str, Thing], new: Mapping[str, Thing]) -> dict[str, Thing]:
    return {name: thing for name, thing in new.items() if old.get(name) != thing}


def _updated(old: dict[str, Thing], news: dict[str, Thing], gone: tuple[str, ...]) -> dict[str, Thing]:
    return {name: thing for name, thing in (old | news).items() if name not in gone}


def worse(one: LinkState, other: LinkState) -> LinkState:
    return max(one, other, key=_BADNESS.index)


def link_name(one: str, other: str) -> str:
    """The same from both ends; `|` is in no broker's name."""
    return f"{min(one, other)}|{max(one, other)}"


def rounded(value: float, digits: int = 3) -> float:
    """To so many significant digits: what is written and compared is no more than what can be seen."""
    return float(f"{value:.{digits}g}")
