"""Framing: however a stream of packets is cut, the same packets come out, and none that is too large is waited for."""

import time
import tracemalloc
from itertools import pairwise

import pytest
from any_packets import PACKETS
from hypothesis import given
from hypothesis import strategies as st
from raw import connect, connect_311, packet, publish, variable

from overlane.mqtt.codec import codec5
from overlane.mqtt.codec.framing import Framer, packet_end, version_of_connect
from overlane.mqtt.codec.malformed import Malformed

MIB = 1 << 20
PING = b"\xc0\x00"
PACKET_BYTES = st.lists(PACKETS.map(codec5.write), max_size=8)
CUTS = st.lists(st.integers(0, 400), max_size=20)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[begin:end] for begin, end in pairwise(places)]


def framed(fed: list[bytes], packet_bytes_max: int = MIB) -> tuple[list[bytes], int]:
    """The packets, and the reason for which the rest was refused, or 0."""
    framer = Framer(packet_bytes_max)
    found: list[bytes] = []
    try:
        for piece in fed:
            found.extend(map(bytes, framer.feed(piece)))
    except Malformed as refused:
        return found, refused.reason
    return found, 0


@given(PACKET_BYTES, CUTS)
def test_packets_come_out_as_they_went_in_however_they_are_cut(packets: list[bytes], cuts: list[int]) -> None:
    assert framed(pieces(b"".join(packets), cuts)) == (packets, 0)


@given(PACKET_BYTES)
def test_packets_come_out_of_single_bytes(packets: list[bytes]) -> None:
    data = b"".join(packets)
    assert framed([data[at : at + 1] for at in range(len(data))]) == (packets, 0)


@given(st.binary(max_size=400), CUTS, st.integers(2, 200))
def test_any_bytes_give_the_same_packets_and_the_same_refusal_however_they_are_cut(
    data: bytes, cuts: list[int], packet_bytes_max: int
) -> None:
    assert framed(pieces(data, cuts), packet_bytes_max) == framed([data], packet_bytes_max)


@given(PACKET_BYTES, st.integers(0, 400))
def test_what_waits_is_what_was_fed_and_not_given(packets: list[bytes], cut: int) -> None:
    data = b"".join(packets)[:cut]
    framer = Framer(MIB)
    given_bytes = sum(len(whole) for whole in framer.feed(data))
    assert framer.waiting_bytes == len(data) - given_bytes


def test_whole_packets_are_views_of_what_was_fed() -> None:
    data = publish() + PING + publish(topic="b")
    assert [whole.obj is data for whole in Framer(MIB).feed(data)] == [True, True, True]


def test_only_the_packet_that_straddles_two_reads_is_copied() -> None:
    framer = Framer(MIB)
    first, second = publish() + PING[:1], PING[1:] + publish()
    assert [whole.obj is first for whole in framer.feed(first)] == [True]
    assert [whole.obj is second for whole in framer.feed(second)] == [False, True]


def test_every_packet_can_be_looked_up_by_its_bytes() -> None:
    framer = Framer(MIB)
    data = publish() + publish()
    views = [*framer.feed(data[:20]), *framer.feed(data[20:])]
    assert [hash(whole) for whole in views] == [hash(publish())] * 2


def test_a_packet_of_the_largest_size_passes_and_one_that_is_larger_is_refused_by_its_header() -> None:
    framer = Framer(100)
    (whole,) = framer.feed(packet(0x30, bytes(98)))
    assert len(whole) == 100
    with pytest.raises(Malformed) as refused:
        list(framer.feed(b"\x30" + variable(99)))
    assert refused.value.reason == 0x95


def test_a_packet_that_is_too_large_is_refused_when_its_header_is_complete_and_not_before() -> None:
    framer = Framer(MIB)
    assert list(framer.feed(b"\x30\xff\xff")) == []
    with pytest.raises(Malformed) as refused:
        list(framer.feed(b"\x7f" + bytes(60_000)))
    assert refused.value.reason == 0x95
    assert framer.waiting_bytes == 60_004


def test_packets_before_one_that_is_too_large_are_given() -> None:
    assert framed([PING + PING + packet(0x30, bytes(99))], 100) == ([PING, PING], 0x95)


def test_the_limit_may_be_raised_between_two_packets_of_the_same_read() -> None:
    framer = Framer(50)
    large = packet(0x30, bytes(1000))
    got = []
    for whole in framer.feed(connect() + large):
        framer.packet_bytes_max = MIB
        got.append(bytes(whole))
    assert got == [connect(), large]


