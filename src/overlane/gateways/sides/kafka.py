"""A side with Kafka, by the package confluent-kafka.

The first level of a local name is the topic of Kafka, the rest is the key of the record: `readings/hall/3` is the
record with the key `hall/3` in the topic `readings`. So records of one topic of MQTT are in one partition, in their
order. User properties are headers.

A record that comes in is committed when the overlay has it and everything before it in its partition; the consumer
group keeps the place while the gateway is away. A record that goes out counts as accepted when all in-sync replicas
have it. Several gateways to one cluster are members of one consumer group.
"""

import asyncio
import re
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from overlane.core.topics import BadTopic, check_topic
from overlane.gateways.message import BridgedMessage
from overlane.gateways.sides.side import Side, SideHost

POLL_S = 0.2
HELD_MAX = 500
CHECK_S = 5.0
PROBE_EVERY_S = 2.0
CONTENT_TYPE = "content-type"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class KafkaReceipt(NamedTuple):
    topic: str
    partition: int
    offset: int


class CommitOrder:
    """Which offset of each partition may be committed: everything before it is done; pure."""

    def __init__(self) -> None:
        self._pending: dict[tuple[str, int], deque[int]] = {}
        self._done: set[KafkaReceipt] = set()

    def arrived(self, receipt: KafkaReceipt) -> None:
        self._pending.setdefault((receipt.topic, receipt.partition), deque()).append(receipt.offset)

    def done(self, receipt: KafkaReceipt) -> int | None:
        """The offset to commit, if that has changed."""
        self._done.add(receipt)
        pending = self._pending.get((receipt.topic, receipt.partition))
        committed = None
        while pending and receipt._replace(offset=pending[0]) in self._done:
            offset = pending.popleft()
            self._done.discard(receipt._replace(offset=offset))
            committed = offset + 1
        return committed

    @property
    def held(self) -> int:
        return sum(map(len, self._pending.values()))


class KafkaSide(Side):
    def __init__(self, host: SideHost, servers: str, group: str, filters: tuple[str, ...]) -> None:
        super().__init__(host)
        self._servers = servers
        self._group = group
        self._topics = sorted({one.split("/")[0] for one in filters})
        self._order = CommitOrder()
        self._commits: SimpleQueue[TopicPartition] = SimpleQueue()
        """For the thread that reads: two threads may not use a consumer at once."""
        self._producer: Producer | None = None
        self._is_up = False

    async def run(self) -> None:
        ending = threading.Event()
        loop = asyncio.get_running_loop()

        def tell(call: Callable[..., None], *arguments: object) -> None:
            if not ending.is_set():
                loop.call_soon_threadsafe(call, *arguments)

        # The package connects again by itself, and keeps what it was given.
        self._producer = Producer({**self._common(), "acks": "all", "enable.idempotence": True, "linger.ms": 5})
        threads = [threading.Thread(target=self._watch, args=(ending, tell, self._producer), daemon=True)]
        if self._topics:
            consumer = Consumer(
                {
                    **self._common(),
                    "group.id": self._group,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "max.poll.interval.ms": 3_600_000,
                    "session.timeout.ms": 10_000,
                }
            )
            threads.append(threading.Thread(target=self._consume, args=(ending, tell, consumer), daemon=True))
        for thread in threads:
            thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await asyncio.to_thread(_join, threads)

    def send(self, number: int, message: BridgedMessage) -> None:
        topic, _, key = message.topic.partition("/")
        producer = self._producer
        if _TOPIC.fullmatch(topic) is None or producer is None:
            reason = f'"{topic[:60]}" is no topic of Kafka'
            asyncio.get_running_loop().call_soon(lambda: self.host.refused(number, reason, is_final=True))
            return
        headers: list[tuple[str, str | bytes | None]] = [(name, value.encode()) for name, value in message.properties]
        if message.content_type is not None:
            headers.append((CONTENT_TYPE, message.content_type.encode()))
        loop = asyncio.get_running_loop()

        def answered(error: KafkaError | None, _: Message) -> None:
            loop.call_soon_threadsafe(self._answered, number, error)

        try:
            producer.produce(topic, message.body, key.encode() or None, headers=headers, on_delivery=answered)
        except (BufferError, KafkaException) as error:
            reason = str(error)
            loop.call_soon(lambda: self.host.refused(number, reason, is_final=False))

    def acknowledge(self, receipt: object) -> None:
        assert isinstance(receipt, KafkaReceipt)
        offset = self._order.done(receipt)
        if offset is not None:
            self._commits.put(TopicPartition(receipt.topic, receipt.partition, offset))

    # Inside

    def _common(self) -> dict[str, Any]:
        return {"bootstrap.servers": self._servers, "log_level": 0, "error_cb": lambda _: None}

    def _answered(self, number: int, error: KafkaError | None) -> None:
        if error is None:
            self.host.accepted(number)
        else:
            self.host.refused(number, error.str(), is_final=not error.retriable())

    def _connected(self, error: str) -> None:
        if not error and not self._is_up:
            self._is_up = True
            self.host.up()
        elif error:
            self._is_up = False
            self.host.down(f"{self._servers}: {error}")

    def _arrived(self, message: Message) -> None:
        receipt = KafkaReceipt(str(message.topic()), int(message.partition() or 0), int(message.offset() or 0))
        self._order.arrived(receipt)
        key = _text(message.key())
        topic = f"{receipt.topic}/{key}" if key else receipt.topic
        try:
            check_topic(topic)
        except BadTopic:
            topic = receipt.topic  # the key is none of MQTT's levels
        headers = [(str(name), _text(value)) for name, value in dict(cast(Any, message.headers() or ())).items()]
        types = [value for name, value in headers if name == CONTENT_TYPE]
        self.host.arrived(
            BridgedMessage(
                topic,
                message.value() or b"",
                content_type=types[-1] if types else None,
                properties=tuple(pair for pair in headers if pair[0] != CONTENT_TYPE),
            ),
            receipt,
        )

    # In threads

    def _watch(self, ending: threading.Event, tell: Callable[..., None], producer: Producer) -> None:
        """Answers of the cluster, and whether it can be reached."""
        polls = 0
        while not ending.is_set():
            if polls % round(PROBE_EVERY_S / POLL_S) == 0:
                try:
                    producer.list_topics(timeout=CHECK_S)
                    tell(self._connected, "")
                except KafkaException as error:
                    tell(self._connected, str(error.args[0].str()))
            producer.poll(POLL_S)
            polls += 1

    def _consume(self, ending: threading.Event, tell: Callable[..., None], consumer: Consumer) -> None:
        consumer.subscribe(self._topics)
        while not ending.is_set():
            self._commit(consumer)
            if self._order.held >= HELD_MAX:
                ending.wait(POLL_S / 10)
                continue
            for message in consumer.consume(100, POLL_S):
                if message.error() is None:
                    tell(self._arrived, message)
        self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        latest: dict[tuple[str, int], TopicPartition] = {}
        while not self._commits.empty():
            place = self._commits.get()
            latest[place.topic, place.partition] = place
        if latest:
            with suppress(KafkaException):  # they come again
                consumer.commit(offsets=list(latest.values()), asynchronous=False)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(CHECK_S)
