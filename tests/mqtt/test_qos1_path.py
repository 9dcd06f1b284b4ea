"""QoS 1 by the run: what comes in one read is accepted, stored, delivered and acknowledged as if one by one."""

from random import Random
from typing import Any

import mqtt5
import pytest
from clients import NEVER_S, Bench, Client, Got

from overlane.pubsub.access import Rule
from overlane.pubsub.message import Run
from overlane.pubsub.publishing.publishing import Publishing

QUEUES, MESSAGES = "mqtt.queue@2", "mqtt.message@2"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each run had that was accepted."""
    found: list[int] = []
    publish_run = Publishing.publish_run

    def noted(self: Publishing, run: Run, *rest: Any) -> Any:
        found.append(len(run.messages))
        return publish_run(self, run, *rest)

    monkeypatch.setattr(Publishing, "publish_run", noted)
    return found


def burst(client: Client, topics: list[str], first: int = 0, **given: Any) -> None:
    """Messages of QoS 1 in one write, numbered; the caller settles."""
    packets: list[mqtt5.Packet | bytes] = []
    for number, topic in enumerate(topics, first):
        packet = mqtt5.PublishPacket(topic, b"%d" % number, qos=mqtt5.QoS(1), packet_id=client.next_id(), **given)
        client.owed[packet.packet_id or 0] = packet
        packets.append(packet)
    client.send(*packets, settle=False)


def known(client: Client, *topics: str) -> None:
    """The first message of each topic takes the ordinary way."""
    for topic in topics:
        client.publish(topic, b"first", qos=1)


@pytest.mark.parametrize("publisher", [4, 5])
@pytest.mark.parametrize("subscriber", [4, 5])
def test_messages_of_one_read_are_one_run_whatever_their_topics(
    publisher: int, subscriber: int, runs: list[int]
) -> None:
    bench = Bench()
    alice = bench.client("alice", subscriber, expiry=NEVER_S)
    alice.subscribe("t/#", qos=1)
    bob = bench.client("bob", publisher)
    known(bob, "t/1", "t/2")
    alice.inbox.clear()
    burst(bob, ["t/1", "t/2", "t/1", "t/2"])
    bench.settle()
    assert runs == [4]
    assert alice.inbox == [Got(f"t/{1 + n % 2}", b"%d" % n, qos=1) for n in range(4)]
    assert not bob.owed
    assert QUEUES not in bench.tables()
    assert MESSAGES not in bench.tables()


def test_a_run_is_two_records_for_one_queue_and_one_more_for_each_other(runs: list[int]) -> None:
    bench = Bench()
    for name in ("alice", "carol"):
        reader = bench.client(name, expiry=NEVER_S)
        reader.subscribe("t", qos=1)
        reader.drop()
    bob = bench.client("bob")
    known(bob, "t")
    before = bench.tables()
    burst(bob, ["t"] * 5)
    bench.settle()
    assert runs == [5]
    assert bench.tables()[QUEUES] == before[QUEUES] + 2
    assert bench.tables()[MESSAGES] == before[MESSAGES] + 1


def test_acknowledgements_of_a_run_wait_for_its_records() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=NEVER_S)
    alice.subscribe("t", qos=1)
    bob = bench.client("bob")
    known(bob, "t")
    alice.inbox.clear()
    bench.is_store_slow = True
    burst(bob, ["t"] * 3)
    bench.settle()
    assert (len(bob.owed), alice.inbox) == (3, [])
    bench.commit()
    bench.settle()
    assert (len(bob.owed), len(alice.inbox)) == (0, 3)


def test_what_is_left_of_a_run_survives_a_crash_and_comes_again_marked() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=NEVER_S)
    alice.subscribe("t", qos=1)
    bob = bench.client("bob")
    known(bob, "t")
    alice.inbox.clear()
    alice.polite = False
    alice.saw(mqtt5.PublishPacket)
    burst(bob, ["t"] * 5)
    bench.settle()
    sent = alice.saw(mqtt5.PublishPacket)
    assert [one.payload for one in sent] == [b"0", b"1", b"2", b"3", b"4"]
    alice.send(*(mqtt5.PubAckPacket(sent[place].packet_id) for place in (0, 3)))
    bench.crash()
    alice.polite = True
    alice.inbox.clear()
    alice.connect(clean=False)
    assert [(got.payload, got.dup) for got in alice.inbox] == [(b"1", True), (b"2", True), (b"4", True)]
    assert QUEUES not in bench.tables()
    assert MESSAGES not in bench.tables()


def test_no_more_of_a_run_is_sent_than_the_client_takes() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=NEVER_S, receive_max=2)
    alice.subscribe("t", qos=1)
    bob = bench.client("bob")
    known(bob, "t")
    alice.polite = False
    alice.saw(mqtt5.PublishPacket)
    burst(bob, ["t"] * 5)
    bench.settle()
    sent = alice.saw(mqtt5.PublishPacket)
    assert [one.payload for one in sent] == [b"0", b"1"]
    alice.send(*(mqtt5.PubAckPacket(one.packet_id) for one in sent))
    assert [one.payload for one in alice.saw(mqtt5.PublishPacket)] == [b"2", b"3"]


def test_what_finds_no_room_in_one_queue_is_given_to_the_others(runs: list[int]) -> None:
    bench = Bench(queue_messages=4)
    for name in ("alice", "carol"):
        reader = bench.client(name, expiry=NEVER_S)
        reader.subscribe("t", qos=1)
    bob = bench.client("bob")
    known(bob, "t")
    alice, carol = bench.clients[:2]
    alice.drop()
    carol.inbox.clear()
    burst(bob, ["t"] * 6)
    bench.settle()
    assert runs == [6]
    assert len(carol.inbox) == 6
    alice.inbox.clear()
    alice.connect(clean=False)
    assert [got.payload for got in alice.inbox] == [b"0", b"1", b"2", b"3"]
    assert MESSAGES not in bench.tables()


def test_a_right_that_is_revoked_holds_for_what_waits_of_a_run() -> None:
    may = Rule(user="anonymous", publish=("#",), subscribe=("#",))
    bench = Bench(rules=[may])
    alice = bench.client("alice", expiry=NEVER_S)
    alice.subscribe("t/#", qos=1)
    bob = bench.client("bob")
    known(bob, "t/1", "t/2")
    alice.drop()
    alice.inbox.clear()
    burst(bob, ["t/1", "t/2", "t/1"])
    bench.settle()
    bench.reconfigure(rules=[Rule(user="anonymous", publish=("#",), subscribe=("t/1",))])
    alice.connect(clean=False)
    assert [got.topic for got in alice.inbox] == ["t/1", "t/1"]


def test_a_right_to_publish_that_is_revoked_stops_the_next_run(runs: list[int]) -> None:
    bench = Bench(rules=[Rule(user="anonymous", publish=("#",), subscribe=("#",))])
    alice = bench.client("alice", expiry=NEVER_S)
    alice.subscribe("t", qos=1)
    bob = bench.client("bob")
    known(bob, "t")
    bench.reconfigure(rules=[Rule(user="anonymous", publish=("other",), subscribe=("#",))])
    alice.inbox.clear()
    burst(bob, ["t"] * 3)
    bench.settle()
    assert (runs, alice.inbox) == ([], [])


@pytest.mark.parametrize("given", [{"duplicate": True}, {"retain": True}, {"content_type": "x"}])
def test_what_is_not_plain_takes_the_ordinary_way(given: dict[str, Any], runs: list[int]) -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=NEVER_S)
    alice.subscribe("t", qos=1)
    bob = bench.client("bob")
    known(bob, "t")
    alice.inbox.clear()
    burst(bob, ["t"] * 3, **given)
    bench.settle()
    assert runs == []
    assert [got.payload for got in alice.inbox] == [b"0", b"1", b"2"]
    assert not bob.owed


def test_nothing_takes_the_path_while_the_store_fails(runs: list[int]) -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=NEVER_S)
    alice.subscribe("t", qos=1)
    bob = bench.client("bob")
    known(bob, "t")
    bench.server.store_is_failing(True)
    burst(bob, ["t"] * 2)
    bench.settle()
    assert runs == []
    assert len(bob.saw(mqtt5.PubAckPacket)) == 3  # the first was accepted, two are refused
    assert len(alice.inbox) == 1


def test_a_client_of_mqtt_5_hears_that_nobody_subscribes() -> None:
    bench = Bench()
    bob = bench.client("bob")
    known(bob, "t")
    bob.saw(mqtt5.PubAckPacket)
    burst(bob, ["t"] * 3)
    bench.settle()
    assert [int(one.reason_code) for one in bob.saw(mqtt5.PubAckPacket)] == [0x10] * 3


def test_messages_of_a_client_that_was_promised_once_are_taken_one_by_one(runs: list[int]) -> None:
    bench = Bench()
    bench.client("alice", expiry=NEVER_S).subscribe("t", qos=1)
    bob = bench.client("bob", expiry=NEVER_S, user_properties=[("overlane-once", "a")])
    known(bob, "t")
    runs.clear()
    burst(bob, ["t"] * 3)
    bench.settle()
    assert runs == [1, 1, 1]


def test_acknowledgements_of_messages_that_are_not_owed_are_ignored_and_one_of_qos_2_is_an_error() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=NEVER_S, polite=False)
    alice.subscribe("t", qos=2)
    bob = bench.client("bob")
    bob.publish("t", b"x", qos=2)
    (sent,) = alice.saw(mqtt5.PublishPacket)
    alice.send(mqtt5.PubAckPacket(7), mqtt5.PubAckPacket(8))
    assert alice.is_open
    alice.send(mqtt5.PubAckPacket(7), mqtt5.PubAckPacket(sent.packet_id))
    assert alice.ended == 0x82


@pytest.mark.parametrize("seed", range(12))
def test_both_ways_do_the_same(seed: int) -> None:
    """The same packets, in one read where the path is open and one by one where it is shut, have the same effects."""
    assert told_by(seed, has_lane=True) == told_by(seed, has_lane=False)


def told_by(seed: int, has_lane: bool) -> dict[str, object]:
    random = Random(seed)
    bench = Bench(has_lane=has_lane, queue_messages=random.choice([20, 10_000]), in_flight=random.choice([5, 100]))
    versions = [random.choice([4, 5]) for _ in range(4)]
    readers = [bench.client(f"r{n}", versions[n], expiry=random.choice([0, NEVER_S])) for n in range(3)]
    for reader in readers:
        identifier = random.choice([None, 3]) if reader.version == 5 else None
        reader.subscribe("t/#", qos=random.choice([0, 1, 1, 2]), identifier=identifier)
    writer = bench.client("w", versions[3])
    known(writer, *(f"t/{n}" for n in range(4)))
    sent = 0
    for _ in range(30):
        count = random.randrange(1, 5)
        burst(writer, [f"t/{random.randrange(4)}" for _ in range(count)], sent)
        sent += count
        bench.settle()
        reader = random.choice(readers)
        match random.randrange(6):
            case 0 if reader.expiry:
                reader.drop()
            case 1 if not reader.is_open:
                reader.connect(clean=False)
            case 2 if reader.is_open:
                reader.polite = not reader.polite
                bench.settle()
    for reader in readers:
        reader.polite = True
        if not reader.is_open:
            reader.connect(clean=False)
    bench.settle()
    counters = bench.server.state.counters
    stats = {topic: (one.messages, one.bytes) for topic, one in bench.server.state.topics.items()}
    bench.crash()
    windows = {name: session.window for name, session in bench.server.state.sessions.items()}
    return {
        "got": [reader.inbox for reader in readers],
        "acknowledged": (writer.owed, len(writer.packets)),
        "counted": (counters.messages_in, counters.messages_out, dict(counters.dropped), stats),
        "owed": {name: [(one.sequence, one.message.payload) for one in window] for name, window in windows.items()},
    }
