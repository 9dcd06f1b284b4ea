"""A NATS server and an MQTT server at one service, without sockets: bytes in, bytes out."""

import json
from collections.abc import Sequence

import mqtt5

from overlane.core.events import Erase, Save
from overlane.core.units import SECOND
from overlane.mqtt.codec import codec5
from overlane.mqtt.connection import Connection as MqttConnection
from overlane.mqtt.server import MqttServer
from overlane.nats.connection import Connection
from overlane.nats.server import NatsServer
from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.questions import Question
from overlane.pubsub.limits import Limits
from overlane.pubsub.state import Settings

INFO = b"INFO "


class NatsBench:
    def __init__(self, settings: Settings | None = None) -> None:
        self.now = SECOND
        self._fresh = 0
        self.mqtt = MqttServer("here", settings or Settings(Limits()), Alone(), self._fresh_id, (), self.now)
        self.server = NatsServer(self.mqtt.pubsub)
        self.questions: list[Question] = []
        self.is_disk_slow = False

    def _fresh_id(self) -> str:
        self._fresh += 1
        return f"fresh-{self._fresh}"

    def connect(self, peer: Peer | None = None, **options: object) -> "NatsClient":
        client = NatsClient(self, peer or Peer("127.0.0.1:1", listener="nats"))
        if options.pop("says_connect", True):
            client.say(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        return client

    def mqtt_client(self, client_id: str, expiry_s: int = 0) -> "MqttClient":
        return MqttClient(self, client_id, expiry_s)

    def end_turn(self) -> None:
        pubsub = self.mqtt.pubsub
        self.questions += pubsub.take_questions()
        has_records = False
        for effect in pubsub.take_records():
            assert isinstance(effect, Save | Erase)
            has_records = True
        for connection in pubsub.take_touched():
            chunks, waits = connection.taken()
            assert isinstance(connection.driver, list)
            connection.driver.append((b"".join(chunks), waits and has_records))
        if not self.is_disk_slow:
            pubsub.durable(pubsub.last_turn, self.now)

    def wait(self, seconds: float) -> None:
        until = self.now + round(seconds * SECOND)
        pubsub = self.mqtt.pubsub
        while (due := pubsub.next_deadline()) <= until:
            self.now = max(self.now, due)
            pubsub.tick(self.now)
            self.end_turn()
        self.now = until


class NatsClient:
    def __init__(self, bench: NatsBench, peer: Peer) -> None:
        self._bench = bench
        self.connection: Connection = bench.server.connected(peer, bench.now)
        self._out: list[tuple[bytes, bool]] = []
        self.connection.driver = self._out
        bench.end_turn()
        told = self.heard()
        self.info = json.loads(told[len(INFO) :].partition(b"\r\n")[0])

    def say(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._bench.server.receive(self.connection, piece, self._bench.now)
        self._bench.end_turn()

    def asked(self, *pieces: bytes) -> bytes:
        """What the client hears for this."""
        self.heard()
        self.say(*pieces)
        return self.heard()

    def heard(self) -> bytes:
        heard = b"".join(data for data, _ in self._out)
        self._out.clear()
        return heard

    @property
    def waiting(self) -> Sequence[bool]:
        """Of what it was sent since it last looked, which waits for the disk."""
        return [waits for _, waits in self._out]

    @property
    def is_closed(self) -> bool:
        return self.connection.closing is not None


class MqttClient:
    def __init__(self, bench: NatsBench, client_id: str, expiry_s: int) -> None:
        self._bench = bench
        self.connection: MqttConnection = bench.mqtt.connected(Peer("127.0.0.1:2"), bench.now)
        self._out: list[tuple[bytes, bool]] = []
        self.connection.driver = self._out
        self.say(mqtt5.ConnectPacket(client_id, clean_start=True, session_expiry_interval=expiry_s))

    def say(self, *packets: mqtt5.Packet) -> None:
        self._bench.mqtt.receive(self.connection, b"".join(one.write() for one in packets), self._bench.now)
        self._bench.end_turn()

    def subscribe(self, *filters: str, qos: int = 0) -> None:
        wanted = [mqtt5.TopicFilter(one, max_qos=mqtt5.QoS(qos)) for one in filters]
        self.say(mqtt5.SubscribePacket(1, wanted))

    def publish(self, packet: mqtt5.PublishPacket) -> None:
        self.say(packet)

    def messages(self) -> list[mqtt5.PublishPacket]:
        data, found = b"".join(data for data, _ in self._out), []
        self._out.clear()
        while data:
            length, behind = _length(data)
            packet = codec5.read(memoryview(data)[: behind + length])
            data = data[behind + length :]
            if isinstance(packet, mqtt5.PublishPacket):
                found.append(packet)
        return found


def _length(data: bytes) -> tuple[int, int]:
    value, at = 0, 1
    while True:
        value |= (data[at] & 0x7F) << 7 * (at - 1)
        at += 1
        if data[at - 1] < 0x80:
            return value, at
