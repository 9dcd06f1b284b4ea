"""A message as the overlay carries it: eight flags and a body.

    flags   bit 0 retain | bits 1-2 QoS | bit 3 properties ahead of the payload
            bit 7 of a handout: it was requested
            bits 4-6 a run of plain messages, as the protocol of their publisher encodes them (`mqtt.runs`)
    body    [ length varint | properties | ] payload

The properties are those of the message, preceded by the expiry interval at the time of sending.
"""

from overlane.core.topics import check_topic
from overlane.core.units import Nanos
from overlane.pubsub.message import Message, expires
from overlane.pubsub.properties import decode_length, decode_with_expiry, encode_expiry, encode_length

RETAIN = 0x01
QOS_SHIFT = 1
QOS_MASK = 0x06
PROPERTIES = 0x08
ASKED = 0x80
"""Of a handout: the filter of its receiver is the reason for it."""
RUN_MASK = 0x50
"""A run, in one of its two forms."""

_EXPIRY_BYTES = 5


def pack(message: Message, now: Nanos) -> tuple[int, bytes]:
    flags = (RETAIN if message.retain else 0) | message.qos << QOS_SHIFT
    properties = message.encoded
    if (remaining_s := message.remaining_s(now)) is not None:
        properties = encode_expiry(remaining_s) + properties
    if not properties:
        return flags, message.payload
    return flags | PROPERTIES, encode_length(len(properties)) + properties + message.payload


def unpack(topic: str, flags: int, body: bytes, published_ns: Nanos) -> Message:
    """ValueError or IndexError if the body does not hold what the flags say: consumers get what is sound."""
    check_topic(topic)
    encoded, payload, expiry_s = b"", body, None
    if flags & PROPERTIES:
        length, start = decode_length(body)
        if start + length > len(body):
            raise ValueError("properties longer than the body")
        encoded, payload = body[start : start + length], body[start + length :]
        _, expiry_s = decode_with_expiry(encoded)
        if expiry_s is not None:
            encoded = encoded[_EXPIRY_BYTES:]
    return Message(
        topic,
        payload,
        min(2, (flags & QOS_MASK) >> QOS_SHIFT),
        bool(flags & RETAIN),
        encoded,
        published_ns=published_ns,
        expires_ns=expires(published_ns, expiry_s),
    )


def bytes_behind_properties(body: bytes) -> int:
    """Of the payload, as far as the body can be read."""
    try:
        length, start = decode_length(body)
    except (ValueError, IndexError):
        return len(body)
    return max(0, len(body) - start - length)
