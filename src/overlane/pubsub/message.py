"""A message while the broker has it, from any protocol.

One message may wait in the queues of many sessions. It is stored once, for as long as some durable queue contains it
(`delivery.queue_records`). Messages that arrived together are one record (`encode_run`): those of one sender that
differ only in topic and payload. A message that is in no durable queue costs the store nothing.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from overlane.core.records import THE_BROKER, RecordKind, numbers_in
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.pubsub.properties import Properties, decode

TABLE = "mqtt.message@2"

EXPIRY_S_MAX = 0xFFFF_FFFF


class Message:
    """`encoded`: its properties in the encoding of `pubsub.properties`, without the expiry.

    `head` and `head_version`: what the protocol it came by wrote in front of it, and which version of it that was, so
    that consumers of the same need not write it anew; b"" where that cannot be used.
    """

    __slots__ = (
        "encoded",
        "expires_ns",
        "head",
        "head_version",
        "payload",
        "place",
        "published_ns",
        "qos",
        "record",
        "retain",
        "sender",
        "size_bytes",
        "topic",
        "topic_utf8",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        encoded: bytes = b"",
        sender: str = "",
        published_ns: Nanos = 0,
        expires_ns: Nanos = NEVER,
        head: bytes = b"",
        head_version: int = 0,
    ) -> None:
        self.topic = topic
        self.topic_utf8 = topic_utf8 = topic.encode()
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.encoded = encoded
        self.sender = sender
        self.published_ns = published_ns
        self.expires_ns = expires_ns
        self.head = head
        self.head_version = head_version
        self.size_bytes = len(payload) + len(topic_utf8) + len(encoded)
        self.record: MessageRecord | None = None
        """The record of a queue's messages that it was last in, and its place there."""
        self.place = 0

    @property
    def properties(self) -> Properties:
        """Decoded anew each time: most messages have none, and most readers do not ask."""
        return decode(self.encoded)

    def is_expired(self, now: Nanos) -> bool:
        """One that expires at once can still be sent at once."""
        return self.expires_ns <= now and self.published_ns < now

    def remaining_s(self, now: Nanos) -> int | None:
        """The expiry interval to be sent on now; None if the message does not expire."""
        if self.expires_ns >= NEVER:
            return None
        return max(0, -((now - self.expires_ns) // SECOND))

    def stored(self) -> bytes:
        """By itself."""
        return _encode(
            (
                self.topic,
                self.payload,
                self.qos,
                self.retain,
                self.encoded,
                self.sender,
                self.published_ns,
                self.expires_ns,
            )
        )


class Run:
    """Messages of QoS 1 of one sender that came together, for the same receivers, and have nothing but topic and
    payload. `is_split`: some receiver has got them one by one."""

    __slots__ = ("is_split", "messages", "size_bytes")

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.size_bytes = sum([message.size_bytes for message in messages])
        self.is_split = False


class MessageRecord:
    """A record of messages. `holders`: how many durable queues, or parts of queues, need any of them. Without holders
    it is erased, and stands for nothing any more."""

    __slots__ = ("holders", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.holders = 0


_encode = msgspec.msgpack.Encoder().encode
_decode_run = msgspec.msgpack.Decoder(
    tuple[Annotated[list[str], Meta(min_length=1)], list[bytes], int, bool, bytes, str, int, int]
).decode
_decode = msgspec.msgpack.Decoder(tuple[str, bytes, int, bool, bytes, str, int, int]).decode


def encode_run(messages: Sequence[Message]) -> bytes:
    """One record of all of them. But for topic and payload they are like the first."""
    one = messages[0]
    return _encode(
        (
            [message.topic for message in messages],
            [message.payload for message in messages],
            one.qos,
            one.retain,
            one.encoded,
            one.sender,
            one.published_ns,
            one.expires_ns,
        )
    )


def restored(value: bytes) -> Message:
    return Message(*_decode(value))


def restored_run(value: bytes) -> list[Message]:
    decoded = _decode_run(value)
    return [Message(topic, payload, *decoded[2:]) for topic, payload in zip(decoded[0], decoded[1], strict=True)]


def expires(published_ns: Nanos, expiry_s: int | None) -> Nanos:
    return NEVER if expiry_s is None else published_ns + expiry_s * SECOND


def key_of(number: int) -> bytes:
    return number.to_bytes(8)


def _upgrade_1(value: bytes) -> bytes:
    """In version 1 every message was a record of its own."""
    topic, payload, *alike = _decode(value)
    return _encode(([topic], [payload], *alike))


MESSAGE_KIND = RecordKind(
    TABLE, lambda _: THE_BROKER, lambda key, value: (numbers_in(key, 1), restored_run(value)), upgrades=(_upgrade_1,)
)
"""They are of no session: the queue entries of any number of them need them."""
