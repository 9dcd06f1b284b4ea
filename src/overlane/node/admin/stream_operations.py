"""The operations of the admin API for streams: logs of subscriptions that are read by offset, and batches published
once.

MQTT users may call them too: a user has its own streams, with its own rights, and sees no others. A request that
changes something is answered when the change is on disk.
"""

import asyncio
from dataclasses import replace

import msgspec

from overlane.adminapi.views import (
    ErrorView,
    StreamList,
    StreamMessagePage,
    StreamMessageView,
    StreamView,
    WriterBatchView,
    WriterProgressView,
)
from overlane.core.topics import BadTopic
from overlane.core.units import NEVER
from overlane.node.admin.operations import BODY, USER, Answer, Asked, BadAdminRequest, Operation, Parameter, json_answer
from overlane.node.driver import Driver
from overlane.pubsub.properties import decode
from overlane.pubsub.streams.streams import NAME, Gone, Logged, Scope, StreamLog, Unwelcome
from overlane.pubsub.streams.writers import Gap, Note, Unpublishable

MESSAGES = 1_000
MESSAGES_MAX = 10_000
PAGE_BYTES_MAX = 4 << 20
PART_MESSAGES_MAX = 2_000
"""More would keep the broker from everything else for too long."""
WRITTEN_WITHIN_S = 30.0

_STREAM = Parameter("id", "The name of the stream.", "path")
_FILTER = Parameter("filter", "Topic filter.")
_SCOPE = Parameter(
    "scope",
    "Messages published at this broker, or at any broker of the overlay.",
    schema={"type": "string", "enum": ["here", "everywhere"], "default": "everywhere"},
)
_RETAINED = Parameter("retained", "true: begin with the retained messages.")
_FROM = Parameter("from", "The first offset.", schema={"type": "integer"})
_UNTIL = Parameter("until", "The offset to stop before.", schema={"type": "integer"})
_SINCE = Parameter("since", "The `since_ns` of the stream to which the offset belongs.", schema={"type": "integer"})
_LIMIT = Parameter(
    "limit", f"Maximum number of results, up to {MESSAGES_MAX}.", schema={"type": "integer", "default": MESSAGES}
)
_FORMAT = Parameter(
    "format", "Encoding of the response.", schema={"type": "string", "enum": ["json", "msgpack"], "default": "json"}
)
_TO = Parameter("to", "Offset of the first message to keep.", schema={"type": "integer"})
_WRITER = Parameter("id", "The name of the writer.", "path")


