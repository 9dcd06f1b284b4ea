"""A message while the broker has it, whatever protocol it came by.

One message may wait in many sessions' queues. It is stored once, under its number, for as long as some durable queue
holds it: `holders` counts those. A message that no durable queue holds has the number 0 and costs the store nothing.
"""

import msgspec

from overlane.core.records import THE_BROKER, Kind, numbers_in
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.pubsub.properties import Properties, decode

TABLE = "mqtt.message"

EXPIRY_S_MAX = 0xFFFF_FFFF


class Message:
    """`encoded`: its properties in the encoding of `pubsub.properties`, without the expiry."""

    __slots__ = (
        "encoded",
        "expires_ns",
        "holders",
        "number",
        "payload",
        "published_ns",
        "qos",
        "retain",
        "sender",
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
    ) -> None:
        self.topic = topic
        self.topic_utf8 = topic.encode()
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.encoded = encoded
        self.sender = sender
        self.published_ns = published_ns
        self.expires_ns = expires_ns
        self.number = 0
        self.holders = 0

    @property
    def size_bytes(self) -> int:
        return len(self.payload) + len(self.topic_utf8) + len(self.encoded)

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


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, bytes, int, bool, bytes, str, int, int]).decode


def restored(value: bytes) -> Message:
    return Message(*_decode(value))


def expires(published_ns: Nanos, expiry_s: int | None) -> Nanos:
    return NEVER if expiry_s is None else published_ns + expiry_s * SECOND


def key_of(number: int) -> bytes:
    return number.to_bytes(8)


MESSAGE_KIND = Kind(TABLE, lambda _: THE_BROKER, lambda key, value: (numbers_in(key, 1), _decode(value)))
"""It is of no session: the queue entries of any number of them need it."""
