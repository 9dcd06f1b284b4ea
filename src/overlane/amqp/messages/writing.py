"""From a message of the broker to one of AMQP: the opposite of `reading`."""

from base64 import b64decode
from binascii import Error as BadBase64
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from overlane.amqp.codec import composites, encoding
from overlane.amqp.codec.malformed import AmqpError
from overlane.amqp.messages import sections
from overlane.amqp.messages.reading import DATA_BODY, ENCODED_BODY, EXTRAS, HEAD_BYTES_KEPT, HEADS_KEPT, RETAIN, TOPIC
from overlane.amqp.messages.sections import MessageProperties, Section
from overlane.core.units import MS, NEVER, Nanos
from overlane.pubsub import properties
from overlane.pubsub.message import Message
from overlane.pubsub.properties import Properties

TTL_MS_MAX = 0xFFFF_FFFF
_U32 = Struct("!I").pack


def write_message(message: Message, qos: int, retain: bool, tries: int, now: Nanos) -> bytes:
    """`tries`: how often it was sent before."""
    if not message.encoded and message.expires_ns >= NEVER:
        head = _durable(tries) if qos else (_volatile(tries) if tries else b"")
        return head + (_retained(message.topic) if retain else _annotated(message.topic)) + _data(message.payload)
    is_lasting = message.expires_ns >= NEVER
    if is_lasting and len(message.encoded) <= HEAD_BYTES_KEPT:
        written = _kept_head(message.topic, message.encoded, qos, retain, tries)
    else:
        ttl_ms = None if is_lasting else _ttl(message, now)
        written = write_head(message.topic, message.properties, qos, retain, tries, ttl_ms)
    return written.sections + write_body(message.payload, written)


class Head(NamedTuple):
    """The sections in front of a body, and how that is to be written."""

    sections: bytes
    is_text: bool
    is_encoded: bool


@lru_cache(maxsize=HEADS_KEPT)
def _kept_head(topic: str, encoded: bytes, qos: int, retain: bool, tries: int) -> Head:
    """Of properties in the encoding of `pubsub.properties`: most publishers give each message the same."""
    return write_head(topic, properties.decode(encoded), qos, retain, tries, None)


def write_head(topic: str, values: Properties, qos: int, retain: bool, tries: int, ttl_ms: int | None) -> Head:
    extras, is_encoded, pairs = read_extras(values)
    header = [encoding.TRUE if qos else encoding.FALSE, encoding.NULL]
    annotations: dict[object, object] = {}
    about = application = b""
    for section, raw in extras:
        match section.code:
            case sections.HEADER:
                priority = sections.read_header(raw, section).priority
                header[1] = encoding.NULL if priority is None else bytes((0x50, priority))
            case sections.MESSAGE_ANNOTATIONS:
                annotations = sections.read_map(raw, section)
            case sections.PROPERTIES:
                about = _without_user(raw, section)
            case sections.APPLICATION_PROPERTIES:
                application = raw[section.begin : section.end]
            case _:
                pass
    header += [encoding.NULL if ttl_ms is None else encoding.uint(ttl_ms), encoding.NULL, encoding.uint(tries)]
    annotations[TOPIC] = topic
    if retain:
        annotations[RETAIN] = True
    if not about:
        about = _about(topic, values)
    if not application and pairs:
        application = _application(pairs)
    written = b"".join(
        (
            encoding.described(sections.HEADER, encoding.list_of(header)),
            encoding.described(sections.MESSAGE_ANNOTATIONS, encoding.encode(annotations)),
            about,
            application,
        )
    )
    return Head(written, values.is_text, is_encoded)


def read_extras(values: Properties) -> tuple[list[tuple[Section, bytes]], bool, list[tuple[str, str]]]:
    """The sections that came with the message, whether its payload is sections too, and the other user properties.
    What is not as the broker writes it was made by somebody else, and is left out."""
    pairs = [pair for pair in values.user_properties if pair[0] != EXTRAS]
    if len(pairs) == len(values.user_properties):
        return [], False, pairs
    text = next(value for name, value in values.user_properties if name == EXTRAS)
    is_encoded = text.startswith(ENCODED_BODY)
    if not is_encoded and not text.startswith(DATA_BODY):
        return [], False, pairs
    try:
        raw = b64decode(text.partition(":")[2], validate=True)
        found = sections.split(raw + _data(b""))[:-1]  # there may be none
        for section in found:
            _check(raw, section)
    except (AmqpError, BadBase64, ValueError):
        return [], is_encoded, pairs
    return [(section, raw) for section in found], is_encoded, pairs


def _check(raw: bytes, section: Section) -> None:
    match section.code:
        case sections.HEADER:
            sections.read_header(raw, section)
        case sections.PROPERTIES:
            sections.read_properties(raw, section)
        case _:
            sections.read_map(raw, section)


def _without_user(raw: bytes, section: Section) -> bytes:
    """The properties as they were sent, but for the user: a reader could take it for one that was authenticated."""
    about = sections.read_properties(raw, section)
    if about.user_id is None:
        return raw[section.begin : section.end]
    return composites.write(about._replace(user_id=None))


def _about(topic: str, values: Properties) -> bytes:
    return composites.write(
        MessageProperties(
            to=topic,
            reply_to=values.response_topic,
            correlation_id=values.correlation_data,
            content_type=_ascii(values.content_type),
        )
    )


def _ascii(text: str | None) -> str | None:
    return text if text is not None and text.isascii() else None


def _application(pairs: list[tuple[str, str]]) -> bytes:
    """Of several with one name the last: a map has each once."""
    items = [encoding.string(one) for pair in dict(pairs).items() for one in pair]
    return encoding.described(sections.APPLICATION_PROPERTIES, encoding.map_of(items))


def _ttl(message: Message, now: Nanos) -> int:
    return min(max(0, -((now - message.expires_ns) // MS)), TTL_MS_MAX)


def write_body(payload: bytes, head: Head) -> bytes:
    if head.is_encoded and (not payload or _is_body(payload)):
        return payload
    if head.is_text:
        try:
            return encoding.described(sections.VALUE, encoding.string(payload.decode()))
        except UnicodeDecodeError:
            pass  # its publisher was wrong about it
    return _data(payload)


def _is_body(payload: bytes) -> bool:
    """Whether it is sections of a body: it is what a client said, perhaps of another protocol."""
    try:
        return all(sections.DATA <= one.code <= sections.VALUE for one in sections.split(payload))
    except AmqpError:
        return False


def _data(payload: bytes) -> bytes:
    size = len(payload)
    if size <= 0xFF:
        return b"\x00\x53\x75\xa0" + bytes((size,)) + payload
    return b"\x00\x53\x75\xb0" + _U32(size) + payload


@lru_cache(maxsize=1024)
def _durable(tries: int) -> bytes:
    fields = [encoding.TRUE, *([encoding.NULL] * 3 + [encoding.uint(tries)] if tries else [])]
    return encoding.described(sections.HEADER, encoding.list_of(fields))


@lru_cache(maxsize=1024)
def _volatile(tries: int) -> bytes:
    return encoding.described(sections.HEADER, encoding.list_of([encoding.NULL] * 4 + [encoding.uint(tries)]))


@lru_cache(maxsize=4096)
def _annotated(topic: str) -> bytes:
    return encoding.described(sections.MESSAGE_ANNOTATIONS, encoding.encode({TOPIC: topic}))


@lru_cache(maxsize=256)
def _retained(topic: str) -> bytes:
    return encoding.described(sections.MESSAGE_ANNOTATIONS, encoding.encode({TOPIC: topic, RETAIN: True}))
