"""A parcel's inside: the end-to-end part that only its source and its destinations read.

    flow incarnation u32 | flow u32 | flow sequence u32 | floor u32 | after u32 | predecessors u8
    per predecessor: incarnation u32 | flow u32 | sequence u32 | brokers u16 | ids u64 ...
    topics u16 | per topic: length u16, UTF-8
    per message, column by column: topic index u16 ... | length u32 ... | flags u8 ... | bodies

A *flow* is what one source sends to one set of destinations in one QoS class. Its sequence numbers have no gaps, so
that every destination sees what is missing. `floor` is the oldest sequence the source still cares for; what lies
below it and has not come will not come. `after` orders messages: a parcel may be delivered when everything up to
`after` has been. A *predecessor* does the same for a topic that moved here from another flow; it binds only the
brokers it names.

Columns instead of records: the lengths of all messages are unpacked by one call, and the bodies are plain slices.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

MESSAGES_MAX = 4096
PARCEL_BYTES_MAX = 64 * 1024
"""A draft is sealed when it has grown to this; a single larger message makes a parcel of its own."""

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


@dataclass(slots=True)
class Draft:
    """The parcel that a source is filling in this turn, for one flow."""

    messages: list[Message] = field(default_factory=list)
    size: int = 0

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self.size += len(message[0]) + len(message[2]) + 9

    @property
    def full(self) -> bool:
        return self.size >= PARCEL_BYTES_MAX or len(self.messages) >= MESSAGES_MAX


def pack_messages(messages: Sequence[Message]) -> bytes:
    topics, flags, bodies = zip(*messages, strict=True)
    indices = {topic: index for index, topic in enumerate(dict.fromkeys(topics))}
    names = [_U16.pack(len(indices))]
    for topic in indices:
        encoded = topic.encode()
        names += (_U16.pack(len(encoded)), encoded)
    count = len(messages)
    columns = struct.pack(f"!{count}H{count}I{count}B", *map(indices.__getitem__, topics), *map(len, bodies), *flags)
    return b"".join((*names, columns, *bodies))


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
        columns = struct.unpack_from(f"!{count}H{count}I{count}B", content, position)
    except (struct.error, UnicodeDecodeError) as wrong:
        raise BadContent(f"messages that cannot be read: {wrong}") from None
    start = position + 7 * count
    ends = list(accumulate(columns[count : 2 * count], initial=start))
    if ends[-1] != len(content) or max(columns[:count]) >= topic_count:
        raise BadContent("messages that do not fill their parcel")
    bodies = [content[begin:end] for begin, end in pairwise(ends)]
    return list(zip(map(topics.__getitem__, columns[:count]), columns[2 * count :], bodies, strict=True))
