"""The client: the API that applications call."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Self

from overlane.client.batch import written_batches
from overlane.client.clocks import moment
from overlane.client.connecting import ConnectOptions, stay_connected
from overlane.client.engine import Engine
from overlane.client.errors import ClientError, Closed, Expired, InvalidRequest, PublishRefused
from overlane.client.inbox import UNREAD_MAX
from overlane.client.message import (
    Body,
    Properties,
    Publication,
    checked_body,
    checked_pairs,
    checked_topic,
    encoded_properties,
)
from overlane.client.policies import (
    INCOMPATIBLE_TOPIC,
    LIVELINESS_TOPIC,
    Incompatible,
    Liveliness,
    incompatible_reports,
    liveliness_reports,
    offered,
    requested,
)
from overlane.client.protocol import Sending, SessionSettings, WantedSubscription
from overlane.client.qos import Qos, Reliability, TopicQos, chosen, duration_s
from overlane.client.reservation import ADVERTISE, Reserve, Traffic, name_of
from overlane.client.stamp import STAMP_PROPERTY
from overlane.client.subscription import Subscription
from overlane.core.topics import BadTopic, check_filter

CLOSE_WITHIN_S = 5.0
CLOSE_AFTER_ERROR_WITHIN_S = 0.5
PIPELINE_MAX = 4_096
RETAINED = {
    # MQTT's retain handling
    "always": 0,
    "new": 1,
    "never": 2,
}


class Client:
    """A connection to a broker that mends itself. `overlane.client.connect` makes one.

    Open it with `async with` or `await`; it belongs to the event loop in which it was opened.
    """

    def __init__(
        self,
        settings: SessionSettings,
        options: ConnectOptions,
        *,
        keep_session: bool,
        outbox_max: int,
        outbox_bytes_max: int,
    ) -> None:
        self._settings = settings
        self._options = options
        self._keep_session = keep_session
        self._outbox = outbox_max, outbox_bytes_max
        self._engine: Engine | None = None
        self._task: asyncio.Task[None] | None = None

    # The connection

    @property
    def client_id(self) -> str:
        """The name under which the broker knows this client."""
        return self._settings.client_id

    @property
    def connected(self) -> bool:
        """Whether the broker can be reached now. Calls may be made either way: they wait."""
        return self._engine is not None and self._engine.online

    @property
    def session_present(self) -> bool:
        """Whether the broker still had the session at the latest connection."""
        return self._engine is not None and self._engine.session_present

    @property
    def dropped(self) -> int:
        """Messages of QoS 0 that this client gave up: expired or refused in the outbox, or too many unclaimed ones."""
        return 0 if self._engine is None else self._engine.unsent_dropped + self._engine.inboxes.dropped

    async def open(self) -> "Client":
        """Connect; `Unreachable` or `ConnectionRefused` if that cannot be done."""
        if self._engine is not None:
            raise InvalidRequest("a client can be opened only once; create a new one")
        outbox_max, outbox_bytes_max = self._outbox
        self._engine = Engine(
            self._settings,
            keep_session=self._keep_session,
            outbox_max=outbox_max,
            outbox_bytes_max=outbox_bytes_max,
        )
        engine = self._engine
        self._task = asyncio.create_task(self._run(engine), name=f"overlane.client {self.client_id}")
        try:
            await engine.until(lambda: engine.connections > 0)
        except BaseException:
            await self._close(0, is_clean=False)
            raise
        return self

    async def close(self) -> None:
        """Send waiting messages, disconnect, and end. Without `session_expiry` the broker removes the session."""
        await self._close(CLOSE_WITHIN_S, is_clean=True)

    async def wait_connected(self) -> None:
        """Until the broker can be reached, after a lost connection."""
        engine = self._opened()
        await engine.until(lambda: engine.online)

    async def wait_disconnected(self) -> None:
        """Until the connection is lost; at once if there is none."""
        engine = self._opened()
        await engine.until(lambda: not engine.online)

    @property
    def last_error(self) -> str:
        """Why the latest connection ended, or the latest attempt failed; empty if neither has happened."""
        return "" if self._engine is None else self._engine.last_error

    # Messages

    async def publish(
        self,
        topic: str,
        body: Body = b"",
        *,
        qos: TopicQos | Qos | int | None = None,
        deadline: str | None = None,
        reliability: Reliability | str | None = None,
        retain: bool = False,
        expiry: str | None = None,
        properties: Properties = (),
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
        stamp: bool = False,
        lease: str | None = None,
        period: str | None = None,
        strength: int | None = None,
    ) -> None:
        """Publish one message.

        At QoS 0 it returns when the message is in the outbox; at QoS 1 and 2 when the broker has it, however many
        connections that takes, and raises `PublishRefused` if the broker does not want it. It waits while the outbox
        is full. A call that is cancelled takes its message back if it has not been sent.

        `deadline` and `reliability` tighten what the brokers' configuration says of the topic. `expiry` is how long the
        message is worth delivering; MQTT counts it in whole seconds. `stamp` lets readers know its age.

        `lease`, `period` and `strength` are what the publisher offers on topics with `liveliness`, `period` or
        `ownership` in the network file.
        """
        offer = offered(lease, period, strength)

        def made(own: tuple[tuple[str, str], ...]) -> Publication:
            return _publication(
                topic,
                body,
                qos=qos,
                deadline=deadline,
                reliability=reliability,
                retain=retain,
                expiry=expiry,
                properties=properties,
                content_type=content_type,
                response_topic=response_topic,
                correlation_data=correlation_data,
                stamp=stamp,
                own=own,
                offer=offer,
            )

        await self._send(topic, made)

    async def start_publish(
        self,
        topic: str,
        body: Body = b"",
        *,
        qos: TopicQos | Qos | int | None = None,
        retain: bool = False,
        expiry: str | None = None,
        properties: Properties = (),
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
    ) -> "asyncio.Future[None]":
        """Publish one message without waiting for the broker: returns when it is in the outbox.

        The result is done when the broker has the message, and has the exceptions that `publish` raises.
        """
        publication = _publication(
            topic,
            body,
            qos=qos,
            retain=retain,
            expiry=expiry,
            properties=properties,
            content_type=content_type,
            response_topic=response_topic,
            correlation_data=correlation_data,
        )
        _, answer = await self._opened().submit(publication)
        if answer is None:
            answer = asyncio.get_running_loop().create_future()
            answer.set_result(None)
        return answer

    async def publish_many(
        self,
        topic: str,
        bodies: Iterable[Body],
        *,
        qos: TopicQos | Qos | int | None = None,
        deadline: str | None = None,
        reliability: Reliability | str | None = None,
        retain: bool = False,
        expiry: str | None = None,
        properties: Properties = (),
    ) -> int:
        """Publish many messages to one topic, and return how many.

        At QoS 0 they are written in large pieces, several times as fast as one by one. At QoS 1 and 2 the broker's
        window is kept full, and it returns when all are acknowledged; the first refusal is raised when the rest is
        done.
        """
        level, qos_properties = chosen(qos, deadline, reliability)
        encoded = encoded_properties(None, None, None, qos_properties + checked_pairs(properties))
        expiry_s = None if expiry is None else duration_s(expiry, "expiry")
        model = Publication(checked_topic(topic), b"", level, retain, expiry_s, encoded)
        engine = self._opened()
        if level:
            return await _publish_pipelined(engine, model, bodies)
        published = 0
        for packets, count in written_batches(model, bodies, engine.packet_bytes_max):
            await engine.write_batch(packets)
            published += count
        return published

    async def advertise(
        self, topic_filter: str, traffic: Traffic, *, excess: str = "best-effort", retain: bool = False
    ) -> None:
        """Tell the broker what is going to be published, so that subscribers can ask for reservations.

        It holds until 10 s after the connection has ended; with `retain` until `withdraw`, also over restarts of the
        broker. `excess` says what becomes of messages beyond it: "best-effort", "wait" (QoS 0) or "drop". Raises
        `PublishRefused` if the broker does not want it.
        """
        document = traffic.document(_checked_filter(topic_filter), excess)
        await self.publish(ADVERTISE + name_of(topic_filter), document, qos=1, retain=retain)

    async def withdraw(self, topic_filter: str) -> None:
        """Take back what was advertised."""
        await self.publish(ADVERTISE + name_of(_checked_filter(topic_filter)), b"", qos=1, retain=True)

    def subscribe(
        self,
        *filters: str,
        qos: TopicQos | Qos | int | None = None,
        deadline: str | None = None,
        reliability: Reliability | str | None = None,
        no_local: bool = False,
        retained: str = "always",
        retain_as_published: bool = False,
        reserve: Reserve | None = None,
        unread_max: int = UNREAD_MAX,
        liveliness: str | None = None,
        period: str | None = None,
        ownership: str | None = None,
    ) -> Subscription:
        """Ask the broker for what is published on the filters, and return the iterator of its messages.

        `retained` says when the topics' retained messages are wanted: "always", "new" if there was no such
        subscription yet, or "never". With `retain_as_published`, messages that come later say whether they were
        published to be retained. `no_local` leaves out what this client publishes itself. With `unread_max` messages
        unread the client stops reading from the broker; nothing is dropped. `reserve` asks for a rate, and perhaps a
        latency, of what publishers advertise: the broker agrees when every link of the path has. `liveliness`, `period`
        and `ownership` are requested of publishers; `incompatible` tells where they are not offered.
        """
        wanted = self._wanted(
            filters,
            qos,
            deadline,
            reliability,
            no_local,
            retained,
            unread_max,
            retain_as_published,
            reserve,
            requested(liveliness, period, ownership),
        )
        return self._subscribed(wanted, unread_max)

    def _subscribed(self, wanted: WantedSubscription, unread_max: int) -> Subscription:
        engine = self._opened()
        number, inbox = engine.subscribe(wanted, unread_max)
        return Subscription(engine, number, inbox)

    @staticmethod
    def _wanted(
        filters: tuple[str, ...],
        qos: TopicQos | Qos | int | None,
        deadline: str | None,
        reliability: Reliability | str | None,
        no_local: bool,
        retained: str,
        unread_max: int,
        retain_as_published: bool = False,
        reserve: Reserve | None = None,
        requests: tuple[tuple[str, str], ...] = (),
    ) -> WantedSubscription:
        """InvalidRequest."""
        if not filters:
            raise InvalidRequest("at least one topic filter is required")
        if len(set(filters)) < len(filters):
            raise InvalidRequest("duplicate topic filter")
        for topic_filter in filters:
            _checked_filter(topic_filter)
        if retained not in RETAINED:
            raise InvalidRequest(f"got retained={retained!r}; expected one of {', '.join(RETAINED)}")
        if unread_max < 1:
            raise InvalidRequest(f"got unread_max={unread_max}; expected 1 or more")
        level, properties = chosen(qos, deadline, reliability)
        if reserve is not None:
            properties += reserve.properties
        properties += requests
        return WantedSubscription(filters, level, no_local, RETAINED[retained], properties, retain_as_published)

    def liveliness(self, *filters: str) -> AsyncIterator[Liveliness]:
        """Publishers of topics that are lost, or alive again; first what is known of them now."""
        return liveliness_reports(self.subscribe(*(LIVELINESS_TOPIC + one for one in filters)))

    def incompatible(self, *filters: str) -> AsyncIterator[Incompatible]:
        """Requests of subscribers on topics that publishers do not satisfy, for both."""
        return incompatible_reports(self.subscribe(*(INCOMPATIBLE_TOPIC + one for one in filters)))

    def unclaimed(self) -> Subscription:
        """Messages that belong to no subscription of this run, but to one that an earlier run left in the session.

        They stay here until the application subscribes to them, or reads them here.
        """
        engine = self._opened()
        return Subscription(engine, 0, engine.inboxes.unclaimed)

    # Inside

    @property
    def engine(self) -> Engine | None:
        """None: it is not open. Of use to the client itself."""
        return self._engine

    async def _send(self, topic: str, made: Callable[[tuple[tuple[str, str], ...]], Publication]) -> None:  # noqa: ARG002
        """`made`: the message, with user properties of the client's own."""
        await self._opened().publish(made(()))

    def __await__(self) -> Generator[object, None, "Client"]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        if self._engine is None:
            await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_clean = error is None
        await self._close(CLOSE_WITHIN_S if is_clean else CLOSE_AFTER_ERROR_WITHIN_S, is_clean)

    async def _run(self, engine: Engine) -> None:
        try:
            await stay_connected(engine, self._options)
        except Exception as error:
            engine.end(error, readers_told=True)
            if not isinstance(error, ClientError):
                raise

    async def _close(self, within_s: float, is_clean: bool) -> None:
        """`is_clean`: what the application has read, it is done with."""
        engine, task = self._engine, self._task
        if engine is None or task is None:
            return
        connection = None
        if not task.done():
            if is_clean:
                engine.inboxes.acknowledge()
            if engine.online:
                with contextlib.suppress(TimeoutError, ClientError):
                    async with asyncio.timeout(within_s):
                        await engine.settle()
            connection = engine.driver.take_leave(end_session=not self._keep_session)
        engine.end(Closed(), readers_told=False)
        task.cancel()
        if connection is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    connection.close()
                    await asyncio.shield(connection.gone)
            connection.abort()
        await asyncio.wait([task])

    def _opened(self) -> Engine:
        if self._engine is None:
            raise Closed("the client is not open: use `async with` or `await`")
        return self._engine


