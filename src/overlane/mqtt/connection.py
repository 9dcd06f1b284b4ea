"""A connection: what the server knows of one MQTT client's network connection, and what it has to send to it.

What it has in common with connections of other protocols is in `pubsub.connection`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import mqtt5

from overlane.core.units import NEVER, Nanos
from overlane.mqtt.codec import codec5, codec311, writing
from overlane.mqtt.codec.framing import Framer
from overlane.mqtt.read_ahead import ReadAhead
from overlane.mqtt.reasons import disconnect_reason
from overlane.pubsub.contract.connection import ClientConnection, Phase
from overlane.pubsub.contract.consumer import Ending, Peer
from overlane.pubsub.delivery.window import TAGS
from overlane.pubsub.limits import Limits
from overlane.pubsub.message import Message

if TYPE_CHECKING:
    from overlane.mqtt.fast_path import TopicEntry
    from overlane.pubsub.delivery.window import Entry
    from overlane.pubsub.sessions.session import Session

V5 = 5
UNKNOWN = 0
"""The version of a client that has not said it yet."""
ERRORS = 0x80
"""Reason codes from here on are errors."""


class Connection(ClientConnection):
    __slots__ = (
        "ahead",
        "aliases_in",
        "aliases_out",
        "aliases_out_max",
        "entries",
        "entries_of",
        "framer",
        "is_bridge",
        "limits_told",
        "packet_bytes_max",
        "received_before",
        "tells_problems",
        "version",
    )

    def __init__(self, peer: Peer, limits: Limits, touched: list[ClientConnection], now: Nanos) -> None:
        super().__init__(peer, touched, now)
        self.version = UNKNOWN
        self.is_bridge = False
        """Whether it wants nothing back that it has published, and retained messages marked as such."""
        self.framer = Framer(limits.packet_bytes_before_connect)
        self.ahead: ReadAhead | None = None
        """What it has sent since it has to rest, or to stop; None if it need not, or was not listened to since."""
        self.received_before = 0
        """QoS 2 messages of earlier connections that were not released when this one began: they are not counted."""
        self.packet_bytes_max = NEVER
        """What the client takes."""
        self.tells_problems = True
        self.aliases_in: dict[int, str] | None = None
        self.aliases_out: dict[str, int] | None = None
        """None until there are any: few clients use them."""
        self.aliases_out_max = 0
        self.limits_told = limits
        """Those that CONNACK told: a client that keeps to them does nothing wrong, though they were lowered since."""
        self.entries: dict[bytes, TopicEntry] = {}
        """The topics that this client's plain messages pass on the fast path, by their bytes in a packet."""
        self.entries_of = -1
        """The state of subscriptions and rights that `entries` holds for."""

    @property
    def protocol(self) -> str:
        return "MQTT 5.0" if self.version == V5 else "MQTT 3.1.1"

    @property
    def is_stranger(self) -> bool:
        return self.version == UNKNOWN

    @property
    def has_acknowledgements_ahead(self) -> bool:
        return self.ahead is not None and bool(self.ahead.acknowledgements)

    @property
    def waiting_bytes(self) -> int:
        """What it has sent and was not looked at yet."""
        return self.framer.waiting_bytes if self.ahead is None else self.ahead.waiting_bytes

    def may_have_more_under_way(self, session: "Session") -> bool:
        """Whether the client keeps to the receive maximum that it was told if it publishes one more message."""
        under_way = len(session.received) - self.received_before + self.acks_held
        return under_way < self.limits_told.in_flight

    # Sending

    def send_packet(self, packet: mqtt5.Packet) -> bool:
        """False if the client does not take packets of this size (MQTT 5, section 3.1.2.11.4)."""
        data = codec5.write(packet) if self.version == V5 else codec311.write(packet)
        if len(data) > self.packet_bytes_max:
            return False
        self.send(data)
        return True

    def send_explained(self, packet: Callable[[str | None], mqtt5.Packet], told: str | None) -> bool:
        """A packet with a sentence for people, where the client wants such, and takes a packet of that size."""
        if told is not None and self.tells_problems and self.version == V5 and self.send_packet(packet(told)):
            return True
        return self.send_packet(packet(None))

    def take(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        now: Nanos,
        tag: int = 0,
        again: bool = False,
    ) -> bool:
        """A message for this client, as PUBLISH. False if the client does not take packets of this size."""
        topic = message.topic_utf8
        properties = b""
        if self.version == V5:
            properties = message.encoded
            if (remaining_s := message.remaining_s(now)) is not None:
                properties += writing.expiry_property(remaining_s)
            for identifier in identifiers:
                properties += writing.subscription_id_property(identifier)
            if self.aliases_out_max:
                if self.aliases_out is None:
                    self.aliases_out = {}
                alias = self.aliases_out.get(message.topic)
                if alias is not None:
                    topic = b""
                elif len(self.aliases_out) < self.aliases_out_max:
                    alias = self.aliases_out[message.topic] = len(self.aliases_out) + 1
                if alias is not None:
                    properties += writing.topic_alias_property(alias)
        data = writing.publish(self.version, topic, message.payload, qos, retain, again, tag, properties)
        if len(data) > self.packet_bytes_max:
            if topic and self.aliases_out is not None:
                self.aliases_out.pop(message.topic, None)
            return False
        self.messages_out += 1
        self.send(data)
        return True

    def take_run(self, entries: "Sequence[Entry]") -> bool:
        """Messages for this client, as PUBLISH packets of QoS 1."""
        version = self.version
        if self.packet_bytes_max < NEVER or self.aliases_out_max:
            return False
        pack = writing.TAG_V5 if version == V5 else writing.TAG
        pieces: list[bytes] = []
        for entry in entries:
            message, tag = entry.message, entry.sequence % TAGS + 1
            if message.head_version == version:
                pieces += (message.head, pack(tag), message.payload)
            else:
                pieces.append(writing.publish(version, message.topic_utf8, message.payload, 1, False, False, tag, b""))
        self.messages_out += len(entries)
        self.send(b"".join(pieces))
        return True

    def release(self, tag: int) -> None:
        """PUBREL."""
        self.send(writing.ack(self.version, writing.PUBREL, tag, 0))

    # The end

    def end(self, ending: Ending, why: str) -> None:
        self.close(disconnect_reason(ending), why)

    def close(self, reason: int, why: str) -> None:
        """Say goodbye, with the reason where the protocol has a way to say it; the driver closes after sending."""
        if self.phase is Phase.CLOSED:
            return
        if self.phase is Phase.OPEN and self.version == V5 and reason >= 0:
            code = _disconnect_reason(reason)
            self.send_explained(
                lambda told: mqtt5.DisconnectPacket(reason_code=code, reason_str=told),
                why if reason >= ERRORS else None,
            )
        self.shut(why)


def _disconnect_reason(reason: int) -> mqtt5.DisconnectReasonCode:
    """The nearest that DISCONNECT can tell."""
    try:
        return mqtt5.DisconnectReasonCode(reason)
    except ValueError:
        return mqtt5.DisconnectReasonCode.MALFORMED_PACKET
