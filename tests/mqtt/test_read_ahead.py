"""A client that has to rest or to stop is still heard as a reader: acknowledgements overtake what it publishes."""

import random

import mqtt5
import pytest
from clients import Bench, Client, Got

from overlane.core.units import NEVER
from overlane.mqtt.codec.framing import Framer
from overlane.mqtt.read_ahead import ReadAhead

ACKS = (mqtt5.PubAckPacket(7), mqtt5.PubRecPacket(8), mqtt5.PubCompPacket(9))
OTHERS = (
    mqtt5.PublishPacket("t", bytes(200), qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1),
    mqtt5.PubRelPacket(2),
    mqtt5.PingReqPacket(),
    mqtt5.DisconnectPacket(),
)


@pytest.mark.parametrize("seed", range(20))
def test_acknowledgements_are_taken_out_and_all_else_is_kept_in_order_however_it_was_cut(seed: int) -> None:
    luck = random.Random(seed)
    sent = [luck.choice((ACKS, OTHERS)) for _ in range(30)]
    packets = [(luck.choice(kind).write(), kind is ACKS) for kind in sent]
    data = b"".join(packet for packet, _ in packets)
    ahead, position = ReadAhead(), 0
    while position < len(data):
        size = luck.randint(1, 60)
        ahead.feed(data[position : position + size])
        position += size
        assert ahead.waiting_bytes == min(position, len(data))
    found, ahead.acknowledgements = ahead.acknowledgements, b""
    assert found == b"".join(packet for packet, is_ack in packets if is_ack)
    assert ahead.take() == b"".join(packet for packet, is_ack in packets if not is_ack)
    assert (ahead.waiting_bytes, ahead.take()) == (0, b"")


def test_what_is_no_packet_is_kept_with_all_that_follows() -> None:
    ahead = ReadAhead()
    broken = b"\x30\xff\xff\xff\xff\xff"
    ahead.feed(ACKS[0].write() + broken)
    ahead.feed(ACKS[1].write())
    assert ahead.acknowledgements == ACKS[0].write()
    assert ahead.take() == ACKS[0].write() + broken + ACKS[1].write()


def test_all_that_a_framer_keeps_can_be_taken_whatever_it_has_given_before() -> None:
    framer = Framer(NEVER)
    first, second = OTHERS[0].write(), OTHERS[1].write()
    packets = framer.feed(first + second + first[:50])
    assert bytes(next(packets)) == first
    assert framer.take_all() == second + first[:50]
    assert list(framer.feed(first[:50])) == []
    framer.feed(first[50:] + second)
    assert framer.take_all() == first + second
    assert not framer.is_waiting


@pytest.fixture
def bench() -> Bench:
    return Bench(in_flight=1)


def publish(number: int) -> bytes:
    return mqtt5.PublishPacket("t", b"%d" % number, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=number).write()


def reader_of_itself(bench: Bench) -> Client:
    """A client with one unacknowledged message, and another that waits for the acknowledgement."""
    both = bench.client("both", polite=False)
    both.subscribe("t", qos=1)
    writer = bench.client("writer")
    writer.publish("t", b"a", qos=1)
    writer.publish("t", b"b", qos=1)
    assert both.got() == [Got("t", b"a", qos=1)]
    return both


def tag(client: Client) -> int:
    assert client.connection.session is not None
    return next(iter(client.connection.session.window.sent))


def test_a_client_that_rests_is_heard_as_a_reader_and_its_messages_wait(bench: Bench) -> None:
    both = reader_of_itself(bench)
    bench.server.receive_ahead(both.connection, publish(1) + mqtt5.PubAckPacket(tag(both)).write(), bench.now)
    bench.settle()
    assert both.got() == [Got("t", b"b", qos=1)]
    assert both.connection.is_behind
    assert bench.server.counters.messages_in == 2
    bench.server.receive_ahead(both.connection, mqtt5.PubAckPacket(tag(both)).write(), bench.now)
    bench.server.receive(both.connection, b"", bench.now)
    bench.settle()
    assert both.got() == [Got("t", b"1", qos=1)]
    assert not both.connection.is_behind


def test_what_was_left_of_a_read_is_searched_for_acknowledgements_too(bench: Bench) -> None:
    both = reader_of_itself(bench)
    said = publish(1) + mqtt5.PubAckPacket(tag(both)).write()
    bench.server.receive(both.connection, said, bench.now, packets_max=0)
    assert both.connection.is_behind
    bench.server.receive_ahead(both.connection, b"", bench.now)
    bench.settle()
    assert both.got() == [Got("t", b"b", qos=1)]


def test_what_was_read_ahead_comes_before_what_is_put_off(bench: Bench) -> None:
    both = bench.client("both")
    reader = bench.client("reader")
    reader.subscribe("t")
    bench.server.receive_ahead(both.connection, publish(1)[:5], bench.now)
    assert bench.server.receive_later(both.connection, publish(1)[5:], bench.now)
    bench.server.receive(both.connection, b"", bench.now)
    bench.settle()
    assert reader.got() == [Got("t", b"1")]


def test_what_was_read_ahead_is_not_lost_with_its_connection(bench: Bench) -> None:
    both = bench.client("both")
    reader = bench.client("reader")
    reader.subscribe("t")
    bench.server.receive_ahead(both.connection, publish(1), bench.now)
    bench.server.lost(both.connection, bench.now)
    bench.settle()
    assert reader.got() == [Got("t", b"1")]


def test_an_acknowledgement_that_must_not_be_ends_the_connection_at_once(bench: Bench) -> None:
    both = reader_of_itself(bench)
    bench.server.receive_ahead(both.connection, mqtt5.PubRecPacket(tag(both)).write(), bench.now)
    assert both.connection.closing is not None


def test_acknowledgements_by_the_thousand_are_handled_a_few_at_a_time(bench: Bench) -> None:
    """Each with a reason, so that it takes as long as any packet."""
    both = reader_of_itself(bench)
    unknown = mqtt5.PubRecPacket(60_000, reason_code=mqtt5.PubRecReasonCode.QUOTA_EXCEEDED).write()
    said = publish(1) + 100 * unknown + mqtt5.PubAckPacket(tag(both)).write()
    calls = 1
    has_more = bench.server.receive_ahead(both.connection, said, bench.now, 30)
    while has_more:
        has_more = bench.server.receive_ahead(both.connection, b"", bench.now, 30)
        calls += 1
    bench.settle()
    assert calls == 4
    assert both.got() == [Got("t", b"b", qos=1)]
    assert both.connection.waiting_bytes == len(publish(1))
