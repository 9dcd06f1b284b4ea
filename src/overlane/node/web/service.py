"""The web service of a broker: routes of its HTTP listeners, from the first connection to the end.

POST /topics/TOPIC            publish
GET  /topics/TOPIC            the retained message
GET  /events?topic=FILTER     Server-Sent Events of topics; where=SELECTOR filters them
GET  /events?stream=NAME      Server-Sent Events of a stream, from Last-Event-ID on
POST /hub                     WebSub
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from http import HTTPStatus

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from overlane.adminapi.views import ErrorView
from overlane.errors import Failure, InDoubt
from overlane.network.schema import ANY_ORIGIN, Web
from overlane.node.driver import Driver
from overlane.node.web.access import Caller, WebAccess
from overlane.node.web.connections import WebConnections
from overlane.node.web.events import WebEvents
from overlane.node.web.hub import Hub
from overlane.node.web.topics import WebTopics, body_of
from overlane.web.errors import BadWebRequest
from overlane.web.event_stream import CONTENT_TYPE
from overlane.web.websub import HUB_PATH, TOPICS_PATH

FORM_BYTES_MAX = 16 * 1024
RETRY_AFTER = {429: "1", 503: "1"}
EXPOSED_HEADERS = ("link", "overlane-topic", "overlane-property", "overlane-expiry", "retry-after")
ALLOWED_HEADERS = (
    "authorization",
    "content-type",
    "last-event-id",
    "overlane-qos",
    "overlane-retain",
    "overlane-expiry",
    "overlane-property",
    "overlane-response-topic",
    "overlane-correlation-data",
    "ce-specversion",
    "ce-id",
    "ce-source",
    "ce-type",
    "ce-time",
    "ce-subject",
    "ce-dataschema",
)

Handler = Callable[[Request, Caller], Awaitable[Response]]


class WebService:
    def __init__(self, driver: Driver, web: Web) -> None:
        self._driver = driver
        self._url = web.url
        self._access = WebAccess(driver, web.origins)
        self._topics = WebTopics(driver)
        self._events = WebEvents(driver)
        self._hub = Hub(driver, web)
        routes = [
            Route(TOPICS_PATH + "{topic:path}", self._answering(self._topics.publish), methods=["POST"]),
            Route(TOPICS_PATH + "{topic:path}", self._answering(self._retained), methods=["GET"]),
            Route("/events", self._answering(self._read_events), methods=["GET"]),
            Route(HUB_PATH, self._answering(self._ask_hub), methods=["POST"]),
        ]
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(web.origins),
            allow_methods=["GET", "POST"],
            allow_headers=list(ALLOWED_HEADERS),
            allow_credentials=bool(web.origins) and ANY_ORIGIN not in web.origins,
            expose_headers=list(EXPOSED_HEADERS),
        )
        app = Starlette(
            routes=routes, middleware=[cors] if web.origins else [], exception_handlers={HTTPException: _misdirected}
        )
        self.protocol = WebConnections(app, web.connections)
        """What reads the bytes of a connection."""

    async def stop(self) -> None:
        await self._hub.stop()
        await self.protocol.close()

    def _answering(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            place = f"{request.method} {request.url.path[:60]}"
            try:
                return await handler(request, await self._access.identify(request))
            except BadWebRequest as bad:
                return _wrong(bad.status, str(bad))
            except ClientDisconnect:
                return _wrong(400, "the body is incomplete")  # to nobody
            except InDoubt as error:
                self._driver.failures.fatal(place, error)
            except Exception as error:
                # A defect of ours; it must not end more than this request.
                self._driver.failures.isolated(Failure("web", place, error))
                return _wrong(500, "internal error of the broker; see its log")

        return answer

    async def _retained(self, request: Request, caller: Caller) -> Response:
        return await self._topics.retained(request, caller, self._own_url(request))

    async def _read_events(self, request: Request, caller: Caller) -> Response:
        asked = request.query_params
        topics, stream = asked.getlist("topic"), asked.get("stream")
        if (stream is None) is not bool(topics):
            raise BadWebRequest("expected ?topic=FILTER or ?stream=NAME")
        if stream is None:
            return _EventResponse(self._events.subscribe(caller, topics, asked.get("where", "")))
        last = request.headers.get("last-event-id") or asked.get("last_event_id", "")
        return _EventResponse(self._events.read_stream(caller, stream, last))

    async def _ask_hub(self, request: Request, caller: Caller) -> Response:
        body = await body_of(request, FORM_BYTES_MAX)
        self._hub.ask(body, caller, self._own_url(request))
        return Response(status_code=202)

    def _own_url(self, request: Request) -> str:
        return self._url or f"{request.url.scheme}://{request.headers.get('host', 'localhost')}".lower()


class _EventResponse(Response):
    """Ends with the events, or when the client has gone: then they are closed at once."""

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(headers={"content-type": CONTENT_TYPE, "cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._events):  # type: ignore[type-var]
            parts = {asyncio.create_task(self._write(send)), asyncio.create_task(_gone(receive))}
            try:
                await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for part in parts:
                    part.cancel()
                await asyncio.gather(*parts, return_exceptions=True)

    async def _write(self, send: Send) -> None:
        async for part in self._events:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _wrong(status: int, error: str) -> Response:
    headers = {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = 'Basic realm="overlane", charset="UTF-8"'
    if status in RETRY_AFTER:
        headers["retry-after"] = RETRY_AFTER[status]
    if status in (408, 413):
        headers["connection"] = "close"  # the rest of the body is not read
    return Response(msgspec.json.encode(ErrorView(error=error)), status, headers, "application/json")


async def _misdirected(_: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    response = _wrong(error.status_code, HTTPStatus(error.status_code).phrase.lower())
    response.headers.update(error.headers or {})
    return response
