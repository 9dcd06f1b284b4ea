"""The operations of the admin API: method, path, parameters, response and handler of each.

The table `Operations.all` is complete: the HTTP server routes by it, and the OpenAPI document is generated from it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import structs

from overlane.adminapi.views import (
    BrokerView,
    ClientDetail,
    ClientPage,
    DeliveryList,
    DirectoryView,
    ErrorView,
    EventList,
    GatewayList,
    HealthView,
    LinkList,
    ReadyView,
    RecoveryView,
    ReservationsView,
    RetainedView,
    RouteList,
    SnapshotView,
    SubscriptionPage,
    TopicPage,
    View,
)
from overlane.core.topics import BadTopic, check_filter
from overlane.errors import OverlaneError
from overlane.node.admin.inspection import Inspection

if TYPE_CHECKING:
    from overlane.node.admin.metrics import Metrics

LIMIT = 100
LIMIT_MAX = 1_000


class BadAdminRequest(OverlaneError):
    """The fault of who asks; what is wrong with the request."""

    error_code = "OVL-104"


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is encoded already."""

    status: int
    body: bytes
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    told: str
    place: Literal["path", "query"] = "query"
    schema: Mapping[str, object] = field(default_factory=lambda: {"type": "string"})


Asked = Mapping[str, str]
"""The parameters of a request."""
BODY = "body"
"""The parameter that is the body of the request, where an operation takes one."""
USER = "user"
"""The parameter that is the user who asks, "" for an operator, where an operation is for users."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`answers`: what each status comes with; None where there is no body, or text. `is_open`: asks for no token."""

    method: Literal["GET", "PUT", "POST", "DELETE"]
    path: str
    told: str
    call: Callable[[Asked], Awaitable[Answer]]
    answers: Mapping[int, type[View] | str | None]
    parameters: tuple[Parameter, ...] = ()
    takes: type[msgspec.Struct] | None = None
    """What the body of the request is; it comes as the parameter `body`."""
    is_open: bool = False
    is_for_users: bool = False
    """Whether users of MQTT may ask too, by name and password. Who it is comes as the parameter `user`."""


_PAGE = (
    Parameter("limit", f"Maximum number of results, up to {LIMIT_MAX}.", schema={"type": "integer", "default": LIMIT}),
    Parameter("after", "The `next` of the previous page."),
)
_AFTER = Parameter("after", "Only events after the one of this number.", schema={"type": "integer", "default": 0})
_CLIENT = Parameter("id", "The client's identifier.", "path")
_SESSION = Parameter(
    "session",
    "true: delete its session too, with its subscriptions and queue, also if it is not connected.",
    schema={"type": "boolean", "default": False},
)


