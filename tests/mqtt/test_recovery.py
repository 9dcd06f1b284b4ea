"""Recovery: a server that starts from what the store has, all of it or only a part."""

import mqtt5
import msgspec
import pytest
from clients import Bench, Got

from overlane.core.units import SECOND
from overlane.pubsub.sessions.deduplication import PROPERTY
from overlane.recovery.replication.fragments import whole
from overlane.recovery.replication.frames import Append, encode


def furnished() -> Bench:
    """A bench whose store has a record of every kind."""
    bench = Bench()
    alice = bench.client("alice", expiry=60, will=mqtt5.Will("w", payload=b"gone", qos=mqtt5.QoS(1)))
    alice.subscribe("t", "w", qos=2)
    alice.drop()
    bob = bench.client("bob", expiry=60, polite=False, will=mqtt5.Will("w"), user_properties=[(PROPERTY, "its life")])
    bob.publish("t", b"x", qos=2)
    bob.publish("r", b"kept", qos=1, retain=True)
    return bench


def test_the_store_of_the_tests_below_has_a_record_of_every_kind() -> None:
    assert furnished().tables() == {
        "mqtt.message@2": 2,
        "mqtt.once": 1,
        "mqtt.queue@2": 2,
        "mqtt.received": 1,
        "mqtt.retained": 1,
        "mqtt.session": 2,
        "mqtt.subscription": 2,
        "mqtt.will": 1,
    }


@pytest.mark.parametrize("lost", sorted(furnished().store))
def test_a_record_that_was_lost_costs_no_more_than_what_it_said(lost: tuple[str, bytes]) -> None:
    bench = furnished()
    del bench.store[lost]
    bench.crash()
    alice = bench.client("alice", expiry=60)
    bob = bench.client("bob", expiry=60)
    bob._packet_id = 100  # its first was under way
    carol = bench.client("carol")
    carol.subscribe("r")
    alice.subscribe("t", qos=2)
    alice.got()
    bob.publish("t", b"y", qos=2)
    assert alice.got() == [Got("t", b"y", qos=2)]
    assert len(carol.got()) == (0 if lost[0] == "mqtt.retained" else 1)
    bench.crash()
    for client in (alice, bob):
        client.reconnect()
        client.disconnect(expiry=0)
    assert set(bench.tables()) <= {"mqtt.retained"}


def test_what_belonged_to_a_lost_session_does_not_come_back_with_a_later_one() -> None:
    bench = furnished()
    del bench.store["mqtt.session", b"alice"]
    bench.crash()
    bench.client("alice", expiry=60)
    bench.crash()
    alice = bench.client("alice", expiry=60)
    assert alice.is_resumed
    assert alice.got() == []
    bench.client("carol").publish("t", b"y", qos=1)
    assert alice.got() == []


def test_a_start_from_the_same_records_changes_nothing_more() -> None:
    bench = furnished()
    bench.crash()
    bench.crash()
    once = dict(bench.store)
    bench.crash()
    assert bench.store == once


def test_of_a_session_that_an_older_version_has_stored_all_that_waits_counts_as_sent() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    alice.drop()
    bench.client("bob").publish("t", b"x", qos=1)
    bench.store["mqtt.session", b"alice"] = msgspec.msgpack.encode((None, 60, bench.now + 60 * SECOND))
    bench.crash()
    alice.reconnect()
    bench.client("bob").publish("t", b"y", qos=1)
    assert alice.got() == [Got("t", b"x", qos=1, dup=True), Got("t", b"y", qos=1)]


def test_records_of_others_are_left_alone() -> None:
    bench = furnished()
    bench.store["parcel", b"1"] = b"core's"
    bench.crash()
    assert bench.store["parcel", b"1"] == b"core's"


def test_what_a_mirror_gets_of_a_queue_is_less_than_1_kb() -> None:
    """The session of a subscriber and its subscription, as bytes of replication."""
    bench = Bench()
    before = set(bench.store)
    bench.client("a-subscriber-with-a-long-name-0123456789", expiry=3_600).subscribe("plant/hall-7/boiler/+", qos=1)
    changes = tuple((table, key, value) for (table, key), value in bench.store.items() if (table, key) not in before)
    assert len(changes) >= 2
    assert len(whole(encode(Append("seattle", 7, 1_000, changes, 10**9)))) < 1_000