def _checked_filter(topic_filter: str) -> str:
    try:
        check_filter(topic_filter)
    except BadTopic as reason:
        raise InvalidRequest(str(reason)) from None
    return topic_filter


def _publication(
    topic: str,
    body: Body,
    *,
    qos: TopicQos | Qos | int | None,
    retain: bool,
    expiry: str | None,
    properties: Properties,
    content_type: str | None,
    response_topic: str | None,
    correlation_data: bytes | None,
    deadline: str | None = None,
    reliability: Reliability | str | None = None,
    stamp: bool = False,
    own: tuple[tuple[str, str], ...] = (),
    offer: tuple[tuple[str, str], ...] = (),
) -> Publication:
    """`own`: user properties of the client's own."""
    level, qos_properties = chosen(qos, deadline, reliability)
    user_properties = qos_properties + checked_pairs(properties) if properties else qos_properties
    user_properties += offer
    if stamp:
        user_properties += ((STAMP_PROPERTY, str(moment())),)
    return Publication(
        checked_topic(topic),
        checked_body(body),
        level,
        retain,
        None if expiry is None else duration_s(expiry, "expiry"),
        encoded_properties(content_type, response_topic, correlation_data, user_properties + own),
    )


async def _publish_pipelined(engine: Engine, model: Publication, bodies: Iterable[Body]) -> int:
    under_way: deque[tuple[Sending, asyncio.Future[None]]] = deque()
    published = 0
    trouble: ClientError | None = None
    try:
        for body in bodies:
            sending, answer = await engine.submit(replace(model, body=checked_body(body)))
            if answer is not None:
                under_way.append((sending, answer))
            published += 1
            if len(under_way) >= PIPELINE_MAX:
                trouble = await _outcome(under_way[0][1]) or trouble
                under_way.popleft()
        while under_way:
            trouble = await _outcome(under_way[0][1]) or trouble
            under_way.popleft()
    finally:
        for sending, _ in under_way:
            engine.withdraw(sending)
    if trouble is not None:
        raise trouble
    return published


async def _outcome(answer: "asyncio.Future[None]") -> ClientError | None:
    try:
        await asyncio.shield(answer)
    except (PublishRefused, Expired) as trouble:
        return trouble
    return None
