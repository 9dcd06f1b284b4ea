"""The fields that packets of both versions are made of (MQTT 5, section 1.5), read at a position of a packet.

    text       length u16 | UTF-8, without U+0000
    binary     length u16 | bytes
    variable   1 to 4 bytes of 7 bits each, the low ones first; the highest bit says that more follow

Each reader gives the value and the position behind it. An IndexError means that the packet ends too early: whoever
reads a whole packet turns it into `Malformed`, so that no field has to look at the packet's length before every byte.
"""

from typing import Final, NamedTuple

from overlane.mqtt.codec.malformed import MALFORMED_PACKET, PACKET_TOO_LARGE, Malformed

Buffer = bytes | memoryview

BYTES_MAX = 0xFFFF
"""The longest text and the longest binary value."""
VARIABLE_MAX = (1 << 28) - 1


class Bounds(NamedTuple):
    """How often a packet may repeat what MQTT lets it repeat: one full of small things would take long to read."""

    user_properties: int = VARIABLE_MAX
    """And identifiers of subscriptions, in one list of properties."""
    filters: int = VARIABLE_MAX
    """And answers to them."""


UNBOUNDED: Final = Bounds()


def u16(packet: Buffer, position: int) -> int:
    return packet[position] << 8 | packet[position + 1]


def text(packet: Buffer, position: int) -> tuple[str, int]:
    begin = position + 2
    end = begin + (packet[position] << 8 | packet[position + 1])
    if end > len(packet):
        raise IndexError
    try:
        value = str(packet[begin:end], "utf-8")
    except UnicodeDecodeError:
        raise Malformed(MALFORMED_PACKET, "a string is not valid UTF-8") from None
    if "\0" in value:
        raise Malformed(MALFORMED_PACKET, "a string contains the character U+0000")
    return value, end


def binary(packet: Buffer, position: int) -> tuple[bytes, int]:
    begin = position + 2
    end = begin + (packet[position] << 8 | packet[position + 1])
    if end > len(packet):
        raise IndexError
    return bytes(packet[begin:end]), end


def variable(packet: Buffer, position: int) -> tuple[int, int]:
    value = 0
    for shift in (0, 7, 14, 21):
        byte = packet[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise Malformed(MALFORMED_PACKET, "a length or number takes more than four bytes")


def write_text(value: str) -> bytes:
    return write_binary(value.encode())


def write_binary(value: bytes) -> bytes:
    if len(value) > BYTES_MAX:
        raise Malformed(PACKET_TOO_LARGE, f"a string or value of {len(value)} bytes; at most {BYTES_MAX} are allowed")
    return len(value).to_bytes(2) + value


def write_variable(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value > VARIABLE_MAX:
        raise Malformed(PACKET_TOO_LARGE, f"a length or number of {value}; at most {VARIABLE_MAX} is allowed")
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21))