class StreamOperations:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        none, gone, bad = {404: ErrorView}, {410: ErrorView}, {400: ErrorView}
        every = (
            Operation(
                "GET",
                "/streams/{id}/messages",
                "Read messages of a stream; they can be read again until they are committed.",
                self._read,
                {200: StreamMessagePage, **bad, **none, **gone},
                (_STREAM, _FROM, _UNTIL, _LIMIT, _SINCE, _FORMAT),
            ),
            Operation(
                "POST",
                "/streams/{id}/commit",
                "Commit: messages before an offset may be deleted.",
                self._commit,
                {204: None, **bad, **none, **gone, 503: ErrorView},
                (_STREAM, _TO, _SINCE),
            ),
            Operation("GET", "/streams", "Streams, by name.", self._all, {200: StreamList}),
            Operation("GET", "/streams/{id}", "One stream.", self._one, {200: StreamView, **none}, (_STREAM,)),
            Operation(
                "PUT",
                "/streams/{id}",
                "Create a stream if it does not exist.",
                self._make,
                {200: StreamView, 201: StreamView, **bad, 403: ErrorView, 409: ErrorView, 503: ErrorView},
                (_STREAM, _FILTER, _SCOPE, _RETAINED),
            ),
            Operation(
                "DELETE",
                "/streams/{id}",
                "Remove a stream and its messages.",
                self._remove,
                {204: None, **none, 503: ErrorView},
                (_STREAM,),
            ),
            Operation(
                "POST",
                "/writers/{id}",
                "Publish a part of a batch; messages of it that were published before are skipped.",
                self._write,
                {200: WriterProgressView, **bad, 403: ErrorView, 409: ErrorView, 503: ErrorView},
                (_WRITER,),
                WriterBatchView,
            ),
        )
        self.all: tuple[Operation, ...] = tuple(replace(one, is_for_users=True) for one in every)

    # Streams

    async def _all(self, asked: Asked) -> Answer:
        streams = self._driver.server.streams
        logs = (streams.get(name) for name in streams.names())
        return json_answer(
            StreamList(items=tuple(self._view(log) for log in logs if log is not None and _is_of(log, asked)))
        )

    async def _one(self, asked: Asked) -> Answer:
        log = self._find(asked)
        return _nothing() if log is None else json_answer(self._view(log))

    async def _make(self, asked: Asked) -> Answer:
        name, topic_filter, scope = asked["id"], asked.get("filter", ""), asked.get("scope", "everywhere")
        if scope not in ("here", "everywhere"):
            raise BadAdminRequest(f"scope={scope[:40]!a}: allowed are here and everywhere")
        server, user = self._driver.server, asked[USER] or None
        there = server.streams.get(name)
        if there is not None:
            if (there.filter, there.scope, there.user) != (topic_filter, Scope(scope), user):
                return _wrong(409, "a stream of this name exists with another filter, scope or user")
            return await self._begun(there) or json_answer(self._view(there))
        try:
            log = server.streams.create(
                name, topic_filter, Scope(scope), user, asked.get("retained") == "true", self._driver.clock.now()
            )
        except BadTopic as bad:
            raise BadAdminRequest(f"filter: {bad}") from None
        except Unwelcome as why:
            if why.is_denied:
                return _wrong(403, str(why))
            raise BadAdminRequest(str(why)) from None
        return await self._begun(log) or await self._written() or json_answer(self._view(log), 201)

    async def _remove(self, asked: Asked) -> Answer:
        log = self._find(asked)
        if log is None:
            return _nothing()
        self._driver.server.streams.remove(log.name, self._driver.clock.now())
        return await self._written() or Answer(204, b"")

    async def _read(self, asked: Asked) -> Answer:
        log = self._find(asked)
        if log is None:
            return _nothing()
        start, end = _number(asked, "from", log.first), _number(asked, "until", NEVER)
        limit = max(1, min(MESSAGES_MAX, _number(asked, "limit", MESSAGES)))
        if answer := _other(log, asked):
            return answer
        try:
            found, following = self._driver.server.streams.read(
                log, start, end, limit, PAGE_BYTES_MAX, self._driver.clock.now()
            )
        except Gone as gone:
            return _wrong(410, str(gone))
        page = StreamMessagePage(
            since_ns=log.since_ns, next=following, messages=tuple(_logged(offset, one) for offset, one in found)
        )
        if asked.get("format") == "msgpack":
            return Answer(200, msgspec.msgpack.encode(page), "application/msgpack")
        return json_answer(page)

    async def _commit(self, asked: Asked) -> Answer:
        log = self._find(asked)
        if log is None:
            return _nothing()
        if answer := _other(log, asked):
            return answer
        try:
            self._driver.server.streams.commit(log, _number(asked, "to", 0), self._driver.clock.now())
        except Gone as gone:
            return _wrong(410, str(gone))
        return await self._written() or Answer(204, b"")

    # Writers

    async def _write(self, asked: Asked) -> Answer:
        if not NAME.fullmatch(asked["id"]):
            raise BadAdminRequest("the name of a writer has 1 to 128 of the characters A-Z a-z 0-9 _ . -")
        try:
            part = msgspec.json.decode(asked[BODY], type=WriterBatchView)
        except msgspec.DecodeError as bad:
            raise BadAdminRequest(f"the body: {bad}") from None
        if part.batch < 0 or part.start < 0 or len(part.messages) > PART_MESSAGES_MAX:
            raise BadAdminRequest(
                f"batch and start are not negative, and a part has up to {PART_MESSAGES_MAX} messages"
            )
        notes = [Note(one.topic, one.payload, one.qos, one.retain) for one in part.messages]
        now = self._driver.clock.now()
        try:
            outcome = self._driver.server.writers.write(
                asked["id"], asked[USER] or None, part.batch, part.start, notes, now
            )
        except Unpublishable as why:
            return _wrong(403 if why.is_denied else 400, str(why))
        except Gap as gap:
            return _wrong(409, str(gap))
        return await self._written() or json_answer(WriterProgressView(count=outcome.count, refused=outcome.refused))

    # Parts

    def _find(self, asked: Asked) -> StreamLog | None:
        log = self._driver.server.streams.get(asked["id"])
        return log if log is not None and _is_of(log, asked) else None

    async def _begun(self, log: StreamLog) -> Answer | None:
        """When all is in the log that it is to begin with; or, if that takes too long, that it does."""
        begun = asyncio.Event()
        self._driver.server.streams.when_begun(log, begun.set)
        if begun.is_set():
            return None
        self._driver.end_turn_soon()
        try:
            async with asyncio.timeout(WRITTEN_WITHIN_S):
                await begun.wait()
        except TimeoutError:
            return _wrong(503, "the retained messages are not in the stream yet; repeat the request")
        return await self._written()

    async def _written(self) -> Answer | None:
        """Waits until all accepted requests are on disk; if this takes too long, the response says so."""
        try:
            async with asyncio.timeout(WRITTEN_WITHIN_S):
                await self._driver.written()
        except TimeoutError:
            return _wrong(503, "the store cannot write at the moment; repeat the request to get the result")
        return None

    def _view(self, log: StreamLog) -> StreamView:
        return StreamView(
            broker=self._driver.core.name,
            name=log.name,
            filter=log.filter,
            scope=log.scope.value,
            user=log.user,
            since_ns=log.since_ns,
            first=log.first,
            next=self._driver.server.streams.written(log),
            messages=len(log),
            bytes=log.bytes,
            lost=log.lost,
        )


def _is_of(log: StreamLog, asked: Asked) -> bool:
    """An operator sees all streams, a user its own."""
    return not asked[USER] or log.user == asked[USER]


def _logged(offset: int, one: Logged) -> StreamMessageView:
    return StreamMessageView(
        offset=offset,
        arrived_ns=one.arrived_ns,
        topic=one.topic,
        payload=one.payload,
        qos=one.qos,
        retain=one.retain,
        user_properties=decode(one.properties).user_properties,
    )


def _number(asked: Asked, name: str, default: int) -> int:
    text = asked.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise BadAdminRequest(f"{name}={text[:40]!a}: allowed is a whole number")
    return int(text)


def _other(log: StreamLog, asked: Asked) -> Answer | None:
    since_ns = _number(asked, "since", log.since_ns)
    if since_ns == log.since_ns:
        return None
    return _wrong(410, "the stream was created again since then; its offsets have changed")


def _nothing() -> Answer:
    return _wrong(404, "no stream of this name exists")


def _wrong(status: int, error: str) -> Answer:
    return json_answer(ErrorView(error=error), status)