def test_the_limit_may_be_raised_for_a_packet_that_has_begun() -> None:
    framer = Framer(50)
    large = packet(0x30, bytes(1000))
    got = []
    for whole in framer.feed(connect() + large[:1]):
        framer.packet_bytes_max = MIB
        got.append(bytes(whole))
    got.extend(map(bytes, framer.feed(large[1:])))
    assert got == [connect(), large]


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_length_of_more_than_four_bytes_is_malformed_however_it_is_cut(cut: int) -> None:
    data = b"\x30\x80\x80\x80\x80\x01"
    assert framed([data[:cut], data[cut:]]) == ([], 0x81)


def test_a_reader_may_stop_at_a_packet_and_go_on_later() -> None:
    framer = Framer(MIB)
    first, second, third = (publish(topic=topic) for topic in "abc")
    assert bytes(next(framer.feed(first + second + third[:4]))) == first
    framer.feed(third[4:] + PING)
    assert framer.waiting_bytes == len(second + third + PING)
    assert list(map(bytes, framer.packets())) == [second, third, PING]
    assert framer.waiting_bytes == 0


def test_what_was_dealt_with_elsewhere_is_left_out() -> None:
    framer = Framer(MIB)
    data = publish() + PING + publish()[:3]
    assert list(map(bytes, framer.feed(data, len(publish())))) == [PING]
    assert framer.waiting_bytes == 3
    framer.feed(publish()[3:])
    framer.feed(b"ignored" + PING, 7)
    assert list(map(bytes, framer.packets())) == [publish(), PING]


def test_what_follows_a_packet_may_be_taken_away_to_be_dealt_with_elsewhere() -> None:
    framer = Framer(MIB)
    list(framer.feed(publish()[:5]))
    second = publish()[5:] + PING + PING[:1]
    assert bytes(next(framer.feed(second))) == publish()
    data, position = framer.take()
    assert (data[position:], framer.waiting_bytes) == (PING + PING[:1], 0)


def test_everything_fed_meanwhile_is_taken_away_together() -> None:
    framer = Framer(MIB)
    framer.feed(b"ignored" + PING, 7)
    framer.feed(publish())
    data, position = framer.take()
    assert (data[position:], framer.waiting_bytes) == (PING + publish(), 0)


def test_nothing_fed_is_nothing_given() -> None:
    framer = Framer(MIB)
    assert (list(framer.feed(b"")), list(framer.packets()), framer.waiting_bytes) == ([], [], 0)


def test_a_large_packet_in_tiny_pieces_takes_little_more_memory_than_it_is_long() -> None:
    data = packet(0x30, bytes(64 << 10))
    fed = [data[at : at + 1] for at in range(len(data))]
    framer = Framer(MIB)
    tracemalloc.start()
    try:
        for piece in fed:
            got = list(framer.feed(piece))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert got == [data]
    assert peak_bytes < 3 * len(data)


def test_the_work_grows_with_the_bytes_and_not_with_their_square() -> None:
    def seconds(packet_bytes: int) -> float:
        data = packet(0x30, bytes(packet_bytes))
        fed = [data[at : at + 64] for at in range(0, len(data), 64)]
        framer = Framer(16 * MIB)
        begin = time.process_time()
        for piece in fed:
            for _ in framer.feed(piece):
                pass
        return time.process_time() - begin

    # 32 times the bytes: 32 times the work, or 1,024 times if all were copied for each piece.
    assert min(seconds(2 * MIB) for _ in range(3)) < 200 * min(seconds(MIB >> 4) for _ in range(5))


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"", -1),
        (b"\x30", -1),
        (b"\x30\x80", -1),
        (b"\x30\xff\xff\xff", -1),
        # The borders of the specification's table 1-1.
        (b"\x30\x00", 2),
        (b"\x30\x7f", 2 + 127),
        (b"\x30\x80\x01", 3 + 128),
        (b"\x30\xff\x7f", 3 + 16_383),
        (b"\x30\x80\x80\x01", 4 + 16_384),
        (b"\x30\xff\xff\x7f", 4 + 2_097_151),
        (b"\x30\x80\x80\x80\x01", 5 + 2_097_152),
        (b"\x30\xff\xff\xff\x7f", 5 + 268_435_455),
    ],
)
def test_the_end_of_a_packet_is_told_by_its_header(data: bytes, end: int) -> None:
    assert packet_end(data, 0) == end
    assert packet_end(b"before" + data, 6) == (end if end < 0 else end + 6)
    assert packet_end(memoryview(data), 0) == packet_end(bytearray(data), 0) == end


