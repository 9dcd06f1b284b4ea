"""The protocol: the client side of MQTT 5 over any number of connections, as a state machine without I/O.

    OFFLINE --opened--> GREETING --CONNACK--> ONLINE --disconnect--> LEAVING
       ^                   |                    |                       |
       +------------------- lost --------------------------------------+

Bytes and calls go in with the time; events come back, and bytes for the broker are collected in `out`. Each part has
one responsibility: `Outgoing` published messages, `Incoming` acknowledgements of received messages, `Subscribing`
subscriptions, `KeepAlive` pings and timeouts. Their state survives a lost connection; only the framing of bytes does
not.

After `ConnectRefused`, `ServerDisconnected` or `ConnectionFailed` the driver closes the connection and reports it with
`lost`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import assert_never

import mqtt5

from overlane.client.message import Publication, Receipt
from overlane.client.protocol.events import (
    Connected,
    ConnectionFailed,
    ConnectRefused,
    Event,
    Sending,
    ServerDisconnected,
)
from overlane.client.protocol.incoming import Incoming
from overlane.client.protocol.keep_alive import KeepAlive
from overlane.client.protocol.outgoing import BrokerLimits, Outgoing
from overlane.client.protocol.packet_ids import PacketIds
from overlane.client.protocol.subscribing import Subscribing, WantedSubscription
from overlane.core.units import SECOND, Nanos
from overlane.mqtt.codec import codec5
from overlane.mqtt.codec.framing import Framer
from overlane.mqtt.codec.malformed import PROTOCOL_ERROR, Malformed
from overlane.mqtt.codec.writing import PINGREQ
from overlane.mqtt.placing import ALTERNATIVE_PROPERTY, HERE_WANTED, REDIRECT_WANTED
from overlane.pubsub.sessions.deduplication import PROPERTY

PACKET_BYTES_LIMIT = 1 << 28
ALTERNATIVES_READ = 16
DISCONNECT_REASONS = frozenset({0x81, 0x82, 0x90, 0x94, 0x95, 0x99})
"""Reason codes that a client may send in DISCONNECT because of a packet."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How the client presents itself to a broker."""

    client_id: str
    user: str | None = None
    password: bytes | None = None
    clean_start: bool = True
    session_expiry_s: int = 0
    keep_alive_s: int = 30
    receive_max: int = 1_000
    packet_bytes_max: int = 16 * 1024 * 1024
    will: mqtt5.Will | None = None
    redirect: bool = False
    is_here: bool = False
    """Whether the session belongs to the broker that it is asked of, whose name ends the client's."""
    """Whether to ask brokers for the address of the one that has the session."""
    run: str = ""
    """What this life of the client is called, for brokers that let it have QoS 1 messages once; "" asks for nothing."""


class SessionStage(Enum):
    OFFLINE = auto()
    GREETING = auto()
    ONLINE = auto()
    LEAVING = auto()


