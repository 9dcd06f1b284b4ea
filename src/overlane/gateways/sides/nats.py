"""A side with NATS, by the package nats-py. Topics and subjects are translated as the NATS listener does.

Core NATS keeps nothing. What is published there while the gateway is away is lost; while the gateway runs, messages
wait in it, and what finds no room is dropped and counted. Outwards a message counts as accepted when the server has
answered a PING that was sent behind it.

With `stream`, a JetStream stream that the server has: a durable consumer gives what comes in, and each message is
acknowledged when the overlay has it; a message that goes out under a subject of a stream counts as accepted when the
stream has stored it.

Several gateways to one server: a queue group, or one durable consumer for all, gives each message to one of them.
"""

import asyncio
import base64
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import nats
import nats.errors
import nats.js
import nats.js.api
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from overlane.gateways.message import BridgedMessage
from overlane.gateways.sides.side import Pauses, Side, SideHost
from overlane.nats.subjects import BadSubject, subject_of, subjects_of, topic_of

CONTENT_TYPE, TTL, CORRELATION = "Content-Type", "Nats-TTL", "Mqtt-Correlation-Data"
RETAIN = "Mqtt-Retain"
FETCH = 100
FETCH_S = 1.0
EMPTY_S = 0.05
ACK_WAIT_S = 10.0
"""After which the stream delivers again. What is still here is known by its number in the stream."""
DONE_MAX = 10_000
OF_THE_SERVER = ("_INBOX.", "$")
"""Subjects that do not cross: responses to single clients, and what belongs to the server."""


