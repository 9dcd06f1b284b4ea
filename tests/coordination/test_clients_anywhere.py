"""Real brokers of one domain: a client is served wherever it connects, by the broker that has its session."""

import asyncio
import json
import signal
import socket
from collections.abc import Callable, Iterator
from urllib.request import urlopen

import mqtt5
import pytest
from paho.mqtt.client import MQTTv5, MQTTv311
from paho.mqtt.enums import MQTTProtocolVersion
from pahos import Heard, Paho, Way
from services import has_zookeeper
from shared_domain import PASSWORD, PATIENCE_S, Raw, SharedDomain, shared_domain

import overlane.client as overlane_client
from overlane.node.links.greeting import CLIENT, Credentials, Greeting
from waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("zookeeper"),
    pytest.mark.usefixtures("bench_folder"),
    pytest.mark.skipif(not has_zookeeper(), reason="no Java, or no ZooKeeper"),
]

REDIRECT = (("overlane-redirect", "yes"),)
BUSY, UNAVAILABLE, TAKEN_OVER, USE_ANOTHER, MOVED = 0x89, 0x88, 0x8E, 0x9C, 0x9D


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory, bench_folder: None) -> Iterator[SharedDomain]:  # noqa: ARG001
    with shared_domain(tmp_path_factory.mktemp("domain"), "/clients") as made:
        eventually(lambda: _is_shared(made), "the edges know each other", PATIENCE_S, made.tiers.logs)
        yield made


def _is_shared(domain: SharedDomain) -> bool:
    """Whether each edge passes clients on to the other."""
    for one, other in (("west-1", "west-2"), ("west-2", "west-1")):
        kept = Raw(domain.port(one))
        if kept.connect(f"probe-{one}", is_clean=True).reason_code != 0:
            return False
        kept.close()
        found = Raw(domain.port(other)).connect(f"probe-{one}", properties=REDIRECT)
        if found.reason_code != USE_ANOTHER:
            return False
    return True


def sessions(domain: SharedDomain, client_id: str) -> list[str]:
    """The edges that have a session of the client."""
    found = []
    for edge in ("west-1", "west-2"):
        admin = domain.tiers.brokers[edge].ports[2]
        with urlopen(f"http://127.0.0.1:{admin}/clients?filter={client_id}", timeout=PATIENCE_S) as answer:
            found += [edge for one in json.load(answer)["items"] if one["id"] == client_id]
    return found


def tcp(domain: SharedDomain, edge: str) -> Way:
    return Way(domain.port(edge))


def tls(domain: SharedDomain, edge: str) -> Way:
    return Way(domain.port(edge, "mqtt_tls"), tls=domain.tls())


def websocket(domain: SharedDomain, edge: str) -> Way:
    return Way(domain.port(edge, "websocket"), "websockets")


def websocket_tls(domain: SharedDomain, edge: str) -> Way:
    return Way(domain.port(edge, "websocket_tls"), "websockets", domain.tls())


@pytest.mark.parametrize("version", [MQTTv311, MQTTv5])
@pytest.mark.parametrize("way", [tcp, tls, websocket, websocket_tls])
def test_a_subscriber_that_comes_back_through_another_broker_misses_nothing(
    domain: SharedDomain, way: Callable[[SharedDomain, str], Way], version: MQTTProtocolVersion
) -> None:
    name = f"reader-{way.__name__}-{version}"
    topic = f"any/{name}"
    first = Paho(way(domain, "west-1"), name, version, kept=True)
    with first:
        assert first.subscribe(topic, 2) == 2
    with Paho(tcp(domain, "west-2"), f"{name}-writer", MQTTv5) as writer:
        for number in range(20):
            writer.publish(topic, b"%d" % number, 2)
        with Paho(way(domain, "west-2"), name, version, kept=True) as reader:
            assert reader.is_resumed()
            for number in range(20, 40):
                writer.publish(topic, b"%d" % number, 2)
            reader.publish(topic, b"its own", 2)
            heard = reader.heard(41)
            assert [one for one in heard if one.payload != b"its own"] == [
                Heard(topic, b"%d" % number, 2) for number in range(40)
            ]
            assert reader.has_heard_all()
    assert sessions(domain, name) == ["west-1"]


def test_what_is_large_passes_in_both_directions(domain: SharedDomain) -> None:
    """More than the buffers of all connections on the way take."""
    topic, body = "any/large", bytes(range(256)) * 2_000
    with Paho(tcp(domain, "west-1"), "large", MQTTv5, kept=True) as first:
        first.subscribe(topic, 1)
    with Paho(tcp(domain, "west-2"), "large", MQTTv5, kept=True) as passed:
        assert passed.is_resumed()
        for _ in range(20):
            passed.publish(topic, body, 1)
        assert passed.heard(20) == 20 * [Heard(topic, body, 1)]


