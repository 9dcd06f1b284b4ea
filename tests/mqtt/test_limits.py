"""Limits: what one client can make the server spend, and that what is over them is counted."""

import mqtt5
import pytest
from clients import Bench, Got

from overlane.core.units import SECOND
from overlane.pubsub.counters import Drop, Refusal
from overlane.pubsub.retained.removals import CHARS_MAX
from overlane.pubsub.state import TOPIC_CHARS_COUNTED


def publishes(count: int, topic: str = "t", size: int = 1) -> bytes:
    return mqtt5.PublishPacket(topic, bytes(size)).write() * count


# The rate


def test_a_client_that_publishes_too_fast_rests_until_it_is_within_its_rate() -> None:
    bench = Bench(messages_per_second=100)
    bob = bench.client("bob")
    bob.send(publishes(100))
    assert bob.connection.rests_until_ns <= bench.now
    bob.send(publishes(50))
    assert bob.connection.rests_until_ns == bench.now + SECOND // 2
    assert bench.server.counters.throttled == 1
    assert bob.is_open


def test_the_allowance_grows_with_time_up_to_a_second_of_it() -> None:
    bench = Bench(messages_per_second=100)
    bob = bench.client("bob")
    bob.send(publishes(100))
    bench.wait(0.5)
    bob.send(publishes(50))
    assert bob.connection.rests_until_ns <= bench.now
    bench.wait(1_000)
    bob.send(publishes(101))
    assert bob.connection.rests_until_ns > bench.now


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_every_quality_count(qos: int) -> None:
    bench = Bench(messages_per_second=10)
    bob = bench.client("bob")
    for number in range(12):
        bob.send(mqtt5.PublishPacket("t", b"", qos=mqtt5.QoS(qos), packet_id=number + 1 if qos else None), settle=False)
    assert bob.connection.rests_until_ns > bench.now


def test_other_clients_do_not_rest() -> None:
    bench = Bench(messages_per_second=10)
    bob, carol = bench.client("bob"), bench.client("carol")
    bob.send(publishes(100))
    carol.send(publishes(10))
    assert carol.connection.rests_until_ns <= bench.now


def test_a_client_that_must_rest_is_not_taken_for_silent() -> None:
    bench = Bench(messages_per_second=1)
    bob = bench.client("bob", keep_alive=10)
    bob.send(publishes(101))
    bench.wait(100 + 14)
    assert bob.is_open
    bench.wait(1)
    assert bob.is_closed


# Slow clients


def test_a_client_that_does_not_read_loses_plain_messages_beyond_its_queue_and_nobody_else_does() -> None:
    bench = Bench(queue_bytes=10_000)
    slow, fast = bench.client("slow"), bench.client("fast")
    for client in (slow, fast):
        client.subscribe("t")
    bob = bench.client("bob")
    bench.is_store_slow = True  # the bench then holds back what waits, as a full socket would
    for connection in (slow.connection,):
        connection.waits = True
        connection.send(bytes(10_001))
    bob.send(publishes(50, size=10), settle=False)
    assert len(fast.connection.out) > 0
    assert bench.server.counters.dropped[Drop.SLOW_CLIENT] == 50
    assert slow.connection.out_bytes == 10_001


def test_in_one_run_a_slow_client_gets_what_still_fits() -> None:
    bench = Bench(queue_bytes=1_000)
    slow = bench.client("slow")
    slow.subscribe("t")
    bob = bench.client("bob")
    bob.send(publishes(1, size=10))
    slow.connection.unsent_bytes = 900
    bob.send(publishes(10, size=10), settle=False)
    assert slow.connection.out_bytes < 1_200


# Counting


def test_bytes_and_messages_are_counted() -> None:
    bench = Bench()
    alice, bob = bench.client("alice"), bench.client("bob")
    alice.subscribe("t", qos=1)
    before_in, before_out = bench.server.counters.bytes_in, bench.server.counters.bytes_out
    one = mqtt5.PublishPacket("t", b"x", qos=mqtt5.QoS(1), packet_id=1).write()
    bob.send(one)
    counters = bench.server.counters
    puback = mqtt5.PubAckPacket(1).write()
    assert counters.bytes_in - before_in == len(one) + len(puback)
    assert counters.bytes_out - before_out == len(one) + len(puback)
    assert (counters.messages_in, counters.messages_out) == (1, 1)
    assert (bob.connection.messages_in, alice.connection.messages_out) == (1, 1)


