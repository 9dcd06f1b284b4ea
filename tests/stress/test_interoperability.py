"""Clients that others have written find what they expect: paho-mqtt, aiomqtt, mosquitto_pub and mosquitto_sub."""

import asyncio
import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import pytest
from paho.mqtt.enums import MQTTProtocolVersion
from pahos import PATIENCE_S, VERSIONS, Heard, Paho, Way
from stage import StrainedBroker, strained

from brokers import free_port
from overlane.testbed.certificates import Authority
from waiting import eventually

pytestmark = pytest.mark.slow

WAYS = ("tcp", "tls", "websocket", "websocket over tls")

needs_mosquitto = pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto-clients is not installed")


class Reachable(StrainedBroker):
    """By every way there is, for clients with certificates or without."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.alice = self.authority.client("alice")
        secure_port = free_port()
        super().__init__(directory, authority=self.authority, endpoints=f'websocket_tls = "127.0.0.1:{secure_port}"\n')
        tls = ssl.create_default_context(cafile=str(self.authority.ca))
        tls.load_cert_chain(self.alice.certificate, self.alice.key)
        self.ways = {
            "tcp": Way(self.port),
            "tls": Way(self.tls_port, tls=tls),
            "websocket": Way(self.websocket_port, "websockets"),
            "websocket over tls": Way(secure_port, "websockets", tls),
        }

    def subscriptions_of(self, client: str) -> int:
        answer = self.request(f"/clients/{client}")
        return len(answer.json["subscriptions"]) if answer.status == 200 else 0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reachable]:
    with strained(Reachable(tmp_path_factory.mktemp("reachable"))) as broker:
        yield broker


@pytest.fixture(params=list(VERSIONS))
def version(request: pytest.FixtureRequest) -> MQTTProtocolVersion:
    return VERSIONS[request.param]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """One of the test's own."""
    return "".join(one if one.isalnum() else "-" for one in request.node.name)


# paho


@pytest.mark.parametrize("way", WAYS)
def test_paho_exchanges_messages_of_every_quality_by_every_way(
    broker: Reachable, version: MQTTProtocolVersion, way: str, topic: str
) -> None:
    with Paho(broker.ways[way], f"{topic}-p", version) as publisher:
        for granted in range(3):
            with Paho(broker.ways[way], f"{topic}-s", version) as subscriber:
                assert subscriber.subscribe(f"{topic}/+", granted) == granted
                for qos in range(3):
                    publisher.publish(f"{topic}/{qos}", b"%d" % qos, qos)
                # Different qualities may overtake each other, but none gets lost.
                found = sorted(subscriber.heard(3), key=lambda one: one.topic)
                assert found == [Heard(f"{topic}/{qos}", b"%d" % qos, min(qos, granted)) for qos in range(3)]
                large = bytes(range(256)) * 1_000
                publisher.publish(f"{topic}/large", large, 1)
                assert subscriber.heard() == [Heard(f"{topic}/large", large, min(1, granted))]
                assert subscriber.has_heard_all()


def test_paho_gets_retained_messages(broker: Reachable, version: MQTTProtocolVersion, topic: str) -> None:
    way = broker.ways["tcp"]
    with Paho(way, f"{topic}-p", version) as publisher:
        publisher.publish(topic, b"old", 1, retain=True)
        publisher.publish(topic, b"new", 1, retain=True)
        with Paho(way, f"{topic}-s", version) as subscriber:
            subscriber.subscribe(topic, 1)
            assert subscriber.heard() == [Heard(topic, b"new", 1, True)]
        publisher.publish(topic, b"", 1, retain=True)
        with Paho(way, f"{topic}-s", version) as subscriber:
            subscriber.subscribe(topic, 1)
            publisher.publish(topic, b"live", 1)
            assert subscriber.heard() == [Heard(topic, b"live", 1)]


def test_paho_leaves_a_will(broker: Reachable, version: MQTTProtocolVersion, topic: str) -> None:
    way = broker.ways["tcp"]
    with Paho(way, f"{topic}-s", version) as subscriber:
        subscriber.subscribe(topic, 2)
        doomed = Paho(way, f"{topic}-d", version)
        doomed.paho.will_set(topic, b"gone", 2)
        doomed.connect()
        doomed.break_off()
        assert subscriber.heard() == [Heard(topic, b"gone", 2)]
        polite = Paho(way, f"{topic}-polite", version)
        polite.paho.will_set(topic, b"gone", 2)
        with polite:
            pass
        subscriber.publish(topic, b"and nothing else", 0)
        assert subscriber.heard() == [Heard(topic, b"and nothing else", 0)]


def test_paho_finds_its_session_again(broker: Reachable, version: MQTTProtocolVersion, topic: str) -> None:
    way = broker.ways["tcp"]
    subscriber = Paho(way, f"{topic}-s", version, kept=True)
    with subscriber:
        assert not subscriber.is_resumed()
        subscriber.subscribe(topic, 2)
    with Paho(way, f"{topic}-p", version) as publisher:
        for qos in range(3):
            publisher.publish(topic, b"%d" % qos, qos)
    with subscriber:
        assert subscriber.is_resumed()
        # Whether QoS 0 is kept for those who are away is up to the broker: this one does not.
        assert subscriber.heard(2) == [Heard(topic, b"1", 1), Heard(topic, b"2", 2)]


def test_a_certificate_tells_who_paho_is(broker: Reachable, version: MQTTProtocolVersion, topic: str) -> None:
    with Paho(broker.ways["tls"], topic, version):
        seen = broker.get(f"/clients/{topic}")["client"]
        assert (seen["user"], seen["connection"]["is_secure"]) == ("alice", True)


