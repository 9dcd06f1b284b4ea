"""A parcel's inside: the end-to-end part that only its source and its destinations read.

    flow incarnation u32 | flow u32 | flow sequence u32 | floor u32 | after u32 | predecessors u8
    per predecessor: incarnation u32 | flow u32 | sequence u32 | brokers u16 | ids u64 ...
    topics u16 | per topic: length u16, UTF-8
    per message, column by column: topic index u16 ... (not for one topic) | length u32 ... | flags u8 ... | bodies

A *flow* is what one source sends to one set of destinations in one QoS class. Its sequence numbers have no gaps, so
that every destination sees what is missing. `floor` is the oldest sequence the source still cares for; what lies
below it and has not come will not come. `after` orders messages: a parcel may be delivered when everything up to
`after` has been. A *predecessor* does the same for a topic that moved here from another flow; it binds only the
brokers it names.

Columns instead of records: the lengths of all messages are unpacked by one call, and the bodies are plain slices.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise, repeat
from typing import NamedTuple

MESSAGES_MAX = 4096
PARCEL_BYTES_MAX = 64 * 1024
"""What is published in one turn is cut into parcels of this size; a single larger message makes one of its own."""

MESSAGE_BYTES_MAX = (1 << 20) - 8192
"""Topic and body together."""
TOPICS_MAX = 0xFFFF
LONE_TOPICS_REMEMBERED = 10_000
PREDECESSORS_MAX = 255

_FLOW = struct.Struct("!IIIIIB")
_LONE = struct.Struct("!IIIIIBHH")
_LONE_TOPIC = struct.Struct("!HH")
_LONE_BODY = struct.Struct("!IB")
_PREDECESSOR = struct.Struct("!IIIH")
_U16 = struct.Struct("!H")


class BadContent(ValueError):
    """The inside of a parcel is not what this module writes."""


class Predecessor(NamedTuple):
    incarnation: int
    flow: int
    sequence: int
    brokers: tuple[int, ...]


class FlowPart(NamedTuple):
    """Where a parcel stands in its flow."""

    incarnation: int
    flow: int
    sequence: int
    floor: int
    after: int
    predecessors: tuple[Predecessor, ...] = ()


_new_tuple = tuple.__new__

Message = tuple[str, int, bytes]
"""Topic, flags and body. A plain tuple: making an object of a class per message costs more than all the rest."""


Lone = tuple[tuple[int, int], int, int, Message]
"""The name of a flow, a place in it, what that comes after, and the message."""


Columns = tuple[tuple[str, ...], tuple[int, ...], tuple[bytes, ...]]
"""The topics, flags and bodies of messages."""


def cut(messages: Sequence[Message]) -> Iterator[Columns]:
    """The messages of a turn, in as many parcels as they need."""
    columns: Columns = tuple(zip(*messages, strict=True))  # type: ignore[assignment]
    topics, _, bodies = columns
    if len(bodies) <= MESSAGES_MAX and sum(map(len, bodies)) + 4 * sum(map(len, topics)) <= PARCEL_BYTES_MAX:
        yield columns
        return
    piece: list[Message] = []
    size = 0
    for message in messages:
        more = len(message[2]) + 4 * len(message[0])
        if piece and (size + more > PARCEL_BYTES_MAX or len(piece) >= MESSAGES_MAX):
            yield tuple(zip(*piece, strict=True))  # type: ignore[misc]
            piece, size = [], 0
        piece.append(message)
        size += more
    yield tuple(zip(*piece, strict=True))  # type: ignore[misc]


def pack_messages(columns: Columns) -> bytes:
    topics, flags, bodies = columns
    count = len(bodies)
    lengths = struct.pack(f"!{count}I", *map(len, bodies))
    if topics.count(topics[0]) == count:
        encoded = topics[0].encode()
        return b"".join((b"\0\1", _U16.pack(len(encoded)), encoded, lengths, bytes(flags), *bodies))
    indices = {topic: index for index, topic in enumerate(dict.fromkeys(topics))}
    names = [_U16.pack(len(indices))]
    for topic in indices:
        encoded = topic.encode()
        names += (_U16.pack(len(encoded)), encoded)
    order = struct.pack(f"!{count}H", *map(indices.__getitem__, topics))
    return b"".join((*names, order, lengths, bytes(flags), *bodies))


def pack_lone(name: tuple[int, int], sequence: int, after: int, message: Message) -> bytes:
    """The whole end-to-end part of a best-effort parcel of one message, which comes after nothing of another flow."""
    topic, flags, body = message
    flow = _FLOW.pack(*name, sequence, 0, after, 0)
    return b"".join((flow, _lone_topic(topic), _LONE_BODY.pack(len(body), flags), body))


@lru_cache(maxsize=LONE_TOPICS_REMEMBERED)
def _lone_topic(topic: str) -> bytes:
    encoded = topic.encode()
    return _LONE_TOPIC.pack(1, len(encoded)) + encoded


def pack_flow(part: FlowPart) -> bytes:
    head = _FLOW.pack(*part[:5], len(part.predecessors))
    if not part.predecessors:
        return head
    return head + b"".join(
        _PREDECESSOR.pack(p.incarnation, p.flow, p.sequence, len(p.brokers))
        + struct.pack(f"!{len(p.brokers)}Q", *p.brokers)
        for p in part.predecessors
    )


def unpack_flow(rest: bytes | memoryview) -> tuple[FlowPart, int]:
    """Where the parcel stands in its flow, and where its messages begin."""
    try:
        read = _FLOW.unpack_from(rest)
        position = _FLOW.size
        if not read[5]:
            return _new_tuple(FlowPart, (*read[:5], ())), position
        predecessors = []
        for _ in range(read[5]):
            life, other, last, brokers = _PREDECESSOR.unpack_from(rest, position)
            position += _PREDECESSOR.size
            predecessors.append(Predecessor(life, other, last, struct.unpack_from(f"!{brokers}Q", rest, position)))
            position += 8 * brokers
    except struct.error as short:
        raise BadContent(f"a truncated flow part: {short}") from None
    return _new_tuple(FlowPart, (*read[:5], tuple(predecessors))), position


def unpack_lone(content: bytes, position: int) -> Lone | None:
    """What `pack_lone` has made, from `position` on; None if it is something else, perhaps something wrong."""
    try:
        incarnation, flow, sequence, _, after, predecessors, topics, size = _LONE.unpack_from(content, position)
        position += _LONE.size + size
        length, flags = _LONE_BODY.unpack_from(content, position)
        if predecessors or topics != 1 or position + _LONE_BODY.size + length != len(content):
            return None
        message = content[position - size : position].decode(), flags, content[position + _LONE_BODY.size :]
    except (struct.error, UnicodeDecodeError):
        return None
    return (incarnation, flow), sequence, after, message


def unpack_messages(content: bytes, position: int, count: int) -> list[Message]:
    """The messages from `position` on. Everything is checked before the first is made."""
    return _unpack_lone(content, position) if count == 1 else _unpack_many(content, position, count)


def _unpack_many(content: bytes, position: int, count: int) -> list[Message]:
    try:
        (topic_count,) = _U16.unpack_from(content, position)
        position += 2
        topics = []
        for _ in range(topic_count):
            (size,) = _U16.unpack_from(content, position)
            position += 2 + size
            topics.append(content[position - size : position].decode())
        order: tuple[int, ...] = ()
        if topic_count != 1:
            order = struct.unpack_from(f"!{count}H", content, position)
            position += 2 * count
        lengths = struct.unpack_from(f"!{count}I", content, position)
    except (struct.error, UnicodeDecodeError) as wrong:
        raise BadContent(f"messages that cannot be read: {wrong}") from None
    position += 4 * count
    ends = list(accumulate(lengths, initial=position + count))
    if ends[-1] != len(content) or (order and max(order) >= topic_count):
        raise BadContent("messages that do not fill their parcel")
    named: Iterable[str] = map(topics.__getitem__, order) if order else repeat(topics[0], count)
    return list(zip(named, content[position:], [content[a:b] for a, b in pairwise(ends)], strict=False))


def _unpack_lone(content: bytes, position: int) -> list[Message]:
    """The same for one message, which is what most parcels have while there is little to do."""
    try:
        topics, size = _LONE_TOPIC.unpack_from(content, position)
        if topics != 1:
            return _unpack_many(content, position, 1)
        position += _LONE_TOPIC.size + size
        topic = content[position - size : position].decode()
        length, flags = _LONE_BODY.unpack_from(content, position)
    except (struct.error, UnicodeDecodeError) as wrong:
        raise BadContent(f"messages that cannot be read: {wrong}") from None
    position += _LONE_BODY.size
    if position + length != len(content):
        raise BadContent("messages that do not fill their parcel")
    return [(topic, flags, content[position:])]
