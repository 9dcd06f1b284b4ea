"""What is written without objects is what the codecs write and read."""

import mqtt5
import pytest
from any_packets import IDS, PAIRS, SUBSCRIPTION_IDS, TOPICS, U32, WILLS, publishes
from hypothesis import given
from hypothesis import strategies as st

from overlane.mqtt.codec import codec5, codec311, writing
from overlane.mqtt.codec.malformed import Malformed

QOS = st.integers(0, 2)
PAYLOADS = st.binary(max_size=200)


def of_publish(data: bytes, version: int) -> mqtt5.PublishPacket:
    packet = codec5.read(data) if version == 5 else codec311.read(data)
    assert isinstance(packet, mqtt5.PublishPacket)
    return packet


@given(TOPICS, PAYLOADS, QOS, st.booleans(), st.booleans(), IDS, PAIRS)
def test_a_publish_is_what_the_codec_of_mqtt_5_writes(
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    pairs: list[tuple[str, str]],
) -> None:
    packet = mqtt5.PublishPacket(
        topic,
        payload,
        qos=mqtt5.QoS(qos),
        retain=retain,
        packet_id=packet_id if qos else None,
        duplicate=dup and qos > 0,
        user_properties=pairs,
    )
    properties = writing.properties_of(packet)
    data = writing.publish(5, topic.encode(), payload, qos, retain, dup and qos > 0, packet_id, properties)
    assert data == codec5.write(packet)


@pytest.mark.parametrize("version", [3, 4])
@given(TOPICS, PAYLOADS, QOS, st.booleans(), st.booleans(), IDS)
def test_a_publish_is_what_the_codec_of_3_1_1_writes_whatever_its_properties(
    version: int, topic: str, payload: bytes, qos: int, retain: bool, dup: bool, packet_id: int
) -> None:
    packet = mqtt5.PublishPacket(
        topic,
        payload,
        qos=mqtt5.QoS(qos),
        retain=retain,
        packet_id=packet_id if qos else None,
        duplicate=dup and qos > 0,
    )
    data = writing.publish(
        version, topic.encode(), payload, qos, retain, dup and qos > 0, packet_id, writing.expiry_property(9)
    )
    assert data == codec311.write(packet)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("border", [128, 16_384, 2_097_152])
def test_a_publish_is_read_on_both_sides_of_every_size_of_its_length(version: int, qos: int, border: int) -> None:
    for payload_bytes in range(border - 12, border + 2):
        payload = bytes(payload_bytes)
        got = of_publish(writing.publish(version, b"a", payload, qos, False, False, 7, b""), version)
        assert (got.topic, got.payload == payload, got.packet_id) == ("a", True, 7 if qos else None)


@pytest.mark.parametrize("border", [128, 16_384, 2_097_152])
def test_properties_are_read_on_both_sides_of_every_size_of_their_length(border: int) -> None:
    names = "n" * 1000
    for last_bytes in range(40):
        pairs = (
            [(names, "")] * ((border - 30) // 1005) + [("x" * ((border - 30) % 1005), "")] + [("y" * last_bytes, "")]
        )
        properties = writing.properties_of(mqtt5.PublishPacket("-", b"", user_properties=pairs))
        got = of_publish(writing.publish(5, b"a", b"payload", 0, False, False, 0, properties), 5)
        assert (got.payload, got.user_properties) == (b"payload", pairs)


def test_a_publish_longer_than_mqtt_can_carry_is_not_written() -> None:
    with pytest.raises(Malformed) as refused:
        writing.publish(5, b"a", bytes(1 << 28), 0, False, False, 0, b"")
    assert refused.value.reason == 0x95


@pytest.mark.parametrize(
    ("kind", "packet"),
    [
        (writing.PUBACK, mqtt5.PubAckPacket(7)),
        (writing.PUBREC, mqtt5.PubRecPacket(7)),
        (writing.PUBREL, mqtt5.PubRelPacket(7)),
        (writing.PUBCOMP, mqtt5.PubCompPacket(7)),
    ],
    ids=["PUBACK", "PUBREC", "PUBREL", "PUBCOMP"],
)
def test_an_acknowledgement_of_success_is_what_the_codecs_write(kind: int, packet: mqtt5.Packet) -> None:
    assert writing.ack(5, kind, 7, 0) == codec5.write(packet)
    assert writing.ack(4, kind, 7, 0) == writing.ack(3, kind, 7, 0) == codec311.write(packet)


def test_a_reason_is_told_in_mqtt_5_and_left_out_before() -> None:
    refused = mqtt5.PubAckPacket(7, reason_code=mqtt5.PubAckReasonCode.NOT_AUTHORIZED)
    unknown = mqtt5.PubRelPacket(0x1234, reason_code=mqtt5.PubRelReasonCode.PACKET_ID_NOT_FOUND)
    assert writing.ack(5, writing.PUBACK, 7, 0x87) == codec5.write(refused)
    assert writing.ack(5, writing.PUBREL, 0x1234, 0x92) == codec5.write(unknown)
    assert writing.ack(4, writing.PUBACK, 7, 0x87) == codec311.write(refused) == b"\x40\x02\x00\x07"


def test_pings_are_what_the_codec_writes() -> None:
    assert codec5.write(mqtt5.PingReqPacket()) == writing.PINGREQ
    assert codec5.write(mqtt5.PingRespPacket()) == writing.PINGRESP


@given(publishes())
def test_properties_that_are_passed_on_are_read_back_and_no_others(packet: mqtt5.PublishPacket) -> None:
    assert writing.read_properties(writing.properties_of(packet)) == mqtt5.PublishPacket(
        "-",
        b"",
        payload_format_indicator=packet.payload_format_indicator,
        content_type=packet.content_type,
        response_topic=packet.response_topic,
        correlation_data=packet.correlation_data,
        user_properties=packet.user_properties,
    )


@given(WILLS)
def test_properties_of_a_will_become_those_of_its_message(will: mqtt5.Will) -> None:
    got = writing.read_properties(writing.properties_of(will))
    assert (got.content_type, got.response_topic, got.correlation_data, got.user_properties) == (
        will.content_type,
        will.response_topic,
        will.correlation_data,
        will.user_properties,
    )
    assert (got.payload_format_indicator, got.message_expiry_interval) == (will.payload_format_indicator, None)


@given(publishes(), U32, st.lists(SUBSCRIPTION_IDS, max_size=3), IDS)
def test_what_a_server_says_itself_is_appended_to_what_it_passes_on(
    packet: mqtt5.PublishPacket, expiry_s: int, ids: list[int], alias: int
) -> None:
    properties = writing.properties_of(packet) + writing.expiry_property(expiry_s)
    properties += b"".join(map(writing.subscription_id_property, ids)) + writing.topic_alias_property(alias)
    got = of_publish(writing.publish(5, b"", b"", 0, False, False, 0, properties), 5)
    assert (got.topic, got.message_expiry_interval, got.subscription_ids, got.topic_alias, got.user_properties) == (
        "",
        expiry_s,
        ids,
        alias,
        packet.user_properties,
    )


def test_properties_that_are_damaged_are_refused() -> None:
    for damaged in (b"\x26\x00", b"\x03\x00\x01\xff", b"\x01\x01\x01\x01"):
        with pytest.raises(Malformed):
            writing.read_properties(damaged)
