"""A parcel's inside: the end-to-end part that only its source and its destinations read.

    form u8 | flow u16 | flow sequence u32 | back u16, and as the form says:
    OLDER         incarnation u32          of the flow, if it is of an earlier incarnation of the source than the parcel
    MANY          flow u32                 the flow, where it takes more than 16 bits
    FLOOR         floor u32                0 where it is left out
    AFTER         after u32                where it is not `back` less than the sequence, or, with back 0, 0
    PREDECESSORS  count u8 | per predecessor: incarnation u32 | flow u32 | sequence u32 | kind u8 | brokers u16
                  | ids u64 ...
    FOLLOWS       count u8 | sequences u32 ...
    OVERTAKES     (nothing)

    then the messages:
    topics u16 | per topic: length u16, UTF-8
    per message, column by column: topic index u16 ... (not for one topic) | length u32 ... | flags u8 ... | bodies

    or, where the form is SINGLE and nothing else, one message:
    topic length u16 | flags u8 | topic, UTF-8 | body

A *flow* is what one source sends to one set of destinations in one QoS class. Its sequence numbers have no gaps, so
that every destination sees what is missing. `floor` is the oldest sequence the source still cares for; what lies
below it and has not come will not come. `after` orders messages: a parcel may be delivered when everything up to
`after` has been. Where the parcel FOLLOWS single ones, it is enough that these have been delivered: `after` and those
listed, each the last before it of one of its topics; a hole that is of other topics does not hold it up. A
*predecessor* does the same for a topic that moved here from another flow; it binds only the brokers it names. Its kind
says whether it alone is meant (ALONE) or everything up to it, and whether it may be lost for good (LOSSY), so that it
is waited for only a moment. A reliable parcel that OVERTAKES waits for any of these no longer than its deadline allows.

The topic of a *mixed run* is empty: its body has messages of several topics (`mixed_run.py`).

Columns instead of records: the lengths of all messages are unpacked by one call, and the bodies are plain slices.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise, repeat
from typing import NamedTuple

from overlane.errors import OverlaneError

MESSAGES_MAX = 4096
PARCEL_BYTES_MAX = 64 * 1024
"""What is published in one turn is cut into parcels of this size; a single larger message makes one of its own."""

MESSAGE_BYTES_MAX = (1 << 20) - 8192
"""Topic and body together."""
TOPICS_MAX = 0xFFFF
SINGLE_TOPICS_REMEMBERED = 10_000
SINGLE_TOPIC_CHARS_MAX = 256
"""Longer ones are encoded each time."""
PREDECESSORS_MAX = 255
BROKERS_MAX = 4096
"""Of all predecessors together."""

MIXED_RUN = ""
"""The topic of messages of several topics in one body."""

OLDER, MANY, FLOOR, AFTER, PREDECESSORS, SINGLE, FOLLOWS, OVERTAKES = 1, 2, 4, 8, 16, 32, 64, 128
"""Forms of the flow part, which may come together, and of a message alone."""

_FLOW = struct.Struct("!BHIH")
_SINGLE = struct.Struct("!BHIHHB")
_ONE_TOPIC = struct.Struct("!HH")
_ONE_BODY = struct.Struct("!IB")
_PREDECESSOR = struct.Struct("!IIIBH")
_U16 = struct.Struct("!H")
_U32 = struct.Struct("!I")

ALONE, LOSSY = 1, 2
"""Kinds of predecessors, which may come together."""


class BadContent(OverlaneError, ValueError):
    """The inside of a parcel is not what this module writes."""

    error_code = "OVL-304"


class Predecessor(NamedTuple):
    incarnation: int
    flow: int
    sequence: int
    brokers: tuple[int, ...]
    kind: int = 0


class FlowPart(NamedTuple):
    """Where a parcel stands in its flow."""

    incarnation: int
    flow: int
    sequence: int
    floor: int
    after: int
    predecessors: tuple[Predecessor, ...] = ()
    follows: tuple[int, ...] = ()
    """Single parcels of the flow that it comes after, the greatest of which is `after`; none: all up to that."""
    overtakes: bool = False


def names_too_many(part: FlowPart) -> bool:
    """Whether it has more predecessors than a parcel can name."""
    return len(part.predecessors) > PREDECESSORS_MAX or sum(len(p.brokers) for p in part.predecessors) > BROKERS_MAX


_SINGLE_FORM = bytes((SINGLE,))
_new_tuple = tuple.__new__

Message = tuple[str, int, bytes]
"""Topic, flags and body. A plain tuple: making an object of a class per message costs more than all the rest."""


SingleMessage = tuple[tuple[int, int], int, int, Message]
"""The name of a flow, a place in it, what that comes after, and the message."""


Columns = tuple[tuple[str, ...], tuple[int, ...], tuple[bytes, ...]]
"""The topics, flags and bodies of messages."""


def cut(messages: Sequence[Message], body_bytes: int = 0) -> Iterator[Columns]:
    """Messages in as many parcels as they need. `body_bytes`: of all of them, where that is known.

    Lazy: what is not asked for is not looked at, so a caller may take the first parcels of many and leave the rest.
    """
    if len(messages) <= MESSAGES_MAX and body_bytes <= PARCEL_BYTES_MAX:
        columns: Columns = tuple(zip(*messages, strict=True))  # type: ignore[assignment]
        topics, _, bodies = columns
        if sum(map(len, bodies)) + 4 * sum(map(len, topics)) <= PARCEL_BYTES_MAX:
            yield columns
            return
    start = 0
    while start < len(messages):
        end = _end_of_piece(messages, start)
        yield tuple(zip(*messages[start:end], strict=True))  # type: ignore[misc]
        start = end


def _end_of_piece(messages: Sequence[Message], start: int) -> int:
    """Up to where the messages from the start on make one parcel: at least one message."""
    size = 0
    last = min(len(messages), start + MESSAGES_MAX)
    for index in range(start, last):
        topic, _, body = messages[index]
        size += len(body) + 4 * len(topic)
        if size > PARCEL_BYTES_MAX and index > start:
            return index
    return last


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


def pack_single(name: tuple[int, int], sequence: int, after: int, message: Message) -> bytes:
    """The whole end-to-end part of a best-effort parcel of one message, which comes after nothing of another flow.

    The flow is one of this incarnation of the source.
    """
    topic, flags, body = message
    back = sequence - after if after else 0
    if not 0 <= back <= 0xFFFF or name[1] > 0xFFFF or (after and not back):
        return pack_flow(FlowPart(*name, sequence, 0, after), name[0]) + pack_messages(((topic,), (flags,), (body,)))
    utf8 = encoded(topic) if len(topic) <= SINGLE_TOPIC_CHARS_MAX else topic.encode()
    return b"".join((_SINGLE.pack(SINGLE, name[1], sequence, back, len(utf8), flags), utf8, body))


@lru_cache(maxsize=SINGLE_TOPICS_REMEMBERED)
def encoded(topic: str) -> bytes:
    return topic.encode()


def pack_flow(part: FlowPart, incarnation: int) -> bytes:
    """`incarnation`: that of the parcel."""
    flow_incarnation, flow, sequence, floor, after, predecessors, follows, overtakes = part
    form, more = 0, b""
    if flow_incarnation != incarnation:
        form, more = OLDER, _U32.pack(flow_incarnation)
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
            more += _PREDECESSOR.pack(p.incarnation, p.flow, p.sequence, p.kind, len(p.brokers))
            more += struct.pack(f"!{len(p.brokers)}Q", *p.brokers)
    if follows:
        form |= FOLLOWS
        lesser = [one for one in follows if one != after]
        more += struct.pack(f"!B{len(lesser)}I", len(lesser), *lesser)
    if overtakes:
        form |= OVERTAKES
    return _FLOW.pack(form, flow, sequence, back) + more


def unpack(content: bytes, incarnation: int, count: int) -> tuple[FlowPart, list[Message]]:
    """Where a parcel stands in its flow, and its messages; what its header says of its incarnation and their number."""
    if count == 1 and content[:1] == _SINGLE_FORM:
        single = unpack_single(content, 0, incarnation)
        if single is None:
            raise BadContent("a message alone that cannot be read")
        name, sequence, after, message = single
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
            return _new_tuple(FlowPart, (incarnation, flow, sequence, 0, after, (), (), False)), position
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
                flow_incarnation, other, last, kind, brokers = _PREDECESSOR.unpack_from(rest, position)
                position += _PREDECESSOR.size
                ids = struct.unpack_from(f"!{brokers}Q", rest, position)
                predecessors.append(Predecessor(flow_incarnation, other, last, ids, kind))
                position += 8 * brokers
        follows: tuple[int, ...] = ()
        if form & FOLLOWS:
            (count,) = struct.unpack_from("!B", rest, position)
            follows = *struct.unpack_from(f"!{count}I", rest, position + 1), after
            position += 1 + 4 * count
    except struct.error as short:
        raise BadContent(f"a truncated flow part: {short}") from None
    if form & SINGLE or after < 0:
        raise BadContent(f"a flow part of form {form} that is none")
    overtakes = bool(form & OVERTAKES)
    whole = incarnation, flow, sequence, floor, after, tuple(predecessors), follows, overtakes
    return _new_tuple(FlowPart, whole), position


def unpack_single(content: bytes, position: int, incarnation: int) -> SingleMessage | None:
    """What `pack_single` has made, from `position` on; None if it is something else, perhaps something wrong."""
    try:
        form, flow, sequence, back, size, flags = _SINGLE.unpack_from(content, position)
        position += _SINGLE.size
        if form != SINGLE or back > sequence or position + size > len(content):
            return None
        message = content[position : position + size].decode(), flags, content[position + size :]
    except (struct.error, UnicodeDecodeError):
        return None
    return (incarnation, flow), sequence, sequence - back if back else 0, message


def unpack_messages(content: bytes, position: int, count: int) -> list[Message]:
    """The messages from `position` on. Everything is checked before the first is made."""
    return _unpack_one(content, position) if count == 1 else _unpack_many(content, position, count)


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


def _unpack_one(content: bytes, position: int) -> list[Message]:
    """The same for one message, which is what most parcels have while there is little to do."""
    try:
        topics, size = _ONE_TOPIC.unpack_from(content, position)
        if topics != 1:
            return _unpack_many(content, position, 1)
        position += _ONE_TOPIC.size + size
        topic = content[position - size : position].decode()
        length, flags = _ONE_BODY.unpack_from(content, position)
    except (struct.error, UnicodeDecodeError) as wrong:
        raise BadContent(f"messages that cannot be read: {wrong}") from None
    position += _ONE_BODY.size
    if position + length != len(content):
        raise BadContent("messages that do not fill their parcel")
    return [(topic, flags, content[position:])]
