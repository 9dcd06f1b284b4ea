"""Content filters of subscriptions: only messages whose content meets the condition are delivered."""

import mqtt5
import pytest
from clients import Bench, Got

from overlane.pubsub.sessions.session_export import decode_session, encode_session

HOT = b'{"temperature": 21.5, "room": "lab1"}'
COLD = b'{"temperature": 19, "room": "lab1"}'
WHERE = [("overlane-where", "temperature > 20 AND room = 'lab1'")]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_subscriber_gets_only_what_its_filter_lets_through(qos: int) -> None:
    bench = Bench()
    alice, bob = bench.client("alice"), bench.client("bob")
    alice.subscribe("t/#", qos=qos, user_properties=WHERE)
    bob.subscribe("t/#", qos=qos)
    pub = bench.client("pub")
    for payload in (HOT, COLD, b"hot", HOT, HOT, COLD):
        pub.publish("t/1", payload, qos=qos)
    assert alice.got() == [Got("t/1", HOT, qos)] * 3
    assert [one.payload for one in bob.got()] == [HOT, COLD, b"hot", HOT, HOT, COLD]
    assert (bench.server.counters.filtered, bench.server.counters.filtered_not_json) == (2, 1)


def test_the_filter_may_use_properties_and_levels() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("#", user_properties=[("overlane-where", "$level.2 = 'a' AND site = 'rome'")])
    pub = bench.client("pub")
    pub.publish("t/a", b"1", user_properties=[("site", "rome")])
    pub.publish("t/a", b"2", user_properties=[("site", "berlin")])
    pub.publish("t/b", b"3", user_properties=[("site", "rome")])
    assert alice.got() == [Got("t/a", b"1")]


def test_overlapping_subscriptions_count_as_far_as_they_take_the_message() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("t/#", qos=1, identifier=7, user_properties=WHERE)
    alice.subscribe("t/1", qos=0, identifier=8)
    pub = bench.client("pub")
    pub.publish("t/1", HOT, qos=1)
    pub.publish("t/1", COLD, qos=1)
    assert alice.got() == [Got("t/1", HOT, 1, ids=(7, 8)), Got("t/1", COLD, 0, ids=(8,))]


def test_retained_messages_are_filtered_as_well() -> None:
    bench = Bench()
    pub = bench.client("pub")
    pub.publish("t/1", HOT, retain=True)
    pub.publish("t/2", COLD, retain=True)
    alice = bench.client("alice")
    alice.subscribe("t/#", user_properties=WHERE)
    assert alice.got() == [Got("t/1", HOT, retain=True)]


def test_a_filter_outlives_connection_crash_and_transfer() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1, user_properties=WHERE)
    exported = decode_session(encode_session(bench.server.pubsub.export_session("alice", bench.now)))
    assert [one.where for one in exported.subscriptions] == [WHERE[0][1]]
    bench.crash()
    pub = bench.client("pub")
    pub.publish("t", COLD, qos=1)
    pub.publish("t", HOT, qos=1)
    alice.connect()
    assert [one.payload for one in alice.got()] == [HOT]
    other = Bench()
    other.server.pubsub.import_session(exported, other.now)
    other.client("pub").publish("t", COLD, qos=1)
    assert len(other.server.pubsub.state.sessions["alice"].window) == 0


def test_a_new_subscription_replaces_the_filter() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("t", user_properties=WHERE)
    alice.subscribe("t")
    bench.client("pub").publish("t", COLD)
    assert alice.got() == [Got("t", COLD)]


def test_a_subscriber_does_not_get_its_own_messages_if_it_says_so_whatever_the_filter() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("t", no_local=True, user_properties=WHERE)
    alice.publish("t", HOT)
    bench.client("pub").publish("t", HOT)
    assert alice.got() == [Got("t", HOT)]


@pytest.mark.parametrize(
    ("name", "where", "told"),
    [
        ("t", "temperature >", "overlane-where: at character 14: found the end, expected a name, a value or ("),
        ("$share/g/t", "a = 1", "overlane-where: a shared subscription cannot have a content filter"),
    ],
)
def test_a_wrong_filter_is_refused_with_the_reason(name: str, where: str, told: str) -> None:
    bench = Bench()
    alice = bench.client("alice")
    assert alice.subscribe(name, user_properties=[("overlane-where", where)]) == [0x83]
    assert alice.saw(mqtt5.SubAckPacket)[-1].reason_str == told
    bench.client("pub").publish("t", HOT)
    assert alice.got() == []
