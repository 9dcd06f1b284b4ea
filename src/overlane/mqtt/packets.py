"""Packets: which part of the server gets what a client says.

The first packet of a connection is a CONNECT and goes to the handshake; then every kind of packet has its part. What a
client must not say is Malformed, and ends its connection. The two that come by the thousand, PUBLISH and the shortest
PUBACK, are read without a packet being made of them.
"""

from typing import assert_never

import mqtt5

from overlane.core.units import Nanos
from overlane.mqtt import codec5, codec311, writing
from overlane.mqtt.connection import ERRORS, V5, Connection, Phase
from overlane.mqtt.delivery import Delivery
from overlane.mqtt.fastlane import PLAIN, FastLane
from overlane.mqtt.framing import CONNECT, version_of_connect
from overlane.mqtt.handshake import Authenticate, Handshake
from overlane.mqtt.incoming import PUBLISH, read_publish
from overlane.mqtt.limits import Limits
from overlane.mqtt.malformed import PROTOCOL_ERROR, Malformed
from overlane.mqtt.publishing import IDENTIFIER_UNKNOWN, Publishing
from overlane.mqtt.session import Session
from overlane.mqtt.sessions import Sessions
from overlane.mqtt.silence import Silence
from overlane.mqtt.state import State
from overlane.mqtt.subscribing import Subscribing

Acknowledgement = mqtt5.PubAckPacket | mqtt5.PubRecPacket | mqtt5.PubRelPacket | mqtt5.PubCompPacket

FILTERS_ANSWERED = 100
"""A SUBSCRIBE of so many filters is answered filter by filter, even if fewer subscriptions are allowed."""

SHORT_ACK_BYTES = 4
"""An acknowledgement without reason."""


class Packets:
    def __init__(
        self,
        state: State,
        handshake: Handshake,
        sessions: Sessions,
        silence: Silence,
        publishing: Publishing,
        subscribing: Subscribing,
        delivery: Delivery,
        fastlane: FastLane,
    ) -> None:
        self._state = state
        self._handshake = handshake
        self._sessions = sessions
        self._silence = silence
        self._publishing = publishing
        self._subscribing = subscribing
        self._delivery = delivery
        self._fastlane = fastlane
        self._bounds = _bounds(state.limits)
        self.questions: list[Authenticate] = []
        """What must be found out about clients before they are let in."""

    def take(self, connection: Connection, data: memoryview, now: Nanos) -> None:
        """One whole packet; Malformed."""
        session = connection.session
        if session is None or connection.phase is not Phase.OPEN:
            self._take_first(connection, data, now)
            return
        if data[0] >> 4 == CONNECT >> 4:
            raise Malformed(PROTOCOL_ERROR, "a second CONNECT")
        if data[0] >> 4 == PUBLISH >> 4:
            published = read_publish(data, connection.version, self._bounds)
            self._publishing.publish(connection, session, published, now)
            if data[0] == PLAIN and published.topic and published.alias is None:
                self._fastlane.enter(connection, session, published.topic)
            return
        if data[0] == writing.PUBACK and len(data) == SHORT_ACK_BYTES and (packet_id := data[2] << 8 | data[3]):
            self._delivery.acknowledged(session, connection, packet_id, now)
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
                raise Malformed(PROTOCOL_ERROR, "AUTH, though no authentication method was agreed on")
            case (
                mqtt5.ConnectPacket()
                | mqtt5.PublishPacket()
                | mqtt5.ConnAckPacket()
                | mqtt5.SubAckPacket()
                | mqtt5.UnsubAckPacket()
                | mqtt5.PingRespPacket()
            ):
                raise Malformed(PROTOCOL_ERROR, f"{type(packet).__name__} is for servers to send")
            case _:
                assert_never(packet)

    def reconfigure(self, limits: Limits) -> None:
        self._bounds = _bounds(limits)

    def _take_first(self, connection: Connection, data: memoryview, now: Nanos) -> None:
        connection.version = version_of_connect(data)
        packet = (codec5 if connection.version == V5 else codec311).read(data, self._bounds)
        assert isinstance(packet, mqtt5.ConnectPacket)
        question = self._handshake.connect(connection, packet, now)
        if question is not None:
            self.questions.append(question)
        self._silence.watch(connection)

    def _answer(self, connection: Connection, session: Session, packet: Acknowledgement, now: Nanos) -> None:
        delivery, packet_id = self._delivery, packet.packet_id
        match packet:
            case mqtt5.PubAckPacket():
                delivery.acknowledged(session, connection, packet_id, now)
            case mqtt5.PubRecPacket():
                if not delivery.received(session, connection, packet_id, int(packet.reason_code) >= ERRORS, now):
                    connection.send(writing.ack(connection.version, writing.PUBREL, packet_id, IDENTIFIER_UNKNOWN))
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
                raise Malformed(PROTOCOL_ERROR, "a session expiry at the end where there was none at the start")
            session.expiry_s = min(expiry_s, self._state.limits.session_expiry_s_max)
        with_will = packet.reason_code != mqtt5.DisconnectReasonCode.NORMAL_DISCONNECTION
        connection.close(-1, "the client said goodbye")
        self._sessions.leave(connection, with_will, now)


def _bounds(limits: Limits) -> codec5.Bounds:
    return codec5.Bounds(limits.user_properties, max(limits.subscriptions_per_client, FILTERS_ANSWERED))
