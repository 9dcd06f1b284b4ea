"""From a message of AMQP to one of the broker.

    data sections              payload: their bytes
    a value that is a string   payload: UTF-8, declared as text
    any other value, sequences payload: the sections as they are; without a body, none
    content-type, reply-to     content type, response topic
    correlation-id             correlation data: bytes as they are, anything else as text
    application properties     user properties, as text
    ttl, absolute expiry       expiry
    x-opt-retain annotation    retained

What the broker has no field for, or not of the same type, is kept beside that: the sections themselves, in a user
property (`EXTRAS`), so that another AMQP client gets the message as it was sent. Other protocols see the rest.
"""

from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from overlane.amqp.addresses import topic_of
from overlane.amqp.codec import encoding
from overlane.amqp.codec.decoding import decode
from overlane.amqp.codec.malformed import INVALID_FIELD, RESOURCE_LIMIT, AmqpError, Malformed
from overlane.amqp.codec.types import Symbol, Timestamp, Uuid
from overlane.amqp.messages import sections
from overlane.amqp.messages.sections import MessageProperties, Section
from overlane.pubsub import properties as kept

EXTRAS = "overlane-amqp"
"""The user property with sections: `data:` or `encoded:`, by what the payload is, and base64."""
DATA_BODY = "data:"
ENCODED_BODY = "encoded:"

RETAIN = Symbol("x-opt-retain")
TOPIC = Symbol("x-opt-topic")
PRIORITY_DEFAULT = 4
_TEXTS_MAX = kept.BYTES_MAX


class Incoming(NamedTuple):
    payload: bytes
    properties: bytes
    """In the encoding of `pubsub.properties`."""
    user_properties: tuple[tuple[str, str], ...]
    to: str | None
    user: bytes | None
    retain: bool
    ttl_ms: int | None
    expires_ms: int | None
    """Milliseconds since 1970."""
    subject: str | None
    annotations: Mapping[object, object]
    """All, as they were sent."""


class _Head(NamedTuple):
    """What `Incoming` has behind the payload: all that the sections in front of the body say."""

    properties: bytes
    user_properties: tuple[tuple[str, str], ...]
    to: str | None
    user: bytes | None
    retain: bool
    ttl_ms: int | None
    expires_ms: int | None
    subject: str | None
    annotations: Mapping[object, object]


PLAIN_DATA = b"\x00\x53\x75"
HEAD_BYTES_KEPT = 1_024
HEADS_KEPT = 1_024
"""Most clients write the same in front of each body, gateways always: so it is read once. At most 1 MiB is kept."""


def read_message(data: bytes, user_properties_max: int) -> Incoming:
    """AmqpError if the message cannot be what it says, or is too much."""
    parts = sections.split(data)
    if len(parts) == 1 and data.startswith(PLAIN_DATA):
        return Incoming(_binary(data, parts[0]), *_NO_HEAD)
    end = next((one.begin for one in parts if one.code >= sections.DATA), len(data))
    body = [one for one in parts if sections.DATA <= one.code <= sections.VALUE]
    payload, is_text, is_encoded = _body(data, body)
    read = _kept_head if end <= HEAD_BYTES_KEPT else _read_head
    return Incoming(payload, *read(data[:end], is_text, is_encoded, user_properties_max))


def _read_head(data: bytes, is_text: bool, is_encoded: bool, user_properties_max: int) -> _Head:
    by_code = {one.code: one for one in sections.split(data)} if data else {}
    extras: list[bytes] = []
    ttl_ms: int | None = None
    if (found := by_code.get(sections.HEADER)) is not None:
        header = sections.read_header(data, found)
        ttl_ms = header.ttl
        if header.priority not in (None, PRIORITY_DEFAULT):
            extras.append(
                encoding.described(sections.HEADER, encoding.list_of([encoding.NULL, _ubyte(header.priority)]))
            )
    retain = False
    annotations: dict[object, object] = {}
    if (found := by_code.get(sections.MESSAGE_ANNOTATIONS)) is not None:
        annotations = sections.read_map(data, found)
        retain = annotations.get(RETAIN) is True
        others = {name: value for name, value in annotations.items() if name not in (RETAIN, TOPIC)}
        if others:
            extras.append(encoding.described(sections.MESSAGE_ANNOTATIONS, encoding.encode(others)))
    about = MessageProperties()
    if (found := by_code.get(sections.PROPERTIES)) is not None:
        about = sections.read_properties(data, found)
        if not _is_expressible(about):
            extras.append(data[found.begin : found.end])
    pairs: tuple[tuple[str, str], ...] = ()
    if (found := by_code.get(sections.APPLICATION_PROPERTIES)) is not None:
        pairs, are_texts = _pairs(sections.read_map(data, found), user_properties_max)
        if not are_texts:
            extras.append(data[found.begin : found.end])
    return _Head(
        _properties(about, pairs, is_text, is_encoded, extras),
        pairs,
        _address(about.to, "to"),
        about.user_id,
        retain,
        ttl_ms,
        about.absolute_expiry_time,
        about.subject,
        MappingProxyType(annotations),
    )


