"""Packets in a stream of bytes: where each begins and ends, and a limit on their size that is kept before they arrive.

     0      1                2..5
    +------+----------------+-------------------------+
    | type | length 1-4 B   | body, of that length    |     the length is a variable byte integer (fields.py)
    +------+----------------+-------------------------+

A `Framer` is fed what was read and gives whole packets, as views of what was read: nothing is copied as long as
packets do not straddle two reads. Of a packet that does, only its own bytes are collected, once each; it is refused as
soon as its header tells that it is too large. Packets that were not taken stay and come before those of later reads,
so a reader may stop at any packet, change the limit, and go on.
"""

from collections.abc import Iterator
from typing import Final

from overlane.mqtt.codec.fields import Buffer, binary, variable
from overlane.mqtt.codec.malformed import (
    MALFORMED_PACKET,
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    Malformed,
)

CONNECT: Final = 0x10
HEADER_BYTES_MAX: Final = 5

BRIDGE: Final = 0x80
"""Added to the protocol level by bridges of Mosquitto, for MQTT 3.1 and 3.1.1: they want no message back that they have
published, and retained messages marked as such, as MQTT 5 lets clients ask for."""

_VERSIONS: Final = {(b"MQTT", 4): 4, (b"MQTT", 5): 5, (b"MQIsdp", 3): 3}


def packet_end(data: Buffer | bytearray, position: int) -> int:
    """Where the packet that begins at the position ends, perhaps beyond the data; -1 if its header is incomplete."""
    size = len(data)
    if position + 1 >= size:
        return -1
    byte = data[position + 1]
    if byte < 0x80:
        return position + 2 + byte
    length = byte & 0x7F
    at = position + 2
    for shift in (7, 14, 21):
        if at >= size:
            return -1
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return at + length
    raise Malformed(MALFORMED_PACKET, "the length of a packet takes more than four bytes")


def version_of_connect(packet: Buffer) -> int:
    """Which protocol the client speaks: 5, 4 for MQTT 3.1.1, 3 for MQTT 3.1. For the first packet of a connection."""
    try:
        first = packet[0]
        if first & 0xF0 != CONNECT:
            raise Malformed(PROTOCOL_ERROR, "the first packet is not a CONNECT")
        if first != CONNECT:
            raise Malformed(MALFORMED_PACKET, "invalid reserved bits of the fixed header")
        _, position = variable(packet, 1)
        name, position = binary(packet, position)
        level = packet[position]
    except IndexError:
        raise Malformed(MALFORMED_PACKET, "the packet ends too early") from None
    if level & BRIDGE and level != BRIDGE | 5:
        level -= BRIDGE
    version = _VERSIONS.get((name, level))
    if version is None:
        raise Malformed(
            UNSUPPORTED_PROTOCOL_VERSION,
            f"protocol {ascii(name[:16])[1:]} level {level}; understood are 'MQTT' 4 and 5, and 'MQIsdp' 3",
        )
    return version


def is_bridge(connect: Buffer) -> bool:
    """Whether a valid CONNECT is of a bridge."""
    _, position = variable(connect, 1)
    _, position = binary(connect, position)
    return bool(connect[position] & BRIDGE)


