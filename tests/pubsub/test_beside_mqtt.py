"""An MQTT client and a consumer of another protocol at one broker: each gets what the other publishes."""

import mqtt5
import pytest
from inmemory import Service, Taken

from overlane.core.events import Deliver
from overlane.core.units import NEVER, SECOND
from overlane.mqtt import runs
from overlane.mqtt.codec import codec5, writing
from overlane.mqtt.connection import Connection
from overlane.mqtt.server import MqttServer
from overlane.pubsub.cluster.cluster import LOCAL_SUBSCRIBERS
from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.properties import Properties
from overlane.pubsub.state import Settings
from overlane.pubsub.streams.log import Scope


class Mixed(Service):
    """A service that an MQTT server has made."""

    def __init__(self) -> None:
        self.now = SECOND
        self.records = {}
        self.server = MqttServer("here", Settings(), Alone(), lambda: "fresh", (), self.now)
        self.pubsub = self.server.pubsub
        self.end_turn()

    def mqtt_client(self, client_id: str) -> Connection:
        connection = self.server.connected(Peer("127.0.0.1"), self.now)
        self.send(connection, mqtt5.ConnectPacket(client_id, clean_start=True))
        return connection

    def send(self, connection: Connection, *packets: mqtt5.Packet) -> None:
        self.server.receive(connection, b"".join(packet.write() for packet in packets), self.now)
        self.end_turn()

    def read(self, connection: Connection) -> list[mqtt5.Packet]:
        """What is sent to a client at the end of a turn."""
        self.server.take_touched()
        chunks, _ = connection.taken()
        return [codec5.read(chunk) for chunk in chunks]


@pytest.fixture
def mixed() -> Mixed:
    return Mixed()


def test_plain_messages_of_an_mqtt_client_reach_a_list_one_by_one(mixed: Mixed) -> None:
    reader, writer = mixed.connect("reader"), mixed.mqtt_client("writer")
    reader.subscribe("t/#")
    for number in range(3):  # the second and third take the fast path
        packets = [mqtt5.PublishPacket(f"t/{one}", b"%d" % number) for one in ("a", "b")]
        mixed.send(writer, *packets)
    expected = [Taken(f"t/{one}", b"%d" % number) for number in range(3) for one in ("a", "b")]
    assert reader.take_all() == expected


@pytest.mark.parametrize("is_v5", [True, False])
def test_a_run_from_another_broker_reaches_a_list_and_a_stream(mixed: Mixed, is_v5: bool) -> None:
    reader = mixed.connect("reader")
    reader.subscribe("t")
    log = mixed.pubsub.streams.create("log", "t", Scope.EVERYWHERE, None, False, mixed.now)
    version = 5 if is_v5 else 4
    run = b"".join(writing.publish(version, b"t", b"%d" % number, 0, False, False, 0, b"") for number in range(2))
    for flags, body in (runs.pack_run(run, 2, is_v5), runs.pack_lone(b"2", is_v5)):
        mixed.server.deliver(Deliver([("t", flags, body)], {"t": (LOCAL_SUBSCRIBERS,)}, "there", 0, NEVER), mixed.now)
    mixed.end_turn()
    assert reader.take_all() == [Taken("t", b"%d" % number) for number in range(3)]
    found, _ = mixed.pubsub.streams.read(log, 0, 10, 10, 1_000, mixed.now)
    assert [one.payload for _, one in found] == [b"0", b"1", b"2"]


def test_properties_pass_between_a_list_and_an_mqtt_client_both_ways(mixed: Mixed) -> None:
    one, client = mixed.connect("one"), mixed.mqtt_client("client")
    mixed.send(client, mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("to/mqtt")]))
    mixed.read(client)
    one.subscribe("to/list")
    values = Properties("text/plain", "answers", b"id", is_text=True, user_properties=(("a", "b"),))
    one.publish("to/mqtt", b"x", properties=values)
    [sent] = mixed.read(client)
    assert isinstance(sent, mqtt5.PublishPacket)
    assert (sent.content_type, sent.response_topic, sent.correlation_data) == ("text/plain", "answers", b"id")
    assert (sent.payload_format_indicator, sent.user_properties) == (1, [("a", "b")])
    back = mqtt5.PublishPacket(
        "to/list",
        b"y",
        content_type="text/plain",
        response_topic="answers",
        correlation_data=b"id",
        payload_format_indicator=1,
        user_properties=[("a", "b")],
    )
    mixed.send(client, back)
    assert one.properties[-1] == values
