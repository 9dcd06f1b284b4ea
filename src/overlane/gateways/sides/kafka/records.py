"""Records of Kafka as messages, and back; which errors of Kafka end a message; pure.

The first level of a local name is the topic of Kafka, the rest is the key of the record:

    readings/hall/3   topic readings, key hall/3
    readings/         topic readings, empty key
    readings          topic readings, no key

A key that cannot be a part of a topic's name (not UTF-8, wildcards) is in the property `kafka-key`, in Base64. Headers
are user properties; a header that is not text has its value in Base64 behind `base64:`. A record without a value is a
message without a body; outwards, an empty message with the retain flag is a record without a value: both remove
what is kept of a name.
"""

import base64
import re
from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import KafkaError

from overlane.core.topics import BadTopic, check_topic
from overlane.gateways.message import BridgedMessage

CONTENT_TYPE = "content-type"
KEY = "kafka-key"
BINARY = "base64:"
TEXT_MAX = 16_383
"""Characters of a header; each has at most 4 bytes, and a property of MQTT at most 65,535. A longer one is left out."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

FINAL_ERRORS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
    }
)
"""The same record would be refused again. All other errors may pass: the message waits, and is sent again."""


class Record(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def is_kafka_topic(name: str) -> bool:
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def record_of(message: BridgedMessage) -> Record | None:
    """None if the first level is no name that Kafka allows."""
    topic, slash, rest = message.topic.partition("/")
    if not is_kafka_topic(topic):
        return None
    headers = [(name, value.encode()) for name, value in message.properties]
    if message.content_type is not None:
        headers.append((CONTENT_TYPE, message.content_type.encode()))
    removes = message.retain and not message.body
    return Record(topic, rest.encode() if slash else None, None if removes else message.body, tuple(headers))


def message_of(
    topic: str, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> BridgedMessage:
    name = topic
    properties: list[tuple[str, str]] = []
    content_type = None
    if key is not None:
        name = _named(topic, key)
        if name == topic:
            properties.append((KEY, base64.b64encode(key).decode()))
    for header, content in headers:
        text = _text(content or b"")
        if header == CONTENT_TYPE and len(text) <= TEXT_MAX:
            content_type = text
        elif max(len(text), len(header)) <= TEXT_MAX and "\0" not in header:
            properties.append((header, text))
    return BridgedMessage(name, value or b"", content_type=content_type, properties=tuple(properties))


def _named(topic: str, key: bytes) -> str:
    """The topic alone, if the key is no part of a name."""
    try:
        name = f"{topic}/{key.decode()}"
        check_topic(name)
    except (UnicodeDecodeError, BadTopic):
        return topic
    return name


def _text(content: bytes) -> str:
    """As MQTT allows it in properties."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    return BINARY + base64.b64encode(content).decode() if "\0" in text else text
