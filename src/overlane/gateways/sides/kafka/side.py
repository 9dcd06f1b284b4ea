"""A side with Kafka, by the package confluent-kafka (librdkafka). `records.py` says what of a message is what there.

A record that comes in is committed when the overlay has it and everything before it in its partition; the consumer
group keeps the place while the gateway is away. A record that goes out counts as accepted when all in-sync replicas
have it. Several gateways to one cluster are members of one consumer group.
"""

import asyncio
from dataclasses import dataclass
from typing import cast

from confluent_kafka import KafkaError, KafkaException, Message

from overlane.gateways.message import BridgedMessage
from overlane.gateways.sides.kafka.cluster import HELD_BYTES_MAX, HELD_MAX, READ_MAX, Cluster, told
from overlane.gateways.sides.kafka.commits import CommitOrder, KafkaReceipt, Partition
from overlane.gateways.sides.kafka.records import FINAL_ERRORS, message_of, record_of
from overlane.gateways.sides.side import Pauses, Side, SideHost


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    settings: dict[str, object]
    """Of librdkafka: where the cluster is, and how to log in."""
    group: str
    topics_in: tuple[str, ...]
    probed: str
    """A topic of some rule: asked for to see whether the cluster answers."""
    shown: str
    """The address of the cluster, for people."""


class KafkaSide(Side):
    def __init__(self, host: SideHost, options: KafkaOptions) -> None:
        super().__init__(host)
        self._options = options
        self._connection: _Connection | None = None

    async def run(self) -> None:
        pauses = Pauses()
        while True:
            connection = _Connection(self.host, self._options, pauses)
            try:
                connection.start()
                self._connection = connection
                reason = await connection.lost
            except KafkaException as error:
                reason = told(error)
            finally:
                self._connection = None
                await connection.close()
            self.host.down(reason, forgot_sent=True, forgot_receipts=True)
            await pauses.wait()

    def send(self, number: int, message: BridgedMessage) -> None:
        if self._connection is not None:  # else it is put back, with all that was not answered
            self._connection.send(number, message)

    def acknowledge(self, receipt: object) -> None:
        assert isinstance(receipt, KafkaReceipt)
        if self._connection is not None:
            self._connection.acknowledge(receipt)


class _Connection:
    """What is held of one `Cluster`; a new one has nothing to do with it."""

    def __init__(self, host: SideHost, options: KafkaOptions, pauses: Pauses) -> None:
        self._host = host
        self._options = options
        self._pauses = pauses
        self._order = CommitOrder()
        self._is_up = False
        self._cluster: Cluster | None = None
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[str] = self._loop.create_future()

    def start(self) -> None:
        options = self._options
        self._cluster = Cluster(options.settings, options.group, options.topics_in, options.probed, self)

    async def close(self) -> None:
        if self._cluster is not None:
            await asyncio.to_thread(self._cluster.close)

    def send(self, number: int, message: BridgedMessage) -> None:
        assert self._cluster is not None
        record = record_of(message)
        if record is None:
            reason = f'"{message.topic.split("/")[0][:60]}" is no topic of Kafka'
            self._loop.call_soon(lambda: self._host.refused(number, reason, is_final=True))
            return
        try:
            self._cluster.produce(number, record)
        except KafkaException as error:
            self._loop.call_soon(self.answered, number, error.args[0])
        except BufferError as error:
            reason = str(error)
            self._loop.call_soon(lambda: self._host.refused(number, reason, is_final=False))

    def acknowledge(self, receipt: KafkaReceipt) -> None:
        assert self._cluster is not None
        offset = self._order.done(receipt)
        if offset is not None:
            self._cluster.commit(receipt, offset)

    # Events of the cluster

    def reached(self, error: str) -> None:
        if self.lost.done():
            return
        if error:
            self._is_up = False
            self._host.down(f"{self._options.shown}: {error}")
        elif not self._is_up:
            self._is_up = True
            self._pauses.connected()
            self._host.up()

    def trouble(self, error: str) -> None:
        self._host.trouble(error)

    def read(self, messages: list[Message]) -> None:
        if self.lost.done():
            return
        for message in messages:
            receipt = KafkaReceipt(str(message.topic()), int(message.partition() or 0), int(message.offset() or 0))
            key, value = message.key(), message.value()
            size = len(value or b"") + len(key or b"")
            if self._order.arrived(receipt, size):
                headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
                self._host.arrived(message_of(receipt.topic, _bytes(key), _bytes(value), headers), receipt)

    def taken_away(self, places: list[Partition]) -> None:
        for place in places:
            self._order.forget(place)

    def answered(self, number: int, error: KafkaError | None) -> None:
        if self.lost.done():
            return
        if error is None:
            self._host.accepted(number)
        elif error.fatal() or error.code() == KafkaError._FATAL:
            self.ended(error.str())
        else:
            self._host.refused(number, error.str(), is_final=error.code() in FINAL_ERRORS)

    def ended(self, error: str) -> None:
        if not self.lost.done():
            self.lost.set_result(error)

    def holds(self, places: list[Partition]) -> bool:
        return self._order.holds(places)

    def has_room(self) -> bool:
        return self._order.held + READ_MAX <= HELD_MAX and self._order.held_bytes < HELD_BYTES_MAX


def _bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
