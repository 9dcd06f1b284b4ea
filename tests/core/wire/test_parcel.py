"""The inside of parcels: what is packed is unpacked, and anything else is bad content, never another error."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.core.wire.parcel import (
    MESSAGES_MAX,
    PARCEL_BYTES_MAX,
    BadContent,
    FlowPart,
    Message,
    Predecessor,
    cut,
    pack_flow,
    pack_messages,
    pack_single,
    unpack,
    unpack_flow,
    unpack_messages,
    unpack_single,
)

U32 = st.integers(0, 0xFFFFFFFF)
IDS = st.lists(st.integers(0, (1 << 64) - 1), max_size=4).map(tuple)
PREDECESSORS = st.builds(Predecessor, U32, U32, U32, IDS, st.integers(0, 255))


@st.composite
def parts(draw: st.DrawFn) -> FlowPart:
    after = draw(U32)
    lesser = draw(st.none() | st.sets(U32.filter(lambda one: one != after), max_size=4))
    follows = () if lesser is None else (*sorted(lesser), after)
    predecessors = tuple(draw(st.lists(PREDECESSORS, max_size=4)))
    incarnation, flow, sequence, floor = (draw(U32) for _ in range(4))
    return FlowPart(incarnation, flow, sequence, floor, after, predecessors, follows, draw(st.booleans()))


PARTS = parts()
TOPICS = st.one_of(st.sampled_from(["t", "t/ü", ""]), st.text(max_size=8))
MESSAGES = st.lists(st.tuples(TOPICS, st.integers(0, 255), st.binary(max_size=12)), min_size=1, max_size=8)


@given(PARTS, st.binary(max_size=8))
def test_the_place_in_a_flow_is_unpacked_as_packed(part: FlowPart, content: bytes) -> None:
    for incarnation in (part.incarnation, 7):
        packed = pack_flow(part, incarnation)
        assert unpack_flow(packed + content, incarnation) == (part, len(packed))


@given(MESSAGES, st.binary(max_size=8))
def test_messages_are_unpacked_as_packed_wherever_they_begin(messages: list[Message], ahead: bytes) -> None:
    assert unpack_messages(ahead + packed(messages), len(ahead), len(messages)) == messages


@given(U32, U32, U32, U32, st.tuples(TOPICS, st.integers(0, 255), st.binary(max_size=12)), st.binary(max_size=8))
def test_a_message_alone_is_packed_as_it_is_among_others(
    incarnation: int, flow: int, sequence: int, after: int, message: Message, ahead: bytes
) -> None:
    name = incarnation, flow
    alone = pack_single(name, sequence, after, message)
    part = FlowPart(*name, sequence, 0, after)
    assert unpack(alone, incarnation, 1) == (part, [message])
    among_others = pack_flow(part, incarnation) + packed([message])
    assert len(alone) <= len(among_others)
    if len(alone) < len(among_others):
        assert unpack_single(ahead + alone, len(ahead), incarnation) == (name, sequence, after, message)
    else:
        assert alone == among_others


def test_a_message_alone_in_the_usual_place_takes_twelve_bytes_more_than_topic_and_body() -> None:
    assert len(pack_single((7, 3), 100_000, 99_999, ("topic", 0, b"body"))) == 12 + 5 + 4


@given(PARTS, MESSAGES, st.data())
def test_what_is_not_a_message_alone_is_left_to_others(
    part: FlowPart, messages: list[Message], data: st.DataObject
) -> None:
    content = pack_flow(part, part.incarnation) + packed(messages)
    assert unpack_single(content, 0, 1) is None
    alone = pack_single((1, 3), 9, 8, messages[0])
    head = 12 + len(messages[0][0].encode())
    assert unpack_single(alone[: data.draw(st.integers(0, head - 1))], 0, 1) is None
    with pytest.raises(BadContent):
        unpack(alone, 1, 2)


def test_topics_are_written_once_for_all_their_messages() -> None:
    alone, many = (len(packed([("a/long/topic", 0, b"body")] * count)) for count in (1, 101))
    assert many - alone == 100 * (4 + 1 + 4)  # length, flags and body; one topic needs no index


@given(PARTS, MESSAGES, st.data())
def test_truncated_content_is_bad_content(part: FlowPart, messages: list[Message], data: st.DataObject) -> None:
    head, tail = pack_flow(part, 1), packed(messages)
    cut = data.draw(st.integers(0, len(head + tail) - 1))
    with pytest.raises(BadContent):
        read((head + tail)[:cut], len(messages))


@given(PARTS, MESSAGES, st.data())
def test_corrupted_content_reads_as_something_or_is_bad_content(
    part: FlowPart, messages: list[Message], data: st.DataObject
) -> None:
    alone = data.draw(st.booleans()) and len(messages) == 1
    content = bytearray(pack_single((1, 2), 9, 8, messages[0]) if alone else pack_flow(part, 1) + packed(messages))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        _, found = read(bytes(content), len(messages))
    except BadContent:
        return
    assert len(found) == len(messages)


@given(st.binary(max_size=120), st.integers(1, 0xFFFFFFFF))
def test_any_bytes_read_as_something_or_are_bad_content(content: bytes, count: int) -> None:
    with suppress(BadContent):
        read(content, count)


@given(MESSAGES, st.integers(1, 1 << 32))
def test_another_number_of_messages_than_there_are_is_bad_content(messages: list[Message], more: int) -> None:
    with pytest.raises(BadContent):
        unpack_messages(packed(messages), 0, len(messages) + more)


def read(content: bytes, count: int) -> tuple[FlowPart, list[Message]]:
    return unpack(content, 1, count)


def test_a_turn_is_cut_into_parcels_by_bytes_and_by_messages() -> None:
    assert sizes(bytes(PARCEL_BYTES_MAX - 40), bytes(32)) == [2]
    assert sizes(bytes(PARCEL_BYTES_MAX - 32), bytes(32)) == [1, 1]
    assert sizes(*[b""] * (MESSAGES_MAX + 1)) == [MESSAGES_MAX, 1]
    assert sizes(bytes(2 * PARCEL_BYTES_MAX), b"") == [1, 1]


def packed(messages: list[Message]) -> bytes:
    """A single parcel's worth."""
    (columns,) = cut(messages)
    return pack_messages(columns)


def sizes(*bodies: bytes) -> list[int]:
    """How many messages go into each parcel."""
    return [len(bodies) for _, _, bodies in cut([("t", 0, body) for body in bodies])]
