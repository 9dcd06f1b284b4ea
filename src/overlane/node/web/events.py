"""Server-Sent Events: topics as they are published, or a stream from a position on.

A reader of topics is a subscriber of QoS 0 that lasts as long as the response. What waits for a reader that is too slow
is bounded: beyond that messages are dropped, and it is told how many. A reader of a stream misses nothing that the
stream keeps: each event has the position behind it as its id, which browsers send as Last-Event-ID when they connect
again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence

from overlane.core.units import NEVER, Nanos
from overlane.node.driver import Driver
from overlane.node.web.access import Caller
from overlane.node.web.topics import session_of
from overlane.pubsub.contract.consumer import Ending
from overlane.pubsub.contract.refused import RequestFault, SubscriptionNotGranted
from overlane.pubsub.counters import Drop
from overlane.pubsub.delivery.window import Entry
from overlane.pubsub.message import Message
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.streams.streams import Gone, StreamLog
from overlane.pubsub.subscriptions.subscribing import SubscriptionRequest
from overlane.web.errors import BadWebRequest
from overlane.web.event_stream import (
    HEARTBEAT,
    START,
    gone_event,
    lost_event,
    message_event,
    read_position,
    write_position,
)

HEARTBEAT_S = 15.0
BACKLOG_BYTES_MAX = 1 << 20
"""What waits for one reader."""
FILTERS_MAX = 20
PAGE_MESSAGES = 500
PAGE_BYTES = 1 << 20


class EventReader:
    """A consumer that writes events. Only its own response reads them."""

    def __init__(self, driver: Driver, caller: Caller) -> None:
        self.peer = caller.peer
        self.session: Session | None = None
        self.closing: str | None = None
        self.unanswerable_until_ns: Nanos = 0
        self.waits = False
        self._driver = driver
        self._events: deque[bytes] = deque()
        self._lost = 0
        self._wakes = asyncio.Event()
        self._backlog_bytes = 0

    @property
    def backlog_bytes(self) -> int:
        return self._backlog_bytes

    def keeps_reading(self, now: Nanos) -> bool:  # noqa: ARG002
        """Publishers do not wait for it."""
        return False

    def take(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],  # noqa: ARG002
        now: Nanos,  # noqa: ARG002
        tag: int = 0,  # noqa: ARG002
        again: bool = False,  # noqa: ARG002
    ) -> bool:
        if self._lost or self._backlog_bytes + message.size_bytes > BACKLOG_BYTES_MAX:
            self._lost += 1
            self._driver.server.state.counters.dropped[Drop.SLOW_CLIENT] += 1
        else:
            event = message_event(message.topic, message.payload, qos, retain, message.encoded)
            self._events.append(event)
            self._backlog_bytes += len(event)
        self._wakes.set()
        return True

    def take_run(self, entries: Sequence[Entry]) -> bool:  # noqa: ARG002
        return False

    def release(self, tag: int) -> None:
        """It has no QoS 2."""

    def end(self, ending: Ending, why: str) -> None:  # noqa: ARG002
        if self.closing is None:
            self.closing = why
            self._wakes.set()

    async def next(self) -> bytes:
        """What is to be written next, a heartbeat if there is nothing for long; b"" at the end."""
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await self._wakes.wait()
        except TimeoutError:
            return HEARTBEAT
        self._wakes.clear()
        written = b"".join(self._events)
        self._events.clear()
        self._backlog_bytes = 0
        if self._lost:
            written += lost_event(self._lost)
            self._lost = 0
        return b"" if self.closing is not None else written or HEARTBEAT


class WebEvents:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    # Topics

    def subscribe(self, caller: Caller, filters: Sequence[str], where: str) -> AsyncIterator[bytes]:
        """BadWebRequest if it may not, or cannot."""
        if not 0 < len(filters) <= FILTERS_MAX:
            raise BadWebRequest(f"{len(filters)} times topic; expected 1 to {FILTERS_MAX}")
        server, now = self._driver.server, self._driver.clock.now()
        state, pubsub = server.state, server.pubsub
        if state.is_draining or len(state.connections) >= state.limits.connections:
            raise BadWebRequest("too many connections", 503)
        reader = EventReader(self._driver, caller)
        session = pubsub.sessions.claim(f"web-{state.fresh_id()}", caller.user, True, 0, now).session
        session.consumer, reader.session = reader, session
        state.connections.add(reader)
        self._driver.end_turn_soon()
        try:
            for name in filters:
                if name.startswith("$share/"):
                    raise BadWebRequest("a shared subscription cannot be read as events")
                request = SubscriptionRequest(name, 0, user_properties=[("overlane-where", where)] if where else ())
                subscription, is_replayed = pubsub.subscribing.subscribe(session, request, now)
                if is_replayed:
                    pubsub.subscribing.replay(session, reader, subscription, now)
        except SubscriptionNotGranted as refused:
            self._leave(reader)
            state.refuse(refused.why, refused.told, client_id=session.client_id)
            raise BadWebRequest(refused.told, _STATUSES[refused.fault]) from None
        except BadWebRequest:
            self._leave(reader)
            raise
        return self._events(reader)

    async def _events(self, reader: EventReader) -> AsyncIterator[bytes]:
        try:
            yield START
            while written := await reader.next():
                yield written
        finally:
            self._leave(reader)

    def _leave(self, reader: EventReader) -> None:
        server = self._driver.server
        server.pubsub.sessions.leave(reader, False, self._driver.clock.now())
        server.state.connections.discard(reader)
        self._driver.end_turn_soon()

    # Streams

    def read_stream(self, caller: Caller, name: str, last_event_id: str) -> AsyncIterator[bytes]:
        """From the position on, or from the next message. BadWebRequest if there is no such stream for the caller."""
        server = self._driver.server
        log = server.streams.get(name)
        if log is None or not self._may_read(caller, log):
            raise BadWebRequest("no stream of this name exists", 404)
        if not last_event_id:
            return self._stream(caller, log, server.streams.written(log), "")
        position = read_position(last_event_id)
        if position is None:
            raise BadWebRequest(f"Last-Event-ID: {last_event_id[:60]!a} is no position of a stream")
        since_ns, offset = position
        if since_ns != log.since_ns:
            return self._stream(caller, log, log.first, "the stream was created again since then")
        told = f"messages before {log.first} are not kept any more" if offset < log.first else ""
        return self._stream(caller, log, min(max(offset, log.first), server.streams.written(log)), told)

    def _may_read(self, caller: Caller, log: StreamLog) -> bool:
        """Its user, and whoever has the right to what it contains if it is an operator's."""
        if log.user is not None:
            return log.user == caller.user
        access = self._driver.server.state.settings.access
        return access.may_subscribe(caller.user, session_of(caller).client_id, log.filter)

    async def _stream(self, caller: Caller, log: StreamLog, start: int, gone: str) -> AsyncIterator[bytes]:
        server, session, appended = self._driver.server, session_of(caller), asyncio.Event()
        log.watchers.add(appended.set)
        try:
            yield START
            if gone:
                yield gone_event(gone, write_position(log.since_ns, start))
            while server.streams.get(log.name) is log:
                appended.clear()
                try:
                    found, following = server.streams.read(
                        log, start, NEVER, PAGE_MESSAGES, PAGE_BYTES, self._driver.clock.now()
                    )
                except Gone:  # the reader was too slow, and the log is bounded
                    told = f"{log.first - start} messages are not kept any more"
                    yield gone_event(told, write_position(log.since_ns, log.first))
                    start = log.first
                    continue
                events = [
                    message_event(
                        one.topic,
                        one.payload,
                        one.qos,
                        one.retain,
                        one.properties,
                        write_position(log.since_ns, offset + 1),
                    )
                    for offset, one in found
                    if server.state.may_receive(session, one.topic)
                ]
                if events:
                    yield b"".join(events)
                if following > start:
                    start = following
                    continue
                if log.next > following:
                    await self._driver.written()  # it is on its way to the disk
                    continue
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await appended.wait()
                except TimeoutError:
                    yield HEARTBEAT
        finally:
            log.watchers.discard(appended.set)


_STATUSES = {
    RequestFault.NOT_ALLOWED: 403,
    RequestFault.INVALID_TOPIC: 400,
    RequestFault.INVALID_OVERRIDE: 400,
    RequestFault.UNPROCESSABLE: 422,
    RequestFault.NO_ROOM: 503,
}
