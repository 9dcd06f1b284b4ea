"""What monitors follow: events of the overlay, what was delivered from where, and all of it in one response."""

from typing import Literal, TypeAlias

import msgspec

from overlane.adminapi.views.broker import BrokerView
from overlane.adminapi.views.gateways import GatewayView
from overlane.adminapi.views.links import LinkView, RouteView
from overlane.adminapi.views.view import View

EventKind: TypeAlias = Literal[
    "link", "route", "deadline", "requirement", "path", "name-conflict", "brokers-refused", "border"
]


class EventView(View, frozen=True, kw_only=True):
    """An event of the overlay at this broker, numbered since the broker started.

    link: the link to `peer` changed to `state`. route: the route to `destinations` changed to `paths` because of
    `cause`. deadline: no path to `peer` meets the deadline. path: `peer` is `suspect`, because messages to
    `destinations` over `paths` do not arrive, or is `trusted` again. requirement:
    that to `peer` is `unmet`, or `met` again; see `cause`. name-conflict: another broker runs under the name
    `peer`, according to `cause`. brokers-refused: `peer` advertised more brokers than allowed; see `cause`.
    border: messages of `peer` may not enter here; see `cause`.
    """

    number: int
    ago_s: float
    kind: EventKind
    peer: str = ""
    state: str = ""
    cause: str = ""
    route: int = 0
    destinations: tuple[str, ...] = ()
    paths: dict[str, tuple[tuple[str, ...], ...]] = msgspec.field(default_factory=dict)
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
    """Status, links, routes, events, deliveries and gateways in one response, for monitors."""

    broker: BrokerView
    links: tuple[LinkView, ...]
    routes: tuple[RouteView, ...]
    events: EventList
    deliveries: DeliveryList
    gateways: tuple[GatewayView, ...] = ()
