"""Domains with topic names of their own: each client says and hears the names of its domain, whatever its protocol."""

import asyncio
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import nats
import paho.mqtt.client as paho
import pytest
from nats.aio.msg import Msg
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from brokers import free_port
from overlane.errors import ConfigError
from overlane.network import parse_network
from overlays import RealOverlay
from waiting import eventually

V5, V311 = MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311
NAMES = """
[[names]]
domain = "plant"
local = "#"
overlay = "plant/#"

[[names]]
domain = "plant"
local = "world/#"
overlay = "#"

[[names]]
domain = "office"
local = "halls/+/press/#"
overlay = "plant/press/+/#"

[topics."plant/press/#"]
reliability = "reliable"
"""
DOMAINS = {"a": "plant", "b": "plant", "c": "office", "d": ""}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOverlay]:
    """a and b are the plant, c the office, d has the names of the overlay."""
    link = 'latency = "1ms"'
    net = RealOverlay(tmp_path_factory.mktemp("names"), {"a-b": link, "b-d": link, "d-c": link}, NAMES)
    text = net.file.read_text()
    text = text.replace("[brokers.b]\n", f'[brokers.b]\nnats = "127.0.0.1:{free_port()}"\n')
    for name, domain in DOMAINS.items():
        if domain:
            text = text.replace(f"[brokers.{name}]\n", f'[brokers.{name}]\ndomain = "{domain}"\n')
    net.file.write_text(text)
    try:
        net.start()
        yield net
    finally:
        net.end()


