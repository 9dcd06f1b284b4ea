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
from itertools import accumulate, pairwise, repeat
from typing import NamedTuple

MESSAGES_MAX = 4096
PARCEL_BYTES_MAX = 64 * 1024
"""What is published in one turn is cut into parcels of this size; a single larger message makes one of its own."""

MESSAGE_BYTES_MAX = (1 << 20) - 8192
"""Topic and body together."""
TOPICS_MAX = 0xFFFF
PREDECESSORS_MAX = 255

_FLOW = struct.Struct("!IIIIIB")
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


Message = tuple[str, int, bytes]
"""Topic, flags and body. A plain tuple: making an object of a class per message costs more than all the rest."""


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
        incarnation, flow, sequence, floor, after, count = _FLOW.unpack_from(rest)
        position = _FLOW.size
        predecessors = []
        for _ in range(count):
            life, other, last, brokers = _PREDECESSOR.unpack_from(rest, position)
            position += _PREDECESSOR.size
            predecessors.append(Predecessor(life, other, last, struct.unpack_from(f"!{brokers}Q", rest, position)))
            position += 8 * brokers
    except struct.error as short:
        raise BadContent(f"a truncated flow part: {short}") from None
    return FlowPart(incarnation, flow, sequence, floor, after, tuple(predecessors)), position


def unpack_messages(content: bytes, position: int, count: int) -> list[Message]:
    """The messages from `position` on. Everything is checked before the first is made."""
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