# aiomqtt


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", [4, 5])
def test_aiomqtt_exchanges_messages_and_gets_retained_ones(
    broker: Reachable, number: int, way: str, topic: str
) -> None:
    asyncio.run(asyncio.wait_for(aiomqtt_story(broker.ways[way], number, topic), 2 * PATIENCE_S))


async def aiomqtt_story(way: Way, number: int, topic: str) -> None:
    def client(name: str) -> aiomqtt.Client:
        return aiomqtt.Client(
            "localhost",
            way.port,
            identifier=f"{topic}-{name}",
            protocol=aiomqtt.ProtocolVersion(number),
            transport=way.transport,
            tls_context=way.tls,
            timeout=PATIENCE_S,
        )

    async with client("s") as subscriber, client("p") as publisher:
        await subscriber.subscribe(f"{topic}/#", 2)
        for qos in range(3):
            await publisher.publish(f"{topic}/{qos}", b"%d" % qos, qos)
        await publisher.publish(f"{topic}/kept", b"kept", 1, retain=True)
        messages = aiter(subscriber.messages)
        found = sorted([await anext(messages) for _ in range(4)], key=lambda one: str(one.topic))
        assert [(str(one.topic), one.payload, one.qos) for one in found] == [
            *((f"{topic}/{qos}", b"%d" % qos, qos) for qos in range(3)),
            (f"{topic}/kept", b"kept", 1),
        ]
        async with client("late") as late:
            await late.subscribe(f"{topic}/kept", 1)
            kept = await anext(aiter(late.messages))
            assert (kept.payload, kept.retain) == (b"kept", True)
        await publisher.publish(f"{topic}/kept", b"", 1, retain=True)


# Mosquitto's


def mosquitto(broker: Reachable, program: str, *options: str, secure: bool = False) -> list[str]:
    ways = ["-h", "localhost", "-p", str(broker.tls_port if secure else broker.port)]
    if secure:
        alice = broker.alice
        ways += ["--cafile", str(broker.authority.ca), "--cert", str(alice.certificate), "--key", str(alice.key)]
    return [program, *ways, *options]


def publish(broker: Reachable, topic: str, payload: str, *options: str, secure: bool = False) -> None:
    command = mosquitto(broker, "mosquitto_pub", "-t", topic, "-m", payload, *options, secure=secure)
    subprocess.run(command, check=True, timeout=PATIENCE_S)


class Listening:
    """mosquitto_sub in the background, from when it has subscribed."""

    def __init__(self, broker: Reachable, client: str, topic: str, *options: str, secure: bool = False) -> None:
        command = mosquitto(
            broker, "mosquitto_sub", "-i", client, "-t", topic, "-F", "%t %q %r %p", *options, secure=secure
        )
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        eventually(lambda: self.process.poll() == 0 or broker.subscriptions_of(client) == 1, "subscribed")

    def heard(self) -> list[str]:
        """What it says until it ends."""
        try:
            said, _ = self.process.communicate(timeout=PATIENCE_S)
        finally:
            self.process.kill()
        return sorted(said.splitlines())


@needs_mosquitto
@pytest.mark.parametrize("secure", [False, True], ids=["tcp", "tls"])
@pytest.mark.parametrize("number", ["mqttv311", "mqttv5"])
def test_mosquittos_clients_exchange_messages_of_every_quality(
    broker: Reachable, number: str, secure: bool, topic: str
) -> None:
    listening = Listening(broker, f"{topic}-s", f"{topic}/+", "-C", "3", "-q", "2", "-V", number, secure=secure)
    for qos in "012":
        publish(broker, f"{topic}/{qos}", "hello", "-q", qos, "-V", number, secure=secure)
    assert listening.heard() == [f"{topic}/{qos} {qos} 0 hello" for qos in range(3)]


@needs_mosquitto
@pytest.mark.parametrize("number", ["mqttv311", "mqttv5"])
def test_mosquittos_clients_find_retained_messages_sessions_and_wills(
    broker: Reachable, number: str, topic: str
) -> None:
    publish(broker, f"{topic}/kept", "kept", "-q", "1", "-r", "-V", number)
    kept = Listening(broker, f"{topic}-r", f"{topic}/kept", "-C", "1", "-q", "1", "-V", number)
    assert kept.heard() == [f"{topic}/kept 1 1 kept"]
    publish(broker, f"{topic}/kept", "", "-q", "1", "-r", "-V", number)

    session = ("-c", "-q", "1", "-V", number, *(("-x", "600") if number == "mqttv5" else ()))
    away = Listening(broker, f"{topic}-away", f"{topic}/away", *session)
    away.process.send_signal(signal.SIGTERM)
    away.heard()
    publish(broker, f"{topic}/away", "while away", "-q", "1", "-V", number)
    back = Listening(broker, f"{topic}-away", f"{topic}/away", "-C", "1", *session)
    assert back.heard() == [f"{topic}/away 1 0 while away"]

    mourner = Listening(broker, f"{topic}-m", f"{topic}/will", "-C", "1", "-q", "1", "-V", number)
    will = ("--will-topic", f"{topic}/will", "--will-payload", "gone", "--will-qos", "1", "-V", number)
    doomed = Listening(broker, f"{topic}-d", f"{topic}/nothing", *will)
    doomed.process.kill()
    doomed.heard()
    assert mourner.heard() == [f"{topic}/will 1 0 gone"]