_kept_head = lru_cache(maxsize=HEADS_KEPT)(_read_head)
_NO_HEAD = _Head(b"", (), None, None, False, None, None, None, MappingProxyType({}))


def _ubyte(value: int | None) -> bytes:
    return bytes((0x50, value or 0))


def _properties(
    about: MessageProperties, pairs: tuple[tuple[str, str], ...], is_text: bool, is_encoded: bool, extras: list[bytes]
) -> bytes:
    if extras or is_encoded:
        text = (ENCODED_BODY if is_encoded else DATA_BODY) + b64encode(b"".join(extras)).decode()
        if len(text) > _TEXTS_MAX:
            raise AmqpError(RESOURCE_LIMIT, f"properties and annotations of more than {_TEXTS_MAX * 3 // 4} bytes")
        pairs = (*pairs, (EXTRAS, text))
    if not pairs and not is_text and about == _NOTHING:
        return b""
    reply_to = _address(about.reply_to, "reply-to")
    try:
        return kept.Properties(
            about.content_type,
            None if reply_to is None else topic_of(reply_to),
            _correlation(about.correlation_id),
            is_text,
            pairs,
        ).encode()
    except ValueError as error:
        raise AmqpError(INVALID_FIELD, str(error)) from None


_NOTHING = MessageProperties()


def _is_expressible(about: MessageProperties) -> bool:
    """Whether the broker has a field, of the same type, for everything that is there."""
    if about.correlation_id is not None and type(about.correlation_id) is not bytes:
        return False
    if about.reply_to is not None and about.reply_to != topic_of(str(about.reply_to)):
        return False
    return about._replace(correlation_id=None, reply_to=None, content_type=None) == _NOTHING


def _correlation(value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bytes) and not isinstance(value, Uuid):
        return value
    return as_text(value).encode()


def _address(value: object, field: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise AmqpError(INVALID_FIELD, f"{field}: an address that is not a string")


def _pairs(values: dict[object, object], at_most: int) -> tuple[tuple[tuple[str, str], ...], bool]:
    """User properties, and whether all values were strings."""
    if len(values) > at_most:
        raise AmqpError(RESOURCE_LIMIT, f"{len(values)} application properties; at most {at_most} are allowed")
    pairs: list[tuple[str, str]] = []
    are_texts = True
    for name, value in values.items():
        if not isinstance(name, str):
            raise AmqpError(INVALID_FIELD, "an application property whose name is not a string")
        if name == EXTRAS:
            continue
        if type(value) is str:
            pairs.append((name, value))
        else:
            are_texts = False
            pairs.append((name, as_text(value)))
    return tuple(pairs), are_texts


def as_text(value: object) -> str:
    """As other protocols see it."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return str(value)
        case Timestamp() | int() | float():
            return repr(float(value)) if isinstance(value, float) else str(int(value))
        case Uuid():
            raw = value.hex()
            return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
        case bytes():
            return value.hex()
        case _:
            raise AmqpError(INVALID_FIELD, "an application property that is a list, map or array")


def _body(data: bytes, body: list[Section]) -> tuple[bytes, bool, bool]:
    """The payload, whether it is text, and whether it is sections as they are: perhaps none."""
    if not body:
        return b"", False, True
    if body[0].code == sections.DATA:
        return b"".join([_binary(data, one) for one in body]), False, False
    if body[0].code == sections.VALUE and data[body[0].value] in (0xA1, 0xB1):
        value, _ = decode(data, body[0].value)
        if isinstance(value, str):
            return value.encode(), True, False
    return data[body[0].begin : body[-1].end], False, True


def _binary(data: bytes, section: Section) -> bytes:
    if data[section.value] == 0xA0:
        return data[section.value + 2 : section.end]
    if data[section.value] == 0xB0:
        return data[section.value + 5 : section.end]
    raise Malformed("a data section that is not binary")
