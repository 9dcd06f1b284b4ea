"""A PUBLISH as it comes in: read by hand where it has no properties, through the codec where it has.

Most messages have none, and then there is little to read. Whatever is unusual goes to the codec, which knows what is
wrong with it.
"""

from typing import NamedTuple

import mqtt5

from overlane.mqtt.codec import codec5, codec311, writing
from overlane.mqtt.codec.codec5 import Bounds
from overlane.mqtt.codec.malformed import PROTOCOL_ERROR, Malformed
from overlane.mqtt.connection import V5

PUBLISH = 0x30


class Incoming(NamedTuple):
    """`properties`: those that a server passes on, encoded."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    packet_id: int
    properties: bytes = b""
    expiry_s: int | None = None
    alias: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    is_repeated: bool = False


def read_publish(data: memoryview, version: int, bounds: Bounds) -> Incoming:
    """Malformed if it is not right."""
    return _by_hand(data, version) or _by_codec(data, version, bounds)


def _by_hand(data: memoryview, version: int) -> Incoming | None:
    first = data[0]
    qos = first >> 1 & 3
    if qos == 3 or (first & 0x08 and not qos):
        return None
    position = 2
    while position <= len(data) and data[position - 1] & 0x80:
        position += 1
    if position > 2 and not data[position - 1]:
        return None  # a length of more bytes than it needs
    middle = position + 2 + (data[position] << 8) + data[position + 1] if position + 2 <= len(data) else 0
    payload = middle + (2 if qos else 0) + (version == V5)
    if middle <= position + 2 or payload > len(data) or (version == V5 and data[payload - 1]):
        return None
    packet_id = (data[middle] << 8) + data[middle + 1] if qos else 0
    if qos and not packet_id:
        return None
    try:
        topic = str(data[position + 2 : middle], "utf-8")
    except UnicodeDecodeError:
        return None
    if "\0" in topic:
        return None
    return Incoming(topic, bytes(data[payload:]), qos, bool(first & 1), packet_id, is_repeated=bool(first & 0x08))


def _by_codec(data: memoryview, version: int, bounds: Bounds) -> Incoming:
    packet = codec5.read(data, bounds) if version == V5 else codec311.read(data, bounds)
    assert isinstance(packet, mqtt5.PublishPacket)
    if packet.subscription_ids:
        raise Malformed(PROTOCOL_ERROR, "a subscription identifier is sent only by servers")
    return Incoming(
        packet.topic,
        packet.payload,
        int(packet.qos),
        packet.retain,
        packet.packet_id or 0,
        writing.properties_of(packet),
        packet.message_expiry_interval,
        packet.topic_alias,
        tuple(packet.user_properties),
        packet.duplicate,
    )
