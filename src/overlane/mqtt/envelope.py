"""An MQTT message as the overlay carries it: eight flags and a body.

    flags   bit 0 retain | bits 1-2 QoS | bit 3 properties ahead of the payload | bit 4 a run | bit 5 of MQTT 5
            bit 6 a run of one short packet, of which only the payload is carried: the rest follows from the topic
    body    [ length varint | properties | ] payload
    run     number of messages u32 | their PUBLISH packets as a client sent them, all plain and of one topic

The properties are those of MQTT 5 that a server passes on, and the expiry interval, as of when the message was sent.
"""

from overlane.core.topics import check_topic
from overlane.core.units import Nanos
from overlane.mqtt import writing
from overlane.mqtt.fields import variable, write_variable
from overlane.mqtt.message import Message, expires

RETAIN = 0x01
QOS_SHIFT = 1
QOS_MASK = 0x06
PROPERTIES = 0x08
RUN = 0x10
RUN_OF_V5 = 0x20
LONE = 0x40
LANE = RUN | LONE
"""Plain messages, one way or the other."""

PACKET_BYTES_MIN = 5
"""No PUBLISH packet is shorter: a run of so many bytes has at most so many of them, whatever it says."""

_EXPIRY_FIRST = b"\x02"
_EXPIRY_BYTES = 5


def pack(message: Message, now: Nanos) -> tuple[int, bytes]:
    flags = (RETAIN if message.retain else 0) | message.qos << QOS_SHIFT
    properties = message.properties
    if (remaining_s := message.remaining_s(now)) is not None:
        properties = writing.expiry_property(remaining_s) + properties
    if not properties:
        return flags, message.payload
    return flags | PROPERTIES, write_variable(len(properties)) + properties + message.payload


def unpack(topic: str, flags: int, body: bytes, published_ns: Nanos) -> Message:
    """ValueError or IndexError if the body does not hold what the flags say: no client gets bytes that are no MQTT."""
    check_topic(topic)
    properties, payload, expiry_s = b"", body, None
    if flags & PROPERTIES:
        length, start = variable(body, 0)
        if start + length > len(body):
            raise ValueError("properties longer than the body")
        properties, payload = body[start : start + length], body[start + length :]
        expiry_s = _expiry_of(properties)
        if expiry_s is not None:
            properties = properties[_EXPIRY_BYTES:]
    return Message(
        topic,
        payload,
        min(2, (flags & QOS_MASK) >> QOS_SHIFT),
        bool(flags & RETAIN),
        properties,
        published_ns=published_ns,
        expires_ns=expires(published_ns, expiry_s),
    )


def _expiry_of(properties: bytes) -> int | None:
    """ValueError if these are not properties that a server passes on, with the expiry in front."""
    read = writing.read_properties(properties)
    if read.subscription_ids or read.topic_alias is not None:
        raise ValueError("properties that are for one connection only")
    if read.message_expiry_interval is not None and properties[:1] != _EXPIRY_FIRST:
        raise ValueError("the expiry is not in front")
    return read.message_expiry_interval


def pack_run(run: bytes, count: int, is_v5: bool) -> tuple[int, bytes]:
    return RUN | (RUN_OF_V5 if is_v5 else 0), count.to_bytes(4) + run


def pack_lone(payload: bytes, is_v5: bool) -> tuple[int, bytes]:
    return LONE | RUN_OF_V5 if is_v5 else LONE, payload


def unpack_run(flags: int, body: bytes) -> tuple[bytes, int, bool]:
    """The packets, how many they are, and whether they are of MQTT 5."""
    return body[4:], int.from_bytes(body[:4]), bool(flags & RUN_OF_V5)


def bytes_behind_properties(body: bytes) -> int:
    """Of the payload, as far as the body can be read."""
    try:
        length, start = variable(body, 0)
    except (ValueError, IndexError):
        return len(body)
    return max(0, len(body) - start - length)


def size_of_run(flags: int, body: bytes) -> tuple[int, int]:
    """How many messages it holds, or says to hold where so many can be in it; and the bytes of their payloads, as if
    all had heads as long as the first: where some are short and some long, a byte more or less for each."""
    run_bytes = max(0, len(body) - 4)
    count = max(1, min(int.from_bytes(body[:4]), run_bytes // PACKET_BYTES_MIN))
    topic_at = 7 if body[5:6] > b"\x7f" else 6
    head_bytes = topic_at - 2 + int.from_bytes(body[topic_at : topic_at + 2]) + bool(flags & RUN_OF_V5)
    return count, max(0, run_bytes - count * head_bytes)
