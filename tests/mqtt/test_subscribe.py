"""SUBSCRIBE and UNSUBSCRIBE: filters, options, identifiers, and how overlapping subscriptions become one message."""

import mqtt5
import pytest
from clients import NEVER_S, Bench, Got
from raw import packet, properties, subscribe, text, u16

from overlane.pubsub.access import Rule
from overlane.pubsub.counters import Refusal

VERSIONS = pytest.mark.parametrize("version", [4, 5])


# Filters


@VERSIONS
@pytest.mark.parametrize(
    ("topic_filter", "topics"),
    [
        ("a/b", ["a/b"]),
        ("a/+", ["a/b", "a/"]),
        ("+", ["a"]),
        ("+/+", ["a/b", "a/", "/a"]),
        ("#", ["a", "a/b", "a/b/c", "a/", "/a"]),
        ("a/#", ["a", "a/b", "a/b/c", "a/"]),
        ("/+", ["/a"]),
        ("a/+/c", ["a/b/c"]),
        ("+/b/#", ["a/b", "a/b/c"]),
        ("A/b", []),
    ],
)
def test_a_filter_matches_what_the_specification_says(version: int, topic_filter: str, topics: list[str]) -> None:
    # MQTT-4.7.1-1 to -3, MQTT-4.7.2-1, MQTT-4.7.3-1, -4
    bench = Bench()
    alice = bench.client("alice", version)
    alice.subscribe(topic_filter)
    bob = bench.client("bob")
    for topic in ("a", "a/b", "a/b/c", "a/", "/a"):
        bob.publish(topic, b"")
    assert [got.topic for got in alice.got()] == topics


@VERSIONS
@pytest.mark.parametrize(
    "wrong",
    ["", "a#", "a/#/b", "a+", "a/b+", "#/a", "$share/g", "$share//a", "$share/g/", "$share/+/a", "$share/g#/a"],
)
def test_a_wrong_filter_is_refused_and_the_others_of_its_packet_are_granted(version: int, wrong: str) -> None:
    # MQTT-4.7.1-1, MQTT-4.8.2-1, MQTT-4.8.2-2
    bench = Bench()
    alice = bench.client("alice", version)
    filters = text("good") + b"\1" + text(wrong) + b"\1" + text("fine") + b"\0"
    alice.send(packet(0x82, u16(9), properties() if version == 5 else b"", filters))
    codes = [int(code) for code in alice.saw(mqtt5.SubAckPacket)[0].reason_codes]
    assert codes == [1, 0x8F if version == 5 else 0x80, 0]
    assert alice.is_open
    bench.client("bob").publish("good", b"x", qos=1)
    assert alice.got() == [Got("good", b"x", qos=1)]


@pytest.mark.parametrize(
    ("reason", "wrong"),
    [
        pytest.param(0x82, packet(0x82, u16(1), properties()), id="no filter, MQTT-3.8.3-2"),
        pytest.param(0x81, subscribe("a", 0x40), id="reserved bits, MQTT-3.8.3-5"),
        pytest.param(0x82, subscribe("a", 3), id="QoS 3"),
        pytest.param(0x82, subscribe("a", 0x30), id="retain handling 3"),
        pytest.param(0x82, subscribe("$share/g/a", 4), id="no-local on a shared one, MQTT-3.8.3-4"),
        pytest.param(0x82, subscribe("a", 0, b"\x0b\0"), id="identifier 0"),
        pytest.param(0x82, subscribe("a", 0, b"\x0b\1", b"\x0b\2"), id="two identifiers"),
        pytest.param(0x82, subscribe("a", packet_id=0), id="packet identifier 0, MQTT-2.2.1-3"),
        pytest.param(0x81, subscribe(b"\xff"), id="no UTF-8"),
        pytest.param(0x81, packet(0x80, u16(1), properties(), text("a"), b"\0"), id="flags, MQTT-3.8.1-1"),
        pytest.param(0x82, packet(0xA2, u16(1), properties()), id="UNSUBSCRIBE of nothing, MQTT-3.10.3-2"),
        pytest.param(0x81, packet(0xA0, u16(1), properties(), text("a")), id="UNSUBSCRIBE flags, MQTT-3.10.1-1"),
    ],
)
def test_a_wrong_packet_ends_the_connection_with_its_reason(reason: int, wrong: bytes) -> None:
    alice = Bench().client("alice")
    alice.send(wrong)
    assert alice.ended == reason


def test_each_filter_has_its_reason_code_in_order() -> None:
    # MQTT-3.8.4-5, MQTT-3.8.4-6, MQTT-3.9.3-1, MQTT-3.8.4-2
    bench = Bench(rules=[Rule(user="anonymous", subscribe=("open/#",))])
    alice = bench.client("alice")
    options = (("open/1", 2), ("closed", 1), ("open/2", 0), ("open/#", 1))
    alice.send(packet(0x82, u16(77), properties(), *(text(name) + bytes((qos,)) for name, qos in options)))
    suback = alice.saw(mqtt5.SubAckPacket)[0]
    assert suback.packet_id == 77
    assert [int(code) for code in suback.reason_codes] == [2, 0x87, 0, 1]
    assert suback.reason_str == "not allowed to subscribe to closed"


