"""Replication frames: each is read as written, and nothing beyond a limit is accepted."""

from contextlib import suppress
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.core.wire.control_messages import Unsendable
from overlane.errors import ProtocolViolation
from overlane.recovery.hosts.questions import HeardQuestion, Message, encode_message
from overlane.recovery.replication import frames
from overlane.recovery.replication.fragments import CONTINUES, MORE, Reassembly, Waiting, fragments
from overlane.recovery.replication.frames import (
    CHANGES_MAX,
    TABLE_LENGTH_MAX,
    Acknowledge,
    Append,
    Begin,
    Change,
    Frame,
    Heartbeat,
    Lacks,
    Refuse,
    SnapshotPart,
    decode,
    encode,
    snapshot_parts,
)

CHANGES: tuple[Change, ...] = (("mqtt.session", b"k", b"v"), ("parcel", b"", None))
EXAMPLES: list[Frame] = [
    Begin("seattle", 3, 7, 2, 1_000),
    Append("seattle", 3, 8, CHANGES, 2_000),
    SnapshotPart("seattle", 3, 8, 1, 0, CHANGES, True, 3_000),
    Heartbeat("seattle", 3, 8, 4_000),
    Acknowledge("seattle", 3, 8, 77, 4_000),
    Lacks("seattle", 3, 5, 77, 2, 4_000),
    Refuse("seattle", 4, 8, 77),
]

counts = st.integers(0, (1 << 63) - 1)
ids = st.integers(1, (1 << 63) - 1)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
changes = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), min_size=1, max_size=64), st.binary(), st.none() | st.binary())
).map(tuple)
any_frame: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Begin, names, ids, counts, counts, counts),
    st.builds(Append, names, ids, counts, changes, counts),
    st.builds(SnapshotPart, names, ids, counts, counts, counts, changes, st.booleans(), counts),
    st.builds(Heartbeat, names, ids, counts, counts),
    st.builds(Acknowledge, names, ids, counts, ids, counts),
    st.builds(Lacks, names, ids, counts, ids, counts, counts),
    st.builds(Refuse, names, ids, counts, ids),
)


@given(any_frame)
def test_a_frame_is_read_as_it_was_written(frame: Frame) -> None:
    assert decode(encode(frame)) == frame


