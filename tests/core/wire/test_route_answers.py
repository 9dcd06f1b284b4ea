"""Frames that return to the source of a route."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.core.wire import frame_codec, route_answers
from overlane.core.wire.frame_codec import AGE_US_MAX, PLACE_MAX, SEQUENCE_MAX, FrameType
from overlane.core.wire.route_answers import (
    BEYOND_BYTES_MAX,
    NUMBER_MAX,
    Answer,
    Confirmation,
    RouteReceipt,
    read_answer,
    read_established,
)
from overlane.errors import ProtocolViolation

KEYS = st.binary(min_size=6, max_size=6)
PLACES = st.integers(0, PLACE_MAX)
COUNTS = st.integers(0, (1 << 63) - 1)
ANSWERS: st.SearchStrategy[Answer] = st.one_of(
    st.builds(
        Confirmation,
        KEYS,
        PLACES,
        PLACES,
        st.integers(0, SEQUENCE_MAX),
        st.integers(0, AGE_US_MAX >> 4).map(lambda age: age << 4),
    ),
    st.builds(RouteReceipt, KEYS, PLACES, PLACES, COUNTS, COUNTS, st.binary(max_size=20)),
)


def only_frame(data: bytes) -> tuple[int, memoryview]:
    ((kind, body),), used = frame_codec.split(data)
    assert used == len(data)
    return kind, body


@given(ANSWERS, st.integers(0, NUMBER_MAX))
def test_an_answer_is_read_as_written(told: Answer, number: int) -> None:
    kind, body = only_frame(route_answers.encode(told, number))
    assert kind == (FrameType.CONFIRMATION if isinstance(told, Confirmation) else FrameType.RECEIPT)
    assert read_answer(kind, body) == (number, told._replace(key=b"") if number else told)


@given(KEYS, st.integers(0, NUMBER_MAX))
def test_an_acknowledgement_of_a_route_is_read_as_written(key: bytes, number: int) -> None:
    kind, body = only_frame(route_answers.established(key, number))
    assert (kind, read_established(body)) == (FrameType.ESTABLISHED, (number, b"" if number else key))


def test_an_age_is_told_in_steps_of_16_us() -> None:
    kind, body = only_frame(route_answers.encode(Confirmation(bytes(6), 3, 2, 1, 1_000_015)))
    assert read_answer(kind, body).answer == Confirmation(bytes(6), 3, 2, 1, 1_000_000)


def test_an_answer_on_a_route_with_a_number_takes_ten_bytes() -> None:
    """Five of them are the frame's."""
    assert len(route_answers.encode(Confirmation(bytes(6), 7, 6, 100, 40_000), 90)) == 10
    assert len(route_answers.encode(RouteReceipt(bytes(6), 7, 6, 1, 100, b""), 90)) == 9
    assert len(route_answers.established(bytes(6), 90)) == 6


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (FrameType.CONFIRMATION, b"", "an answer on a route of the wrong size"),
        (FrameType.CONFIRMATION, bytes(6), "a truncated answer on a route"),
        (FrameType.CONFIRMATION, b"\x01\x00\x01\x01", "from before its first broker"),
        (FrameType.CONFIRMATION, b"\x01\x03", "an answer on a route of the wrong size"),
        (FrameType.CONFIRMATION, b"\x01\x02\x01", "a confirmation of the wrong size"),
        (FrameType.CONFIRMATION, b"\x01\x02\x01\x01\x01", "a confirmation of the wrong size"),
        (FrameType.CONFIRMATION, b"\x80\x80\x80\x80\x80\x01", "an answer on a route of the wrong size"),
        (FrameType.RECEIPT, b"\x01\x02\x01", "a receipt on a route of the wrong size"),
        (FrameType.RECEIPT, b"\x01\x02\x01\x01" + bytes(BEYOND_BYTES_MAX + 1), "a receipt on a route of the wrong"),
    ],
)
def test_a_malformed_answer_is_a_violation(kind: FrameType, body: bytes, reason: str) -> None:
    with pytest.raises(ProtocolViolation, match=reason):
        read_answer(kind, memoryview(body))


@pytest.mark.parametrize("body", [b"", bytes(6), bytes(8), b"\x01\x00"])
def test_a_malformed_acknowledgement_of_a_route_is_a_violation(body: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        read_established(memoryview(body))
