"""Runs: plain PUBLISH packets that the overlay carries as the bytes they came as (`fast_path`, `run_arrivals`).

flags   bit 4 a run | bit 5 of MQTT 5
        bit 6 a run of one short packet, of which only the payload is carried: the rest follows from the topic
run     number of messages u32 | their PUBLISH packets as clients sent them, all plain

The packets of a run are of the topic that it is carried with, or, in a mixed run, which is carried with none, of any.
"""

from collections.abc import Iterator

from overlane.core.wire.parcel import Message
from overlane.mqtt.codec.framing import packet_end

ONE_BY_ONE = 4
"""Up to so many packets for each byte of a head, it is quicker to compare head by head than byte by byte."""

RUN = 0x10
RUN_OF_V5 = 0x20
LONE = 0x40

PLAIN = 0x30
"""The first byte of a PUBLISH of QoS 0, not retained."""

_SINGLE = tuple(bytes([byte]) for byte in range(256))

PACKET_BYTES_MIN = 5
"""No PUBLISH packet is shorter: a run of so many bytes has at most so many of them, whatever it says."""


def pack_run(run: bytes, count: int, is_v5: bool) -> tuple[int, bytes]:
    return RUN | (RUN_OF_V5 if is_v5 else 0), count.to_bytes(4) + run


def pack_lone(payload: bytes, is_v5: bool) -> tuple[int, bytes]:
    return LONE | RUN_OF_V5 if is_v5 else LONE, payload


def unpack_run(flags: int, body: bytes) -> tuple[bytes, int, bool]:
    """The packets, how many they are, and whether they are of MQTT 5."""
    return body[4:], int.from_bytes(body[:4]), bool(flags & RUN_OF_V5)


def count(flags: int, body: bytes) -> int:
    """How many messages a body of the overlay holds, or says to hold where so many can be in it."""
    if not flags & RUN:
        return 1
    return max(1, min(int.from_bytes(body[:4]), (len(body) - 4) // PACKET_BYTES_MIN))


def size_of_run(flags: int, body: bytes) -> tuple[int, int]:
    """How many messages it holds, or says to hold where so many can be in it; and the bytes of their payloads, as if
    all had heads as long as the first: where some are short and some long, a byte more or less for each."""
    run_bytes = max(0, len(body) - 4)
    messages = count(RUN, body)
    topic_at = 7 if body[5:6] > b"\x7f" else 6
    topic_end = topic_at + 2 + int.from_bytes(body[topic_at : topic_at + 2])
    head_bytes = topic_end - 4
    if flags & RUN_OF_V5:
        head_bytes += 1 + int.from_bytes(body[topic_end : topic_end + 1])
    return messages, max(0, run_bytes - messages * head_bytes)


def split(flags: int, body: bytes) -> Iterator[Message]:
    """A mixed run as runs of one topic each, in order; ValueError or IndexError if it is none."""
    run, _, is_v5 = unpack_run(flags, body)
    if not flags & RUN:
        raise ValueError("not a run")
    position, end = 0, len(run)
    start, messages, last = 0, 0, b""
    while position < end:
        topic_at = position + (2 if run[position + 1] < 0x80 else 3)
        topic_utf8 = run[topic_at + 2 : topic_at + 2 + int.from_bytes(run[topic_at : topic_at + 2])]
        if topic_utf8 != last and messages:
            yield last.decode(), *pack_run(run[start:position], messages, is_v5)
            start, messages = position, 0
        last = topic_utf8
        messages += 1
        position = packet_end(run, position)
        if position > end or not topic_utf8:
            raise ValueError("not a run of plain messages")
    if messages:
        yield last.decode(), *pack_run(run[start:], messages, is_v5)


def messages_of(run: bytes, is_v5: bool) -> Iterator[tuple[str, bytes, bytes]]:
    """Topic, payload and properties of each message of a run that is sound."""
    position, end = 0, len(run)
    while position < end:
        body = position + 2 if run[position + 1] < 0x80 else position + 3
        position = packet_end(run, position)
        middle = body + 2 + run[body + 1]
        payload = middle + 1 + run[middle] if is_v5 else middle
        yield run[body + 2 : middle].decode(), run[payload:position], run[middle + 1 : payload]


def plain_prefix(topic_utf8: bytes, is_v5: bool) -> bytes:
    """What a plain PUBLISH has between its length and its payload."""
    return len(topic_utf8).to_bytes(2) + topic_utf8 + (b"\0" if is_v5 else b"")


def end_of_alike(data: bytes, position: int, payload: int, following: int) -> int:
    """Where the packets end that have the same head and length as the one from the position to the following one."""
    head, size = data[position:payload], following - position
    whole = (len(data) - position) // size  # packets, if they go on like that
    far = position + whole * size
    one_by_one = far if whole <= ONE_BY_ONE * len(head) else position + len(head) * size
    for at in range(following, one_by_one, size):
        if not data.startswith(head, at):
            return at
    if one_by_one < far:
        left = (far - one_by_one) // size
        for at, byte in enumerate(head, one_by_one):
            column = data[at:far:size]
            if column != _SINGLE[byte] * left:
                left -= len(column.lstrip(_SINGLE[byte]))
                far = one_by_one + left * size
    return far