@given(st.binary(max_size=200) | any_frame.map(encode).flatmap(lambda data: st.just(data[: len(data) // 2])))
def test_garbage_is_a_violation_or_a_frame_and_nothing_else(data: bytes) -> None:
    with suppress(ProtocolViolation):
        assert decode(encode(decode(data))) == decode(data)


@given(any_frame, st.data())
def test_a_frame_with_a_changed_byte_is_a_violation_or_another_frame(frame: Frame, drawn: st.DataObject) -> None:
    data = bytearray(encode(frame))
    data[drawn.draw(st.integers(0, len(data) - 1))] = drawn.draw(st.integers(0, 255))
    with suppress(ProtocolViolation):
        decode(bytes(data))


def _raw(*fields: object) -> bytes:
    return msgspec.msgpack.encode(fields)


@pytest.mark.parametrize(
    "data",
    [
        _raw(4, "seattle", 0, 8, 1),  # there is no epoch 0
        _raw(4, "seattle", 1, -1, 1),
        _raw(4, "seattle", 1, 1 << 63, 1),
        _raw(4, "", 1, 8, 1),
        _raw(4, "a/b", 1, 8, 1),
        _raw(4, "a" * 65, 1, 8, 1),
        _raw(5, "seattle", 1, 8, 0, 1),  # nor a storage 0
        _raw(2, "seattle", 1, 8, [["t" * (TABLE_LENGTH_MAX + 1), b"", b""]], 1),
        _raw(2, "seattle", 1, 8, [["", b"", b""]], 1),
        _raw(2, "seattle", 1, 8, [["t", b"k"]], 1),
        _raw(4, "seattle", 1, 8, 1, 1),  # a field too many
        _raw(9, "seattle", 1, 8, 1),
        b"\xdd\xff\xff\xff\xff",  # an array of 2**32 - 1 elements
        b"\x91" * 100_000,
    ],
)
def test_what_is_beyond_its_limits_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode(data)


def test_a_frame_that_is_too_long_is_refused_before_it_is_decoded() -> None:
    def decoded(_: object) -> Frame:
        raise AssertionError("it was decoded")

    class Decoder:
        decode = staticmethod(decoded)

    data = encode(EXAMPLES[1])
    with patch.object(frames, "FRAME_BYTES_MAX", len(data) - 1), patch.object(frames, "_decoder", Decoder):
        with pytest.raises(ProtocolViolation, match="at most"):
            decode(data)
        with pytest.raises(Unsendable):
            encode(EXAMPLES[1])


def test_a_batch_that_its_receiver_would_refuse_is_not_sent() -> None:
    with pytest.raises(Unsendable):
        encode(Append("seattle", 1, 1, (("t", b"", None),) * (CHANGES_MAX + 1), 0))


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.binary(max_size=40), st.binary(max_size=300)), max_size=30),
    st.integers(1, 400),
)
def test_a_snapshot_has_all_records_in_parts_of_bounded_size(
    records: list[tuple[str, bytes, bytes]], part_bytes: int
) -> None:
    parts = list(snapshot_parts("seattle", 3, 9, 4, records, 1, part_bytes))
    assert [change for part in parts for change in part.changes] == records
    assert [(part.part, part.is_last) for part in parts] == [(i, i == len(parts) - 1) for i in range(len(parts))]
    assert {(part.epoch, part.sequence, part.snapshot) for part in parts} == {(3, 9, 4)}
    assert all(len(part.changes) <= 1 or len(encode(part)) <= part_bytes + 60 for part in parts)


# Fragments

SMALL = [Heartbeat("seattle", 1, 3, 4), Acknowledge("seattle", 1, 3, 9, 4), HeardQuestion("seattle")]


def large(sequence: int, size: int = 300) -> Append:
    return Append("seattle", 1, sequence, (("t", b"key", b"x" * size),), 5)


def sent(waiting: Waiting, at_once: int = 50) -> bytes:
    parts = []
    while waiting.size_bytes:
        parts.append(waiting.take(at_once))
        assert len(parts[-1]) <= at_once
    return b"".join(parts)


@given(st.lists(st.sampled_from([*SMALL, large(1), large(2, 5)]), max_size=6), st.integers(5, 100), st.data())
def test_messages_come_out_of_their_fragments_however_the_bytes_come(
    messages: list[Message], size: int, data: st.DataObject
) -> None:
    stream = b"".join(one for message in messages for one in fragments(encode_message(message), size))
    reassembly, received, at = Reassembly(), list[Message](), 0
    while at < len(stream):
        end = data.draw(st.integers(at + 1, len(stream)))
        received += reassembly.receive(stream[at:end])
        at = end
    assert received == messages


def test_a_heartbeat_passes_batches_that_wait_and_says_what_was_sent_before_them() -> None:
    waiting = Waiting(100)
    waiting.add(large(5))
    waiting.add(large(6))
    begun = waiting.take(150)
    waiting.add(Heartbeat("seattle", 1, 6, 10))
    waiting.add(Heartbeat("seattle", 1, 6, 11))
    expected = [Heartbeat("seattle", 1, 4, 11), large(5), large(6)]
    assert Reassembly().receive(begun + sent(waiting)) == expected


def test_a_heartbeat_passes_nothing_but_batches() -> None:
    (part,) = snapshot_parts("seattle", 1, 6, 1, [("t", b"key", b"x" * 300)], 5)
    for first in (part, Begin("seattle", 1, 6, 0, 9)):
        waiting = Waiting(100)
        for message in (first, large(7), Heartbeat("seattle", 1, 7, 10)):
            waiting.add(message)
        assert Reassembly().receive(sent(waiting)) == [first, large(7), Heartbeat("seattle", 1, 7, 10)]


@pytest.mark.parametrize(
    "wrong",
    [
        (1001).to_bytes(4),
        (0).to_bytes(4),
        (CONTINUES | 5).to_bytes(4),  # of no frame
        (MORE | 1).to_bytes(4) + b"x" + (MORE | 1).to_bytes(4),  # two frames at once
        (MORE | 600).to_bytes(4) + b"x" * 600 + (CONTINUES | 401).to_bytes(4),
        (MORE | 1).to_bytes(4) + b"x" + CONTINUES.to_bytes(4),
        (3).to_bytes(4) + b"xyz",
    ],
)
def test_a_wrong_fragment_is_a_violation(wrong: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        Reassembly(bytes_max=1000).receive(wrong)
