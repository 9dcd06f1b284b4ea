"""A parcel's inside: the end-to-end part that only its source and its destinations read.

    form u8 | flow u16 | flow sequence u32 | back u16, and as the form says:
    OLDER         incarnation u32          of the flow, where it is of an earlier life of the source than the parcel
    MANY          flow u32                 the flow, where it takes more than 16 bits
    FLOOR         floor u32                0 where it is left out
    AFTER         after u32                where it is not `back` less than the sequence, or, with back 0, 0
    PREDECESSORS  count u8 | per predecessor: incarnation u32 | flow u32 | sequence u32 | brokers u16 | ids u64 ...

    then the messages:
    topics u16 | per topic: length u16, UTF-8
    per message, column by column: topic index u16 ... (not for one topic) | length u32 ... | flags u8 ... | bodies

    or, where the form is LONE and nothing else, one message:
    topic length u16 | flags u8 | topic, UTF-8 | body

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

OLDER, MANY, FLOOR, AFTER, PREDECESSORS, LONE = 1, 2, 4, 8, 16, 32
"""Forms of the flow part, which may come together, and of a message alone."""

_FLOW = struct.Struct("!BHIH")
_LONE = struct.Struct("!BHIHHB")
_LONE_TOPIC = struct.Struct("!HH")
_LONE_BODY = struct.Struct("!IB")
_PREDECESSOR = struct.Struct("!IIIH")
_U16 = struct.Struct("!H")
_U32 = struct.Struct("!I")


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


_LONE_FORM = bytes((LONE,))
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
    """The whole end-to-end part of a best-effort parcel of one message, which comes after nothing of another flow.

    The flow is one of this life of the source.
    """
    topic, flags, body = message
    back = sequence - after if after else 0
    if not 0 <= back <= 0xFFFF or name[1] > 0xFFFF or (after and not back):
        return pack_flow(FlowPart(*name, sequence, 0, after), name[0]) + pack_messages(((topic,), (flags,), (body,)))
    utf8 = encoded(topic)
    return b"".join((_LONE.pack(LONE, name[1], sequence, back, len(utf8), flags), utf8, body))


@lru_cache(maxsize=LONE_TOPICS_REMEMBERED)
def encoded(topic: str) -> bytes:
    return topic.encode()


def pack_flow(part: FlowPart, incarnation: int) -> bytes:
    """`incarnation`: that of the parcel."""
    life, flow, sequence, floor, after, predecessors = part
    form, more = 0, b""
    if life != incarnation:
        form, more = OLDER, _U32.pack(life)
    if flow > 0xFFFF:
        form, more, flow = form | MANY, more + _U32.pack(flow), 0
    if floor:
        form, more = form | FLOOR, more + _U32.pack(floor)
    back = sequence - after if after else 0
    if not 0 <= back <= 0xFFFF or (after and not back):
        form, more, back = form | AFTER, more + _U32.pack(after), 0
    if predecessors:
        form, more = form | PREDECESSORS, more + bytes((len(predecessors),))
        for p in predecessors:
            more += _PREDECESSOR.pack(p.incarnation, p.flow, p.sequence, len(p.brokers))
            more += struct.pack(f"!{len(p.brokers)}Q", *p.brokers)
    return _FLOW.pack(form, flow, sequence, back) + more


def unpack(content: bytes, incarnation: int, count: int) -> tuple[FlowPart, list[Message]]:
    """Where a parcel stands in its flow, and its messages; what its header says of its incarnation and their number."""
    if count == 1 and content[:1] == _LONE_FORM:
        lone = unpack_lone(content, 0, incarnation)
        if lone is None:
            raise BadContent("a message alone that cannot be read")
        name, sequence, after, message = lone
        return FlowPart(*name, sequence, 0, after), [message]
    part, position = unpack_flow(content, incarnation)
    return part, unpack_messages(content, position, count)


def unpack_flow(rest: bytes | memoryview, incarnation: int) -> tuple[FlowPart, int]:
    """Where the parcel stands in its flow, and where its messages begin."""
    try:
        form, flow, sequence, back = _FLOW.unpack_from(rest)
        position = _FLOW.size
        after = sequence - back if back else 0
        if not form and after >= 0:
            return _new_tuple(FlowPart, (incarnation, flow, sequence, 0, after, ())), position
        if form & OLDER:
            (incarnation,) = _U32.unpack_from(rest, position)
            position += 4
        if form & MANY:
            (flow,) = _U32.unpack_from(rest, position)
            position += 4
        floor = 0
        if form & FLOOR:
            (floor,) = _U32.unpack_from(rest, position)
            position += 4
        if form & AFTER:
            (after,) = _U32.unpack_from(rest, position)
            position += 4
        predecessors = []
        if form & PREDECESSORS:
            (count,) = struct.unpack_from("!B", rest, position)
            position += 1
            for _ in range(count):
                life, other, last, brokers = _PREDECESSOR.unpack_from(rest, position)
                position += _PREDECESSOR.size
                predecessors.append(Predecessor(life, other, last, struct.unpack_from(f"!{brokers}Q", rest, position)))
                position += 8 * brokers
    except struct.error as short:
        raise BadContent(f"a truncated flow part: {short}") from None
    if form >= LONE or after < 0:
        raise BadContent(f"a flow part of form {form} that is none")
    return _new_tuple(FlowPart, (incarnation, flow, sequence, floor, after, tuple(predecessors))), position


def unpack_lone(content: bytes, position: int, incarnation: int) -> Lone | None:
    """What `pack_lone` has made, from `position` on; None if it is something else, perhaps something wrong."""
    try:
        form, flow, sequence, back, size, flags = _LONE.unpack_from(content, position)
        position += _LONE.size
        if form != LONE or back > sequence or position + size > len(content):
            return None
        message = content[position : position + size].decode(), flags, content[position + size :]
    except (struct.error, UnicodeDecodeError):
        return None
    return (incarnation, flow), sequence, sequence - back if back else 0, message


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
