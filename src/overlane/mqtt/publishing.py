"""PUBLISH and PUBREL: messages of MQTT clients, and their acknowledgements.

An acknowledgement (PUBACK, PUBREC) promises that nothing will be lost that had to be kept: it waits for the store
where anything was stored for it (`pubsub.publishing`).

What cannot be accepted is refused with a reason where the protocol has one: always for QoS 1 and 2 of MQTT 5. MQTT
3.1.1 has no way to refuse a message: one that its client may not publish is acknowledged and dropped, and one that
could not be kept closes the connection unacknowledged, so that the client tries again.
"""

import mqtt5

from overlane.core.topics import BadTopic, check_topic
from overlane.core.units import Nanos
from overlane.mqtt.codec import writing
from overlane.mqtt.codec.malformed import Malformed
from overlane.mqtt.connection import V5, Connection
from overlane.mqtt.incoming import Incoming
from overlane.mqtt.reasons import (
    ALIAS_INVALID,
    IDENTIFIER_UNKNOWN,
    NO_SUBSCRIBERS,
    PROTOCOL_ERROR,
    QUOTA,
    RECEIVE_MAX,
    RETAIN_UNAVAILABLE,
    TOPIC_INVALID,
    publish_reason,
)
from overlane.pubsub.contract.consumer import Confirmation
from overlane.pubsub.contract.refused import PublicationRefused, RequestFault
from overlane.pubsub.counters import Refusal
from overlane.pubsub.message import Message, expires
from overlane.pubsub.publishing import backpressure
from overlane.pubsub.publishing.publishing import Publishing
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State