class Framer:
    """The packets of one connection."""

    __slots__ = ("_chunks", "_part", "_position", "packet_bytes_max")

    def __init__(self, packet_bytes_max: int) -> None:
        self.packet_bytes_max = packet_bytes_max
        """The largest packet that is let through, header included; may be changed at any time."""
        self._chunks: list[bytes] = []
        """Not a deque, which takes 700 bytes when it is empty: hardly ever is there more than one."""
        self._position = 0
        """How much of the first chunk has been taken."""
        self._part: bytes | bytearray = b""
        """The beginning of a packet whose end has not come, from chunks that are gone."""

    @property
    def is_waiting(self) -> bool:
        """Whether there are bytes that were fed and have not been given as packets."""
        return bool(self._chunks or self._part)

    @property
    def waiting_bytes(self) -> int:
        """What was fed and has not been given as packets."""
        return len(self._part) - self._position + sum(map(len, self._chunks))

    def prefix(self, count: int) -> bytes:
        """The first bytes of what was fed and has not been given as packets."""
        return (bytes(self._part[:count]) + b"".join(self._chunks)[self._position :])[:count]

    def feed(self, data: bytes, start: int = 0) -> Iterator[memoryview]:
        """The whole packets that are there now. What precedes `start` is left out: it was dealt with elsewhere."""
        if start < len(data):
            if start and self._chunks:
                data = data[start:]
            elif start:
                self._position = start
            self._chunks.append(data)
        return self.packets()

    def packets(self) -> Iterator[memoryview]:
        """The whole packets that were fed and not taken yet."""
        chunks = self._chunks
        while chunks:
            data = chunks[0]
            if self._part and (whole := self._completed(data)) is not None:
                yield whole
            view = memoryview(data)
            size = len(data)
            position = self._position
            while position < size:
                end = packet_end(data, position)
                if end - position > self.packet_bytes_max:
                    raise self._too_large(end - position)
                if end < 0 or end > size:
                    self._part = bytearray(view[position:])  # there is none yet, or it would have taken all
                    break
                self._position = end
                yield view[position:end]
                position = end
            del chunks[0]
            self._position = 0

    def take(self) -> tuple[bytes, int]:
        """What was fed behind the packets given so far, as data and a position in it: the caller deals with it."""
        chunks, position = self._chunks, self._position
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._position = 0
        return data, position

    def take_all(self) -> bytes:
        """What was fed and has not been given as packets."""
        data = self.prefix(self.waiting_bytes)
        self._chunks.clear()
        self._part = b""
        self._position = 0
        return data

    def keep(self, data: bytes, position: int) -> None:
        """The beginning of a packet whose end has not come, where nothing else waits."""
        self._part = bytearray(memoryview(data)[position:])

    def resume(self, data: bytes) -> tuple[bytes, int] | None:
        """All that was fed and not given as packets, with this behind it, as data and a position in it: the caller
        deals with it. None while the first packet is not whole: then all of it stays."""
        chunks, part = self._chunks, self._part
        if data:
            chunks.append(data)
        if not part:
            return self.take()
        if self._position:
            chunks[0], self._position = chunks[0][self._position :], 0
        end = packet_end(part, 0)
        if end < 0:
            end = packet_end(bytes(part) + b"".join(chunks)[:HEADER_BYTES_MAX], 0)
        if end > self.packet_bytes_max:
            raise self._too_large(end)
        self._part = b""
        if 0 <= end <= len(part) + sum(map(len, chunks)):
            whole = b"".join((part, *chunks))
            chunks.clear()
            return whole, 0
        collected = part if isinstance(part, bytearray) else bytearray(part)
        for chunk in chunks:
            collected += chunk
        chunks.clear()
        self._part = collected
        return None

    def _completed(self, data: bytes) -> memoryview | None:
        """The packet that began in an earlier chunk, if this one brings its end. The rest of the chunk stays."""
        part = self._part
        assert isinstance(part, bytearray)
        position = self._position
        while (end := packet_end(part, 0)) < 0 and position < len(data):
            part.append(data[position])
            position += 1
        self._position = position
        if end > self.packet_bytes_max:
            raise self._too_large(end)
        if end > len(part):
            more = memoryview(data)[position : position + end - len(part)]
            part += more
            self._position = position + len(more)
        if len(part) != end:
            return None
        # Bytes rather than the buffer itself: views of packets can then all be hashed and kept alike.
        self._part = b""
        return memoryview(bytes(part))

    def _too_large(self, packet_bytes: int) -> Malformed:
        return Malformed(
            PACKET_TOO_LARGE, f"a packet of {packet_bytes} bytes; at most {self.packet_bytes_max} are allowed"
        )
