"""Numbers in as few bytes as they need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.core.wire.varint import packed, unpacked
from overlane.errors import ProtocolViolation

LIMITS = (0xFFFF, 0xFFFF, (1 << 48) - 1, (1 << 32) - 1)


@given(st.tuples(*(st.integers(0, limit) for limit in LIMITS)))
def test_numbers_come_back_as_they_were(numbers: tuple[int, ...]) -> None:
    assert unpacked(memoryview(packed(numbers)), LIMITS, "a frame") == [*numbers]


def test_a_small_number_takes_one_byte_and_seven_bits_more_take_another() -> None:
    assert [len(packed((number,))) for number in (0, 127, 128, (1 << 14) - 1, 1 << 14)] == [1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01\x02",
        b"\x01\x02\x03\x04\x05",
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
        b"\x01\x02\x03\x84",
        packed((0x10000, 1, 1, 1)),
        packed((1, 1, 1 << 48, 1)),
    ],
    ids=["nothing", "too few", "too many", "endless", "cut off", "a place beyond 16 bits", "a sequence beyond 48 bits"],
)
def test_other_bytes_are_a_violation(data: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="a frame"):
        unpacked(memoryview(data), LIMITS, "a frame")


@given(st.binary(max_size=40))
def test_any_bytes_are_numbers_within_their_limits_or_a_violation(data: bytes) -> None:
    try:
        numbers = unpacked(memoryview(data), LIMITS, "a frame")
    except ProtocolViolation:
        return
    assert all(number <= limit for number, limit in zip(numbers, LIMITS, strict=True))
