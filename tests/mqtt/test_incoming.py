"""A PUBLISH read by hand is the PUBLISH that the codec reads, or none."""

import pytest
from any_packets import mutated, publishes, publishes_311
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.mqtt import incoming
from overlane.mqtt.codec import codec5, codec311
from overlane.mqtt.codec.framing import packet_end
from overlane.mqtt.codec.malformed import TOPIC_NAME_INVALID, Malformed

WRITTEN = {5: publishes().map(codec5.write), 4: publishes_311().map(codec311.write)}
CASES = st.sampled_from([4, 5]).flatmap(
    lambda version: st.tuples(
        st.just(version), WRITTEN[version] | mutated(WRITTEN[version]) | mutated(WRITTEN[9 - version])
    )
)


def is_framed(data: bytes) -> bool:
    """Whether it is what the framing gives: one whole PUBLISH."""
    try:
        return data[:1] != b"" and data[0] >> 4 == 3 and packet_end(data, 0) == len(data)
    except Malformed:
        return False


def by_codec(data: bytes, version: int) -> incoming.Incoming | int:
    try:
        return incoming._by_codec(memoryview(data), version, codec5.UNBOUNDED)
    except Malformed as malformed:
        return malformed.reason


@examples(500)
@given(CASES)
def test_what_is_read_by_hand_is_what_the_codec_reads(case: tuple[int, bytes]) -> None:
    version, data = case
    if not is_framed(data):
        return
    read = incoming._by_hand(memoryview(data), version)
    if read is None:
        return
    if "+" in read.topic or "#" in read.topic:
        assert by_codec(data, version) == TOPIC_NAME_INVALID
    else:
        assert read == by_codec(data, version)


@pytest.mark.parametrize("length", [b"\x84\x00", b"\x84\x80\x00", b"\x84\x80\x80\x00"])
def test_a_length_of_more_bytes_than_it_needs_is_left_to_the_codec(length: bytes) -> None:
    # MQTT-1.5.5-1
    assert incoming._by_hand(memoryview(b"\x30" + length + b"\0\1t\0"), 5) is None


@pytest.mark.parametrize("version", [4, 5])
def test_most_messages_are_read_by_hand(version: int) -> None:
    rest = b"\0" if version == 5 else b""
    for qos, packet_id in ((0, b""), (1, b"\0\7"), (2, b"\0\7")):
        body = b"\0\1t" + packet_id + rest + b"payload"
        data = bytes((0x30 | qos << 1, len(body))) + body
        assert incoming._by_hand(memoryview(data), version) == incoming.Incoming(
            "t", b"payload", qos, False, 7 if qos else 0
        )