class Protocol:
    def __init__(self, settings: SessionSettings) -> None:
        self._settings = settings
        self.out: list[bytes] = []
        """Bytes for the broker, in order. The driver takes them out."""
        ids = PacketIds()
        self._outgoing = Outgoing(ids, self.out)
        self._incoming = Incoming(self.out)
        self._subscribing = Subscribing(ids, self.out)
        self._keepalive = KeepAlive()
        self._framer = Framer(settings.packet_bytes_max)
        self._stage = SessionStage.OFFLINE
        self._writable = True
        self._was_connected = False
        self.limits = BrokerLimits()

    # What the driver may ask

    @property
    def online(self) -> bool:
        return self._stage is SessionStage.ONLINE

    @property
    def is_writable(self) -> bool:
        """Whether what is published now would leave now."""
        return self._writable and self.online

    @property
    def waiting(self) -> int:
        """How many publications have not been sent."""
        return self._outgoing.waiting

    @property
    def waiting_bytes(self) -> int:
        return self._outgoing.waiting_bytes

    @property
    def unanswered(self) -> int:
        """How many requests the broker has yet to answer."""
        return self._outgoing.unanswered + self._subscribing.unanswered

    @property
    def next_deadline(self) -> Nanos:
        return min(self._keepalive.ask_at, self._keepalive.dead_at)

    # The connection

    def opened(self, *, is_redirected: bool = True) -> None:
        """A connection to the broker is there: introduce ourselves. `is_redirected`: let it name another, if that is
        wanted at all."""
        settings = self._settings
        properties = [(PROPERTY, settings.run)] if settings.run else []
        if settings.is_here:
            properties.append(HERE_WANTED)
        if settings.redirect and is_redirected:
            properties.append(REDIRECT_WANTED)
        self._stage = SessionStage.GREETING
        self._framer = Framer(settings.packet_bytes_max)
        self._writable = True
        self.out.clear()
        connect = mqtt5.ConnectPacket(
            settings.client_id,
            username=settings.user,
            password=settings.password,
            clean_start=settings.clean_start and not self._was_connected,
            will=settings.will,
            keep_alive=settings.keep_alive_s,
            session_expiry_interval=settings.session_expiry_s,
            receive_max=settings.receive_max,
            max_packet_size=settings.packet_bytes_max,
            user_properties=properties or None,
        )
        self.out.append(codec5.write(connect))

    def receive(self, data: bytes, now: Nanos) -> list[Event]:
        events: list[Event] = []
        if self._is_offline():
            return events
        self._keepalive.heard(now)
        try:
            for view in self._framer.feed(data):
                packet = codec5.read(view)
                if isinstance(packet, mqtt5.PublishPacket):
                    self._arrived(packet, events)
                else:
                    events += self._handle(packet, now)
                if self._is_offline():
                    return events
        except Malformed as wrong:
            return [*events, self._give_up(wrong)]
        if self.online:
            events += self._pump(now)
        return events

    def lost(self) -> None:
        """The connection is gone. What was owed and wanted is kept for the next one."""
        self._stage = SessionStage.OFFLINE
        self._incoming.lost()
        self._subscribing.lost()
        self._keepalive.end()
        self.out.clear()

    def disconnect(self, end_session: bool) -> None:
        """Take leave. `end_session`: the broker need not keep anything for us."""
        if self.online:
            expiry_s = 0 if end_session and self._settings.session_expiry_s else None
            self.out.append(codec5.write(mqtt5.DisconnectPacket(session_expiry_interval=expiry_s)))
        self._stage = SessionStage.LEAVING

    def writable(self, writable: bool, now: Nanos) -> list[Event]:
        """Whether the connection takes more bytes; publications wait while it does not."""
        self._writable = writable
        return self._pump(now)

    def listening(self, listening: bool, now: Nanos) -> None:
        """Whether the driver reads what the broker sends."""
        self._keepalive.listen(listening, now)

    def sent(self, now: Nanos) -> None:
        """The driver sent bytes."""
        self._keepalive.sent(now)

    def tick(self, now: Nanos) -> list[Event]:
        """The next deadline has come."""
        if now >= self._keepalive.dead_at:
            self._stage = SessionStage.OFFLINE
            return [ConnectionFailed("the broker has been silent for too long", is_violation=False)]
        if now >= self._keepalive.ask_at:
            self.out.append(PINGREQ)
            self._keepalive.asked(now)
            self._keepalive.sent(now)
        return []

    # What the application wants

    @property
    def heard_at(self) -> Nanos:
        return self._keepalive.heard_at

    def ping(self, now: Nanos) -> None:
        """Send a PINGREQ, whatever was agreed."""
        self._keepalive.asked(now)
        self.out.append(PINGREQ)

    def publish(self, publication: Publication, now: Nanos) -> tuple[Sending, list[Event]]:
        sending = self._outgoing.publish(publication, now)
        return sending, self._pump(now)

    def withdraw(self, sending: Sending) -> None:
        """Nobody waits for the publication any more: it is not sent, if it has not been."""
        self._outgoing.withdraw(sending)

    def subscribe(self, number: int, wanted: WantedSubscription) -> None:
        self._subscribing.subscribe(number, wanted)

    def unsubscribe(self, number: int) -> None:
        self._subscribing.unsubscribe(number)

    def forget(self, number: int) -> None:
        """Leave the subscription to the session: it is neither ended nor renewed."""
        self._subscribing.forget(number)

    def done(self, receipt: Receipt) -> None:
        """A reader of a message is done with it."""
        self._incoming.done(receipt)

    # Inside

    def _is_offline(self) -> bool:
        return self._stage is SessionStage.OFFLINE

    def _pump(self, now: Nanos) -> list[Event]:
        return self._outgoing.pump(now) if self.is_writable else []

    def _arrived(self, packet: mqtt5.PublishPacket, events: list[Event]) -> None:
        if self._stage is SessionStage.GREETING:
            raise Malformed(PROTOCOL_ERROR, "PUBLISH before CONNACK")
        message = self._incoming.arrived(packet)
        if message is not None:
            events.append(message)

    def _handle(self, packet: mqtt5.Packet, now: Nanos) -> Iterator[Event]:
        if isinstance(packet, mqtt5.ConnAckPacket) is not (self._stage is SessionStage.GREETING):
            raise Malformed(PROTOCOL_ERROR, f"{type(packet).__name__} at the wrong time")
        match packet:
            case mqtt5.PubAckPacket() | mqtt5.PubRecPacket() | mqtt5.PubCompPacket():
                yield from self._outgoing.answered(packet)
            case mqtt5.PubRelPacket():
                self._incoming.released(packet.packet_id)
            case mqtt5.SubAckPacket():
                yield from self._subscribing.subscribed(packet)
            case mqtt5.UnsubAckPacket():
                yield from self._subscribing.unsubscribed(packet)
            case mqtt5.PingRespPacket():
                pass
            case mqtt5.ConnAckPacket():
                yield from self._greeted(packet, now)
            case mqtt5.DisconnectPacket():
                self._stage = SessionStage.OFFLINE
                yield ServerDisconnected(int(packet.reason_code), packet.reason_str or "")
            case (
                mqtt5.ConnectPacket()
                | mqtt5.PublishPacket()
                | mqtt5.SubscribePacket()
                | mqtt5.UnsubscribePacket()
                | mqtt5.PingReqPacket()
                | mqtt5.AuthPacket()
            ):
                raise Malformed(PROTOCOL_ERROR, f"{type(packet).__name__} from a broker")
            case _:
                assert_never(packet)

    def _greeted(self, packet: mqtt5.ConnAckPacket, now: Nanos) -> Iterator[Event]:
        if code := int(packet.reason_code):
            self._stage = SessionStage.OFFLINE
            yield ConnectRefused(code, packet.reason_str or "", packet.server_reference or "")
            return
        self._stage = SessionStage.ONLINE
        keep_alive_s = self._settings.keep_alive_s if packet.server_keep_alive is None else packet.server_keep_alive
        self._keepalive.begin(keep_alive_s * SECOND, now)
        self.limits = BrokerLimits(
            packet.receive_max,
            min(packet.max_packet_size or PACKET_BYTES_LIMIT, PACKET_BYTES_LIMIT),
            int(packet.max_qos),
            packet.retain_available,
        )
        is_once = bool(self._settings.run) and (PROPERTY, self._settings.run) in packet.user_properties
        self._incoming.connected(packet.session_present, is_once)
        self._subscribing.connected(packet.session_present, packet.subscription_id_available)
        is_first, self._was_connected = not self._was_connected, True
        yield from self._outgoing.connected(packet.session_present, is_first, self.limits)
        named = tuple(value for name, value in packet.user_properties if name == ALTERNATIVE_PROPERTY)
        yield Connected(packet.session_present, named[:ALTERNATIVES_READ])

    def _give_up(self, wrong: Malformed) -> ConnectionFailed:
        if self.online:
            code = wrong.reason if wrong.reason in DISCONNECT_REASONS else PROTOCOL_ERROR
            reason = mqtt5.DisconnectReasonCode(code)
            self.out.append(codec5.write(mqtt5.DisconnectPacket(reason_code=reason, reason_str=str(wrong)[:200])))
        self._stage = SessionStage.OFFLINE
        return ConnectionFailed(str(wrong), is_violation=True)