def test_a_certificate_says_at_the_other_broker_who_the_client_is(domain: SharedDomain) -> None:
    for edge, is_resumed in (("west-1", False), ("west-2", True)):
        way = Way(domain.port(edge, "mqtt_tls"), tls=domain.tls("alice"))
        with Paho(way, "certified", MQTTv5, kept=True) as alice:
            assert alice.is_resumed() is is_resumed
            assert alice.subscribe("alice/secrets", 1) == 1
    by_certificate = "client=certified user=alice"
    eventually(lambda: domain.log("west-1").count(by_certificate) >= 2, "it is logged", PATIENCE_S, domain.tiers.logs)
    assert sessions(domain, "certified") == ["west-1"]


def test_a_password_is_checked_where_the_client_connects_and_counts_at_the_other_broker(domain: SharedDomain) -> None:
    for edge, is_resumed in (("west-1", False), ("west-2", True)):
        alice = Paho(tcp(domain, edge), "with-password", MQTTv311, kept=True)
        alice.paho.username_pw_set("alice", PASSWORD)
        with alice:
            assert alice.is_resumed() is is_resumed
            assert alice.subscribe("alice/secrets", 1) == 1
    wrong = Paho(tcp(domain, "west-2"), "with-password", MQTTv5, kept=True)
    wrong.paho.username_pw_set("alice", "wrong")
    with pytest.raises(AssertionError, match="refused with 86"):
        wrong.connect()
    wrong.paho.loop_stop()
    with Paho(tcp(domain, "west-2"), "nobody", MQTTv311, kept=True) as anonymous:
        assert anonymous.subscribe("alice/secrets", 1) == 0x80


def test_a_client_that_asks_for_it_is_told_where_to_go(domain: SharedDomain) -> None:
    expected = {600: USE_ANOTHER, 0xFFFF_FFFF: MOVED}
    for expiry_s, reason in expected.items():
        name = f"redirected-{expiry_s}"
        first = Raw(domain.port("west-1"))
        assert first.connect(name, expiry_s=expiry_s).reason_code == 0
        first.close()
        second = Raw(domain.port("west-2"))
        answer = second.connect(name, properties=REDIRECT)
        assert (answer.reason_code, answer.server_reference) == (reason, f"127.0.0.1:{domain.port('west-1')}")
        assert second.read() is None


def test_a_client_is_told_the_other_addresses_of_its_kind(domain: SharedDomain) -> None:
    plain, encrypted = Raw(domain.port("west-1")), Raw(domain.port("west-2", "mqtt_tls"), domain.tls())
    found = [
        [value for name, value in one.connect("", is_clean=True, expiry_s=0).user_properties if "alternative" in name]
        for one in (plain, encrypted)
    ]
    assert found == [[f"127.0.0.1:{domain.port('west-2')}"], [f"127.0.0.1:{domain.port('west-1', 'mqtt_tls')}"]]
    plain.close()
    encrypted.close()


def test_a_client_that_connects_twice_keeps_the_later_connection(domain: SharedDomain) -> None:
    first, second = Raw(domain.port("west-1")), Raw(domain.port("west-2"))
    assert not first.connect("twice").session_present
    assert second.connect("twice").session_present
    parted = first.read()
    assert isinstance(parted, mqtt5.DisconnectPacket)
    assert (parted.reason_code, first.read()) == (TAKEN_OVER, None)
    second.send(mqtt5.PingReqPacket())
    assert isinstance(second.read(), mqtt5.PingRespPacket)
    second.close()


def test_clean_start_ends_the_session_at_the_other_broker(domain: SharedDomain) -> None:
    first, second = Raw(domain.port("west-1")), Raw(domain.port("west-2"))
    first.connect("clean")
    assert not second.connect("clean", is_clean=True).session_present
    parted = first.read()
    assert isinstance(parted, mqtt5.DisconnectPacket)
    assert (parted.reason_code, sessions(domain, "clean")) == (TAKEN_OVER, ["west-2"])
    second.close()


def test_clients_that_connect_at_once_end_with_one_session(domain: SharedDomain) -> None:
    for number in range(15):
        lines = [Raw(domain.port(edge)) for edge in ("west-1", "west-2")]
        for line in lines:
            line.send(mqtt5.ConnectPacket(f"race-{number}", clean_start=False, session_expiry_interval=600))
        answers = [line.read() for line in lines]
        assert len(sessions(domain, f"race-{number}")) == 1
        assert any(isinstance(one, mqtt5.ConnAckPacket) and one.reason_code == 0 for one in answers)
        for line in lines:
            line.close()


def test_a_client_cannot_claim_to_be_passed_on(domain: SharedDomain) -> None:
    """Neither where clients connect, nor where brokers do: it does not know the secret."""
    for port in (domain.port("west-1"), domain.tiers.brokers["west-1"].ports[1]):
        greeting = Greeting(Credentials("west-2", None, None, True), b"n" * 16, "west-1", purpose=CLIENT)
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as line:
            line.sendall(greeting.opening())
            while data := line.recv(4096):
                answer, _ = greeting.receive(data) if greeting.peer else (b"", b"")
                if answer:
                    line.sendall(answer + b"\x00\x00\x10\x00")
    told = "west-2 does not know the secret of this overlay"
    eventually(lambda: told in domain.log("west-1"), "it is logged", PATIENCE_S, domain.tiers.logs)


