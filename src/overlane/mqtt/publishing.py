"""Publishing: messages that clients send, QoS 0, 1 and 2, on their way to subscribers, retention and the overlay.

An acknowledgement (PUBACK, PUBREC) promises that nothing will be lost that had to be kept: it waits for the store
where anything was stored for it. A message of QoS 2 is passed on when it comes; its identifier is remembered until
the client releases it, so that one sent again is only acknowledged again. So is one of QoS 1 where the client has asked
for that (`once`).

What cannot be accepted is refused with a reason where the protocol has one: always for QoS 1 and 2 of MQTT 5. MQTT
3.1.1 has no way to refuse a message: one that its client may not publish is acknowledged and dropped, and one that
could not be kept closes the connection unacknowledged, so that the client tries again. A message that nobody waits to
have acknowledged, of QoS 0 or a will, is not refused for want of room: what can be done with it is done, and what
cannot is counted.
"""

from collections.abc import Sequence

import mqtt5

from overlane.core.events import Published
from overlane.core.qos import QosClass
from overlane.core.topics import BadTopic, check_topic
from overlane.core.units import MS, Nanos
from overlane.mqtt import envelope, way, writing
from overlane.mqtt.connection import V5, Connection
from overlane.mqtt.counters import Drop, Refusal
from overlane.mqtt.delivery import Delivery
from overlane.mqtt.elsewhere import SharedElsewhere
from overlane.mqtt.incoming import PUBLISH, Incoming
from overlane.mqtt.malformed import Malformed
from overlane.mqtt.message import Message, expires
from overlane.mqtt.session import Session
from overlane.mqtt.state import State
from overlane.mqtt.subscriptions import Audience
from overlane.mqtt.tightening import BadWish, tightened, wishes

NO_SUBSCRIBERS = 0x10
PROTOCOL_ERROR = 0x82
IMPLEMENTATION = 0x83
NOT_AUTHORIZED = 0x87
TOPIC_INVALID = 0x90
IDENTIFIER_UNKNOWN = 0x92
RECEIVE_MAX = 0x93
ALIAS_INVALID = 0x94
QUOTA = 0x97
RETAIN_UNAVAILABLE = 0x9A

CROWDED = 0.25
REST: Nanos = 2 * MS
REST_DOUBLINGS = 7
"""Who publishes to a client whose queue is fuller than that rests after each read, the longer the fuller it is: so one
that is slow, but there, is not written over. One that is away, or does not answer, is not waited for."""

STORE_FAILS = "the durable store takes nothing at the moment"


class Refused(Exception):
    def __init__(self, reason: int, why: Refusal, told: str) -> None:
        super().__init__(told)
        self.reason = reason
        self.why = why
        self.told = told


