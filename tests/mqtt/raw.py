"""Packets written byte by byte, right ones and wrong ones."""


def variable(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def packet(first: int, *fields: bytes) -> bytes:
    body = b"".join(fields)
    return bytes((first,)) + variable(len(body)) + body


def text(value: str | bytes) -> bytes:
    encoded = value.encode() if isinstance(value, str) else value
    return len(encoded).to_bytes(2) + encoded


def u16(value: int) -> bytes:
    return value.to_bytes(2)


def properties(*each: bytes) -> bytes:
    together = b"".join(each)
    return variable(len(together)) + together


def pair(name: str | bytes = "a", value: str | bytes = "b") -> bytes:
    return b"\x26" + text(name) + text(value)


def connect(flags: int = 0x02, *given: bytes, rest: bytes = text("c"), name: str = "MQTT", level: int = 5) -> bytes:
    """Of MQTT 5, with the properties that are given."""
    return packet(0x10, text(name), bytes((level, flags)), u16(60), properties(*given), rest)


def connect_311(
    flags: int = 0x02, rest: bytes = text("c"), name: str = "MQTT", level: int = 4, first: int = 0x10
) -> bytes:
    return packet(first, text(name), bytes((level, flags)), u16(60), rest)


def publish(*given: bytes, topic: str | bytes = "a", first: int = 0x30, packet_id: bytes = b"") -> bytes:
    return packet(first, text(topic), packet_id, properties(*given), b"payload")


def subscribe(pattern: str | bytes = "a", options: int = 0, *given: bytes, packet_id: int = 1) -> bytes:
    return packet(0x82, u16(packet_id), properties(*given), text(pattern), bytes((options,)))