class PublishPackets:
    def __init__(self, state: State, publishing: Publishing) -> None:
        self._state = state
        self._publishing = publishing

    def publish(self, connection: Connection, session: Session, packet: Incoming, now: Nanos) -> None:
        """`backpressure.MustStop`, and nothing done, if the client has to stop first."""
        topic = self._topic(connection, packet)
        qos, packet_id, payload = packet.qos, packet.packet_id, packet.payload
        if not qos and not packet.user_properties and self._publishing.must_stop(connection, topic, now):
            raise backpressure.MustStop
        connection.messages_in += 1
        self._state.counters.messages_in += 1
        if told := self._state.limits.too_long(topic):
            self._refuse_topic(connection, qos, packet_id, told)
            return
        stats = self._state.stats(topic)
        stats.messages += 1
        stats.bytes += len(payload)
        is_repeated = packet.is_repeated
        if (qos == 2 or is_repeated) and self._publishing.is_duplicate(session, qos, packet_id, is_repeated):
            self._acknowledge_again(connection, session, qos, packet_id)
            return
        if qos and connection.version == V5 and not connection.may_have_more_under_way(session):
            raise Malformed(RECEIVE_MAX, f"more than {connection.limits_told.in_flight} messages in flight")
        message = Message(
            topic,
            payload,
            qos,
            packet.retain,
            packet.properties,
            session.client_id,
            now,
            expires(now, packet.expiry_s),
        )
        try:
            accepted = self._publishing.publish(message, session, packet_id, packet.user_properties, connection, now)
        except PublicationRefused as refused:
            self._refuse(connection, qos, packet_id, refused)
            return
        if qos:
            reason = 0 if accepted.has_receivers else NO_SUBSCRIBERS
            connection.waits |= accepted.is_stored
            connection.acks_owed += qos == 1
            self._acknowledge(connection, qos, packet_id, reason, accepted.told)
        if accepted.crowding > backpressure.CROWDED:
            rests_until_ns = now + backpressure.rest_ns(accepted.crowding)
            connection.rests_until_ns = max(connection.rests_until_ns, rests_until_ns)

    def _acknowledge(self, connection: Connection, qos: int, packet_id: int, reason: int, told: str) -> None:
        if told and connection.version == V5:
            connection.send_explained(lambda why: _answer(qos, packet_id, reason, why), told)
        else:
            kind = writing.PUBACK if qos == 1 else writing.PUBREC
            connection.send(writing.ack(connection.version, kind, packet_id, reason))

    def _acknowledge_again(self, connection: Connection, session: Session, qos: int, packet_id: int) -> None:
        """A message that was accepted before."""
        if qos == 1:
            connection.send(writing.ack(connection.version, writing.PUBACK, packet_id, 0))
            connection.acks_owed += 1
            connection.waits = True  # what says that it was accepted may not be on disk yet
        elif not self._state.postpone(
            session.exchanged_in,
            connection,
            Confirmation.PUBLISHED,
            packet_id,
            lambda _: self._acknowledge_again(connection, session, qos, packet_id),
        ):
            connection.send(writing.ack(connection.version, writing.PUBREC, packet_id, 0))

    def release(self, connection: Connection, session: Session, packet_id: int) -> None:
        """PUBREL: the client knows that we have it."""
        state = self._state
        rests_on = session.exchanged_in
        if session.is_known and packet_id in session.received:
            rests_on = state.turn  # in which it would be erased
        if state.postpone(
            rests_on,
            connection,
            Confirmation.RELEASED,
            packet_id,
            lambda _: self.release(connection, session, packet_id),
        ):
            return
        is_known = self._publishing.release(session, packet_id)
        reason = 0 if is_known or connection.version != V5 else IDENTIFIER_UNKNOWN
        connection.send(writing.ack(connection.version, writing.PUBCOMP, packet_id, reason))
        connection.acks_owed += is_known

    def _topic(self, connection: Connection, packet: Incoming) -> str:
        if packet.retain and not self._state.limits.retained_messages and connection.version == V5:
            raise Malformed(RETAIN_UNAVAILABLE, "retained messages are not offered")
        topic, alias = packet.topic, packet.alias
        if alias is not None:
            if not 0 < alias <= connection.limits_told.topic_aliases:
                raise Malformed(ALIAS_INVALID, f"topic alias {alias} is above {connection.limits_told.topic_aliases}")
            if connection.aliases_in is None:
                connection.aliases_in = {}
            if topic:
                connection.aliases_in[alias] = topic
            elif alias in connection.aliases_in:
                return connection.aliases_in[alias]
            else:
                raise Malformed(PROTOCOL_ERROR, f"topic alias {alias} is not defined yet")
        if topic in self._state.topics:
            return topic  # it was looked at before
        try:
            check_topic(topic)
        except BadTopic as bad:
            raise Malformed(TOPIC_INVALID, str(bad)) from None
        if topic.count("/") >= self._state.limits.filter_levels:
            raise Malformed(TOPIC_INVALID, f"a topic of more than {self._state.limits.filter_levels} levels")
        return topic

    def _refuse_topic(self, connection: Connection, qos: int, packet_id: int, told: str) -> None:
        if connection.version != V5:
            raise Malformed(TOPIC_INVALID, told)  # 3.1.1 has no other way to say so
        self._refuse(
            connection, qos, packet_id, PublicationRefused(RequestFault.INVALID_TOPIC, Refusal.TOO_LARGE, told)
        )

    def _refuse(self, connection: Connection, qos: int, packet_id: int, refused: PublicationRefused) -> None:
        self._state.refuse(refused.why, refused.told, connection)
        if not qos:
            return
        if connection.version == V5:
            reason = publish_reason(refused.fault)
            connection.send_explained(lambda told: _answer(qos, packet_id, reason, told), refused.told)
        elif refused.why in (Refusal.DENIED, Refusal.TOO_LARGE, Refusal.PROTOCOL, Refusal.SUSPECT):
            kind_311 = writing.PUBACK if qos == 1 else writing.PUBREC
            connection.send(writing.ack(connection.version, kind_311, packet_id, 0))
        else:
            raise Malformed(QUOTA, refused.told)


def _answer(qos: int, packet_id: int, reason: int, told: str | None) -> mqtt5.Packet:
    if qos == 1:
        return mqtt5.PubAckPacket(packet_id, reason_code=mqtt5.PubAckReasonCode(reason), reason_str=told)
    return mqtt5.PubRecPacket(packet_id, reason_code=mqtt5.PubRecReasonCode(reason), reason_str=told)
