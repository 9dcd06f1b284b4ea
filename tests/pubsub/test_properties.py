"""Properties of a message: values to bytes and back, and nothing that is not exactly right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.pubsub.message import Message
from overlane.pubsub.properties import (
    NONE,
    Properties,
    decode,
    decode_length,
    decode_with_expiry,
    encode_expiry,
    encode_length,
)

texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20)
topics = st.text(st.characters(exclude_characters="\0+#", codec="utf-8"), min_size=1, max_size=20)
values = st.builds(
    Properties,
    st.none() | texts,
    st.none() | topics,
    st.none() | st.binary(max_size=20),
    st.booleans(),
    st.lists(st.tuples(texts, texts), max_size=4).map(tuple),
)


@given(values, st.none() | st.integers(0, 0xFFFF_FFFF))
def test_what_is_encoded_is_decoded_to_the_same_values(one: Properties, expiry_s: int | None) -> None:
    encoded = one.encode()
    assert decode(encoded) == one == Message("t", b"", encoded=encoded).properties
    front = b"" if expiry_s is None else encode_expiry(expiry_s)
    assert decode_with_expiry(front + encoded) == (one, expiry_s)


@given(values, st.data())
def test_bytes_that_are_cut_off_or_changed_give_other_values_or_an_error(one: Properties, data: st.DataObject) -> None:
    encoded = bytearray(one.encode() or b"\x01\x00")
    if data.draw(st.booleans()):
        del encoded[data.draw(st.integers(0, len(encoded) - 1)) :]
    else:
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        found, _ = decode_with_expiry(bytes(encoded))
    except ValueError:
        return
    assert decode(found.encode()) == found


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x01\x02",  # payload format 2
        b"\x01\x01\x01\x01",  # twice
        b"\x03\x00\x01",  # ends too early
        b"\x03\x00\x01\x00",  # U+0000
        b"\x03\x00\x01\xff",  # no UTF-8
        b"\x08\x00\x00",  # an empty response topic
        b"\x08\x00\x01#",  # a wildcard
        b"\x01\x01\x02\x00\x00\x00\x01",  # the expiry is not in front
        b"\x0b\x01",  # an identifier of a subscription
        b"\x23\x00\x01",  # a topic alias
        b"\x26\x00\x01a\x00",
    ],
)
def test_what_does_not_belong_to_a_message_is_an_error(encoded: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_with_expiry(encoded)


def test_a_message_has_no_expiry_among_its_properties() -> None:
    assert decode(b"") is NONE
    with pytest.raises(ValueError, match="expiry"):
        decode(encode_expiry(1))


@pytest.mark.parametrize("value", ["x" * 65_536, "a\0b"])
def test_a_text_that_cannot_be_carried_is_not_encoded(value: str) -> None:
    with pytest.raises(ValueError, match="string"):
        Properties(content_type=value).encode()


@given(st.integers(0, (1 << 28) - 1))
def test_a_length_is_read_as_it_was_written(length: int) -> None:
    encoded = encode_length(length)
    assert decode_length(encoded + b"rest") == (length, len(encoded))


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\x80\x80\x80\x80\x01"])
def test_a_length_without_end_is_an_error(encoded: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        decode_length(encoded)
