"""Where a reader falls behind, its publishers rest: longer the fuller its queue is, and not at all for one that does
not read."""

import mqtt5
import pytest
from clients import Bench, Client

from overlane.core.units import MS, SECOND, Nanos
from overlane.pubsub.contract.connection import PACE_WITHIN
from overlane.pubsub.counters import Drop
from overlane.pubsub.delivery.window import ANSWER_WITHIN


def rest_ns(bench: Bench, client: Client) -> Nanos:
    return max(0, client.connection.rests_until_ns - bench.now)


def queue(bench: Bench, writer: Client, messages: int, qos: int = 1) -> Nanos:
    """How long the writer rests after so many messages."""
    for _ in range(messages):
        writer.publish("t", b"x", qos=qos, settle=False)
    rest = rest_ns(bench, writer)
    bench.end_turn()
    return rest


@pytest.fixture
def bench() -> Bench:
    return Bench(queue_messages=100, in_flight=10)


def test_a_publisher_rests_the_longer_the_fuller_the_queue_of_a_reader_is(bench: Bench) -> None:
    reader, writer = bench.client("reader", polite=False), bench.client("writer")
    reader.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t", max_qos=mqtt5.QoS.AT_LEAST_ONCE)]))
    assert queue(bench, writer, 25) == 0
    some, more, most = queue(bench, writer, 10), queue(bench, writer, 30), queue(bench, writer, 50)
    assert 2 * MS <= some < more < most <= 256 * MS
    assert bench.server.counters.dropped[Drop.QUEUE_FULL] == 0
    queue(bench, writer, 100)  # by one that does not rest: there is a bound, twice the limit
    assert bench.server.counters.dropped[Drop.QUEUE_FULL] == 15


def test_nobody_waits_for_a_reader_that_does_not_answer_nor_for_one_that_is_away(bench: Bench) -> None:
    deaf, away = bench.client("deaf", polite=False), bench.client("away", expiry=60)
    writer = bench.client("writer")
    deaf.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t", max_qos=mqtt5.QoS.AT_LEAST_ONCE)]))
    away.subscribe("t", qos=1)
    away.drop()
    queue(bench, writer, 60)
    bench.wait(ANSWER_WITHIN / SECOND)
    assert queue(bench, writer, 60) == 0


def test_a_reader_that_had_nothing_to_answer_for_long_is_waited_for(bench: Bench) -> None:
    reader, writer = bench.client("reader", polite=False), bench.client("writer")
    reader.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t", max_qos=mqtt5.QoS.AT_LEAST_ONCE)]))
    bench.wait(100)
    assert queue(bench, writer, 60) > 0


@pytest.mark.parametrize("retain", [False, True], ids=["on the fast path", "beside it"])
def test_publishers_of_qos_0_rest_for_a_reader_and_not_for_one_that_stops_reading(retain: bool) -> None:
    bench = Bench(queue_bytes=4_000_000)
    reader, writer = bench.client("reader"), bench.client("writer")
    reader.subscribe("t")

    def written() -> Nanos:
        writer.publish("t", bytes(1_000), retain=retain, settle=False)
        return rest_ns(bench, writer)

    assert written() == written() == 0
    connection = reader.connection
    connection.unsent_bytes, connection.bytes_out = 3_000_000, 3_100_000
    assert written() >= 2 * MS
    bench.wait(PACE_WITHIN / SECOND)
    assert written() == 0
    connection.bytes_out += 100_000
    assert written() >= 2 * MS
    connection.unsent_bytes = 0
    bench.wait(1)
    assert written() == 0
