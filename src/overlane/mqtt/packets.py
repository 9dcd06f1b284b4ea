"""Packets: which part of the server gets what a client says.

The first packet of a connection is a CONNECT and goes to the handshake; then every kind of packet has its part. What a
client must not say is Malformed, and ends its connection. The two that come by the thousand, PUBLISH and the shortest
PUBACK, are read without a packet being made of them.
"""

from typing import assert_never

import mqtt5

from overlane.core.units import Nanos
from overlane.mqtt.codec import codec5, codec311, writing
from overlane.mqtt.codec.framing import CONNECT, is_bridge, version_of_connect
from overlane.mqtt.codec.malformed import PROTOCOL_ERROR, Malformed
from overlane.mqtt.connection import ERRORS, V5, Connection
from overlane.mqtt.fast_path import FastPath
from overlane.mqtt.handshake import Handshake
from overlane.mqtt.incoming import PUBLISH, read_publish
from overlane.mqtt.keep_alive import KeepAlive
from overlane.mqtt.publishing import PublishPackets
from overlane.mqtt.reasons import IDENTIFIER_UNKNOWN
from overlane.mqtt.runs import PLAIN
from overlane.mqtt.subscribing import SubscribePackets
from overlane.pubsub.contract.connection import Phase
from overlane.pubsub.delivery.confirmations import UnexpectedConfirmation
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.limits import Limits
from overlane.pubsub.sessions.registry import Sessions
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State

Acknowledgement = mqtt5.PubAckPacket | mqtt5.PubRecPacket | mqtt5.PubRelPacket | mqtt5.PubCompPacket

FILTERS_ANSWERED = 100
"""A SUBSCRIBE of so many filters is answered filter by filter, even if fewer subscriptions are allowed."""

PLAIN_QOS1 = 0x32
"""The first byte of a PUBLISH of QoS 1, neither repeated nor retained (`qos1_path`)."""
SHORT_ACK_BYTES = 4
"""An acknowledgement without reason."""