def test_no_client_has_more_subscriptions_than_allowed() -> None:
    bench = Bench(subscriptions_per_client=2)
    alice = bench.client("alice")
    assert alice.subscribe("a", "b", "c") == [0, 0, 0x97]
    assert alice.subscribe("a", "b", qos=1) == [1, 1]
    alice.unsubscribe("a")
    assert alice.subscribe("c") == [0]
    assert bench.client("bob").subscribe("a", "b") == [0, 0]
    assert bench.server.counters.refused[Refusal.QUOTA] == 1


def test_a_filter_of_too_many_levels_is_refused() -> None:
    bench = Bench(filter_levels=3)
    assert bench.client("alice").subscribe("a/b/c", "a/b/c/d", "a/b/c/#") == [0, 0x8F, 0x8F]


def test_a_subscribe_with_absurdly_many_filters_ends_the_connection() -> None:
    alice = Bench(subscriptions_per_client=10).client("alice")
    alice.send(packet(0x82, u16(1), properties(), *[text("a") + b"\0"] * 101))
    assert alice.ended == 0x97


def test_a_wish_that_means_nothing_is_refused() -> None:
    alice = Bench().client("alice")
    assert alice.subscribe("t", user_properties=[("overlane-deadline", "soon")]) == [0x83]
    assert alice.subscribe("t", user_properties=[("overlane-deadline", "60ms"), ("other", "soon")]) == [0]


# Replacing and ending


@VERSIONS
def test_a_subscription_to_the_same_filter_replaces_the_one_before(version: int) -> None:
    # MQTT-3.8.4-3
    bench = Bench()
    alice = bench.client("alice", version)
    alice.subscribe("t", qos=2)
    alice.subscribe("t", qos=0)
    bench.client("bob").publish("t", b"x", qos=2)
    assert alice.got() == [Got("t", b"x", qos=0)]


def test_a_replaced_subscription_has_the_new_identifier_and_options() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("t", identifier=1, as_published=True)
    alice.subscribe("t", identifier=2)
    bench.client("bob").publish("t", b"x", retain=True)
    assert alice.got() == [Got("t", b"x", ids=(2,))]
    alice.subscribe("t", handling=2)
    bench.client("bob").publish("t", b"y")
    assert alice.got() == [Got("t", b"y")]


@VERSIONS
def test_an_ended_subscription_gets_nothing_more(version: int) -> None:
    # MQTT-3.10.4-1, MQTT-3.10.4-4
    bench = Bench()
    alice = bench.client("alice", version)
    alice.subscribe("t/+", "u")
    codes = alice.unsubscribe("t/+", "t/1")
    assert codes == ([0, 0x11] if version == 5 else [])
    bob = bench.client("bob")
    bob.publish("t/1", b"")
    bob.publish("u", b"")
    assert [got.topic for got in alice.got()] == ["u"]


def test_what_is_under_way_is_delivered_to_the_end_after_the_subscription() -> None:
    # MQTT-3.10.4-2, MQTT-3.10.4-3
    bench = Bench()
    alice = bench.client("alice", expiry=60, polite=False)
    alice.subscribe("t", qos=2)
    bench.client("bob").publish("t", b"x", qos=2)
    alice.unsubscribe("t")
    alice.ack(mqtt5.PubRecPacket, 2)
    assert alice.saw()[-1] == mqtt5.PubRelPacket(2)


def test_subscriptions_and_their_ends_survive_a_crash() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("kept/#", qos=2, identifier=5, no_local=True, as_published=True)
    alice.subscribe("changed", qos=2)
    alice.subscribe("changed", qos=1)
    alice.subscribe("ended", qos=2)
    alice.unsubscribe("ended")
    bench.crash()
    alice.reconnect()
    bob = bench.client("bob")
    bob.publish("kept/1", b"x", qos=2, retain=True)
    bob.publish("changed", b"y", qos=2)
    bob.publish("ended", b"z", qos=2)
    alice.publish("kept/2", b"own", qos=1)
    assert alice.got() == [Got("kept/1", b"x", qos=2, retain=True, ids=(5,)), Got("changed", b"y", qos=1)]


def test_a_subscription_is_granted_and_ended_when_that_is_on_disk() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.saw()
    bench.is_store_slow = True
    alice.send(subscribe("t", 1))
    alice.send(packet(0xA2, u16(2), properties(), text("t")))
    assert alice.saw() == []
    bench.commit(1)
    bench.settle()
    assert [type(one) for one in alice.saw()] == [mqtt5.SubAckPacket]
    bench.commit(1)
    bench.settle()
    assert [type(one) for one in alice.saw()] == [mqtt5.UnsubAckPacket]


def test_an_ended_session_has_no_subscriptions_left() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("a", "b/#", "$share/g/c")
    alice.drop()
    assert len(bench.server.state.subscriptions) == 0
    assert bench.server.state.subscriptions._groups == {}
    assert bench.client("bob").publish("a", b"", qos=1) == 0x10


# Overlapping


