"""Real clients of others at real brokers: Apache Qpid Proton with AMQP, Paho with MQTT.

Proton publishes and receives at one broker, Paho at another one, over a link of the overlay.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from proton_clients import proton

from brokers import free_port
from overlays import RealOverlay
from waiting import WITHIN_S, eventually

proton_core: Any = proton()
utils: Any = proton("proton.utils")
reactor: Any = proton("proton.reactor")

Message = proton_core.Message
PROBE = b"is this needed?"


class Two:
    """Two linked brokers, both with AMQP: `a` and `b`."""

    def __init__(self, directory: Path) -> None:
        self.overlay = RealOverlay(directory, {"a-b": 'latency = "1ms"'})
        self.ports = {name: free_port() for name in ("a", "b")}
        text = self.overlay.file.read_text()
        for name, port in self.ports.items():
            text = text.replace(f"[brokers.{name}]\n", f'[brokers.{name}]\namqp = "127.0.0.1:{port}"\n')
        self.overlay.file.write_text(text)
        self.overlay.start()

    def needs(self, topic: str, at: str) -> None:
        """Wait until one broker knows that somebody needs the topic: MQTT 5 says so of a message that nobody does."""
        with self.mqtt(at) as writer:
            eventually(lambda: writer.publish(topic, PROBE).reason == 0, f"{at} knows that {topic} is needed")

    @contextmanager
    def amqp(self, at: str, container: str | None = None) -> Iterator[Any]:
        here = None
        if container is not None:
            here = reactor.Container()
            here.container_id = container
        connection = utils.BlockingConnection(f"amqp://127.0.0.1:{self.ports[at]}", timeout=WITHIN_S, container=here)
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def mqtt(self, at: str) -> Iterator["Mqtt"]:
        client = Mqtt(self.overlay[at].mqtt)
        try:
            yield client
        finally:
            client.end()


class Mqtt:
    def __init__(self, address: str) -> None:
        self.got: Queue[paho.MQTTMessage] = Queue()
        self._granted = threading.Event()
        self.reason = -1
        """Of the last acknowledgement."""
        self.client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self.client.on_message = lambda _client, _data, message: self.got.put(message)
        self.client.on_subscribe = lambda *_: self._granted.set()
        self.client.on_publish = self._published
        host, _, port = address.rpartition(":")
        self.client.connect(host, int(port))
        self.client.loop_start()

    def _published(self, _client: object, _data: object, _id: int, reason: Any, _properties: object) -> None:
        self.reason = reason.value

    def subscribe(self, topic: str, qos: int = 1) -> None:
        self._granted.clear()
        self.client.subscribe(topic, qos)
        assert self._granted.wait(WITHIN_S)

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False, **values: Any) -> "Mqtt":
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        for name, value in values.items():
            setattr(properties, name, value)
        self.client.publish(topic, payload, qos, retain, properties).wait_for_publish(WITHIN_S)
        return self

    def take(self) -> paho.MQTTMessage:
        while (got := self.got.get(timeout=WITHIN_S)).payload == PROBE:
            pass
        return got

    def end(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    both = Two(tmp_path_factory.mktemp("amqp"))
    yield both
    both.overlay.end()


def receive(receiver: Any) -> Any:
    message = receiver.receive(WITHIN_S)
    receiver.accept()
    return receive(receiver) if message.body == PROBE else message


def nothing_more(receiver: Any) -> bool:
    try:
        receiver.receive(0.3)
    except proton_core.Timeout:
        return True
    return False


def test_amqp_to_mqtt_across_two_brokers(two: Two) -> None:
    with two.mqtt("b") as reader, two.amqp("a") as connection:
        reader.subscribe("plant/#")
        two.needs("plant/1", "a")
        writer = connection.create_sender("plant/1")
        binary = bytes(range(256))
        writer.send(
            Message(
                body=binary,
                inferred=True,
                content_type="application/octet-stream",
                correlation_id=b"\x01\x02",
                reply_to="answers",
                ttl=30.0,
                properties={"site": "lab", "floor": 3},
            )
        )
        got = reader.take()
        assert (got.topic, got.payload, got.qos) == ("plant/1", binary, 1)
        properties: Any = got.properties
        assert properties.ContentType == "application/octet-stream"
        assert properties.CorrelationData == b"\x01\x02"
        assert properties.ResponseTopic == "answers"
        assert ("site", "lab") in properties.UserProperty
        assert ("floor", "3") in properties.UserProperty
        assert 0 < properties.MessageExpiryInterval <= 30
        for number in range(200):
            writer.send(Message(body=f"{number}"))
        texts = [reader.take().payload for _ in range(200)]
        assert texts == [b"%d" % number for number in range(200)]


def test_mqtt_to_amqp_across_two_brokers(two: Two) -> None:
    with two.amqp("a") as connection, two.mqtt("b") as writer:
        reader = connection.create_receiver("room/+/temperature", credit=50)
        two.needs("room/1/temperature", "b")
        binary = bytes(range(256))
        writer.publish(
            "room/1/temperature",
            binary,
            ContentType="application/x",
            CorrelationData=b"\x07",
            ResponseTopic="answers",
            MessageExpiryInterval=60,
            UserProperty=[("site", "lab")],
        )
        got = receive(reader)
        assert body_of(got) == binary
        assert (got.address, got.content_type, got.reply_to) == ("room/1/temperature", "application/x", "answers")
        assert bytes(got.correlation_id) == b"\x07"
        assert got.properties == {"site": "lab"}
        assert got.durable
        assert 0 < got.ttl <= 60
        assert got.annotations == {"x-opt-topic": "room/1/temperature"}
        writer.publish("room/1/temperature", "20 °C".encode(), PayloadFormatIndicator=1)
        assert receive(reader).body == "20 °C"
        for number in range(200):
            writer.publish("room/2/temperature", b"%d" % number)
        assert [body_of(receive(reader)) for _ in range(200)] == [b"%d" % number for number in range(200)]


def test_amqp_to_amqp_across_two_brokers_keeps_types(two: Two) -> None:
    with two.amqp("a") as one, two.amqp("b") as other:
        reader = other.create_receiver("types/#")
        two.needs("types/x", "a")
        sent = Message(
            body={"name": "value", "list": [1, 2.5, None, True], "binary": b"\x00"},
            id="message-1",
            subject="s",
            correlation_id="c-1",
            properties={"long": proton_core.ulong(7), "flag": True, "text": "t"},
            annotations={"x-opt-mine": "a"},
            priority=7,
            group_id="g",
            creation_time=1_700_000_000.0,
        )
        one.create_sender("types/x").send(sent)
        got = receive(reader)
        assert got.body == sent.body
        assert (got.id, got.subject, got.correlation_id, got.priority) == ("message-1", "s", "c-1", 7)
        assert (got.group_id, got.creation_time) == ("g", 1_700_000_000.0)
        assert got.properties == {"long": proton_core.ulong(7), "flag": True, "text": "t"}
        assert got.annotations == {"x-opt-mine": "a", "x-opt-topic": "types/x"}


def test_retained_messages_come_first_and_are_annotated(two: Two) -> None:
    with two.mqtt("b") as writer, two.amqp("a") as connection:
        writer.publish("kept/1", b"old", retain=True)
        with two.amqp("b") as amqp_writer:
            amqp_writer.create_sender("kept/2").send(Message(body="older", annotations={"x-opt-retain": True}))
        eventually(lambda: retained(two), "both are retained at a")
        reader = connection.create_receiver("kept/#", credit=10)
        got = sorted((receive(reader) for _ in range(2)), key=lambda one: str(one.address or ""))
        assert {body_of(one) for one in got} == {b"old", b"older"}
        assert all(one.annotations["x-opt-retain"] for one in got)


def retained(two: Two) -> bool:
    with two.mqtt("a") as looker:
        looker.subscribe("kept/#")
        try:
            looker.got.get(timeout=1)
            looker.got.get(timeout=1)
        except Empty:
            return False
        return True


def body_of(message: Any) -> bytes:
    return message.body.encode() if isinstance(message.body, str) else bytes(message.body)


def test_a_durable_subscription_outlives_its_connection(two: Two) -> None:
    durable = reactor.DurableSubscription
    with two.amqp("a", "reporter") as connection:
        reader = connection.create_receiver("news/#", name="mine", options=durable())
        with two.amqp("a") as other:
            other.create_sender("news/1").send(Message(body="one"))
        assert receive(reader).body == "one"
        reader.link.detach()
        connection.wait(lambda: reader.link.state & proton_core.Endpoint.REMOTE_CLOSED or True)
    with two.mqtt("b") as writer:
        two.needs("news/1", "b")
        writer.publish("news/1", b"two")
        writer.publish("news/1", b"three")
    with two.amqp("a", "reporter") as connection:
        reader = connection.create_receiver("news/#", name="mine", options=durable(), credit=5)
        assert [body_of(receive(reader)) for _ in range(2)] == [b"two", b"three"]
        reader.close()


def test_a_queue_shares_its_messages_between_consumers(two: Two) -> None:
    with two.amqp("a") as writer_end, two.amqp("a") as one, two.amqp("a") as other:
        writer = writer_end.create_sender("queue://jobs")
        for number in range(10):
            writer.send(Message(body=number))
        readers = [end.create_receiver("queue://jobs", credit=1) for end in (one, other)]
        got = [receive(readers[number % 2]).body for number in range(10)]
        assert sorted(got) == list(range(10))


def test_a_queue_follows_its_consumers_to_another_broker(two: Two) -> None:
    with two.amqp("a") as one, two.amqp("b") as other:
        writer = one.create_sender("queue://moving")
        for number in range(5):
            writer.send(Message(body=number))
        reader = other.create_receiver("queue://moving", credit=20)
        assert sorted(receive(reader).body for _ in range(5)) == list(range(5))
        for number in range(5, 10):
            writer.send(Message(body=number))
        assert [receive(reader).body for _ in range(5)] == list(range(5, 10))


def test_what_a_consumer_of_a_queue_leaves_goes_to_another_one(two: Two) -> None:
    with two.amqp("b") as one, two.amqp("b") as other:
        reader = one.create_receiver("queue://tasks", credit=1)
        other.create_sender("queue://tasks").send(Message(body="task"))
        assert reader.receive(WITHIN_S).body == "task"
        one.conn.close()
        one.wait(lambda: one.conn.state & proton_core.Endpoint.REMOTE_CLOSED)
        again = other.create_receiver("queue://tasks", credit=1)
        message = receive(again)
        assert (message.body, message.delivery_count) == ("task", 1)


def test_released_and_modified_messages_are_delivered_again(two: Two) -> None:
    with two.amqp("a") as connection, two.amqp("a") as other:
        reader = connection.create_receiver("again/#", credit=1)
        other.create_sender("again/1").send(Message(body="x"))
        assert reader.receive(WITHIN_S).delivery_count == 0
        reader.release(delivered=False)
        assert reader.receive(WITHIN_S).delivery_count == 0
        reader.fetcher.unsettled[0].local.failed = True
        reader.release(delivered=True)
        assert reader.receive(WITHIN_S).delivery_count == 1
        reader.reject()
        assert nothing_more(reader)


def test_a_drain_returns_the_credit(two: Two) -> None:
    with two.amqp("a") as connection, two.amqp("a") as other:
        reader = connection.create_receiver("drained/#", credit=0)
        other.create_sender("drained/1").send(Message(body="x"))
        reader.link.drain(5)
        connection.wait(lambda: reader.fetcher.has_message and reader.link.credit == 0)
        assert receive(reader).body == "x"


def test_a_selector_of_jms_chooses_messages(two: Two) -> None:
    with two.amqp("a") as connection, two.amqp("b") as other:
        reader = connection.create_receiver("pick/#", options=reactor.Selector("floor > 2 AND site = 'lab'"), credit=5)
        two.needs("pick/1", "b")
        writer = other.create_sender("pick/1")
        for floor in range(5):
            writer.send(Message(body=floor, properties={"floor": floor, "site": "lab"}))
        assert [receive(reader).body for _ in range(2)] == [3, 4]
        with pytest.raises(utils.LinkDetached, match="at character"):
            connection.create_receiver("pick/#", name="wrong", options=reactor.Selector("floor > > 2"))


def test_requests_are_answered_over_dynamic_addresses(two: Two) -> None:
    with two.amqp("a") as asker, two.amqp("b") as server:
        requests = server.create_receiver("service")
        two.needs("service", "a")
        answers = asker.create_receiver(None, dynamic=True)
        address = answers.remote_source.address
        asker.create_sender("service").send(Message(body="ping", reply_to=address, correlation_id="1"))
        request = receive(requests)
        two.needs(address, "b")
        relay = server.create_sender(None)
        relay.send(Message(body="pong", address=request.reply_to, correlation_id=request.correlation_id))
        answer = receive(answers)
        assert (answer.body, answer.correlation_id) == ("pong", "1")


def test_what_is_not_there_is_refused_with_a_reason(two: Two) -> None:
    with two.amqp("a") as connection:
        with pytest.raises(utils.LinkDetached, match="a/#"):
            connection.create_sender("a/#")
        with pytest.raises(utils.LinkDetached, match="not allowed to publish"):
            connection.create_sender("$SYS/x", name="sys")
        relay = connection.create_sender(None, name="relay")
        with pytest.raises(utils.SendException):
            relay.send(Message(body="x", address="a/#"))


def test_a_large_message_travels_in_many_frames(two: Two) -> None:
    with two.amqp("a") as one, two.amqp("b") as other:
        reader = other.create_receiver("large/#")
        two.needs("large/1", "a")
        body = bytes(range(256)) * 400
        one.create_sender("large/1").send(Message(body=body, inferred=True))
        assert body_of(receive(reader)) == body


def test_a_client_with_a_heartbeat_stays_connected(two: Two) -> None:
    connection = utils.BlockingConnection(f"amqp://127.0.0.1:{two.ports['a']}", timeout=WITHIN_S, heartbeat=0.5)
    try:
        reader = connection.create_receiver("beat/#")
        assert nothing_more(reader)
        with pytest.raises(proton_core.Timeout):
            reader.receive(2.0)
        with two.amqp("a") as other:
            other.create_sender("beat/1").send(Message(body="x"))
        assert receive(reader).body == "x"
    finally:
        connection.close()


def test_settled_messages_are_qos_0(two: Two) -> None:
    with two.mqtt("a") as reader, two.amqp("a") as connection:
        reader.subscribe("fast/#")
        writer = connection.create_sender("fast/1", options=reactor.AtMostOnce())
        for number in range(20):
            writer.send(Message(body=f"{number}"))
        writer.close()  # what is settled is not waited for before
        got = [reader.take() for _ in range(20)]
        assert [one.payload for one in got] == [b"%d" % number for number in range(20)]
        assert {one.qos for one in got} == {0}
