"""The state machines of a broker, for tests of what is recorded of them: no loop, no sockets, time set by hand."""

import asyncio
from dataclasses import dataclass, field
from typing import TypeVar

import mqtt5

from overlane.core.broker import OverlayBroker
from overlane.core.config import BrokerConfig
from overlane.core.qos import QosTable
from overlane.core.units import SECOND
from overlane.mqtt.codec import codec5
from overlane.mqtt.connection import Connection
from overlane.mqtt.server import MqttServer
from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.questions import LoginVerdict
from overlane.pubsub.state import Settings
from overlane.telemetry.rows import Row
from overlane.telemetry.sampler import Sampler
from overlane.telemetry.topic_rates import TopicRates

Kind = TypeVar("Kind")

START = 1_800_000_000 * SECOND


@dataclass
class Line:
    """A connection to a neighbour."""

    bytes_in: int = 0
    bytes_out: int = 0


@dataclass
class Lines:
    neighbours: list[str] = field(default_factory=list)
    links: dict[str, Line] = field(default_factory=dict)


class Station:
    def __init__(self, qos: QosTable | None = None) -> None:
        self.now = START
        self.core = OverlayBroker(BrokerConfig("seattle", qos or QosTable({})), 1, (), self.now)
        self.server = MqttServer("seattle", Settings(qos=qos or QosTable({})), Alone(), lambda: "fresh", (), self.now)
        self.lines = Lines()
        self.rows: list[Row] = []
        self.rates = TopicRates(self.server.state)
        self.sampler = Sampler(
            self.server, self.core, self.lines, self.rates, self.rows.append, lambda: self.now, lambda: self.now
        )

    def sample(self, after_s: float = 1.0) -> list[Row]:
        """The rows of the next second."""
        self.now += int(after_s * SECOND)
        self.rows.clear()
        asyncio.run(self.sampler.sample())
        return list(self.rows)

    def sampled(self, kind: type[Kind], after_s: float = 1.0) -> list[Kind]:
        return [row for row in self.sample(after_s) if isinstance(row, kind)]

    # Clients

    def connect(self, client_id: str, expiry_s: int = 0) -> Connection:
        connection = self.server.connected(Peer("127.0.0.1"), self.now)
        hello = mqtt5.ConnectPacket(client_id, session_expiry_interval=expiry_s)
        self.server.receive(connection, codec5.write(hello), self.now)
        for _ in self.server.take_questions():
            self.server.authenticated(connection, LoginVerdict.IS_ANONYMOUS, self.now)
        return connection

    def subscribe(self, connection: Connection, topic_filter: str, qos: int = 0) -> None:
        packet = mqtt5.SubscribePacket(1, [mqtt5.TopicFilter(topic_filter, max_qos=mqtt5.QoS(qos))])
        self.server.receive(connection, codec5.write(packet), self.now)

    def unsubscribe(self, connection: Connection, topic_filter: str) -> None:
        packet = mqtt5.UnsubscribePacket(1, [topic_filter])
        self.server.receive(connection, codec5.write(packet), self.now)

    def publish(self, connection: Connection, topic: str, payload: bytes, times: int = 1, qos: int = 0) -> None:
        for number in range(times):
            packet = mqtt5.PublishPacket(topic, payload, qos=mqtt5.QoS(qos), packet_id=number + 1 if qos else None)
            self.server.receive(connection, codec5.write(packet), self.now)