def test_overlapping_subscriptions_give_one_message_with_all_identifiers_and_the_highest_quality() -> None:
    # MQTT-3.3.4-2, MQTT-3.3.4-3, MQTT-3.3.4-4
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("a/#", qos=0, identifier=3)
    alice.subscribe("a/+", qos=2, identifier=1)
    alice.subscribe("a/b", qos=1)
    alice.subscribe("#", qos=1, identifier=200_000)
    bench.client("bob").publish("a/b", b"x", qos=2)
    assert alice.got() == [Got("a/b", b"x", qos=2, ids=(1, 3, 200_000))]


def test_an_identifier_used_twice_comes_twice() -> None:
    # MQTT 5, section 3.3.4
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("a/#", "a/+", identifier=3)
    bob = bench.client("bob")
    for payload in (b"x", b"y"):
        bob.publish("a/b", payload)
    assert alice.got() == [Got("a/b", b"x", ids=(3, 3)), Got("a/b", b"y", ids=(3, 3))]


def test_overlapping_subscriptions_of_3_1_1_give_one_message() -> None:
    # MQTT-3.3.5-1 of 3.1.1
    bench = Bench()
    alice = bench.client("alice", 4)
    alice.subscribe("a/#", qos=0)
    alice.subscribe("a/+", qos=2)
    bench.client("bob").publish("a/b", b"x", qos=2)
    assert alice.got() == [Got("a/b", b"x", qos=2)]


def test_the_retain_flag_is_kept_if_one_of_overlapping_subscriptions_asks_for_it() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("a/#", as_published=True)
    alice.subscribe("a/+")
    bench.client("bob").publish("a/b", b"x", retain=True)
    assert alice.got() == [Got("a/b", b"x", retain=True)]


def test_identifiers_come_with_retained_messages_of_the_subscription_that_asked() -> None:
    bench = Bench()
    bench.client("bob").publish("a/b", b"x", retain=True)
    alice = bench.client("alice")
    alice.subscribe("a/#", identifier=1)
    alice.subscribe("a/+", identifier=2)
    assert alice.got() == [Got("a/b", b"x", retain=True, ids=(1,)), Got("a/b", b"x", retain=True, ids=(2,))]


# No-local


def test_a_client_that_does_not_want_its_own_messages_gets_those_of_others() -> None:
    # MQTT-3.8.3-3
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("t", no_local=True, qos=2)
    bob = bench.client("bob")
    for qos in (0, 0, 1, 2):
        alice.publish("t", b"own", qos=qos)
        bob.publish("t", b"other", qos=qos)
    assert [got.payload for got in alice.got()] == [b"other"] * 4


def test_own_messages_come_by_those_subscriptions_that_want_them() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("a/#", no_local=True, qos=2, identifier=1)
    alice.subscribe("a/1", qos=0, identifier=2)
    alice.publish("a/1", b"own", qos=2)
    bench.client("bob").publish("a/1", b"other", qos=2)
    assert alice.got() == [Got("a/1", b"own", ids=(2,)), Got("a/1", b"other", qos=2, ids=(1, 2))]


def test_own_messages_keep_the_quality_of_their_subscription_whatever_other_topics_have() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("a/#", no_local=True, qos=2)
    alice.subscribe("a/1", qos=0)
    alice.subscribe("a/2", qos=1)
    for topic in ("a/1", "a/2"):
        alice.publish(topic, b"", qos=2)
    assert [(got.topic, got.qos) for got in alice.got()] == [("a/1", 0), ("a/2", 1)]


def test_own_retained_messages_are_not_wanted_either() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.publish("t/own", b"x", retain=True)
    bench.client("bob").publish("t/other", b"x", retain=True)
    alice.subscribe("t/#", no_local=True)
    assert [got.topic for got in alice.got()] == ["t/other"]


def test_the_will_of_a_client_is_its_own_message() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60, will=mqtt5.Will("t", payload=b"gone", qos=mqtt5.QoS(1)))
    alice.subscribe("t", no_local=True, qos=1)
    alice.drop()
    alice.reconnect(will=None)
    assert alice.got() == []


# Versions


def test_clients_of_both_versions_hear_each_other() -> None:
    bench = Bench()
    old, new = bench.client("old", 4), bench.client("new", 5)
    for client in (old, new):
        client.subscribe("t/#", qos=2)
    for qos in (0, 1, 2):
        old.publish("t/1", b"from old", qos=qos)
        new.publish("t/1", b"from new", qos=qos, content_type="x")
    expected = [Got("t/1", who, qos=qos) for qos in (0, 1, 2) for who in (b"from old", b"from new")]
    assert old.got() == expected
    assert new.got() == expected


def test_a_session_of_3_1_1_keeps_its_subscriptions_as_one_of_mqtt_5() -> None:
    bench = Bench()
    alice = bench.client("alice", 5, expiry=60)
    alice.subscribe("t", qos=1, identifier=7)
    alice.drop()
    older = bench.client("alice", 4, expiry=NEVER_S)
    assert older.is_resumed
    bench.client("bob").publish("t", b"x", qos=1)
    assert older.got() == [Got("t", b"x", qos=1)]