def test_connections_that_are_passed_on_count_as_clients(domain: SharedDomain) -> None:
    lines = []
    reasons = []
    for number in range(41):
        name = f"many-{number}"
        kept = Raw(domain.port("west-1"))
        kept.connect(name)
        kept.close()
        line = Raw(domain.port("west-2"))
        reasons.append(int(line.connect(name).reason_code))
        lines.append(line)
    assert set(reasons[:20]) == {0}
    assert reasons[-1] == BUSY
    for line in lines:
        line.close()


def test_overlanes_client_goes_to_the_broker_that_has_its_session_if_it_is_to(domain: SharedDomain) -> None:
    west_1, west_2 = (f"127.0.0.1:{domain.port(edge)}" for edge in ("west-1", "west-2"))
    passed = "passed on  client=follower"

    async def visit(address: str, *, redirect: bool) -> bool:
        how = {"client_id": "follower", "session_expiry": "1h", "redirect": redirect}
        async with overlane_client.connect([address], **how) as client:  # type: ignore[arg-type]
            await client.publish("any/visit", qos=1)
            return client.session_present

    assert not asyncio.run(visit(west_1, redirect=False))
    assert asyncio.run(visit(west_2, redirect=True))
    assert passed not in domain.log("west-2")
    assert asyncio.run(visit(west_2, redirect=False))
    eventually(lambda: passed in domain.log("west-2"), "it is logged", PATIENCE_S, domain.tiers.logs)


def test_when_the_broker_with_the_session_falls_silent_its_clients_are_closed(domain: SharedDomain) -> None:
    kept, passed = Raw(domain.port("west-1")), Raw(domain.port("west-2"))
    kept.connect("silenced")
    assert passed.connect("silenced").session_present
    domain.tiers.brokers["west-1"].signal(signal.SIGSTOP)
    try:
        assert passed.read() is None
    finally:
        domain.tiers.brokers["west-1"].signal(signal.SIGCONT)
    eventually(lambda: _is_shared(domain), "the edges are linked again", PATIENCE_S, domain.tiers.logs)


def test_when_the_broker_with_the_session_is_lost_its_clients_are_closed_and_find_it_when_it_is_back(
    domain: SharedDomain,
) -> None:
    kept, passed = Raw(domain.port("west-1")), Raw(domain.port("west-2"))
    kept.connect("orphan")
    kept.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("any/orphan", max_qos=mqtt5.QoS.AT_LEAST_ONCE)]))
    assert isinstance(kept.read(), mqtt5.SubAckPacket)
    assert passed.connect("orphan").session_present
    domain.tiers.kill(domain.tiers.brokers["west-1"])
    assert passed.read() is None
    # As long as it is registered, nobody else makes another session for its clients.
    answer = Raw(domain.port("west-2")).connect("orphan")
    assert (answer.reason_code, answer.session_present) == (UNAVAILABLE, False)
    with Paho(tcp(domain, "west-2"), "orphan-writer", MQTTv5) as writer:
        writer.publish("any/orphan", b"meanwhile", 1)
    domain.tiers.start(domain.tiers.brokers["west-1"])

    def back() -> Raw | None:
        line = Raw(domain.port("west-2"))
        answer = line.connect("orphan")
        assert answer.session_present or answer.reason_code == UNAVAILABLE, answer
        return line if answer.session_present else None

    again = eventually(back, "the session is found again", PATIENCE_S, domain.tiers.logs)
    message = again.read()
    assert isinstance(message, mqtt5.PublishPacket)
    assert message.payload == b"meanwhile"
    again.close()


def test_overlanes_client_switches_with_its_session_and_nothing_is_lost_or_comes_twice(domain: SharedDomain) -> None:
    """It was given one address, and learns the other. What it publishes while its broker is lost arrives once."""
    published, received = 300, asyncio.run(_switch(domain, 300))
    assert received == [str(number) for number in range(published)], domain.tiers.logs()
    assert sessions(domain, "switching") == ["west-2"]


async def _switch(domain: SharedDomain, count: int) -> list[str]:
    west_1, west_2 = (f"127.0.0.1:{domain.port(edge)}" for edge in ("west-1", "west-2"))
    quick = {"pause_first": "10ms", "pause_max": "200ms", "connect_within": "30s"}
    received: list[str] = []
    async with (
        overlane_client.connect(west_1) as reader,
        reader.subscribe("any/switch", qos=1) as messages,
        overlane_client.connect(west_2, client_id="switching", session_expiry="1h", **quick) as client,  # type: ignore[arg-type]
    ):
        publishing = asyncio.create_task(_publish(client, count))
        async with asyncio.timeout(PATIENCE_S):
            async for message in messages:
                received.append(message.text)
                if len(received) == count // 10:
                    break
        broker = domain.tiers.brokers["west-2"]
        domain.tiers.kill(broker)
        domain.tiers.start(broker)
        async with asyncio.timeout(2 * PATIENCE_S):
            await publishing
            async for message in messages:
                received.append(message.text)
                if len(set(received)) == count:
                    break
    return received


async def _publish(client: overlane_client.Client, count: int) -> None:
    for number in range(count):
        await client.publish("any/switch", str(number), qos=1)
        await asyncio.sleep(0.005)