class Operations:
    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection
        self._metrics: Metrics | None = None
        wanted_client = Parameter("filter", "Only clients whose identifier or user name contains this text.")
        wanted_subscription = Parameter(
            "filter", "Only subscriptions whose filter or client identifier contains this text."
        )
        wanted_topic = Parameter("filter", "Only topics that match this MQTT filter.")
        order = Parameter(
            "order",
            "By name, in pages; or by number of messages, on one page.",
            schema={"type": "string", "enum": ["name", "messages"], "default": "name"},
        )
        one = {404: ErrorView}
        paged = {400: ErrorView}
        self.all: tuple[Operation, ...] = (
            Operation("GET", "/status", "State of the broker.", self._status, {200: BrokerView}),
            Operation(
                "GET",
                "/clients",
                "Clients that are connected or have a session, by identifier.",
                self._clients,
                {200: ClientPage, **paged},
                (*_PAGE, wanted_client),
            ),
            Operation(
                "GET",
                "/clients/{id}",
                "One client and its subscriptions.",
                self._client,
                {200: ClientDetail, **one},
                (_CLIENT,),
            ),
            Operation(
                "DELETE",
                "/clients/{id}",
                "Disconnect a client. It may reconnect; its session is kept, unless `session` is true.",
                self._disconnect,
                {204: None, **one, **paged},
                (_CLIENT, _SESSION),
            ),
            Operation(
                "GET",
                "/subscriptions",
                "Subscriptions, by client and filter.",
                self._subscriptions,
                {200: SubscriptionPage, **paged},
                (*_PAGE, wanted_subscription),
            ),
            Operation(
                "GET",
                "/topics",
                "Topics that clients of this broker have published to.",
                self._topics,
                {200: TopicPage, **paged},
                (*_PAGE, wanted_topic, order),
            ),
            Operation("GET", "/retained/count", "Retained messages.", self._retained, {200: RetainedView}),
            Operation("GET", "/gateways", "Gateways to foreign brokers.", self._gateways, {200: GatewayList}),
            Operation("GET", "/links", "Links to neighbours.", self._links, {200: LinkList}),
            Operation("GET", "/routes", "Routes from this broker.", self._routes, {200: RouteList}),
            Operation(
                "GET",
                "/reservations",
                "Advertisements, reservations of subscribers, and reserved rates of links.",
                self._reservations,
                {200: ReservationsView},
            ),
            Operation(
                "GET",
                "/reservations/capture",
                "The latest RSVP messages of this broker, as a packet capture.",
                self._capture,
                {200: "application/vnd.tcpdump.pcap"},
            ),
            Operation(
                "GET",
                "/events",
                "Recent events of the overlay at this broker, with reasons.",
                self._events,
                {200: EventList, **paged},
                (_AFTER,),
            ),
            Operation(
                "GET",
                "/deliveries",
                "Messages published at this broker and delivered here from others: count, age, share in time.",
                self._deliveries,
                {200: DeliveryList},
            ),
            Operation(
                "GET",
                "/glance",
                "Status, links, routes, events and deliveries in one response.",
                self._snapshot,
                {200: SnapshotView, **paged},
                (_AFTER,),
            ),
            Operation("GET", "/recovery", "Copies of the broker at other hosts.", self._recovery, {200: RecoveryView}),
            Operation(
                "GET",
                "/directory",
                "Items with their primary and mirror brokers; with a topic, the item that it belongs to.",
                self._directory,
                {200: DirectoryView, 404: ErrorView},
                (Parameter("topic", "Only the item of this topic."),),
            ),
            Operation("GET", "/metrics", "Metrics for Prometheus.", self._scrape, {200: "text/plain"}),
            Operation(
                "GET",
                "/health",
                "Liveness check.",
                self._health,
                {200: HealthView, 503: HealthView},
                is_open=True,
            ),
            Operation(
                "GET",
                "/ready",
                "Readiness check: whether clients are accepted.",
                self._ready,
                {200: ReadyView, 503: ReadyView},
                is_open=True,
            ),
        )

    async def _status(self, _: Asked) -> Answer:
        return json_answer(await self._inspection.broker())

    async def _recovery(self, _: Asked) -> Answer:
        return json_answer(self._inspection.recovery())

    async def _directory(self, asked: Asked) -> Answer:
        view, topic = self._inspection.directory(), asked.get("topic")
        if topic is None:
            return json_answer(view)
        found = self._inspection.item_of(topic)
        if found is None:
            return json_answer(ErrorView(error=f"no item has the topic {topic[:100]}"), 404)
        return json_answer(structs.replace(view, items=[one for one in view.items if one.item == found]))

    async def _clients(self, asked: Asked) -> Answer:
        return json_answer(await self._inspection.clients(limit_of(asked), asked.get("after"), asked.get("filter", "")))

    async def _client(self, asked: Asked) -> Answer:
        found = self._inspection.client(asked["id"])
        return _nobody() if found is None else json_answer(found)

    async def _disconnect(self, asked: Asked) -> Answer:
        with_session = asked.get("session", "false")
        if with_session not in ("true", "false"):
            raise BadAdminRequest(f"session={with_session[:40]!a}: allowed are true and false")
        if self._inspection.disconnect(asked["id"], with_session == "true"):
            return Answer(204, b"")
        return _nobody("" if with_session == "true" else "connected ")

    async def _subscriptions(self, asked: Asked) -> Answer:
        return json_answer(
            await self._inspection.subscriptions(limit_of(asked), asked.get("after"), asked.get("filter", ""))
        )

    async def _topics(self, asked: Asked) -> Answer:
        topic_filter, order = asked.get("filter", ""), asked.get("order", "name")
        if order not in ("name", "messages"):
            raise BadAdminRequest(f"order={order[:40]!a}: allowed are name and messages")
        busiest = order == "messages"
        if busiest and "after" in asked:
            raise BadAdminRequest("after: the busiest topics come on one page")
        try:
            if topic_filter:
                check_filter(topic_filter)
        except BadTopic as bad:
            raise BadAdminRequest(f"filter: {bad}") from None
        return json_answer(await self._inspection.topics(limit_of(asked), asked.get("after"), topic_filter, busiest))

    async def _retained(self, _: Asked) -> Answer:
        return json_answer(self._inspection.retained())

    async def _gateways(self, _: Asked) -> Answer:
        return json_answer(self._inspection.gateways())

    async def _links(self, _: Asked) -> Answer:
        return json_answer(LinkList(items=self._inspection.links()))

    async def _routes(self, _: Asked) -> Answer:
        return json_answer(RouteList(items=self._inspection.routes()))

    async def _reservations(self, _: Asked) -> Answer:
        return json_answer(self._inspection.reservations())

    async def _capture(self, _: Asked) -> Answer:
        return Answer(200, self._inspection.capture(), "application/vnd.tcpdump.pcap")

    async def _events(self, asked: Asked) -> Answer:
        return json_answer(self._inspection.events(_after(asked)))

    async def _deliveries(self, _: Asked) -> Answer:
        return json_answer(await self._inspection.deliveries())

    async def _snapshot(self, asked: Asked) -> Answer:
        return json_answer(await self._inspection.snapshot(_after(asked)))

    async def _scrape(self, _: Asked) -> Answer:
        # Only for those who scrape: the library brings an HTTP server and a parser of mail along.
        from overlane.node.admin.metrics import CONTENT_TYPE, Metrics

        if self._metrics is None:
            self._metrics = Metrics(self._inspection)
        return Answer(200, await self._metrics.exposition(), CONTENT_TYPE)

    async def _health(self, _: Asked) -> Answer:
        is_alive = self._inspection.is_alive
        return json_answer(HealthView(alive=is_alive), 200 if is_alive else 503)

    async def _ready(self, _: Asked) -> Answer:
        reasons = self._inspection.not_ready()
        return json_answer(ReadyView(ready=not reasons, reasons=reasons), 503 if reasons else 200)


def json_answer(view: View, status: int = 200) -> Answer:
    return Answer(status, msgspec.json.encode(view))


def _nobody(kind: str = "") -> Answer:
    return json_answer(ErrorView(error=f"there is no {kind}client of this identifier"), 404)


def _after(asked: Asked) -> int:
    text = asked.get("after", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BadAdminRequest(f"after={text[:40]!a}: allowed is the number of an event")
    return int(text)


def limit_of(asked: Asked) -> int:
    """The number of results that are wanted; BadAdminRequest."""
    text = asked.get("limit", str(LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and 1 <= int(text) <= LIMIT_MAX):
        raise BadAdminRequest(f"limit={text[:40]!a}: allowed is a number from 1 to {LIMIT_MAX}")
    return int(text)