class Person:
    def __init__(self, address: str, version: MQTTProtocolVersion, name: str = "", *, keeps: bool = False) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.answers: list[str] = []
        self.granted = 0
        self._client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=version)
        self._client.on_message = self._take
        self._client.on_subscribe = self._subscribed
        self.version, self._keeps = version, keeps
        host, _, port = address.rpartition(":")
        self._address = host, int(port)

    def come(self) -> None:
        if self.version == V5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 600 if self._keeps else 0
            self._client.connect(*self._address, clean_start=not self._keeps, properties=properties)
        else:
            self._client.connect(*self._address)
        self._client.loop_start()
        eventually(self._client.is_connected, "connected")

    def go(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _take(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        self.heard.append((message.topic, bytes(message.payload)))
        if message.properties is not None and hasattr(message.properties, "ResponseTopic"):
            self.answers.append(message.properties.ResponseTopic)

    def _subscribed(self, *_: object) -> None:
        self.granted += 1

    def listen(self, topic_filter: str, qos: int = 0) -> None:
        before = self.granted
        self._client.subscribe(topic_filter, qos)
        eventually(lambda: self.granted > before, "SUBACK")

    def say(self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False, answer: str = "") -> None:
        properties = None
        if answer:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.ResponseTopic = answer
        told = self._client.publish(topic, payload, qos, retain, properties)
        if qos:
            told.wait_for_publish(30)

    def hears(self, topic: str, payload: bytes) -> bool:
        return (topic, payload) in self.heard


@contextmanager
def person(
    net: RealOverlay, broker: str, version: MQTTProtocolVersion = V5, name: str = "", *, keeps: bool = False
) -> Iterator[Person]:
    one = Person(net[broker].mqtt, version, name, keeps=keeps)
    one.come()
    try:
        yield one
    finally:
        one.go()


def meet(speaker: Person, topic: str, reader: Person, name: str, qos: int = 0) -> None:
    """Until the overlay knows who needs what."""

    def is_heard() -> bool:
        speaker.say(topic, b"probe", qos)
        return reader.hears(name, b"probe")

    eventually(is_heard, f"{topic} read as {name}", 60)


@pytest.mark.slow
@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("qos", [0, 1])
def test_one_message_has_the_name_of_each_domain(net: RealOverlay, version: MQTTProtocolVersion, qos: int) -> None:
    with (
        person(net, "a", version) as press,
        person(net, "b", version) as colleague,
        person(net, "c", version) as office,
        person(net, "d", version) as outside,
    ):
        readers = [
            (press, "press/+/temp", "press/7/temp"),
            (colleague, "press/#", "press/7/temp"),
            (office, "halls/#", "halls/7/press/temp"),
            (outside, "#", "plant/press/7/temp"),
        ]
        for reader, topic_filter, _ in readers:
            reader.listen(topic_filter, qos)
        for reader, _, name in readers:
            meet(press, "press/7/temp", reader, name, qos)
        for number in range(100):
            press.say("press/7/temp", b"%d" % number, qos)
            press.say("press/9/temp", b"other", qos)
        for reader, _, name in readers:
            eventually(partial(reader.hears, name, b"99"), "the last one", 60)
            bodies = [body for topic, body in reader.heard if topic == name and body.isdigit()]
            assert bodies == [b"%d" % number for number in range(100)]
            assert {topic.replace("9", "7") for topic, body in reader.heard if body == b"other"} == {name}


@pytest.mark.slow
def test_other_domains_are_read_and_written_under_the_names_that_rules_give_them(net: RealOverlay) -> None:
    with person(net, "a") as press, person(net, "d") as outside, person(net, "c") as office:
        press.listen("#", 1)
        outside.listen("#", 1)
        meet(outside, "weather/1", press, "world/weather/1", 1)
        meet(press, "world/weather/2", outside, "weather/2", 1)
        meet(office, "halls/7/press/set", press, "press/7/set", 1)
        assert not [topic for topic, _ in press.heard if topic.startswith("world/plant")]


@pytest.mark.slow
def test_names_hold_for_every_protocol(net: RealOverlay) -> None:
    with person(net, "d") as outside:
        outside.listen("plant/#")
        address = tomllib.loads(net.file.read_text())["brokers"]["b"]["nats"]

        async def story() -> None:
            client = await nats.connect(f"nats://{address}")
            heard: list[str] = []

            async def take(message: Msg) -> None:
                heard.append(message.subject)

            await client.subscribe("press.>", cb=take)
            while not outside.hears("plant/press/nats", b"x"):
                await client.publish("press.nats", b"x")
                await asyncio.sleep(0.05)
            while "press.mqtt" not in heard:
                outside.say("plant/press/mqtt", b"y")
                await asyncio.sleep(0.05)
            await client.close()

        asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.slow
def test_retained_messages_and_requests_have_local_names(net: RealOverlay) -> None:
    with person(net, "a") as press, person(net, "d") as outside:
        press.say("press/1/state", b"on", 1, retain=True)

        def late_reader_hears() -> bool:
            with person(net, "c") as office:
                office.listen("halls/1/press/#", 1)
                until = time.monotonic() + 5
                while time.monotonic() < until and not office.heard:
                    time.sleep(0.02)
                return office.hears("halls/1/press/state", b"on")

        eventually(late_reader_hears, "retained in the office", 60)
        press.listen("world/commands/#", 1)
        outside.listen("plant/answers/#", 1)
        meet(outside, "commands/ready", press, "world/commands/ready", 1)
        outside.say("commands/now", b"?", 1, answer="plant/answers/1")
        eventually(lambda: press.answers == ["answers/1"], "the response topic", 60)
        meet(press, press.answers[0], outside, "plant/answers/1", 1)


@pytest.mark.slow
def test_a_shared_subscription_has_members_in_several_domains(net: RealOverlay) -> None:
    with (
        person(net, "a") as press,
        person(net, "b") as colleague,
        person(net, "c") as office,
        person(net, "d") as outside,
    ):
        colleague.listen("$share/g/press/+/done", 1)
        office.listen("$share/g/halls/+/press/done", 1)
        outside.listen("$share/g/plant/press/+/done", 1)
        members = [(colleague, "press/1/done"), (office, "halls/1/press/done"), (outside, "plant/press/1/done")]
        for member, name in members:
            meet(press, "press/1/done", member, name, 1)
        for number in range(60):
            press.say("press/1/done", b"%d" % number, 1)

        def numbers(member: Person, name: str) -> list[int]:
            return [int(body) for topic, body in list(member.heard) if topic == name and body.isdigit()]

        def got() -> list[int]:
            return sorted(number for member, name in members for number in numbers(member, name))

        eventually(lambda: len(got()) >= 60, "all of them", 60)
        assert got() == list(range(60))
        assert all(numbers(member, name) for member, name in members)


@pytest.mark.slow
def test_a_session_that_was_away_gets_messages_under_local_names_after_a_restart(net: RealOverlay) -> None:
    with person(net, "d") as outside:
        with person(net, "c", name="kept", keeps=True) as office:
            office.listen("halls/#", 1)
            meet(outside, "plant/press/3/end", office, "halls/3/press/end", 1)
        outside.say("plant/press/3/end", b"away", 1)
        net["c"].stop()
        net["c"].start()
        outside.say("plant/press/3/end", b"restarted", 1)
        office = Person(net["c"].mqtt, V5, "kept", keeps=True)

        def is_back() -> bool:
            try:
                office.come()
            except OSError:
                return False
            return True

        eventually(is_back, "the broker is back", 60)
        eventually(lambda: office.hears("halls/3/press/end", b"restarted"), "what came meanwhile", 60)
        assert office.hears("halls/3/press/end", b"away")
        office.go()


def test_names_that_are_ambiguous_are_refused_with_both_lines() -> None:
    text = """
[brokers.a]
domain = "plant"
[[names]]
domain = "plant"
local = "+/x"
overlay = "p/+/x"
[[names]]
domain = "plant"
local = "y/+"
overlay = "q/y/+"
"""
    with pytest.raises(ConfigError) as refused:
        parse_network(text)
    assert ":10: names[1].local" in str(refused.value)
    assert "line 4 has" in str(refused.value)
    assert "narrower" in str(refused.value)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('domain = "plan"\nlocal = "#"\noverlay = "p/#"', "domain of a broker"),
        ('domain = "plant"\nlocal = "+"\noverlay = "p/#"', "wildcards of overlay"),
        ('domain = "plant"\nlocal = "$x/#"\noverlay = "p/#"', "does not begin with $"),
        ('domain = "r"\nlocal = "#"\noverlay = "p/#"', "without routing brokers"),
    ],
)
def test_names_that_cannot_hold_are_refused(lines: str, told: str) -> None:
    brokers = '[brokers.a]\ndomain = "plant"\n[brokers.r]\nrole = "routing"\n'
    with pytest.raises(ConfigError) as refused:
        parse_network(f"{brokers}[[names]]\n{lines}\n")
    assert told in str(refused.value)
