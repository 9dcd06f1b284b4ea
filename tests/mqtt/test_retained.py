"""Retained messages: the last of each topic, for whoever subscribes later."""

import mqtt5
import pytest
from clients import Bench, Got

from overlane.pubsub.access import Rule
from overlane.pubsub.counters import Refusal
from overlane.pubsub.limits import Limits
from overlane.pubsub.message import Message
from overlane.pubsub.retained.messages import RetainedMessages

VERSIONS = pytest.mark.parametrize("version", [4, 5])


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_who_subscribes_gets_the_last_message_of_each_topic(version: int, qos: int) -> None:
    # MQTT-3.3.1-5, MQTT-3.3.1-9, MQTT-3.8.4-4
    bench = Bench()
    bob = bench.client("bob", version)
    for topic, payload in (("t/1", b"old"), ("t/1", b"new"), ("t/2", b"x"), ("u", b"y")):
        bob.publish(topic, payload, qos=qos, retain=True)
    alice = bench.client("alice", version)
    alice.subscribe("t/#", qos=2)
    assert sorted(alice.got()) == [Got("t/1", b"new", qos=qos, retain=True), Got("t/2", b"x", qos=qos, retain=True)]


@pytest.mark.parametrize(
    ("topic_filter", "found"),
    [
        ("a", ["a"]),
        ("+", ["a"]),
        ("#", ["a", "a/b", "a/b/c", "d/b"]),
        ("a/#", ["a", "a/b", "a/b/c"]),
        ("+/b", ["a/b", "d/b"]),
        ("+/b/#", ["a/b", "a/b/c", "d/b"]),
        ("a/+/c", ["a/b/c"]),
        ("+/+/+/+", []),
        ("$SYS/broker/name", ["$SYS/broker/name"]),
    ],
)
def test_retained_messages_are_found_as_filters_match(topic_filter: str, found: list[str]) -> None:
    # MQTT-4.7.2-1
    bench = Bench()
    bob = bench.client("bob")
    for topic in ("a", "a/b", "a/b/c", "d/b"):
        bob.publish(topic, b"x", retain=True)
    alice = bench.client("alice")
    alice.subscribe(topic_filter)
    assert sorted(got.topic for got in alice.got()) == found


@VERSIONS
def test_who_is_subscribed_already_gets_the_message_without_the_flag(version: int) -> None:
    # MQTT-3.3.1-12 of 5, MQTT-3.3.1-9 of 3.1.1
    bench = Bench()
    alice = bench.client("alice", version)
    alice.subscribe("t")
    bench.client("bob").publish("t", b"x", retain=True)
    assert alice.got() == [Got("t", b"x", retain=False)]


def test_the_flag_is_passed_on_to_who_wants_it_as_published() -> None:
    # MQTT-3.3.1-13
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("t", as_published=True, qos=2)
    bob = bench.client("bob")
    for qos in (0, 1, 2):
        bob.publish("t", b"x", qos=qos, retain=True)
        bob.publish("t", b"y", qos=qos)
    assert [got.retain for got in alice.got()] == [True, False] * 3


@VERSIONS
def test_an_empty_message_takes_the_retained_one_away_and_is_passed_on(version: int) -> None:
    # MQTT-3.3.1-6, MQTT-3.3.1-7 of 5; MQTT-3.3.1-10, -11 of 3.1.1
    bench = Bench()
    alice = bench.client("alice", version)
    alice.subscribe("t")
    bob = bench.client("bob", version)
    bob.publish("t", b"x", retain=True)
    bob.publish("t", b"", retain=True)
    assert alice.got() == [Got("t", b"x"), Got("t", b"")]
    late = bench.client("late", version)
    late.subscribe("t")
    assert late.got() == []
    assert bench.store == {}


def test_a_message_that_is_not_to_be_retained_leaves_the_retained_one_alone() -> None:
    # MQTT-3.3.1-8
    bench = Bench()
    bob = bench.client("bob")
    bob.publish("t", b"kept", retain=True)
    bob.publish("t", b"passing")
    bob.publish("t", b"")
    alice = bench.client("alice")
    alice.subscribe("t")
    assert [got.payload for got in alice.got()] == [b"kept"]


