"""Frames (part 2, section 2.3; part 5, section 5.3.1), and the framer that finds them in the bytes of a connection.

    size u32 | doff u8: header in words of 4 bytes | type u8: 0 AMQP, 1 SASL | channel u16 | ... | body

A body is a performative and, of a transfer, the payload behind it. An empty body only shows that the peer is there. A
frame larger than what the peer was told is Malformed as soon as its first four bytes are there.
"""

from struct import Struct

from overlane.amqp.codec import composites, encoding
from overlane.amqp.codec.malformed import FRAMING_ERROR, Malformed, TooLarge

PROTOCOL = b"AMQP\x00\x01\x00\x00"
SASL_PROTOCOL = b"AMQP\x03\x01\x00\x00"
TLS_PROTOCOL = b"AMQP\x02\x01\x00\x00"
PROTOCOL_BYTES = 8

AMQP_FRAME = 0
SASL_FRAME = 1
HEAD_BYTES = 8
FRAME_BYTES_MIN = 512
"""Every peer takes frames of this size."""

EMPTY = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""A frame without a body, on channel 0."""

_head = Struct("!IBBH")
_pack_head = _head.pack
_unpack_head = _head.unpack_from


def frame(channel: int, body: bytes, kind: int = AMQP_FRAME) -> bytes:
    return _pack_head(HEAD_BYTES + len(body), 2, kind, channel) + body


def frame_of(channel: int, performative: object, kind: int = AMQP_FRAME) -> bytes:
    return frame(channel, composites.write(performative), kind)


def transfer_body(handle: int, delivery_id: int, tag: bytes, settled: bool, more: bool) -> bytes:
    """The performative of the first frame of a delivery: what `composites.write` would make of it, and faster."""
    fields = b"".join(
        (
            encoding.uint(handle),
            encoding.uint(delivery_id),
            encoding.binary(tag),
            b"\x43",
            encoding.TRUE if settled else encoding.FALSE,
            encoding.TRUE if more else encoding.FALSE,
            b"\x40\x40\x40\x40\x40",
        )
    )
    return b"\x00\x53\x14" + encoding.compound(0xC0, 11, fields)


class Framer:
    """Bytes that have come and are not handled yet."""

    __slots__ = ("_at", "_data", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._data = b""
        self._at = 0

    @property
    def waiting_bytes(self) -> int:
        return len(self._data) - self._at

    def feed(self, data: bytes) -> None:
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def take_protocol(self) -> bytes | None:
        """The header that a protocol begins with; None if it is not there yet. Malformed as soon as it is none."""
        head = self._data[self._at : self._at + PROTOCOL_BYTES]
        if not b"AMQP".startswith(head[:4]):
            raise Malformed("not AMQP", FRAMING_ERROR)
        if len(head) < PROTOCOL_BYTES:
            return None
        self._at += PROTOCOL_BYTES
        return head

    def take_frame(self) -> tuple[int, int, bytes] | None:
        """Type, channel and body of the next frame; None if it is not there yet."""
        at, waiting = self._at, len(self._data) - self._at
        if waiting < 4:
            return None
        size = int.from_bytes(self._data[at : at + 4])
        if size > self.frame_bytes_max:
            told = f"a frame of {size} bytes; at most {self.frame_bytes_max} are allowed"
            raise TooLarge(told, FRAMING_ERROR)
        if size < HEAD_BYTES:
            raise Malformed(f"a frame of {size} bytes; the shortest has {HEAD_BYTES}", FRAMING_ERROR)
        if waiting < size:
            return None
        _, words, kind, channel = _unpack_head(self._data, at)
        if words < 2 or 4 * words > size:
            raise Malformed(f"the body of a frame of {size} bytes begins at {4 * words}", FRAMING_ERROR)
        self._at = at + size
        return kind, channel, self._data[at + 4 * words : at + size]
