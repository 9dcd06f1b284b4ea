"""What only MQTT 5 has, with paho-mqtt at both ends."""

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions
from stage import StrainedBroker, strained

pytestmark = pytest.mark.slow

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    directory: Path = tmp_path_factory.mktemp("five")
    with strained(StrainedBroker(directory)) as broker:
        yield broker.port


def having(kind: int, **given: object) -> Properties:
    properties = Properties(kind)  # type: ignore[no-untyped-call]
    for name, value in given.items():
        setattr(properties, name, value)
    return properties


class Five:
    """A client of MQTT 5. Whatever it is told waits in a queue."""

    def __init__(self, name: str) -> None:
        self.paho = Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTv5, reconnect_on_failure=False)
        self.connected: queue.Queue[tuple[Any, Any, Any]] = queue.Queue()
        self.granted: queue.Queue[list[int]] = queue.Queue()
        self.heard: queue.Queue[MQTTMessage] = queue.Queue()
        self.parted: queue.Queue[int] = queue.Queue()
        self.answers: dict[int, int] = {}
        self.paho.on_connect = lambda _, __, flags, reason, given: self.connected.put((flags, reason, given))
        self.paho.on_subscribe = lambda _, __, ___, reasons, ____: self.granted.put([one.value for one in reasons])
        self.paho.on_message = lambda _, __, message: self.heard.put(message)
        self.paho.on_disconnect = lambda _, __, ___, reason, ____: self.parted.put(reason.value)
        self.paho.on_publish = lambda _, __, number, reason, ____: self.answers.update({number: reason.value})

    def connect(self, port: int, clean: bool = True, **given: object) -> tuple[bool, int, Any]:
        """Whether its session was there, the reason code, and the properties of the answer."""
        self.paho.connect("127.0.0.1", port, clean_start=clean, properties=having(PacketTypes.CONNECT, **given))
        self.paho.loop_start()
        flags, reason, answer = self.connected.get(timeout=PATIENCE_S)
        return bool(flags.session_present), int(reason.value), answer

    def subscribe(self, topic: str, qos: int = 0, identifier: int = 0, **options: Any) -> list[int]:
        given = {"SubscriptionIdentifier": identifier} if identifier else {}
        self.paho.subscribe(
            topic,
            options=SubscribeOptions(qos=qos, **options),
            properties=having(PacketTypes.SUBSCRIBE, **given),
        )
        return self.granted.get(timeout=PATIENCE_S)

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False, **given: object) -> int:
        """The reason code."""
        sent = self.paho.publish(topic, payload, qos, retain, having(PacketTypes.PUBLISH, **given))
        sent.wait_for_publish(PATIENCE_S)
        return self.answers.get(sent.mid, 0)

    def hear(self) -> MQTTMessage:
        return self.heard.get(timeout=PATIENCE_S)

    def vanish(self) -> None:
        self.paho.loop_stop()
        line = self.paho.socket()
        assert line is not None
        line.close()

    def leave(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


@pytest.fixture
def pair(port: int, request: pytest.FixtureRequest) -> Iterator[tuple[Five, Five]]:
    """Who publishes and who subscribes."""
    both = Five(f"{request.node.name}-p"), Five(f"{request.node.name}-s")
    for one in both:
        assert one.connect(port)[1] == 0
    yield both
    for one in both:
        one.leave()


def test_properties_arrive_as_they_were_sent(pair: tuple[Five, Five]) -> None:
    publisher, subscriber = pair
    subscriber.subscribe("five/given", 2, identifier=268_435_455)
    given: dict[str, Any] = {
        "UserProperty": [("b", "1"), ("a", "2"), ("b", "1")],
        "ContentType": "text/plain",
        "ResponseTopic": "five/answers",
        "CorrelationData": b"\0\1",
        "PayloadFormatIndicator": 1,
        "MessageExpiryInterval": 1_000,
    }
    publisher.publish("five/given", b"x", 2, **given)
    found: Any = subscriber.hear().properties
    assert 0 < found.MessageExpiryInterval <= 1_000
    assert found.SubscriptionIdentifier == [268_435_455]
    assert {name: getattr(found, name) for name in given if name != "MessageExpiryInterval"} == {
        name: value for name, value in given.items() if name != "MessageExpiryInterval"
    }


def test_options_of_subscriptions_hold(pair: tuple[Five, Five]) -> None:
    publisher, subscriber = pair
    topic = "five/options"
    assert subscriber.subscribe(topic, 1, noLocal=True, retainAsPublished=True, retainHandling=1) == [1]
    subscriber.publish(topic, b"own", retain=True)
    publisher.publish(topic, b"kept", retain=True)
    first = subscriber.hear()
    assert (first.payload, first.retain) == (b"kept", True)
    subscriber.subscribe(topic, 1, retainHandling=1)
    subscriber.subscribe(topic, 1, retainHandling=2)
    publisher.publish(topic, b"live", retain=False)
    assert subscriber.hear().payload == b"live"
    subscriber.subscribe(topic, 1, retainHandling=0)
    again = subscriber.hear()
    assert (again.payload, again.retain) == (b"kept", True)
    publisher.publish(topic, b"", retain=True)


def test_overlapping_subscriptions_get_one_message_with_all_identifiers(pair: tuple[Five, Five]) -> None:
    publisher, subscriber = pair
    subscriber.subscribe("five/over/+", 0, identifier=1)
    subscriber.subscribe("five/over/#", 2, identifier=2)
    publisher.publish("five/over/x", b"once", 2)
    publisher.publish("five/over/x", b"then", 2)
    first, second = subscriber.hear(), subscriber.hear()
    assert (first.payload, first.qos, second.payload) == (b"once", 2, b"then")
    found: Any = first.properties
    assert sorted(found.SubscriptionIdentifier) == [1, 2]


def test_a_shared_subscription_gives_each_message_to_one(port: int, pair: tuple[Five, Five]) -> None:
    publisher, one = pair
    other = Five("five-other")
    other.connect(port)
    for member in (one, other):
        member.subscribe("$share/five/five/shared/#", 1)
    for number in range(20):
        publisher.publish("five/shared/x", b"%d" % number)
    # A last message to each shows that no more will come.
    for member in (one, other):
        member.subscribe("five/end", 1)
    publisher.publish("five/end", b"end")
    heard = []
    for member in (one, other):
        while (message := member.hear()).payload != b"end":
            heard.append(int(message.payload))
    assert sorted(heard) == list(range(20))
    other.leave()


def test_wills_wait_for_their_delay_but_not_beyond_the_session(port: int, pair: tuple[Five, Five]) -> None:
    _, mourner = pair
    mourner.subscribe("five/will", 1)
    for name, delay_s, expiry_s in (("delayed", 1, 600), ("ended", 600, 1), ("at once", 600, 0)):
        doomed = Five(f"five-{name}")
        delay = having(PacketTypes.WILLMESSAGE, WillDelayInterval=delay_s, UserProperty=[("why", name)])
        doomed.paho.will_set("five/will", name.encode(), 1, properties=delay)
        doomed.connect(port, SessionExpiryInterval=expiry_s)
        doomed.vanish()
        message = mourner.hear()
        found: Any = message.properties
        assert (message.payload, found.UserProperty) == (name.encode(), [("why", name)])


def test_codes_tell_what_happened(port: int, pair: tuple[Five, Five]) -> None:
    publisher, _ = pair
    assert publisher.publish("five/nobody", b"x", 1) == 0x10
    nameless = Five("")
    _, reason, answer = nameless.connect(port)
    assert reason == 0
    assert answer.AssignedClientIdentifier
    nameless.leave()
    assert Five("five-scram").connect(port, AuthenticationMethod="SCRAM-SHA-256")[1] == 0x8C
    first, second = Five("five-twice"), Five("five-twice")
    first.connect(port)
    second.connect(port)
    assert first.parted.get(timeout=PATIENCE_S) == 0x8E
    second.leave()


def test_messages_expire_while_their_client_is_away_and_sessions_end_when_told(
    port: int, pair: tuple[Five, Five]
) -> None:
    publisher, witness = pair
    away = Five("five-away")
    away.connect(port, SessionExpiryInterval=600)
    away.subscribe("five/away", 1)
    away.leave()
    publisher.publish("five/away", b"short", MessageExpiryInterval=1)
    publisher.publish("five/away", b"long", MessageExpiryInterval=600)
    # A will that is said after more than a second tells that it has passed.
    witness.subscribe("five/clock", 1)
    clock = Five("five-clock")
    clock.paho.will_set("five/clock", b"tick", 1, properties=having(PacketTypes.WILLMESSAGE, WillDelayInterval=2))
    clock.connect(port, SessionExpiryInterval=600)
    clock.vanish()
    witness.hear()
    assert away.connect(port, clean=False, SessionExpiryInterval=600)[0]
    assert away.hear().payload == b"long"
    away.paho.disconnect(properties=having(PacketTypes.DISCONNECT, SessionExpiryInterval=0))
    away.paho.loop_stop()
    assert not away.connect(port, clean=False)[0]
    away.leave()