@pytest.mark.parametrize(("handling", "first", "second"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_a_subscription_says_when_it_wants_retained_messages(handling: int, first: int, second: int) -> None:
    # MQTT-3.3.1-9, MQTT-3.3.1-10, MQTT-3.3.1-11
    bench = Bench()
    bench.client("bob").publish("t", b"x", retain=True)
    alice = bench.client("alice")
    alice.subscribe("t", handling=handling)
    assert len(alice.got()) == first
    alice.subscribe("t", handling=handling)
    assert len(alice.got()) == second
    alice.unsubscribe("t")
    alice.subscribe("t", handling=handling)
    assert len(alice.got()) == first


def test_retained_messages_are_not_sent_again_to_a_session_that_comes_back() -> None:
    bench = Bench()
    bench.client("bob").publish("t", b"x", qos=1, retain=True)
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    assert len(alice.got()) == 1
    alice.drop()
    alice.reconnect()
    assert alice.got() == []


def test_retained_messages_come_after_the_suback() -> None:
    bench = Bench()
    bench.client("bob").publish("t", b"x", retain=True)
    alice = bench.client("alice")
    alice.subscribe("t")
    assert [type(one) for one in alice.saw()[1:]] == [mqtt5.SubAckPacket, mqtt5.PublishPacket]


def test_properties_are_retained_too() -> None:
    bench = Bench()
    bench.client("bob").publish("t", b"x", retain=True, content_type="text/plain", user_properties=[("a", "b")])
    bench.crash()
    alice = bench.client("alice")
    alice.subscribe("t")
    message = alice.saw(mqtt5.PublishPacket)[0]
    assert (message.content_type, message.user_properties) == ("text/plain", [("a", "b")])


def test_a_retained_message_expires() -> None:
    # MQTT-3.3.2-5, MQTT-3.3.2-6
    bench = Bench()
    bench.client("bob").publish("t", b"x", retain=True, message_expiry_interval=60)
    bench.wait(20)
    alice = bench.client("alice")
    alice.subscribe("t")
    assert alice.got() == [Got("t", b"x", retain=True, expiry=40)]
    bench.wait(40)
    alice.subscribe("t")
    assert alice.got() == []
    assert bench.store == {}


def test_retained_messages_survive_a_crash_and_so_does_their_end() -> None:
    bench = Bench()
    bob = bench.client("bob")
    bob.publish("kept", b"1", qos=1, retain=True)
    bob.publish("replaced", b"1", retain=True)
    bob.publish("replaced", b"2", retain=True)
    bob.publish("gone", b"1", retain=True)
    bob.publish("gone", b"", retain=True)
    bench.crash()
    alice = bench.client("alice")
    alice.subscribe("+", qos=1)
    assert sorted(alice.got()) == [Got("kept", b"1", qos=1, retain=True), Got("replaced", b"2", retain=True)]


def test_a_retained_message_is_acknowledged_when_it_is_on_disk() -> None:
    bench = Bench()
    bob = bench.client("bob")
    bench.is_store_slow = True
    assert bob.publish("t", b"x", qos=1, retain=True) is None
    bench.crash()
    alice = bench.client("alice")
    alice.subscribe("t")
    assert alice.got() == []


def test_a_retained_message_waits_for_a_session_that_is_kept() -> None:
    bench = Bench()
    bench.client("bob").publish("t", b"x", qos=2, retain=True)
    alice = bench.client("alice", expiry=60, polite=False)
    alice.subscribe("t", qos=2)
    bench.crash()
    alice.polite = True
    alice.reconnect()
    assert [(got.payload, got.retain, got.dup) for got in alice.got()] == [(b"x", True, False)]
    assert alice.saw(mqtt5.PublishPacket)[0].duplicate
    assert bench.tables() == {"mqtt.retained": 1, "mqtt.session": 1, "mqtt.subscription": 1}


# Rights


def test_only_retained_messages_that_a_client_may_have_are_sent() -> None:
    rules = [Rule(user="anonymous", publish=("#",), subscribe=("#",))]
    bench = Bench(rules=rules)
    bob = bench.client("bob")
    bob.publish("t/open", b"x", retain=True)
    bob.publish("t/secret", b"x", retain=True)
    alice = bench.client("alice")
    alice.subscribe("t/#", handling=2)
    bench.reconfigure([Rule(user="anonymous", subscribe=("t/#",)), Rule(user="anonymous", publish=("#",))])
    alice.subscribe("t/#")
    assert len(alice.got()) == 2
    bench.reconfigure([Rule(user="anonymous", subscribe=("t/open",))])
    assert alice.subscribe("t/#") == [0x87]
    assert alice.subscribe("t/open") == [0]
    assert [got.topic for got in alice.got()] == ["t/open"]


# Limits


def test_no_more_messages_are_retained_than_allowed() -> None:
    bench = Bench(retained_messages=2)  # what the server tells of itself is not counted
    bob = bench.client("bob")
    assert bob.publish("a", b"1", qos=1, retain=True) == 0x10
    assert bob.publish("b", b"1", qos=1, retain=True) == 0x10
    assert bob.publish("c", b"1", qos=1, retain=True) == 0x97
    assert bob.publish("c", b"1", qos=2, retain=True) == 0x97
    assert bob.publish("a", b"2", qos=1, retain=True) == 0x10
    assert bob.publish("a", b"", qos=1, retain=True) == 0x10
    assert bob.publish("c", b"1", qos=1, retain=True) == 0x10
    assert bench.server.counters.refused[Refusal.QUOTA] == 2
    alice = bench.client("alice")
    alice.subscribe("+")
    assert sorted(got.topic for got in alice.got()) == ["b", "c"]


def test_no_more_bytes_are_retained_than_allowed() -> None:
    bench = Bench(retained_bytes=10_000)
    bob = bench.client("bob")
    assert bob.publish("a", bytes(5_000), qos=1, retain=True) == 0x10
    assert bob.publish("b", bytes(5_000), qos=1, retain=True) == 0x97
    assert bob.publish("a", bytes(6_000), qos=1, retain=True) == 0x10
    assert bench.server.state.retained.bytes < 10_000


def test_a_message_of_qos_0_that_cannot_be_retained_is_passed_on_and_takes_the_one_before_away() -> None:
    # MQTT-3.3.1-7 of 3.1.1
    bench = Bench(retained_bytes=10_000)
    alice = bench.client("alice")
    alice.subscribe("t")
    bob = bench.client("bob")
    bob.publish("t", b"small", retain=True)
    bob.publish("t", bytes(10_000), retain=True)
    assert [len(got.payload) for got in alice.got()] == [5, 10_000]
    alice.subscribe("t")
    assert alice.got() == []
    assert bench.store == {}


def test_a_topic_that_becomes_the_brokers_own_is_counted_no_more() -> None:
    retained = RetainedMessages(Limits())
    retained.keep(Message("$SYS/broker/connection/far/state", b"0", retain=True))
    retained.keep_own(Message("$SYS/broker/connection/far/state", b"1", retain=True))
    assert (len(retained), retained.bytes) == (0, 0)
    retained.remove("$SYS/broker/connection/far/state")
    assert (len(retained), retained.bytes) == (0, 0)


def test_expired_retained_messages_make_room() -> None:
    bench = Bench(retained_messages=2)
    bob = bench.client("bob")
    bob.publish("a", b"1", qos=1, retain=True, message_expiry_interval=10)
    bob.publish("b", b"1", qos=1, retain=True)
    assert bob.publish("c", b"1", qos=1, retain=True) == 0x97
    bench.wait(11)
    assert bob.publish("c", b"1", qos=1, retain=True) == 0x10
    assert {key for _, key in bench.store} == {b"b", b"c"}


def test_a_server_that_retains_nothing_says_so_and_means_it() -> None:
    # MQTT-3.2.2-13, MQTT-3.2.2-14; section 3.3.1.3: 0x9A
    bench = Bench(retained_messages=0)
    bob, old = bench.client("bob"), bench.client("old", 4)
    assert bob.connack is not None
    assert not bob.connack.retain_available
    alice = bench.client("alice")
    alice.subscribe("t")
    assert old.publish("t", b"x", qos=1, retain=True) == 0
    assert alice.got() == [Got("t", b"x")]
    alice.subscribe("t")
    assert alice.got() == []
    bob.publish("t", b"x", retain=True)
    assert bob.ended == 0x9A
    assert bench.client("carol", will=mqtt5.Will("t", retain=True)).refusal == 0x9A


def test_no_topic_is_left_in_memory_when_its_message_is_gone() -> None:
    bench = Bench()
    bob = bench.client("bob")
    for number in range(50):
        bob.publish(f"a/{number}/b/c", b"x", retain=True)
        bob.publish(f"a/{number}", b"x", retain=True)
    for number in range(50):
        bob.publish(f"a/{number}", b"", retain=True)
        bob.publish(f"a/{number}/b/c", b"", retain=True)
    assert list(bench.server.state.retained._root.children) == ["$SYS"]