def test_topics_are_counted_whichever_way_their_messages_take() -> None:
    bench = Bench()
    alice, bob = bench.client("alice"), bench.client("bob")
    alice.subscribe("t")
    bob.send(publishes(10, size=7))
    bob.publish("t", bytes(7), qos=1)
    stats = bench.server.state.topics["t"]
    assert (stats.messages, stats.bytes) == (11, 77)
    assert len(alice.got()) == 11


def test_what_is_remembered_of_topics_is_bounded() -> None:
    bench = Bench()
    bob = bench.client("bob")
    for start in range(0, 12_000, 1_000):
        bob.send(*(mqtt5.PublishPacket(f"t/{number}", b"") for number in range(start, start + 1_000)))
    assert 9_000 <= len(bench.server.state.topics) <= 10_000
    assert len(bob.connection.entries) <= 10_000


def test_the_idlest_topics_are_forgotten() -> None:
    bench = Bench()
    bob, carol = bench.client("bob"), bench.client("carol")
    for start in range(0, 30_000, 500):
        bob.send(publishes(10, "busy"))
        carol.send(*(mqtt5.PublishPacket(f"t/{number}", b"") for number in range(start, start + 500)))
    topics = bench.server.state.topics
    assert topics["busy"].messages == 600
    assert "t/0" not in topics


def test_a_busy_topic_is_counted_again_after_it_was_forgotten() -> None:
    bench = Bench()
    bob, carol = bench.client("bob"), bench.client("carol")
    bob.send(publishes(10, "busy"))
    for start in range(0, 12_000, 1_000):
        carol.send(*(mqtt5.PublishPacket(f"t/{number}", b"") for number in range(start, start + 1_000)))
    bob.send(publishes(10, "busy"))
    assert bench.server.state.topics["busy"].messages == 10


# The size of packets


def test_a_packet_is_refused_as_soon_as_its_length_is_known() -> None:
    # MQTT-3.2.2-15 and section 3.14.2.1: 0x95
    bench = Bench(packet_bytes=1_000)
    bob = bench.client("bob")
    bob.send(b"\x30\xff\xff\xff\x7f")
    assert bob.ended == 0x95
    assert bench.server.counters.refused[Refusal.TOO_LARGE] == 1


def test_a_packet_of_exactly_the_allowed_size_is_taken() -> None:
    bench = Bench(packet_bytes=1_000)
    alice, bob = bench.client("alice"), bench.client("bob")
    alice.subscribe("t")
    whole = mqtt5.PublishPacket("t", bytes(1_000 - 7)).write()
    assert len(whole) == 1_000
    bob.send(whole)
    bob.send(whole[:500])
    bob.send(whole[500:])
    assert alice.got() == [Got("t", bytes(993))] * 2
    bob.send(mqtt5.PublishPacket("t", bytes(1_000 - 6)).write())
    assert bob.ended == 0x95


# Long and deep topics


def test_counts_of_long_topics_are_forgotten_before_they_take_much_memory() -> None:
    bench = Bench(topic_bytes=60_000)
    bob = bench.client("bob")
    for number in range(2 * TOPIC_CHARS_COUNTED // 50_000):
        bob.publish(str(number).ljust(50_000, "x"), b"")
    kept = bench.server.state.topics
    assert 0 < sum(map(len, kept)) <= TOPIC_CHARS_COUNTED + 50_000


def test_levels_of_a_retained_topic_count_for_the_memory_that_they_take() -> None:
    bench = Bench(retained_bytes=30_000)
    bob = bench.client("bob")
    deep = "/".join(["x"] * 60)
    answers = [bob.publish(f"{number}/{deep}", b"x", qos=1, retain=True) for number in range(3)]
    assert answers == [0x10, 0x97, 0x97]
    assert bob.publish("shallow", b"x", qos=1, retain=True) == 0x10
    assert bob.publish(f"0/{deep}", b"", qos=1, retain=True) == 0x10
    assert bob.publish(f"1/{deep}", b"x", qos=1, retain=True) == 0x10


def test_removals_of_long_topics_are_remembered_up_to_a_number_of_bytes() -> None:
    bench = Bench(topic_bytes=60_000)
    bob = bench.client("bob")
    for number in range(2 * CHARS_MAX // 50_000):
        for payload in (b"x", b""):
            bob.publish(str(number).ljust(50_000, "x"), payload, qos=1, retain=True)
    assert 0 < sum(map(len, bench.server.state.retained.removed)) <= CHARS_MAX
