"""POST publishes on a topic, GET gives the retained message of a topic.

A message of QoS 1 is answered with 204 when it is on disk where it has to be, so that no message is lost that was
answered. One of QoS 0 is answered with 202 at once. While a queue that it has joined is rather full, the response comes
later, and so does the next message.
"""

import asyncio
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response

from overlane.adminapi.http_server import BODY_S, BodyTooLarge, BodyTooSlow, read_body
from overlane.core.topics import BadTopic, check_topic
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.node.driver import Driver
from overlane.node.web.access import Caller
from overlane.pubsub.contract.refused import PublicationRefused, RequestFault
from overlane.pubsub.counters import Refusal
from overlane.pubsub.limits import NONE
from overlane.pubsub.message import Message, expires
from overlane.pubsub.publishing import backpressure
from overlane.pubsub.publishing.publishing import OVERLAY_TOO_LARGE
from overlane.pubsub.sessions.session import Session
from overlane.web.allowances import Allowances
from overlane.web.errors import BadWebRequest
from overlane.web.publish_request import Draft, read_drafts
from overlane.web.responses import links, message_headers
from overlane.web.websub import HUB_PATH, TOPICS_PATH, topic_url

SENDER = "\0web"
"""No client has an identifier with a null character."""
STORED_WITHIN_S = 30.0

_STATUSES = {
    RequestFault.NOT_ALLOWED: 403,
    RequestFault.INVALID_TOPIC: 400,
    RequestFault.INVALID_OVERRIDE: 400,
    RequestFault.UNPROCESSABLE: 422,
    RequestFault.NO_ROOM: 429,
}


def session_of(caller: Caller) -> Session:
    """For its rights; it lasts as long as the request."""
    return Session(SENDER, caller.user, 0)


class WebTopics:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._allowances = Allowances()

    # POST

    async def publish(self, request: Request, caller: Caller) -> Response:
        """BadWebRequest."""
        limits = self._driver.server.state.limits
        topic = topic_of(request)
        self._check(topic)
        self._check_rate(caller)
        body = await body_of(request, limits.packet_bytes - len(topic.encode()))
        drafts = read_drafts(request.headers.items(), body, limits.user_properties)
        self._check_rate(caller)  # again: others of the same client may have come meanwhile
        rest_ns = 0
        for count, draft in enumerate(drafts):
            try:
                rest_ns = max(rest_ns, self._accept(topic, draft, caller))
            except PublicationRefused as refused:
                self._driver.server.state.refuse(refused.why, refused.told)
                self._driver.end_turn_soon()
                told = refused.told if len(drafts) == 1 else f"{refused.told}; {count} of {len(drafts)} were accepted"
                raise BadWebRequest(told, _status(refused)) from None
        if drafts[0].qos:
            await self._stored()
        self._driver.end_turn_soon()
        await asyncio.sleep(rest_ns / SECOND)
        return Response(status_code=204 if drafts[0].qos else 202)

    def _accept(self, topic: str, draft: Draft, caller: Caller) -> Nanos:
        """For how long its publisher is to rest; or PublicationRefused."""
        server, now = self._driver.server, self._driver.clock.now()
        properties = draft.properties
        message = Message(
            topic,
            draft.payload,
            draft.qos,
            draft.retain,
            properties.encode(),
            SENDER,
            now,
            expires(now, draft.expiry_s),
        )
        if server.state.limits.messages_per_second != NONE:
            self._allowances.charge(_client_of(caller), 1, server.state.limits.messages_per_second, now)
        publishing = server.pubsub.publishing
        accepted = publishing.accept(message, session_of(caller), properties.user_properties, now)
        server.state.counters.messages_in += 1
        stats = server.state.stats(topic)
        stats.messages += 1
        stats.bytes += len(draft.payload)
        return backpressure.rest_ns(accepted.crowding)

    async def _stored(self) -> None:
        try:
            async with asyncio.timeout(STORED_WITHIN_S):
                await self._driver.written()
        except TimeoutError:
            raise BadWebRequest("the store takes nothing at the moment; the message may be stored later", 503) from None

    def _check_rate(self, caller: Caller) -> None:
        state = self._driver.server.state
        limit = state.limits.messages_per_second
        if limit != NONE and not self._allowances.has_left(_client_of(caller), limit, self._driver.clock.now()):
            state.counters.throttled += 1
            raise BadWebRequest(f"more than {limit} messages a second", 429)

    def _check(self, topic: str) -> None:
        limits = self._driver.server.state.limits
        try:
            check_topic(topic)
        except BadTopic as bad:
            raise BadWebRequest(str(bad)) from None
        if told := limits.too_long(topic):
            raise BadWebRequest(told)
        if topic.count("/") >= limits.filter_levels:
            raise BadWebRequest(f"a topic of more than {limits.filter_levels} levels")

    # GET

    async def retained(self, request: Request, caller: Caller, own_url: str) -> Response:
        """The retained message, with the links of WebSub; BadWebRequest."""
        state, now = self._driver.server.state, self._driver.clock.now()
        topic = topic_of(request)
        self._check(topic)
        if not state.may_receive(session_of(caller), topic):
            raise BadWebRequest(f"not allowed to read {topic[:100]}", 403)
        found = state.retained.get(topic)
        discovery = links(own_url + HUB_PATH, topic_url(own_url, topic))
        if found is None or found.expires_ns <= now:
            response = Response(b'{"error":"no retained message"}', 404, media_type="application/json")
        else:
            response = Response(found.payload, 200)
            for name, value in message_headers(topic, found.properties):
                response.headers.append(name, value)
            if found.expires_ns < NEVER:
                response.headers["overlane-expiry"] = str(found.remaining_s(now))
        response.headers.append(*discovery)
        response.headers["cache-control"] = "no-store"
        response.headers["x-content-type-options"] = "nosniff"
        # Whoever may publish a page must not have it run in the name of those who read it.
        response.headers["content-security-policy"] = "sandbox; default-src 'none'"
        return response


async def body_of(request: Request, bytes_max: int) -> bytes:
    """BadWebRequest if there is too much of it, or it comes too slowly."""
    try:
        return await read_body(request, bytes_max)
    except BodyTooLarge:
        raise BadWebRequest(f"the body is larger than {bytes_max} bytes", 413) from None
    except BodyTooSlow:
        raise BadWebRequest(f"the body was not received within {BODY_S:g} s", 408) from None


def topic_of(request: Request) -> str:
    """The rest of the path; BadWebRequest if it is not UTF-8."""
    raw = request.scope["raw_path"].partition(b"?")[0]
    try:
        return unquote_to_bytes(raw[len(TOPICS_PATH) :]).decode()
    except UnicodeDecodeError:
        raise BadWebRequest("the topic: expected UTF-8, percent-encoded") from None


def _client_of(caller: Caller) -> tuple[str | None, str]:
    """Its user, and the host that it comes from."""
    return caller.user, caller.peer.address.rpartition(":")[0]


def _status(refused: PublicationRefused) -> int:
    if refused.why is Refusal.STORE:
        return 503
    return 413 if refused.told == OVERLAY_TOO_LARGE else _STATUSES[refused.fault]
