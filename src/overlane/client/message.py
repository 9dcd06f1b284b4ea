"""Messages as applications see them: received messages, published messages and wills."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import mqtt5

from overlane.client.errors import InvalidRequest
from overlane.client.qos import Qos, chosen, duration_s
from overlane.client.stamp import STAMP_PROPERTY, Moment, parse_stamp
from overlane.core.topics import BadTopic, check_topic
from overlane.core.units import Nanos
from overlane.mqtt.codec.writing import expiry_property, properties_of, publish

Properties = Mapping[str, str] | Iterable[tuple[str, str]]
"""MQTT 5 user properties; pairs where a name is to be repeated."""

Body = bytes | bytearray | memoryview | str
"""What a message carries; text goes as UTF-8."""

BODY_BYTES_MAX = 255 * 1024 * 1024
STRING_BYTES_MAX = 65_535


class Receipt:
    """What is owed to the broker for one message of QoS 1 or 2: one acknowledgement, once all its readers are done."""

    __slots__ = ("epoch", "packet", "readers")

    def __init__(self, packet: mqtt5.PublishPacket, epoch: int) -> None:
        self.packet = packet
        self.epoch = epoch
        self.readers = 1


class Message:
    """A message that arrived. It does not change."""

    __slots__ = ("_moment", "_packet", "_receipt")

    def __init__(self, packet: mqtt5.PublishPacket, receipt: Receipt | None = None) -> None:
        self._packet = packet
        self._receipt = receipt
        self._moment: Moment | None = None

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {self.body!r}, qos={int(self.qos)}, retained={self.retained})"

    @property
    def topic(self) -> str:
        """Where it was published."""
        return self._packet.topic

    @property
    def body(self) -> bytes:
        """What was published."""
        return self._packet.payload

    @property
    def text(self) -> str:
        """The body as UTF-8 text; bytes that are none show as U+FFFD."""
        return self._packet.payload.decode("utf-8", "replace")

    @property
    def qos(self) -> Qos:
        """How it crossed from the broker to here: the lower of the publisher's and the subscription's level."""
        return Qos(int(self._packet.qos))

    @property
    def retained(self) -> bool:
        """Whether it is the topic's retained message, published before the subscription was made."""
        return self._packet.retain

    @property
    def repeated(self) -> bool:
        """Whether it may have been delivered before, to this or an earlier run of the application."""
        return self._packet.duplicate

    @property
    def properties(self) -> dict[str, str]:
        """The user properties by name; of a repeated name the last."""
        return dict(self._packet.user_properties)

    @property
    def property_pairs(self) -> list[tuple[str, str]]:
        """All user properties in the order in which the publisher gave them."""
        return self._packet.user_properties

    @property
    def content_type(self) -> str | None:
        """The content type set by the publisher, such as `application/json`."""
        return self._packet.content_type

    @property
    def response_topic(self) -> str | None:
        """Where the publisher waits for an answer."""
        return self._packet.response_topic

    @property
    def correlation_data(self) -> bytes | None:
        """What an answer must carry, so that the publisher knows which question it belongs to."""
        return self._packet.correlation_data

    @property
    def expiry_s(self) -> int | None:
        """Seconds that were left of its expiry when the broker sent it."""
        return self._packet.message_expiry_interval

    @property
    def subscription_ids(self) -> list[int]:
        """Which subscriptions it belongs to, by their identifiers; of use to the client itself."""
        return self._packet.subscription_ids

    @property
    def age_ns(self) -> Nanos | None:
        """How old it was when it arrived here, if it was published with `stamp=True`; see `overlane.client.stamp`."""
        if self._moment is None:
            return None
        stamp = parse_stamp(self.properties.get(STAMP_PROPERTY, ""))
        return None if stamp is None else self._moment.since(stamp)

    # Between the client and the message

    @property
    def receipt(self) -> Receipt | None:
        """What is owed to the broker for it, if anything."""
        return self._receipt

    def arrived(self, moment: Moment) -> None:
        """When it came, for its age."""
        self._moment = moment

    def read_by(self, readers: int) -> None:
        """So many will read it, and it is acknowledged when the last is done."""
        if self._receipt is not None:
            self._receipt.readers = readers