class NatsOptions:
    def __init__(
        self,
        servers: Sequence[str],
        name: str,
        filters: Sequence[str],
        group: str | None,
        stream: str | None,
        user: str | None,
        password: str | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.servers = list(servers)
        self.name = name
        self.filters = tuple(filters)
        self.group = group
        self.stream = stream
        self.user = user
        self.password = password
        self.tls = tls


class NatsSide(Side):
    def __init__(self, host: SideHost, options: NatsOptions) -> None:
        super().__init__(host)
        self._options = options
        self._outbox: asyncio.Queue[tuple[int, BridgedMessage]] = asyncio.Queue()
        self._acknowledging: set[asyncio.Task[None]] = set()
        self._held: dict[int, Msg] = {}
        """What the stream has delivered and the overlay does not have yet, by the number in the stream: the latest
        delivery, which is the one to acknowledge."""
        self._done: dict[int, None] = {}

    async def run(self) -> None:
        pauses = Pauses()
        while True:
            self._outbox = asyncio.Queue()
            closed = asyncio.Event()
            error = "the server closed the connection"
            client = Client()
            try:
                await self._connect(client, closed)
                pauses.connected()
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(_raise_when(closed))
                    await self._subscribe(client, tasks)
                    self.host.up()  # nothing is missed from now on
                    tasks.create_task(self._send_all(client))
            except* (nats.errors.Error, OSError, TimeoutError) as errors:
                error = _first(errors)
            finally:
                await _close(client)
            self.host.down(error, forgot_sent=True)
            await pauses.wait()

    def send(self, number: int, message: BridgedMessage) -> None:
        self._outbox.put_nowait((number, message))

    def acknowledge(self, receipt: object) -> None:
        assert isinstance(receipt, int)
        message = self._held.pop(receipt, None)
        if message is not None:
            self._done[receipt] = None
            if len(self._done) > DONE_MAX:
                del self._done[next(iter(self._done))]
            self._acknowledge_soon(message)

    def _acknowledge_soon(self, message: Msg) -> None:
        task = asyncio.create_task(_acknowledge(message))
        self._acknowledging.add(task)
        task.add_done_callback(self._acknowledging.discard)

    # Inside

    async def _connect(self, client: Client, closed: asyncio.Event) -> None:
        options = self._options

        async def on_end(*_: object) -> None:
            closed.set()

        async def on_error(_: Exception) -> None:
            pass

        more: dict[str, Any] = {}
        if options.user is not None:
            more = {"user": options.user, "password": options.password}
        if options.tls is not None:
            more["tls"] = options.tls
        await client.connect(
            options.servers,
            name=options.name,
            allow_reconnect=False,
            connect_timeout=5,
            ping_interval=5,
            max_outstanding_pings=2,
            no_echo=options.stream is None,
            disconnected_cb=on_end,
            closed_cb=on_end,
            error_cb=on_error,
            **more,
        )

    async def _subscribe(self, client: Client, tasks: asyncio.TaskGroup) -> None:
        options = self._options
        for topic_filter in options.filters:
            for subject in subjects_of(topic_filter):
                if options.stream is None:
                    await client.subscribe(subject, queue=options.group or "", cb=self._on_message)
                else:
                    pulling = await self._durable(client, subject, options.stream)
                    tasks.create_task(self._consume(pulling))
        await client.flush(5)

    async def _on_message(self, message: Msg) -> None:
        self._arrived(message, None)

    async def _durable(self, client: Client, subject: str, stream: str) -> nats.js.JetStreamContext.PullSubscription:
        """The place of this gateway, or of its group, in the stream."""
        name = self._options.group or self._options.name
        durable = "".join(char if char.isalnum() or char in "-_" else "-" for char in f"{name}-{subject}")
        config = nats.js.api.ConsumerConfig(ack_wait=ACK_WAIT_S)
        return await client.jetstream().pull_subscribe(subject, durable=durable, stream=stream, config=config)

    async def _consume(self, pulling: nats.js.JetStreamContext.PullSubscription) -> None:
        while True:
            try:
                batch = await pulling.fetch(FETCH, FETCH_S)
            except TimeoutError:  # nothing there; the package's own is one too
                self.host.kept(0)
                continue
            for message in batch:
                number = message.metadata.sequence.stream
                if number in self._done:
                    self._acknowledge_soon(message)
                elif number in self._held:
                    self._held[number] = message
                else:
                    self._held[number] = message
                    self._arrived(message, number)
            if batch:
                self.host.kept(batch[-1].metadata.num_pending)
            else:  # the connection is being lost
                await asyncio.sleep(EMPTY_S)

    def _arrived(self, message: Msg, receipt: int | None) -> None:
        try:
            topic = topic_of(message.subject)
            response = topic_of(message.reply) if message.reply and receipt is None else None
        except BadSubject:
            topic, response = "", None
        if not topic or message.subject.startswith(OF_THE_SERVER):
            if receipt is not None:
                self.acknowledge(receipt)
            return
        headers = dict(message.headers or {})
        ttl = headers.pop(TTL, "")
        self.host.arrived(
            BridgedMessage(
                topic,
                message.data,
                qos=0 if receipt is None else 1,
                retain=headers.pop(RETAIN, "") == "1",
                expiry_s=int(ttl) if ttl.isascii() and ttl.isdigit() else None,
                content_type=headers.pop(CONTENT_TYPE, None),
                response_topic=response,
                correlation_data=_unwritten(headers.pop(CORRELATION, None)),
                properties=tuple(headers.items()),
            ),
            receipt,
        )

    async def _send_all(self, client: Client) -> None:
        """Many at once: one PING behind them, or the answers of the stream."""
        while True:
            batch = [await self._outbox.get()]
            while not self._outbox.empty() and len(batch) < FETCH:
                batch.append(self._outbox.get_nowait())
            if self._options.stream is not None:
                await asyncio.gather(*(self._store(client, number, message) for number, message in batch))
                continue
            for _, message in batch:
                await client.publish(**_published(message))
            await client.flush(5)
            for number, _ in batch:
                self.host.accepted(number)

    async def _store(self, client: Client, number: int, message: BridgedMessage) -> None:
        fields = _published(message)
        fields.pop("reply", None)
        try:
            await client.jetstream().publish(**fields, timeout=5)
        except nats.js.errors.NoStreamResponseError:
            await client.publish(**_published(message))  # no stream has the subject: as in core NATS
            await client.flush(5)
        except nats.js.errors.APIError as error:
            self.host.refused(number, str(error.description), is_final=False)
            return
        self.host.accepted(number)


def _published(message: BridgedMessage) -> dict[str, Any]:
    headers = dict(message.properties)
    if message.content_type is not None:
        headers[CONTENT_TYPE] = message.content_type
    if message.expiry_s is not None:
        headers[TTL] = str(message.expiry_s)
    if message.correlation_data is not None:
        headers[CORRELATION] = base64.b64encode(message.correlation_data).decode()
    if message.retain:
        headers[RETAIN] = "1"
    fields: dict[str, Any] = {"subject": subject_of(message.topic), "payload": message.body, "headers": headers}
    if message.response_topic is not None:
        fields["reply"] = subject_of(message.response_topic)
    return fields


def _unwritten(text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except ValueError:
        return None


async def _acknowledge(message: Msg) -> None:
    with suppress(nats.errors.Error):  # it comes again
        await message.ack()


async def _raise_when(closed: asyncio.Event) -> None:
    await closed.wait()
    raise ConnectionResetError("the server closed the connection")


async def _close(client: Client) -> None:
    try:
        async with asyncio.timeout(2):
            await client.close()
    except (nats.errors.Error, OSError, TimeoutError):
        pass


def _first(errors: BaseExceptionGroup[Exception]) -> str:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
