"""Sealed datagrams: what is opened is what was sealed, once, and by whom it should be."""

from contextlib import suppress
from random import Random

import pytest

from overlane.core.wire import frame_codec
from overlane.node.links.datagrams.seal import (
    DATAGRAM_BYTES_MAX,
    FRAMES_BYTES_MAX,
    KEY_BYTES,
    REPLAY_WINDOW,
    DatagramAck,
    DatagramKind,
    DatagramRefusal,
    DatagramRefused,
    Opener,
    Sealer,
    session_of,
)

SESSION = 0x0123456789ABCDEF
KEY = bytes(range(KEY_BYTES))
FRAMES = frame_codec.ping(7) + frame_codec.hop_ack(12, 160, 5)

with_and_without_key = pytest.mark.parametrize("key", [None, KEY], ids=["session alone", "with a key"])


def refusal(opener: Opener, datagram: bytes) -> DatagramRefusal:
    with pytest.raises(DatagramRefused) as refused:
        opener.open(datagram)
    return refused.value.refusal


@with_and_without_key
def test_what_was_sealed_is_opened(key: bytes | None) -> None:
    sealer, opener = Sealer(SESSION, key), Opener(key)
    came = DatagramAck(highest=(5 << 32) + 3, delay_us=160, earlier=0b1011)
    datagram = sealer.seal(DatagramKind.ASKS, came, FRAMES)
    assert session_of(datagram) == SESSION
    opened = opener.open(datagram)
    assert (opened.number, opened.kind, opened.came, opened.frames) == (
        1,
        DatagramKind.ASKS | DatagramKind.TELLS,
        came,
        FRAMES,
    )


@with_and_without_key
def test_the_largest_datagram_is_as_large_as_a_padded_probe(key: bytes | None) -> None:
    sealer = Sealer(SESSION, key)
    told = DatagramAck(1, 0, 0)
    probe = sealer.seal(DatagramKind.PROBE, told, size_bytes=DATAGRAM_BYTES_MAX)
    assert len(probe) == DATAGRAM_BYTES_MAX
    assert len(sealer.seal(DatagramKind.ASKS, told, bytes(FRAMES_BYTES_MAX))) <= DATAGRAM_BYTES_MAX
    assert Opener(key).open(probe).frames == b""


@with_and_without_key
def test_a_datagram_is_opened_once(key: bytes | None) -> None:
    sealer, opener = Sealer(SESSION, key), Opener(key)
    sealed = [sealer.seal(0, None, FRAMES) for _ in range(5)]
    for datagram in (sealed[0], sealed[3], sealed[1]):
        opener.open(datagram)
    assert [refusal(opener, sealed[one]) for one in (0, 3, 1)] == [DatagramRefusal.REPLAYED] * 3
    assert opener.open(sealed[2]).number == 3
    assert opener.open(sealed[4]).is_newest


def test_whatever_order_datagrams_come_in_each_is_opened_once_unless_it_is_very_old() -> None:
    seed = 20261116
    print("seed", seed)
    luck = Random(seed)
    sealer, opener = Sealer(SESSION, None), Opener(None)
    sealed = [sealer.seal(0, None, FRAMES) for _ in range(3 * REPLAY_WINDOW)]
    order = [one for one in range(len(sealed)) for _ in range(luck.randrange(3))]
    order.sort(key=lambda one: one + luck.randrange(REPLAY_WINDOW // 2))
    opened = []
    for one in order:
        with suppress(DatagramRefused):
            opened.append(opener.open(sealed[one]).number)
    assert sorted(opened) == sorted({one + 1 for one in order})
    assert refusal(opener, sealed[0]) is DatagramRefusal.REPLAYED


def test_what_is_told_of_those_that_came_is_bit_by_bit() -> None:
    sealer, opener = Sealer(SESSION, None), Opener(None)
    sealed = [sealer.seal(0, None, FRAMES) for _ in range(10)]
    for one in (0, 2, 3, 9):
        opener.open(sealed[one])
    assert (opener.highest, opener.earlier) == (10, 0b101100000)


def test_every_flipped_bit_is_noticed_where_there_is_a_key() -> None:
    datagram = Sealer(SESSION, KEY).seal(DatagramKind.ASKS, DatagramAck(1, 0, 1), FRAMES)
    for bit in range(64, 8 * len(datagram)):  # the session itself decides who gets it
        forged = bytearray(datagram)
        forged[bit // 8] ^= 1 << bit % 8
        assert refusal(Opener(KEY), bytes(forged)) in (DatagramRefusal.FORGED, DatagramRefusal.REPLAYED)


def test_a_datagram_under_another_key_or_of_the_other_direction_is_forged() -> None:
    datagram = Sealer(SESSION, KEY).seal(0, None, FRAMES)
    assert refusal(Opener(bytes(KEY_BYTES)), datagram) is DatagramRefusal.FORGED
    assert refusal(Opener(KEY), datagram[:-1]) is DatagramRefusal.FORGED
    assert refusal(Opener(KEY), Sealer(SESSION, None).seal(0, None, FRAMES)) is DatagramRefusal.FORGED


def test_a_forged_datagram_does_not_keep_the_true_one_of_its_number_out() -> None:
    opener = Opener(KEY)
    forged = Sealer(SESSION, bytes(KEY_BYTES)).seal(0, None, FRAMES)
    assert refusal(opener, forged) is DatagramRefusal.FORGED
    assert opener.open(Sealer(SESSION, KEY).seal(0, None, FRAMES)).number == 1


@pytest.mark.parametrize(
    "frames",
    [
        FRAMES[:-1],
        FRAMES + b"\0",
        b"\xff\xff\xff\xff\x02",
        frame_codec.control(0, b"x"),
        frame_codec.hello("a", 1),
        b"\0\0\0\1\x63",
    ],
    ids=["cut off", "with a rest", "too long", "control", "greeting", "unknown"],
)
def test_what_is_not_whole_frames_that_may_be_lost_is_malformed(frames: bytes) -> None:
    assert refusal(Opener(None), Sealer(SESSION, None).seal(0, None, frames)) is DatagramRefusal.MALFORMED


def test_garbage_is_refused_and_nothing_worse() -> None:
    seed = 7
    print("seed", seed)
    luck = Random(seed)
    for key in (None, KEY):
        opener = Opener(key)
        for _ in range(2_000):
            garbage = luck.randbytes(luck.randrange(60))
            try:
                opened = opener.open(garbage)
            except DatagramRefused:
                continue
            assert key is None
            assert not opened.frames or frame_codec.split(opened.frames)[1] == len(opened.frames)


def test_no_number_is_ever_used_twice() -> None:
    sealer = Sealer(SESSION, KEY)
    sealer.number = (1 << 48) - 2
    sealer.seal(0, None)
    with pytest.raises(OverflowError):
        sealer.seal(0, None)
