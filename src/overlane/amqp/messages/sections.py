"""The sections of a message (part 3, section 3.2), found without decoding what is in them.

0x70 header   0x71 delivery annotations   0x72 message annotations   0x73 properties   0x74 application properties
0x75 data: any number, or   0x76 sequences: any number, or   0x77 one value   |   0x78 footer
"""

from typing import Any, NamedTuple

from overlane.amqp.codec import composites
from overlane.amqp.codec.composites import define
from overlane.amqp.codec.decoding import decode, skip
from overlane.amqp.codec.malformed import Malformed
from overlane.amqp.codec.types import Described, Symbol

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
SEQUENCE = 0x76
VALUE = 0x77
FOOTER = 0x78

_NAMES = {
    Symbol("amqp:header:list"): HEADER,
    Symbol("amqp:delivery-annotations:map"): DELIVERY_ANNOTATIONS,
    Symbol("amqp:message-annotations:map"): MESSAGE_ANNOTATIONS,
    Symbol("amqp:properties:list"): PROPERTIES,
    Symbol("amqp:application-properties:map"): APPLICATION_PROPERTIES,
    Symbol("amqp:data:binary"): DATA,
    Symbol("amqp:amqp-sequence:list"): SEQUENCE,
    Symbol("amqp:amqp-value:*"): VALUE,
    Symbol("amqp:footer:map"): FOOTER,
}


class Header(NamedTuple):
    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int | None = None


class MessageProperties(NamedTuple):
    message_id: object = None
    user_id: bytes | None = None
    to: object = None
    subject: str | None = None
    reply_to: object = None
    correlation_id: object = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


define(Header, "amqp:header:list", HEADER, "boolean ubyte uint boolean uint")
define(
    MessageProperties,
    "amqp:properties:list",
    PROPERTIES,
    "any binary any string any any symbol symbol timestamp timestamp string uint string",
)


class Section(NamedTuple):
    """`begin`: of the section, `value`: of what is in it, `end`: behind it."""

    code: int
    begin: int
    value: int
    end: int


def split(data: bytes) -> list[Section]:
    """The sections of a message, in their order; Malformed if they are no message. It need not have a body, though the
    standard says so: JMS clients send messages without one."""
    found: list[Section] = []
    at, end, last = 0, len(data), 0
    while at < end:
        begin = at
        if data[at : at + 2] == b"\x00\x53" and at + 2 < end:
            code = data[at + 2]
            at += 3
        else:
            code, at = _code(data, at)
        if code < last or not HEADER <= code <= FOOTER or (code == last and code not in (DATA, SEQUENCE)):
            raise Malformed(f"a section {code:#04x} behind {last:#04x}" if last else f"a section {code:#04x}")
        if SEQUENCE <= code <= VALUE and DATA <= last < code:
            raise Malformed("a message with bodies of two kinds")
        value = at
        at = skip(data, at)
        found.append(Section(code, begin, value, at))
        last = code
    if not found:
        raise Malformed("a message without sections")
    return found


def _code(data: bytes, at: int) -> tuple[int, int]:
    if data[at] != 0x00:
        raise Malformed("a section without a descriptor")
    descriptor, at = decode(data, at + 1)
    if isinstance(descriptor, Symbol):
        return _NAMES.get(descriptor, 0), at
    return (int(descriptor) if isinstance(descriptor, int) else 0), at


def read_map(data: bytes, section: Section) -> dict[Any, Any]:
    """Annotations, or application properties."""
    value, _ = decode(data, section.value)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Malformed(f"a section {section.code:#04x} that is not a map")
    return value


def read_header(data: bytes, section: Section) -> Header:
    value = _composite(data, section)
    return value if isinstance(value, Header) else Header()


def read_properties(data: bytes, section: Section) -> MessageProperties:
    value = _composite(data, section)
    return value if isinstance(value, MessageProperties) else MessageProperties()


def _composite(data: bytes, section: Section) -> object:
    value, _ = decode(data, section.value)
    return composites.compose(Described(section.code, value))
