"""Packets that a server writes by the thousand: PUBLISH and its acknowledgements, for both versions, without objects.

    PUBLISH   0x30 + flags | length | topic | packet id, if QoS > 0 | properties, if version 5 | payload
    ack       type | length | packet id | reason, if version 5 and no success

Properties travel encoded, as the list without its length in front. A server passes those of the message on untouched
and appends what it has to say itself: what remains of the expiry, the identifiers of the subscriptions, an alias.
Version 3.1.1 has no properties and no reasons, and leaves them out. 3.1 writes like 3.1.1.
"""

from struct import Struct
from typing import Final

import mqtt5

from overlane.mqtt.codec import codec5
from overlane.mqtt.codec.fields import write_binary, write_text, write_variable

PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70

PINGREQ: Final = b"\xc0\x00"
PINGRESP: Final = b"\xd0\x00"

TAG = Struct("!H").pack
"""What a PUBLISH of QoS 1 without properties has between its topic and its payload: the packet identifier."""
TAG_V5 = Struct("!Hx").pack
"""The same in version 5, where the length of the properties follows."""

_V5 = 5
_SMALL = Struct("!BBH").pack
_U16 = Struct("!H").pack
_ACK = Struct("!BBH").pack
_ACK_REASON = Struct("!BBHB").pack
_EXPIRY = Struct("!BI").pack
_ALIAS = Struct("!BH").pack


def publish(
    version: int,
    topic_utf8: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    properties: bytes,
) -> bytes:
    """`packet_id` is left out at QoS 0, `properties` (without their length) in versions before 5."""
    first = 0x30 | qos << 1
    if retain:
        first |= 1
    if dup:
        first |= 8
    middle = _U16(packet_id) if qos else b""
    if version == _V5:
        middle += write_variable(len(properties)) + properties if properties else b"\0"
    topic_bytes = len(topic_utf8)
    length = 2 + topic_bytes + len(middle) + len(payload)
    if length < 0x80:
        return b"".join((_SMALL(first, length, topic_bytes), topic_utf8, middle, payload))
    return b"".join((bytes((first,)), write_variable(length), _U16(topic_bytes), topic_utf8, middle, payload))


def ack(version: int, kind: int, packet_id: int, reason: int = 0) -> bytes:
    """`kind` is PUBACK, PUBREC, PUBREL or PUBCOMP."""
    if reason and version == _V5:
        return _ACK_REASON(kind, 3, packet_id, reason)
    return _ACK(kind, 2, packet_id)


def properties_of(packet: mqtt5.PublishPacket | mqtt5.Will) -> bytes:
    """Those properties of a message that a server passes on unaltered (MQTT 5, section 3.3.2.3)."""
    written = b""
    if packet.payload_format_indicator:
        written += b"\x01\x01"
    if packet.content_type is not None:
        written += b"\x03" + write_text(packet.content_type)
    if packet.response_topic is not None:
        written += b"\x08" + write_text(packet.response_topic)
    if packet.correlation_data is not None:
        written += b"\x09" + write_binary(packet.correlation_data)
    if pairs := packet.user_properties:
        written += b"".join([b"\x26" + write_text(name) + write_text(value) for name, value in pairs])
    return written


def read_properties(properties: bytes) -> mqtt5.PublishPacket:
    """Encoded properties as those of a packet, whose topic and payload say nothing."""
    packet = codec5.read(publish(_V5, b"-", b"", 0, False, False, 0, properties))
    assert isinstance(packet, mqtt5.PublishPacket)
    return packet


def expiry_property(seconds: int) -> bytes:
    return _EXPIRY(0x02, seconds)


def subscription_id_property(subscription_id: int) -> bytes:
    return b"\x0b" + write_variable(subscription_id)


def topic_alias_property(alias: int) -> bytes:
    return _ALIAS(0x23, alias)