class Packets:
    def __init__(
        self,
        state: State,
        handshake: Handshake,
        sessions: Sessions,
        keep_alive: KeepAlive,
        publishing: PublishPackets,
        subscribing: SubscribePackets,
        delivery: Delivery,
        fast_path: FastPath,
    ) -> None:
        self._state = state
        self._handshake = handshake
        self._sessions = sessions
        self._keep_alive = keep_alive
        self._publishing = publishing
        self._subscribing = subscribing
        self._delivery = delivery
        self._fast_path = fast_path
        self._bounds = _bounds(state.limits)

    def take(self, connection: Connection, data: memoryview, now: Nanos) -> None:
        """One whole packet; Malformed, or `backpressure.MustStop`: then it comes again when the client may go on."""
        session = connection.session
        if session is None or connection.phase is not Phase.OPEN:
            self._take_first(connection, data, now)
            return
        if data[0] >> 4 == CONNECT >> 4:
            raise Malformed(PROTOCOL_ERROR, "a second CONNECT")
        if data[0] >> 4 == PUBLISH >> 4:
            published = read_publish(data, connection.version, self._bounds)
            self._publishing.publish(connection, session, published, now)
            if data[0] == PLAIN or data[0] == PLAIN_QOS1:
                topic = published.topic or (connection.aliases_in or {}).get(published.alias or 0, "")
                if not self._fast_path.knows(connection, topic):
                    self._fast_path.enter(connection, session, topic, now)
            return
        if data[0] == writing.PUBACK and len(data) == SHORT_ACK_BYTES and (packet_id := data[2] << 8 | data[3]):
            self._acknowledged(connection, session, packet_id, now)
            return
        packet = (codec5 if connection.version == V5 else codec311).read(data, self._bounds)
        match packet:
            case mqtt5.PubAckPacket() | mqtt5.PubRecPacket() | mqtt5.PubRelPacket() | mqtt5.PubCompPacket():
                self._answer(connection, session, packet, now)
            case mqtt5.SubscribePacket():
                self._subscribing.subscribe(connection, session, packet, now)
            case mqtt5.UnsubscribePacket():
                self._subscribing.unsubscribe(connection, session, packet, now)
            case mqtt5.PingReqPacket():
                connection.send(writing.PINGRESP)
            case mqtt5.DisconnectPacket():
                self._goodbye(connection, session, packet, now)
            case mqtt5.AuthPacket():
                raise Malformed(PROTOCOL_ERROR, "AUTH without an authentication method")
            case (
                mqtt5.ConnectPacket()
                | mqtt5.PublishPacket()
                | mqtt5.ConnAckPacket()
                | mqtt5.SubAckPacket()
                | mqtt5.UnsubAckPacket()
                | mqtt5.PingRespPacket()
            ):
                raise Malformed(PROTOCOL_ERROR, f"{type(packet).__name__} is sent only by servers")
            case _:
                assert_never(packet)

    def reconfigure(self, limits: Limits) -> None:
        self._bounds = _bounds(limits)

    def _take_first(self, connection: Connection, data: memoryview, now: Nanos) -> None:
        connection.version = version_of_connect(data)
        packet = (codec5 if connection.version == V5 else codec311).read(data, self._bounds)
        assert isinstance(packet, mqtt5.ConnectPacket)
        connection.is_bridge = is_bridge(data)
        question = self._handshake.connect(connection, packet, data, now)
        if question is not None:
            self._state.questions.append(question)
        self._keep_alive.watch(connection)

    def _acknowledged(self, connection: Connection, session: Session, packet_id: int, now: Nanos) -> None:
        try:
            self._delivery.acknowledged(session, connection, packet_id, now)
        except UnexpectedConfirmation as unexpected:
            raise Malformed(PROTOCOL_ERROR, f"PUBACK, but {unexpected}") from None

    def _received(self, connection: Connection, session: Session, packet: mqtt5.PubRecPacket, now: Nanos) -> None:
        packet_id, is_refused = packet.packet_id, int(packet.reason_code) >= ERRORS
        try:
            is_owed = self._delivery.received(session, connection, packet_id, is_refused, now)
        except UnexpectedConfirmation as unexpected:
            raise Malformed(PROTOCOL_ERROR, f"PUBREC, but {unexpected}") from None
        if not is_owed:
            connection.send(writing.ack(connection.version, writing.PUBREL, packet_id, IDENTIFIER_UNKNOWN))

    def _answer(self, connection: Connection, session: Session, packet: Acknowledgement, now: Nanos) -> None:
        delivery, packet_id = self._delivery, packet.packet_id
        match packet:
            case mqtt5.PubAckPacket():
                self._acknowledged(connection, session, packet_id, now)
            case mqtt5.PubRecPacket():
                self._received(connection, session, packet, now)
            case mqtt5.PubRelPacket():
                self._publishing.release(connection, session, packet_id)
            case mqtt5.PubCompPacket():
                delivery.completed(session, connection, packet_id, now)
            case _:
                assert_never(packet)

    def _goodbye(self, connection: Connection, session: Session, packet: mqtt5.DisconnectPacket, now: Nanos) -> None:
        expiry_s = packet.session_expiry_interval
        if expiry_s is not None:
            if expiry_s and not session.expiry_s:
                raise Malformed(PROTOCOL_ERROR, "a session expiry in DISCONNECT, but none in CONNECT")
            session.expiry_s = min(expiry_s, self._state.limits.session_expiry_s_max)
        with_will = packet.reason_code != mqtt5.DisconnectReasonCode.NORMAL_DISCONNECTION
        connection.close(-1, "the client disconnected")
        self._sessions.leave(connection, with_will, now)


def _bounds(limits: Limits) -> codec5.Bounds:
    return codec5.Bounds(limits.user_properties, max(limits.subscriptions_per_client, FILTERS_ANSWERED))