class Publishing:
    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self._delivery = delivery
        self._is_kept_above = False
        """Whether the overlay has to keep the message at hand through a restart."""

    def publish(self, connection: Connection, session: Session, packet: Incoming, now: Nanos) -> None:
        topic = self._topic(connection, packet)
        qos, packet_id, payload = packet.qos, packet.packet_id, packet.payload
        connection.messages_in += 1
        self._state.counters.messages_in += 1
        stats = self._state.stats(topic)
        stats.messages += 1
        stats.bytes += len(payload)
        if qos == 2 and packet_id in session.received:
            self._receive_again(connection, session, packet_id)
            return
        if qos == 1 and packet.is_repeated and session.once.has(packet_id) and not self._state.is_store_failing:
            connection.send(writing.ack(connection.version, writing.PUBACK, packet_id, 0))
            connection.acks_owed += 1
            connection.waits = True  # what says that it was taken may not be on disk yet
            return
        if qos and connection.version == V5:
            under_way = len(session.received) - connection.received_before + connection.acks_held
            if under_way >= self._state.limits.in_flight:
                raise Malformed(RECEIVE_MAX, f"more than {self._state.limits.in_flight} messages under way")
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
        before = len(self._state.effects)
        self._state.crowding = 0.0
        self._is_kept_above = False
        try:
            if qos == 2 and session.is_durable and self._state.is_store_failing:
                raise Refused(QUOTA, Refusal.STORE, STORE_FAILS)
            reason = self.accept(message, session, packet.user_properties, now)
        except Refused as refused:
            self._refuse(connection, qos, packet_id, refused)
            return
        if qos == 1:
            if session.is_durable and (self._is_kept_above or len(self._state.effects) > before):
                self._state.effects += session.once.take(packet_id, self._state.limits.in_flight)
            connection.send(writing.ack(connection.version, writing.PUBACK, packet_id, reason))
            connection.acks_owed += 1
        elif qos == 2:
            session.received.add(packet_id)
            if session.is_durable:
                self._state.effects.append(session.saved_received(packet_id))
            connection.send(writing.ack(connection.version, writing.PUBREC, packet_id, reason))
        if self._is_kept_above or len(self._state.effects) > before:
            connection.waits = True
            if qos == 2:
                session.exchanged_in = self._state.turn
        if self._state.crowding > CROWDED:
            rest_ns = int(REST * 2 ** (REST_DOUBLINGS * (self._state.crowding - CROWDED) / (1 - CROWDED)))
            connection.rests_until_ns = max(connection.rests_until_ns, now + rest_ns)

    def _receive_again(self, connection: Connection, session: Session, packet_id: int) -> None:
        """A message of QoS 2 that we have: that is all there is to say."""
        state = self._state
        if not state.must_hear_later(
            session.exchanged_in,
            connection,
            PUBLISH,
            packet_id,
            lambda _: self._receive_again(connection, session, packet_id),
        ):
            connection.send(writing.ack(connection.version, writing.PUBREC, packet_id, 0))

    def release(self, connection: Connection, session: Session, packet_id: int) -> None:
        """PUBREL: the client knows that we have it."""
        is_known = packet_id in session.received
        state = self._state
        rests_on = session.exchanged_in
        if is_known and session.is_known:
            rests_on = state.turn  # in which it would be erased
        if state.must_hear_later(
            rests_on, connection, writing.PUBREL, packet_id, lambda _: self.release(connection, session, packet_id)
        ):
            return
        if is_known:
            session.received.discard(packet_id)
            if session.is_known:
                state.effects.append(session.erased_received(packet_id))
                session.exchanged_in = state.turn
        reason = 0 if is_known or connection.version != V5 else IDENTIFIER_UNKNOWN
        connection.send(writing.ack(connection.version, writing.PUBCOMP, packet_id, reason))
        connection.acks_owed += is_known

    def accept(
        self,
        message: Message,
        session: Session,
        user_properties: Sequence[tuple[str, str]],
        now: Nanos,
        is_will: bool = False,
    ) -> int:
        """Take responsibility for a client's message, or a will: the reason code to acknowledge it with; or Refused."""
        state = self._state
        topic = message.topic
        if not state.may_publish(session, topic):
            raise Refused(NOT_AUTHORIZED, Refusal.DENIED, f"not allowed to publish on {topic[:100]}")
        audience = state.subscriptions.audience(topic)
        shared = state.elsewhere.directory.shared(topic)
        is_carried = bool(shared) or state.uplink.carries(topic)
        qos = state.settings.qos.of(topic)
        if is_carried or user_properties:
            qos = self._class_of(message, qos, user_properties)
        is_answered = message.qos > 0 and not is_will
        is_kept = message.retain and bool(message.payload or not state.can_erase)
        if (
            state.is_store_failing
            and is_answered
            and (is_kept or (is_carried and qos.reliable) or self._delivery.needs_store(message, audience))
        ):
            raise Refused(QUOTA, Refusal.STORE, STORE_FAILS)
        unkept = self._why_not_kept(message, now) if message.retain else None
        if unkept is not None and is_answered:
            raise unkept
        if is_carried:
            try:
                self._send_up(message, qos, session.connection, now)
            except Refused as refused:
                if is_answered or is_will:
                    raise
                state.refuse(refused.why, refused.told, session.connection)
        if unkept is not None:
            state.refuse(unkept.why, unkept.told, session.connection)
            state.effects += state.retained.remove(topic)
        elif message.retain and state.limits.retained_messages:
            state.effects += state.retained.keep_latest(message)
            state.elsewhere.retain(message, now)
        self._delivery.spread(message, audience, now, session.client_id)
        self._share(message, audience, shared, qos, now)
        return 0 if audience.receivers or audience.groups or is_carried or not message.qos else NO_SUBSCRIBERS

    def _class_of(self, message: Message, qos: QosClass, user_properties: Sequence[tuple[str, str]]) -> QosClass:
        """How it is to be carried: as the file says, and as publisher and subscribers wish beyond that."""
        if user_properties:
            try:
                qos = tightened(qos, *wishes(user_properties))
            except BadWish as bad:
                raise Refused(IMPLEMENTATION, Refusal.PROTOCOL, str(bad)) from None
        qos = self._state.elsewhere.directory.tighten(message.topic, qos)
        if message.qos and not qos.reliable:
            qos = tightened(qos, qos.deadline_ns, reliable=True)
        return qos

    def _share(
        self, message: Message, audience: Audience, shared: list[SharedElsewhere], qos: QosClass, now: Nanos
    ) -> None:
        """To one member of each shared subscription, wherever it is."""
        if not shared:
            self._delivery.share_here(message, audience, now)
            return
        here = {(group.name, group.filter): group for group in audience.groups}
        for one in shared:
            group = here.pop((one.group, one.filter), None)
            broker = self._state.elsewhere.choose(one.group, one.filter, one.brokers, group is not None)
            if not broker and group is not None:
                self._delivery.share(message, group, now)
            elif self._state.elsewhere.send_to_group(broker, one, message, qos, now) is not Published.ACCEPTED:
                self._state.counters.dropped[Drop.OVERLAY_FULL] += 1
        for group in here.values():
            self._delivery.share(message, group, now)

    def _why_not_kept(self, message: Message, now: Nanos) -> Refused | None:
        """Why it cannot be kept as its topic's retained message. Without payload it only takes one away."""
        state = self._state
        if not message.payload or not state.limits.retained_messages:
            return None
        if state.is_store_failing:
            return Refused(QUOTA, Refusal.STORE, STORE_FAILS)
        has_room, effects = state.retained.has_room(message, now)
        state.effects += effects
        return None if has_room else Refused(QUOTA, Refusal.QUOTA, "no room for more retained messages")

    def _send_up(self, message: Message, qos: QosClass, sender: Connection | None, now: Nanos) -> None:
        state = self._state
        if state.is_store_failing and qos.reliable:
            raise Refused(QUOTA, Refusal.STORE, STORE_FAILS)
        self._is_kept_above |= qos.reliable
        if not state.uplink.carries(message.topic):
            return
        flags, body = envelope.pack(message, now)
        match state.uplink.publish(message.topic, body, flags, qos, now):
            case Published.BUSY:
                raise Refused(QUOTA, Refusal.BUSY, "the overlay has no room now; try again")
            case Published.TOO_LARGE:
                raise Refused(QUOTA, Refusal.TOO_LARGE, "too large for the overlay")
            case Published.ACCEPTED:
                state.crowding = max(state.crowding, state.uplink.crowding(message.topic, qos, now))
                if sender is not None:
                    way.look(state.uplink, sender, message.topic, qos, now)

    def _topic(self, connection: Connection, packet: Incoming) -> str:
        if packet.retain and not self._state.limits.retained_messages and connection.version == V5:
            raise Malformed(RETAIN_UNAVAILABLE, "retained messages are not offered")
        topic, alias = packet.topic, packet.alias
        if alias is not None:
            if not 0 < alias <= self._state.limits.topic_aliases:
                raise Malformed(ALIAS_INVALID, f"topic alias {alias} is above {self._state.limits.topic_aliases}")
            if topic:
                connection.aliases_in[alias] = topic
            elif alias in connection.aliases_in:
                return connection.aliases_in[alias]
            else:
                raise Malformed(PROTOCOL_ERROR, f"topic alias {alias} stands for nothing yet")
        if topic in self._state.topics:
            return topic  # it was looked at before
        try:
            check_topic(topic)
        except BadTopic as bad:
            raise Malformed(TOPIC_INVALID, str(bad)) from None
        if topic.count("/") >= self._state.limits.filter_levels:
            raise Malformed(TOPIC_INVALID, f"a topic of more than {self._state.limits.filter_levels} levels")
        return topic

    def _refuse(self, connection: Connection, qos: int, packet_id: int, refused: Refused) -> None:
        self._state.refuse(refused.why, refused.told, connection)
        if not qos:
            return
        if connection.version == V5:

            def answer(told: str | None) -> mqtt5.Packet:
                if qos == 1:
                    code = mqtt5.PubAckReasonCode(refused.reason)
                    return mqtt5.PubAckPacket(packet_id, reason_code=code, reason_str=told)
                return mqtt5.PubRecPacket(
                    packet_id, reason_code=mqtt5.PubRecReasonCode(refused.reason), reason_str=told
                )

            connection.send_explained(answer, refused.told)
        elif refused.why in (Refusal.DENIED, Refusal.TOO_LARGE, Refusal.PROTOCOL):
            kind_311 = writing.PUBACK if qos == 1 else writing.PUBREC
            connection.send(writing.ack(connection.version, kind_311, packet_id, 0))
        else:
            raise Malformed(QUOTA, refused.told)
