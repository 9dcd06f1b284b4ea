"""Properties that pass as they came: what is remembered of earlier messages changes nothing."""

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.mqtt.plain_properties import KNOWN_MAX, PlainProperties

CONTENT_TYPE = b"\x03\x00\x01x"
RESPONSE_TOPIC = b"\x08\x00\x03a/b"
PAIR = b"\x26\x00\x01a\x00\x01b"
ASKED = b"\x26\x00\x09overlane-\x00\x00"
PARTS = [
    CONTENT_TYPE,
    RESPONSE_TOPIC,
    PAIR,
    ASKED,
    b"\x09\x00\x02\x01\x02",
    b"\x09\x00\x04\x03\x00\x01x",  # correlation data that looks like a content type
    b"\x09\x00\x00",
    b"\x01\x01",
    b"\x03\x00\x01\xff",
    b"\x09\x00\x09cut",
]


def end_of(properties: PlainProperties, blob: bytes, payload: bytes, pairs_max: int) -> int:
    data = b"t" + bytes([len(blob)]) + blob + payload
    return properties.end(data, 1, len(data), pairs_max)


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(PARTS), max_size=4), st.sampled_from([b"", *PARTS]), st.integers(0, 2)),
        max_size=30,
    )
)
def test_what_was_seen_before_does_not_change_what_is_plain(
    messages: list[tuple[list[bytes], bytes, int]],
) -> None:
    remembering = PlainProperties()
    for parts, payload, pairs_max in messages:
        blob = b"".join(parts)
        assert end_of(remembering, blob, payload, pairs_max) == end_of(PlainProperties(), blob, payload, pairs_max)


@pytest.mark.parametrize(
    ("blob", "is_plain"),
    [
        (b"", True),
        (CONTENT_TYPE + b"\x09\x00\x01c" + PAIR, True),
        (CONTENT_TYPE + CONTENT_TYPE, False),
        (PAIR * 3, False),
        (ASKED, False),
        (b"\x09\x00\x01c\x09\x00\x01c", False),
        (b"\x09\x00\x05c", False),
        (b"\x08\x00\x01#", False),
    ],
)
def test_properties_are_plain_or_not_also_the_second_time(blob: bytes, is_plain: bool) -> None:
    properties = PlainProperties()
    for _ in range(3):
        assert end_of(properties, blob, b"payload", 2) == (2 + len(blob) if is_plain else 0)


def test_a_part_of_a_payload_is_not_taken_for_a_property() -> None:
    properties = PlainProperties()
    assert end_of(properties, b"\x09\x00\x01c" + PAIR, b"", 2)
    assert end_of(properties, b"\x09\x00\x01c", PAIR, 2) == 2 + 4


def test_what_is_remembered_is_bounded() -> None:
    properties = PlainProperties()
    for number in range(KNOWN_MAX + 10):
        blob = b"\x03\x00\x04" + f"{number:04}".encode()
        assert end_of(properties, blob, b"", 2)
    assert len(properties._known) <= KNOWN_MAX


def test_the_packets_of_a_client_with_changing_correlation_data_are_plain() -> None:
    properties = PlainProperties()
    for number in range(20):
        packet = mqtt5.PublishPacket(
            "t",
            b"x",
            content_type="json",
            correlation_data=bytes([number] * (number % 5)),
            user_properties=[("a", "b")],
        ).write()
        assert properties.end(packet, 5, len(packet), 1) == len(packet) - 1
        assert properties.end(packet, 5, len(packet), 0) == 0
