"""Values, composites and frames of AMQP 1.0: what is written is read again, what is wrong is Malformed."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.amqp.codec import composites
from overlane.amqp.codec.decoding import DEPTH_MAX, decode, decode_all, skip
from overlane.amqp.codec.encoding import encode
from overlane.amqp.codec.framing import Framer, frame_of, transfer_body
from overlane.amqp.codec.malformed import Malformed
from overlane.amqp.codec.performatives import Open, Transfer
from overlane.amqp.codec.transfers import read_transfer
from overlane.amqp.codec.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Uuid,
)

ascii_text = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 2**8 - 1).map(UByte),
    st.integers(0, 2**16 - 1).map(UShort),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(-(2**7), 2**7 - 1).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Timestamp),
    st.floats(width=32, allow_nan=False).map(Float),
    st.floats(allow_nan=False),
    st.characters(codec="utf-8").map(Char),
    st.binary(max_size=300),
    st.binary(min_size=16, max_size=16).map(Uuid),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
    st.text(max_size=300),
    ascii_text.map(Symbol),
)
arrays = st.one_of(
    st.lists(ascii_text.map(Symbol), max_size=5).map(lambda some: Array(b"\xb3", tuple(some))),
    st.lists(st.integers(-128, 127).map(Int), max_size=5).map(lambda some: Array(b"\x71", tuple(some))),
    st.lists(st.integers(0, 255).map(ULong), max_size=5).map(lambda some: Array(b"\x80", tuple(some))),
    st.lists(st.booleans(), max_size=5).map(lambda some: Array(b"\x56", tuple(some))),
    st.lists(st.lists(st.booleans(), max_size=3), max_size=3).map(lambda some: Array(b"\xd0", tuple(some))),
)
values = st.recursive(
    scalars | arrays,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(scalars.filter(lambda key: not isinstance(key, bool | float)), inner, max_size=5),
        st.builds(Described, ascii_text.map(Symbol), inner),
    ),
    max_leaves=20,
)


def typed(value: object) -> object:
    """A value that differs from another one of a different type."""
    match value:
        case Described(descriptor, inner):
            return "described", typed(descriptor), typed(inner)
        case Array(constructor, items):
            return "array", constructor, [typed(one) for one in items]
        case list():
            return [typed(one) for one in value]
        case dict():
            return [(typed(key), typed(one)) for key, one in value.items()]
        case _:
            return type(value), value


@given(values)
def test_every_value_is_read_as_it_was_written(value: object) -> None:
    data = encode(value)
    assert typed(decode_all(data)) == typed(value)
    assert skip(data, 0) == len(data)


@given(values, st.data())
def test_a_value_that_ends_too_early_is_malformed(value: object, data: st.DataObject) -> None:
    encoded = encode(value)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(Malformed):
        decode_all(encoded[:cut])


@given(st.binary(max_size=200))
def test_garbage_is_a_value_or_malformed(data: bytes) -> None:
    try:
        _, end = decode(data)
    except Malformed:
        return
    assert skip(data, 0) == end <= len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xd0\x00\x00\x00\x05\xff\xff\xff\xff\x40",
        b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40",
        b"\xf0\x00\x00\x00\x09\xff\xff\xff\xff\x70\x00\x00\x00\x00",
        b"\xb0\xff\xff\xff\xff",
        b"\xc1\x03\x03\x41\x41",
        b"\xc1\x04\x02\x45\x41\x41",
    ],
)
def test_sizes_and_counts_are_checked_before_anything_is_allocated(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_all(data)


def test_the_depth_of_nested_values_is_limited() -> None:
    nested = b"\x45"
    for _ in range(DEPTH_MAX + 1):
        nested = b"\xc0" + bytes((len(nested) + 1, 1)) + nested
    with pytest.raises(Malformed, match="nested"):
        decode_all(nested)
    with pytest.raises(Malformed):
        decode_all(b"\x00" * 10_000)


@pytest.mark.parametrize(
    ("data", "value"),
    [  # The examples of part 1 of the standard, and what Apache Qpid Proton 0.40 writes.
        (bytes.fromhex("56 01"), True),
        (bytes.fromhex("a1 1e") + b"Hello Glorious Messaging World", "Hello Glorious Messaging World"),
        (bytes.fromhex("b1 00000002 6869"), "hi"),
        (
            bytes.fromhex("00 a1 03 55524c a1 1e") + b"http://example.org/hello-world",
            Described("URL", "http://example.org/hello-world"),
        ),
        (bytes.fromhex("e0 04 02 a3 00 00"), Array(b"\xa3", (Symbol(""), Symbol("")))),
        (bytes.fromhex("e0 09 02 a3 02 6162 03 636465"), Array(b"\xa3", (Symbol("ab"), Symbol("cde")))),
        (
            bytes.fromhex("f0 0000000c 00000002 71 00000001 00000002")[:4]
            + b"\x0d"
            + bytes.fromhex("00000002 71 00000001 00000002"),
            Array(b"\x71", (Int(1), Int(2))),
        ),
    ],
)
def test_values_written_by_others_are_read(data: bytes, value: object) -> None:
    assert typed(decode_all(data)) == typed(value)


def test_composites_are_checked() -> None:
    assert composites.read(composites.write(Open("me", max_frame_size=512)), 0)[0] == Open("me", max_frame_size=512)
    for wrong in (
        Described(ULong(0x10), []),
        Described(ULong(0x10), [None]),
        Described(ULong(0x10), [b"binary"]),
        Described(ULong(0x10), ["me", None, ULong(2**32)]),
        Described(ULong(0x10), ["me", None, True]),
        Described(ULong(0x10), ["me"] * 11),
        Described(ULong(0x10), {}),
        Described(ULong(0x12), ["name", UInt(0), True, None, None, Described(ULong(0x28), [None, "x"])]),
    ):
        with pytest.raises(Malformed):
            composites.compose(wrong)
    by_name = Described(Symbol("amqp:open:list"), ["me"])
    assert composites.compose(by_name) == Open("me")


@given(st.lists(values, max_size=14), st.sampled_from([0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x41]))
def test_composites_of_anything_are_read_or_malformed(fields: list[object], code: int) -> None:
    data = encode(Described(ULong(code), fields))
    with contextlib.suppress(Malformed):
        composites.read(data, 0)


@given(
    st.integers(0, 2**32 - 1),
    st.none() | st.integers(0, 2**32 - 1),
    st.none() | st.binary(max_size=32),
    st.none() | st.integers(0, 300),
    st.none() | st.booleans(),
    st.none() | st.booleans(),
    st.binary(max_size=20),
)
def test_transfers_are_read_alike_by_the_short_way_and_the_general_one(
    handle: int,
    delivery_id: int | None,
    tag: bytes | None,
    message_format: int | None,
    settled: bool | None,
    more: bool | None,
    payload: bytes,
) -> None:
    transfer = Transfer(handle, delivery_id, tag, message_format, settled, more)
    data = composites.write(transfer)
    assert read_transfer(data + payload) == (transfer, len(data)) == composites.read(data + payload, 0)


def test_the_short_way_to_write_a_transfer_writes_the_same() -> None:
    transfer = Transfer(3, 70_000, b"tag", 0, False, True)
    assert transfer_body(3, 70_000, b"tag", False, True) == composites.write(transfer)


@given(st.binary(max_size=60))
def test_a_transfer_of_garbage_is_read_or_malformed(rest: bytes) -> None:
    with contextlib.suppress(Malformed):
        read_transfer(b"\x00\x53\x14\xc0" + rest)


def test_frames_are_found_wherever_the_bytes_are_cut() -> None:
    frames = [Open("one"), Open("two" * 50), Open("three")]
    data = b"".join(frame_of(at, one) for at, one in enumerate(frames))
    for size in (1, 2, 3, 7, len(data)):
        framer, found = Framer(1_000), []
        for at in range(0, len(data), size):
            framer.feed(data[at : at + size])
            while (taken := framer.take_frame()) is not None:
                found.append((taken[1], composites.read(taken[2], 0)[0]))
        assert found == list(enumerate(frames))
        assert framer.waiting_bytes == 0


def test_a_frame_that_is_too_large_is_refused_by_its_first_four_bytes() -> None:
    framer = Framer(512)
    framer.feed(b"\x00\x00\x02\x01")
    with pytest.raises(Malformed, match="at most 512"):
        framer.take_frame()
    for wrong in (b"\x00\x00\x00\x07", b"\x00\x00\x00\x08\x01\x00\x00\x00", b"\x00\x00\x00\x08\x03\x00\x00\x00"):
        framer = Framer(512)
        framer.feed(wrong)
        with pytest.raises(Malformed):
            framer.take_frame()
