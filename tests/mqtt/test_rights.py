"""Rights: every way by which a message could reach a client, or come from one, asks whether it may."""

import mqtt5
import pytest
from clients import Bench, Client, Got

from overlane.pubsub.access import Rule
from overlane.pubsub.counters import Drop

EVERYTHING = Rule(user="anonymous", publish=("#",), subscribe=("#",))
NO_SECRETS = Rule(user="anonymous", publish=("#",), subscribe=("t/open/#", "t/+"))


def revoked(bench: Bench) -> None:
    bench.reconfigure([NO_SECRETS])


def eavesdropper(bench: Bench, **wishes: int) -> Client:
    client = bench.client("eve", **wishes)
    assert client.subscribe("t/#", qos=2) == [2]
    return client


def topics(client: Client) -> list[str]:
    return [got.topic for got in client.got()]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_delivery_is_judged_by_its_own_topic(qos: int) -> None:
    bench = Bench(rules=[EVERYTHING])
    eve = eavesdropper(bench)
    bob = bench.client("bob")
    for topic in ("t/open/1", "t/secret/1"):
        bob.publish(topic, b"", qos=qos)
    assert topics(eve) == ["t/open/1", "t/secret/1"]
    revoked(bench)
    for topic in ("t/open/1", "t/secret/1", "t/secret/1", "t/open/1"):
        bob.publish(topic, b"", qos=qos)
    assert topics(eve) == ["t/open/1", "t/open/1"]


def test_a_run_of_plain_messages_stops_at_once_when_the_right_is_revoked() -> None:
    bench = Bench(rules=[EVERYTHING])
    eve = eavesdropper(bench)
    bob = bench.client("bob")
    run = mqtt5.PublishPacket("t/secret/1", b"x").write() * 100
    bob.send(run, run)
    assert len(topics(eve)) == 200
    revoked(bench)
    bob.send(run, run)
    assert topics(eve) == []


def test_a_run_of_plain_messages_stops_at_once_when_its_sender_may_no_longer_publish() -> None:
    bench = Bench(rules=[EVERYTHING])
    eve = eavesdropper(bench)
    bob = bench.client("bob")
    run = mqtt5.PublishPacket("t/1", b"x").write() * 100
    bob.send(run)
    bench.reconfigure([Rule(user="anonymous", subscribe=("#",))])
    bob.send(run)
    assert len(topics(eve)) == 100


def test_a_right_that_is_given_back_counts_at_once() -> None:
    bench = Bench(rules=[EVERYTHING])
    eve = eavesdropper(bench)
    bob = bench.client("bob")
    revoked(bench)
    bob.publish("t/secret/1", b"")
    bench.reconfigure([EVERYTHING])
    bob.publish("t/secret/1", b"")
    assert topics(eve) == ["t/secret/1"]


def test_what_was_sent_but_not_acknowledged_is_not_sent_again_once_the_right_is_revoked() -> None:
    bench = Bench(rules=[EVERYTHING])
    eve = eavesdropper(bench, expiry=60, polite=False)
    bob = bench.client("bob")
    for topic in ("t/open/1", "t/secret/1"):
        bob.publish(topic, b"", qos=1)
    eve.got()
    eve.drop()
    revoked(bench)
    eve.reconnect()
    assert topics(eve) == ["t/open/1"]
    assert bench.server.counters.dropped[Drop.DENIED] == 1


def test_rights_are_judged_again_after_a_crash() -> None:
    bench = Bench(rules=[EVERYTHING])
    eve = eavesdropper(bench, expiry=60)
    eve.drop()
    bench.client("bob").publish("t/secret/1", b"", qos=1)
    revoked(bench)
    bench.crash()
    eve.reconnect()
    bench.client("bob").publish("t/secret/1", b"", qos=1)
    assert topics(eve) == []


def test_dead_letters_are_for_those_who_may_read_them() -> None:
    bench = Bench(rules=[EVERYTHING], queue_messages=1)
    eve = bench.client("eve")
    assert eve.subscribe("$dead-letter/#") == [0x87]
    bench.reconfigure([EVERYTHING, Rule(user="anonymous", subscribe=("$dead-letter/#",))], queue_messages=1)
    assert eve.subscribe("$dead-letter/#") == [0]
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    alice.drop()
    bob = bench.client("bob")
    for payload in (b"1", b"2"):
        bob.publish("t", payload, qos=1)
    assert eve.got() == [Got("$dead-letter/t", b"2")]


def test_patterns_with_names_hold_for_each_client_alone() -> None:
    rules = [Rule(user="*", publish=("%u/#",), subscribe=("%u/#", "inbox/%c"))]
    bench = Bench(rules=rules, users={"alice": b"a", "bob": b"b"})
    alice = bench.client("phone", username="alice", password=b"a")
    bob = bench.client("laptop", username="bob", password=b"b")
    assert alice.subscribe("alice/1", "bob/1", "inbox/phone", "inbox/laptop") == [0, 0x87, 0, 0x87]
    assert bob.publish("alice/1", b"", qos=1) == 0x87
    assert alice.publish("alice/1", b"x", qos=1) == 0
    assert topics(alice) == ["alice/1"]


def test_a_name_with_wildcards_reaches_nothing() -> None:
    bench = Bench(rules=[Rule(user="*", subscribe=("%u/#",))], users={"#": b"x", "+": b"x"})
    for user in ("#", "+"):
        eve = bench.client(f"eve{user}", username=user, password=b"x")
        assert eve.subscribe("a/1", "#", "+/#", "#/1".replace("#", "+")) == [0x87] * 4
