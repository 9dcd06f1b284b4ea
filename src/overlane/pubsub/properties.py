"""Properties of a message: values for every protocol, and the encoding in the store and the overlay.

    tag u8 | value ...      0x01 payload format u8: 0 is bytes, 1 is UTF-8
                            0x02 expiry in seconds u32: in front, and only while a message is in transit
                            0x03 content type text
                            0x08 response topic text
                            0x09 correlation data binary
                            0x26 user property text text: any number of them
    text, binary            length u16 | bytes; a text is UTF-8 without U+0000

A message keeps the encoded form; it is decoded only where values are needed. The tags are those of MQTT 5 (section
2.2.2), so that MQTT passes the bytes on unchanged: a message from one MQTT client to another is never decoded.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

BYTES_MAX = 0xFFFF
"""The longest text and the longest binary value."""

PAYLOAD_FORMAT = 0x01
EXPIRY = 0x02
CONTENT_TYPE = 0x03
RESPONSE_TOPIC = 0x08
CORRELATION_DATA = 0x09
USER_PROPERTY = 0x26

_expiry = Struct("!BI").pack
_LENGTH_BYTES_MAX = 4


class Properties(NamedTuple):
    """`is_text`: the payload is declared to be UTF-8."""

    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    is_text: bool = False
    user_properties: tuple[tuple[str, str], ...] = ()

    def encode(self) -> bytes:
        """ValueError if a value is too long, or contains U+0000."""
        pieces: list[bytes] = []
        if self.is_text:
            pieces.append(b"\x01\x01")
        if self.content_type is not None:
            pieces += (b"\x03", _text(self.content_type))
        if self.response_topic is not None:
            pieces += (b"\x08", _text(self.response_topic))
        if self.correlation_data is not None:
            pieces += (b"\x09", _binary(self.correlation_data))
        pieces.append(encode_user_properties(self.user_properties))
        return b"".join(pieces)


NONE = Properties()


def encode_user_properties(pairs: Iterable[tuple[str, str]]) -> bytes:
    return b"".join([b"\x26" + _text(name) + _text(value) for name, value in pairs])


def encode_expiry(seconds: int) -> bytes:
    return _expiry(EXPIRY, seconds)


def decode(encoded: bytes) -> Properties:
    """The values of a message's own encoding; ValueError if it is none."""
    values, expiry_s = decode_with_expiry(encoded)
    if expiry_s is not None:
        raise ValueError("an expiry among the properties of a message")
    return values


def decode_with_expiry(encoded: bytes) -> tuple[Properties, int | None]:
    """The values and the expiry in front of them; ValueError if they are not exactly as described above."""
    if not encoded:
        return NONE, None
    found: dict[int, str | bytes | int] = {}
    pairs: list[tuple[str, str]] = []
    expiry_s: int | None = None
    at, end = 0, len(encoded)
    try:
        while at < end:
            tag = encoded[at]
            at += 1
            if tag == USER_PROPERTY:
                name, at = _read_text(encoded, at)
                value, at = _read_text(encoded, at)
                pairs.append((name, value))
                continue
            if tag in found:
                raise ValueError(f"the property {tag:#04x} is given twice")
            if tag in (CONTENT_TYPE, RESPONSE_TOPIC):
                found[tag], at = _read_text(encoded, at)
            elif tag == CORRELATION_DATA:
                found[tag], at = _read_binary(encoded, at)
            elif tag == PAYLOAD_FORMAT:
                found[tag], at = encoded[at], at + 1
                if encoded[at - 1] > 1:
                    raise ValueError(f"the payload format is {encoded[at - 1]}; allowed are 0 and 1")
            elif tag == EXPIRY and at == 1:
                if end < at + 4:
                    raise IndexError
                expiry_s = int.from_bytes(encoded[at : at + 4])
                at += 4
            else:
                raise ValueError(f"a property {tag:#04x} does not belong to a message, or not to this place")
    except IndexError:
        raise ValueError("the properties end too early") from None
    topic = found.get(RESPONSE_TOPIC)
    if isinstance(topic, str) and (not topic or "+" in topic or "#" in topic):
        raise ValueError("the response topic is not a topic to publish on")
    content_type, correlation_data = found.get(CONTENT_TYPE), found.get(CORRELATION_DATA)
    values = Properties(
        content_type if isinstance(content_type, str) else None,
        topic if isinstance(topic, str) else None,
        correlation_data if isinstance(correlation_data, bytes) else None,
        bool(found.get(PAYLOAD_FORMAT)),
        tuple(pairs),
    )
    return values, expiry_s


def _text(value: str) -> bytes:
    if "\0" in value:
        raise ValueError("a string contains the character U+0000")
    return _binary(value.encode())


def _binary(value: bytes) -> bytes:
    if len(value) > BYTES_MAX:
        raise ValueError(f"a string or value of {len(value)} bytes; at most {BYTES_MAX} are allowed")
    return len(value).to_bytes(2) + value


def _read_binary(encoded: bytes, at: int) -> tuple[bytes, int]:
    begin = at + 2
    end = begin + (encoded[at] << 8 | encoded[at + 1])
    if end > len(encoded):
        raise IndexError
    return encoded[begin:end], end


def _read_text(encoded: bytes, at: int) -> tuple[str, int]:
    value, end = _read_binary(encoded, at)
    text = value.decode()
    if "\0" in text:
        raise ValueError("a string contains the character U+0000")
    return text, end


# The length in front of properties in a body of the overlay: 7 bits a byte, the low ones first.


def encode_length(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    if len(written) > _LENGTH_BYTES_MAX:
        raise ValueError("properties too long to be carried")
    return bytes(written)


def decode_length(encoded: bytes) -> tuple[int, int]:
    """The length and the position behind it; ValueError or IndexError."""
    value = 0
    for at in range(_LENGTH_BYTES_MAX):
        value |= (encoded[at] & 0x7F) << 7 * at
        if encoded[at] < 0x80:
            return value, at + 1
    raise ValueError("a length of more than four bytes")