@dataclass(frozen=True, slots=True)
class Publication:
    """One message to be published: checked, and encoded as far as it can be."""

    topic_utf8: bytes
    body: bytes
    qos: Qos = Qos.AT_MOST_ONCE
    retain: bool = False
    expiry_s: int | None = None
    properties: bytes = b""

    @property
    def size_bytes(self) -> int:
        """About what it takes up while it waits."""
        return len(self.topic_utf8) + len(self.body) + len(self.properties)

    def written(self, packet_id: int, expiry_s: int | None, duplicate: bool = False) -> bytes:
        """The PUBLISH packet, with what is left of the expiry."""
        properties = self.properties if expiry_s is None else self.properties + expiry_property(expiry_s)
        return publish(5, self.topic_utf8, self.body, self.qos, self.retain, duplicate, packet_id, properties)


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes for this client when the connection is lost and not back within `delay`."""

    topic: str
    body: Body
    qos: Qos | int = Qos.AT_MOST_ONCE
    retain: bool = False
    delay: str = "0s"
    expiry: str | None = None
    properties: Properties = ()

    def packet(self) -> mqtt5.Will:
        """As encoded for MQTT; `InvalidRequest` if it cannot be encoded."""
        checked_topic(self.topic)
        return mqtt5.Will(
            self.topic,
            payload=checked_body(self.body),
            qos=mqtt5.QoS(chosen(self.qos, None, None)[0]),
            retain=self.retain,
            message_expiry_interval=None if self.expiry is None else duration_s(self.expiry, "expiry"),
            will_delay_interval=duration_s(self.delay, "delay"),
            user_properties=list(checked_pairs(self.properties)),
        )


@lru_cache(1024)
def checked_topic(topic: str) -> bytes:
    """A topic to publish on, in UTF-8."""
    if not isinstance(topic, str):
        raise InvalidRequest(f"got a topic of type {type(topic).__name__}; expected str")
    try:
        check_topic(topic)
    except BadTopic as reason:
        raise InvalidRequest(str(reason)) from None
    return topic.encode()


def checked_body(body: Body) -> bytes:
    if isinstance(body, str):
        try:
            body = body.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("the body is not valid Unicode; pass bytes") from None
    elif isinstance(body, bytearray | memoryview):
        body = bytes(body)
    elif not isinstance(body, bytes):
        raise InvalidRequest(f"got a body of type {type(body).__name__}; expected bytes or str")
    if len(body) > BODY_BYTES_MAX:
        raise InvalidRequest(f"the body has {len(body)} bytes; the maximum is {BODY_BYTES_MAX}")
    return body


def checked_pairs(properties: Properties) -> tuple[tuple[str, str], ...]:
    pairs = tuple(properties.items() if isinstance(properties, Mapping) else properties)
    for name, value in pairs:
        check_string(name)
        check_string(value)
    return pairs


def encoded_properties(
    content_type: str | None,
    response_topic: str | None,
    correlation_data: bytes | None,
    user_properties: tuple[tuple[str, str], ...],
) -> bytes:
    """The properties of a PUBLISH packet besides its expiry."""
    if content_type is None and response_topic is None and correlation_data is None and not user_properties:
        return b""
    if content_type is not None:
        check_string(content_type)
    if response_topic is not None:
        checked_topic(response_topic)
    if correlation_data is not None and len(correlation_data) > STRING_BYTES_MAX:
        raise InvalidRequest(f"the correlation data has {len(correlation_data)} bytes; the maximum is 65535")
    return properties_of(
        mqtt5.PublishPacket(
            "-",
            b"",
            content_type=content_type,
            response_topic=response_topic,
            correlation_data=correlation_data,
            user_properties=list(user_properties),
        )
    )


def check_string(text: str) -> None:
    """MQTT's strings: UTF-8 of at most 65535 bytes, without U+0000."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"{text[:60]!a} is not valid Unicode") from None
    if "\0" in text or size > STRING_BYTES_MAX:
        raise InvalidRequest(f"got {text[:60]!a}; expected at most 65535 bytes without U+0000")
