"""Runs under other names: where topics have other names in the overlay than at this broker (`pubsub.cluster.renaming`).

Every packet of a run contains its topic, so all of them are written anew. A run stays a run; if a message of it becomes
too long for that, all of its messages are carried one by one.
"""

from collections.abc import Callable, Sequence

from overlane.core.topics import check_topic
from overlane.core.wire.parcel import MIXED_RUN, Message
from overlane.mqtt.codec.framing import packet_end
from overlane.mqtt.runs import LONE, PLAIN, RUN, RUN_OF_V5, pack_lone, pack_run, unpack_run
from overlane.pubsub.cluster.envelope import PROPERTIES
from overlane.pubsub.properties import encode_length

TOPIC_BYTES_MAX = 255
LENGTH_MAX = 0x3FFF
PROPERTIES_MAX = 0x7F
LONE_LENGTH_MAX = 0x7F

Plain = tuple[str, bytes, bytes]
"""Topic, properties and payload."""


def rename_run(
    topic: str,
    flags: int,
    body: bytes,
    name_of: Callable[[str], str | None],
    properties_of: Callable[[bytes], bytes],
) -> tuple[Sequence[str], Sequence[Message]]:
    """A run, or a mixed run, under other names: the topics of its messages, and what carries them. Messages without a
    name are left out. ValueError or IndexError if it cannot be read."""
    is_v5 = flags & RUN_OF_V5 != 0
    messages: list[Plain] = []
    for old, properties, payload in _opened(topic, flags, body, is_v5):
        new = name_of(old)
        if new is not None:
            messages.append((new, properties_of(properties) if properties else properties, payload))
    if not messages:
        return (), ()
    topics = [new for new, _, _ in messages]
    if flags & LONE:
        new, _, payload = messages[0]
        if 2 + len(new.encode()) + is_v5 + len(payload) <= LONE_LENGTH_MAX:
            return topics, [(new, *pack_lone(payload, is_v5))]
    elif all(_is_short(*one, is_v5) for one in messages):
        packets = b"".join([_packet(*one, is_v5) for one in messages])
        return topics, [(MIXED_RUN if topic == MIXED_RUN else topics[0], *pack_run(packets, len(messages), is_v5))]
    return topics, [_single(*one) for one in messages]


def _opened(topic: str, flags: int, body: bytes, is_v5: bool) -> list[Plain]:
    if flags & LONE:
        return [(topic, b"", body)]
    if not flags & RUN:
        raise ValueError("not a run")
    run, count, _ = unpack_run(flags, body)
    messages: list[Plain] = []
    position, end = 0, len(run)
    while position < end:
        following = packet_end(run, position)
        topic_at = position + (2 if run[position + 1] < 0x80 else 3)
        middle = topic_at + 2 + int.from_bytes(run[topic_at : topic_at + 2])
        payload = middle
        if is_v5:
            payload = middle + 1 + run[middle]
            if run[middle] > PROPERTIES_MAX:
                raise ValueError("properties too long for a run")
        if run[position] != PLAIN or payload > following or following > end:
            raise ValueError("not a plain packet")
        name = run[topic_at + 2 : middle].decode()
        check_topic(name)
        if topic not in (MIXED_RUN, name):
            raise ValueError("not a run of messages on one topic")
        messages.append((name, run[middle + 1 : payload], run[payload:following]))
        position = following
    if len(messages) != count:
        raise ValueError("not as many messages as it says")
    return messages


def _is_short(topic: str, properties: bytes, payload: bytes, is_v5: bool) -> bool:
    size = len(topic.encode())
    return (
        size <= TOPIC_BYTES_MAX
        and len(properties) <= PROPERTIES_MAX
        and 2 + size + is_v5 + len(properties) + len(payload) <= LENGTH_MAX
    )


def _packet(topic: str, properties: bytes, payload: bytes, is_v5: bool) -> bytes:
    name = topic.encode()
    head = len(name).to_bytes(2) + name
    if is_v5:
        head += bytes((len(properties),)) + properties
    return bytes((PLAIN,)) + encode_length(len(head) + len(payload)) + head + payload


def _single(topic: str, properties: bytes, payload: bytes) -> Message:
    if not properties:
        return topic, 0, payload
    return topic, PROPERTIES, encode_length(len(properties)) + properties + payload
