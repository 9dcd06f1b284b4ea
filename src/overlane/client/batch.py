"""Batches: many QoS 0 messages for one topic in few writes.

All messages share topic and properties, and the head of a PUBLISH packet depends only on the size of the body. So the
head is encoded once per size, and a message costs little more than an entry in a list.
"""

from collections.abc import Iterable, Iterator

from overlane.client.errors import InvalidRequest
from overlane.client.message import Body, Publication, checked_body
from overlane.mqtt.codec.fields import write_variable

CHUNK_BYTES = 128 * 1024
HEADS_MAX = 4096


def written_batches(model: Publication, bodies: Iterable[Body], packet_bytes_max: int) -> Iterator[tuple[bytes, int]]:
    """Chunks of whole PUBLISH packets like `model` but for the body, with the number of messages in each."""
    empty = model.written(0, model.expiry_s)
    first, rest = empty[:1], empty[1 + len(write_variable(_length(empty))) :]
    heads: dict[int, bytes] = {}
    parts: list[bytes] = []
    chunk_bytes = count = 0
    for body in bodies:
        if type(body) is not bytes:
            body = checked_body(body)
        size = len(body)
        head = heads.get(size)
        if head is None:
            head = first + write_variable(len(rest) + size) + rest
            if len(head) + size > packet_bytes_max:
                raise InvalidRequest(
                    f"the packet has {len(head) + size} bytes; the broker accepts at most {packet_bytes_max}"
                )
            if len(heads) < HEADS_MAX:
                heads[size] = head
        parts += (head, body)
        count += 1
        chunk_bytes += len(head) + size
        if chunk_bytes >= CHUNK_BYTES:
            yield b"".join(parts), count
            parts = []
            chunk_bytes = count = 0
    if parts:
        yield b"".join(parts), count


def _length(packet: bytes) -> int:
    """The remaining length of a packet without body, from its size."""
    for length_bytes in (1, 2, 3, 4):
        length = len(packet) - 1 - length_bytes
        if len(write_variable(length)) == length_bytes:
            return length
    raise AssertionError("a packet larger than MQTT allows")
