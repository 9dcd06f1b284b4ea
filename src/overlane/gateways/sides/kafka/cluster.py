"""The connection to a Kafka cluster: librdkafka's producer and consumer, and the threads that serve them.

librdkafka reconnects automatically and keeps records without a time limit: `message.timeout.ms = 0`. With idempotence
it sends each record once and in order. A fatal error ends this object; the side creates a new one, and passes it the
unanswered records.

All events are reported in the thread of the event loop. Only the reading thread uses the consumer.

    back-pressure   while the other side holds HELD_MAX records or HELD_BYTES_MAX bytes, partitions are paused; the
                    consumer is still polled, so that it stays a member of its group
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, cast
from typing import Protocol as Interface

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from overlane.gateways.sides.kafka.commits import KafkaReceipt, Partition
from overlane.gateways.sides.kafka.records import Record

POLL_S = 0.2
READ_MAX = 100
HELD_MAX = 500
HELD_BYTES_MAX = 32 * 2**20
PROBE_S = 5.0
PROBE_EVERY_S = 2.0
JOIN_S = 10.0
REVOKE_S = 5.0


class ClusterEvents(Interface):
    """Called in the thread of the event loop."""

    def reached(self, error: str) -> None:
        """Whether the cluster answers; `error` is empty if it does."""

    def trouble(self, error: str) -> None:
        """The cluster answers, but something is wrong there, such as a topic that does not exist."""

    def read(self, messages: list[Message]) -> None: ...

    def taken_away(self, places: list[Partition]) -> None: ...

    def answered(self, number: int, error: KafkaError | None) -> None: ...

    def ended(self, error: str) -> None:
        """Of no use any more."""

    def holds(self, places: list[Partition]) -> bool:
        """Whether records of them are not done. May be asked in any thread."""

    def has_room(self) -> bool:
        """May be asked in any thread."""


class Cluster:
    """KafkaException if librdkafka refuses the settings."""

    def __init__(
        self, settings: Mapping[str, object], group: str, topics: Iterable[str], probed: str, events: ClusterEvents
    ) -> None:
        self._events = events
        self._topics = list(topics)
        self._probed = probed
        self._ending = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._commits: SimpleQueue[TopicPartition] = SimpleQueue()
        common: dict[str, Any] = {**settings, "log_level": 0, "error_cb": self._on_error}
        self._producer = Producer(
            {
                **common,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 0,
                "partitioner": "murmur2",  # as producers in Java; records without key in one partition, in order
            }
        )
        group_settings = {**common, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        self._probe = Consumer(group_settings)  # only asks for metadata: unlike a producer it does not create topics
        threads = [self._serve, self._watch]
        if self._topics:
            self._consumer = Consumer(
                {**group_settings, "session.timeout.ms": 10_000, "queued.max.messages.kbytes": 16_384}
                | {"partition.assignment.strategy": "cooperative-sticky"}  # only what moves is taken away
            )
            threads.append(self._consume)
        self._threads = [threading.Thread(target=self._guarded, args=(one,), daemon=True) for one in threads]
        for thread in self._threads:
            thread.start()

    def produce(self, number: int, record: Record) -> None:
        """KafkaException or BufferError if it is refused at once."""

        def answered(error: KafkaError | None, _: Message) -> None:
            self._tell(self._events.answered, number, error)

        headers = cast("list[tuple[str, str | bytes | None]]", list(record.headers))
        self._producer.produce(record.topic, record.value, record.key, headers=headers, on_delivery=answered)

    def commit(self, receipt: KafkaReceipt, offset: int) -> None:
        self._commits.put(TopicPartition(receipt.topic, receipt.partition, offset))

    def close(self) -> None:
        """Waits for the threads. What the producer still has is lost with it."""
        self._ending.set()
        for thread in self._threads:
            thread.join(JOIN_S)
        self._producer.purge(in_flight=True, blocking=False)

    # In threads

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        if not self._ending.is_set():
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(call, *arguments)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (KafkaException, RuntimeError) as error:
            self._tell(self._events.ended, told(error))

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._tell(self._events.ended, error.str())

    def _serve(self) -> None:
        """Calls back with the answers to what was produced."""
        while not self._ending.is_set():
            self._producer.poll(POLL_S)

    def _watch(self) -> None:
        while not self._ending.is_set():
            try:
                found = self._probe.list_topics(self._probed, timeout=PROBE_S)
                self._tell(self._events.reached, "")
                problems = [f"topic {one.topic}: {one.error.str()}" for one in found.topics.values() if one.error]
                if problems:
                    self._tell(self._events.trouble, problems[0])
            except KafkaException as error:
                self._tell(self._events.reached, told(error))
            self._ending.wait(PROBE_EVERY_S)
        self._probe.close()

    def _consume(self) -> None:
        consumer = self._consumer
        consumer.subscribe(self._topics, on_revoke=self._on_revoke, on_lost=self._on_lost)
        paused: list[TopicPartition] = []
        while not self._ending.is_set():
            self._commit(consumer)
            has_room = self._events.has_room()
            if paused and has_room:
                _each(consumer.resume, paused)
                paused = []
            elif not has_room:
                paused = consumer.assignment()
                _each(consumer.pause, paused)
            came = consumer.consume(READ_MAX, POLL_S if has_room else POLL_S / 10)
            records = [one for one in came if one.error() is None]
            if records:
                self._hand_over(records)
            for one in came:
                if (error := one.error()) is not None:
                    self._tell(self._events.trouble, error.str())
        self._commit(consumer)
        consumer.close()

    def _hand_over(self, records: list[Message]) -> None:
        """Waits until the event loop has them: only then does it know whether there is room for more."""
        known = threading.Event()
        self._tell(self._events.read, records)
        self._tell(known.set)
        while not known.wait(POLL_S) and not self._ending.is_set():
            pass

    def _on_revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Another member gets them: it should not get records that are being passed on here."""
        until = time.monotonic() + REVOKE_S
        named = [(one.topic, one.partition) for one in places]
        while self._events.holds(named) and time.monotonic() < until and not self._ending.wait(POLL_S / 10):
            pass
        self._commit(consumer)
        self._tell(self._events.taken_away, named)

    def _on_lost(self, _: Consumer, places: list[TopicPartition]) -> None:
        self._tell(self._events.taken_away, [(one.topic, one.partition) for one in places])

    def _commit(self, consumer: Consumer) -> None:
        latest: dict[Partition, TopicPartition] = {}
        while not self._commits.empty():
            place = self._commits.get()
            latest[place.topic, place.partition] = place
        if latest:
            with suppress(KafkaException):  # the records come again
                consumer.commit(offsets=list(latest.values()), asynchronous=False)


def told(error: BaseException) -> str:
    first = error.args[0] if error.args else error
    return first.str() if isinstance(first, KafkaError) else str(first)


def _each(call: Callable[[list[TopicPartition]], None], places: list[TopicPartition]) -> None:
    for place in places:
        with suppress(KafkaException):  # taken away meanwhile
            call([place])