def test_a_header_with_a_length_of_five_bytes_has_no_end() -> None:
    with pytest.raises(Malformed) as refused:
        packet_end(b"\x30\x80\x80\x80\x80", 0)
    assert refused.value.reason == 0x81


@pytest.mark.parametrize(
    ("data", "version"),
    [(connect(), 5), (connect_311(), 4), (connect_311(name="MQIsdp", level=3), 3), (connect_311(level=0x84), 4)],
    ids=["5", "3.1.1", "3.1", "a bridge"],
)
def test_a_connect_tells_the_version_it_speaks(data: bytes, version: int) -> None:
    assert version_of_connect(data) == version_of_connect(memoryview(data)) == version


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(connect(level=6), 0x84, id="a version to come"),
        pytest.param(connect_311(level=0x85), 0x84, id="a bridge of MQTT 5, which has no bit for it"),
        pytest.param(connect_311(level=3), 0x84, id="the level of 3.1 with the name of 3.1.1"),
        pytest.param(connect_311(name="MQIsdp"), 0x84, id="the name of 3.1 with the level of 3.1.1"),
        pytest.param(connect_311(name="HTTP"), 0x84, id="another protocol"),
        pytest.param(connect_311(name=""), 0x84, id="no name"),
        pytest.param(publish(), 0x82, id="PUBLISH"),
        pytest.param(connect_311(first=0x11), 0x81, id="header flags"),
        pytest.param(b"", 0x81, id="nothing"),
        pytest.param(b"\x10\x00", 0x81, id="an empty CONNECT"),
        pytest.param(packet(0x10, b"\x00\x04MQT"), 0x81, id="half a name"),
        pytest.param(packet(0x10, b"\x00\x04MQTT"), 0x81, id="no level"),
    ],
)
def test_what_is_no_connect_of_a_known_version_is_refused(data: bytes, reason: int) -> None:
    with pytest.raises(Malformed) as refused:
        version_of_connect(data)
    assert refused.value.reason == reason


def resumed(fed: list[bytes], packet_bytes_max: int = MIB) -> tuple[list[bytes], int]:
    """As `framed`, by a reader that takes all there is and keeps the packet that is not whole."""
    framer = Framer(packet_bytes_max)
    found: list[bytes] = []
    try:
        for piece in fed:
            rest = framer.resume(piece) if framer.is_waiting else (piece, 0)
            if rest is None:
                continue
            data, position = rest
            while position < len(data):
                end = packet_end(data, position)
                if end - position > packet_bytes_max:
                    return found, 0x95
                if end < 0 or end > len(data):
                    framer.keep(data, position)
                    break
                found.append(data[position:end])
                position = end
    except Malformed as refused:
        return found, refused.reason
    return found, 0


@given(st.one_of(st.binary(max_size=400), PACKET_BYTES.map(b"".join)), CUTS, st.integers(2, 200))
def test_a_reader_that_keeps_what_is_not_whole_finds_the_same_packets_and_the_same_refusal(
    data: bytes, cuts: list[int], packet_bytes_max: int
) -> None:
    cut = pieces(data, cuts)
    assert resumed(cut, packet_bytes_max) == framed(cut, packet_bytes_max)


def test_what_was_fed_unseen_is_resumed_behind_the_packet_that_had_begun() -> None:
    framer = Framer(MIB)
    framer.keep(b"passed" + publish()[:4], 6)
    framer.feed(publish()[4:] + PING)
    assert framer.resume(PING) == (publish() + PING + PING, 0)
    assert framer.waiting_bytes == 0


def test_a_packet_of_many_reads_is_collected_once() -> None:
    framer = Framer(MIB)
    large = packet(0x30, bytes(MIB - 5))
    framer.keep(large[:1], 0)
    start, copied = time.process_time(), 0
    for at in range(1, len(large), 64):
        rest = framer.resume(large[at : at + 64])
        copied += len(rest[0]) if rest is not None else 0
    assert copied == len(large)
    assert time.process_time() - start < 2
