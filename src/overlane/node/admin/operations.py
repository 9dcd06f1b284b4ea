"""The operations of the admin API: each a method, a path, what it takes and what it answers, and how that is found.

The table `Operations.all` is the whole of it: the HTTP server routes by it, and the OpenAPI document is made from it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from overlane.adminapi.views import (
    BrokerView,
    ClientDetail,
    ClientPage,
    DeliveryList,
    ErrorView,
    EventList,
    HealthView,
    LinkList,
    ReadyView,
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


class BadRequest(OverlaneError):
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
    Parameter("limit", f"At most so many, up to {LIMIT_MAX}.", schema={"type": "integer", "default": LIMIT}),
    Parameter("after", "The `next` of the page before."),
)
_AFTER = Parameter("after", "Only events after the one of this number.", schema={"type": "integer", "default": 0})
_CLIENT = Parameter("id", "The client's identifier.", "path")


class Operations:
    def __init__(self, survey: Inspection) -> None:
        self._survey = survey
        self._metrics: Metrics | None = None
        wanted_client = Parameter("filter", "Only those with this in their identifier or user name.")
        wanted_subscription = Parameter("filter", "Only those with this in their filter or client identifier.")
        wanted_topic = Parameter("filter", "Only topics that match this MQTT filter.")
        order = Parameter(
            "order",
            "By name, in pages; or the busiest ones, on one page.",
            schema={"type": "string", "enum": ["name", "messages"], "default": "name"},
        )
        one = {404: ErrorView}
        paged = {400: ErrorView}
        self.all: tuple[Operation, ...] = (
            Operation("GET", "/status", "The broker at a glance.", self._status, {200: BrokerView}),
            Operation(
                "GET",
                "/clients",
                "Clients, connected or with a session that is kept, by identifier.",
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
                "End a client's connection. Its session stays; it may come again.",
                self._disconnect,
                {204: None, **one},
                (_CLIENT,),
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
                "Topics that clients have published on here.",
                self._topics,
                {200: TopicPage, **paged},
                (*_PAGE, wanted_topic, order),
            ),
            Operation("GET", "/retained/count", "Retained messages.", self._retained, {200: RetainedView}),
            Operation("GET", "/links", "Links to neighbours.", self._links, {200: LinkList}),
            Operation("GET", "/routes", "Routes from this broker.", self._routes, {200: RouteList}),
            Operation(
                "GET",
                "/events",
                "What the overlay's side of the broker did lately, and why.",
                self._events,
                {200: EventList, **paged},
                (_AFTER,),
            ),
            Operation(
                "GET",
                "/deliveries",
                "What was published here, and delivered here from other brokers: how much, how old, how much in time.",
                self._deliveries,
                {200: DeliveryList},
            ),
            Operation(
                "GET",
                "/glance",
                "Status, links, routes, events and deliveries in one answer.",
                self._glance,
                {200: SnapshotView, **paged},
                (_AFTER,),
            ),
            Operation("GET", "/metrics", "Metrics for Prometheus.", self._scrape, {200: "text/plain"}),
            Operation(
                "GET",
                "/health",
                "Whether the process is alive.",
                self._health,
                {200: HealthView, 503: HealthView},
                is_open=True,
            ),
            Operation(
                "GET",
                "/ready",
                "Whether clients are welcome.",
                self._ready,
                {200: ReadyView, 503: ReadyView},
                is_open=True,
            ),
        )

    async def _status(self, _: Asked) -> Answer:
        return told(await self._survey.broker())

    async def _clients(self, asked: Asked) -> Answer:
        return told(await self._survey.clients(_limit(asked), asked.get("after"), asked.get("filter", "")))

    async def _client(self, asked: Asked) -> Answer:
        found = self._survey.client(asked["id"])
        return _nobody() if found is None else told(found)

    async def _disconnect(self, asked: Asked) -> Answer:
        return Answer(204, b"") if self._survey.disconnect(asked["id"]) else _nobody("connected ")

    async def _subscriptions(self, asked: Asked) -> Answer:
        return told(await self._survey.subscriptions(_limit(asked), asked.get("after"), asked.get("filter", "")))

    async def _topics(self, asked: Asked) -> Answer:
        topic_filter, order = asked.get("filter", ""), asked.get("order", "name")
        if order not in ("name", "messages"):
            raise BadRequest(f"order={order[:40]!a}: allowed are name and messages")
        busiest = order == "messages"
        if busiest and "after" in asked:
            raise BadRequest("after: the busiest topics come on one page")
        try:
            if topic_filter:
                check_filter(topic_filter)
        except BadTopic as bad:
            raise BadRequest(f"filter: {bad}") from None
        return told(await self._survey.topics(_limit(asked), asked.get("after"), topic_filter, busiest))

    async def _retained(self, _: Asked) -> Answer:
        return told(self._survey.retained())

    async def _links(self, _: Asked) -> Answer:
        return told(LinkList(items=self._survey.links()))

    async def _routes(self, _: Asked) -> Answer:
        return told(RouteList(items=self._survey.routes()))

    async def _events(self, asked: Asked) -> Answer:
        return told(self._survey.events(_after(asked)))

    async def _deliveries(self, _: Asked) -> Answer:
        return told(await self._survey.deliveries())

    async def _glance(self, asked: Asked) -> Answer:
        return told(await self._survey.glance(_after(asked)))

    async def _scrape(self, _: Asked) -> Answer:
        # Only for those who scrape: the library brings an HTTP server and a parser of mail along.
        from overlane.node.admin.metrics import CONTENT_TYPE, Metrics

        if self._metrics is None:
            self._metrics = Metrics(self._survey)
        return Answer(200, await self._metrics.exposition(), CONTENT_TYPE)

    async def _health(self, _: Asked) -> Answer:
        is_alive = self._survey.is_alive
        return told(HealthView(alive=is_alive), 200 if is_alive else 503)

    async def _ready(self, _: Asked) -> Answer:
        reasons = self._survey.not_ready()
        return told(ReadyView(ready=not reasons, reasons=reasons), 503 if reasons else 200)


def told(view: View, status: int = 200) -> Answer:
    return Answer(status, msgspec.json.encode(view))


def _nobody(kind: str = "") -> Answer:
    return told(ErrorView(error=f"there is no {kind}client of this identifier"), 404)


def _after(asked: Asked) -> int:
    text = asked.get("after", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BadRequest(f"after={text[:40]!a}: allowed is the number of an event")
    return int(text)


def _limit(asked: Asked) -> int:
    text = asked.get("limit", str(LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and 1 <= int(text) <= LIMIT_MAX):
        raise BadRequest(f"limit={text[:40]!a}: allowed is a number from 1 to {LIMIT_MAX}")
    return int(text)
