"""Publishing: messages of clients, QoS 0, 1 and 2, on their way to subscribers, retention and the overlay.

A message is accepted or refused. Accepted means that nothing will be lost that had to be kept: its acknowledgement
waits for the records of the turn where there are any (`Accepted.is_stored`). A message of QoS 2 is passed on when it
comes; the publisher's identifier of it is remembered until the publisher releases it, so that one that is published
again is only acknowledged again. So it is at QoS 1 where the client has asked for deduplication.

A message that nobody waits to have acknowledged, of QoS 0 or a will, is not refused for want of room: what can be done
with it is done, and what cannot is counted.
"""

from collections.abc import Sequence
from typing import NamedTuple

from overlane.core.events import PublishResult
from overlane.core.qos import QosClass
from overlane.core.units import Nanos
from overlane.errors import InDoubt
from overlane.pubsub import backpressure
from overlane.pubsub.cluster import envelope
from overlane.pubsub.cluster.directory import RemoteGroup
from overlane.pubsub.consumer import Publisher
from overlane.pubsub.counters import Drop, Refusal
from overlane.pubsub.delivery.delivery import NOT_GIVEN, Delivery, Given, both
from overlane.pubsub.message import Message
from overlane.pubsub.qos_override import BadOverride, QosOverride, apply_override, read_override
from overlane.pubsub.refused import STORE_FAILS, Fault, PublishRefused
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.table import Audience
from overlane.pubsub.suspects import suspect_of

OVERLAY_BUSY = "the overlay has no room now; try again"
OVERLAY_TOO_LARGE = "too large for the overlay"

RELIABLE = QosOverride(reliable=True)


class Accepted(NamedTuple):
    """`is_stored`: the acknowledgement has to wait for the records of this turn. `crowding`: how full the fullest queue
    is that the message has joined, from 0 to 1."""

    has_receivers: bool
    is_stored: bool
    crowding: float


class Publishing:
    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self._delivery = delivery
        self._has_begun = False
        """Whether the message at hand may have reached somebody."""

    # Messages with an identifier

    def publish(
        self,
        message: Message,
        session: Session,
        identifier: int,
        user_properties: Sequence[tuple[str, str]],
        publisher: Publisher | None,
        now: Nanos,
    ) -> Accepted:
        """Accept a message of a client, or PublishRefused. `identifier`: the publisher's own, at QoS 1 and 2."""
        state, qos = self._state, message.qos
        self._has_begun = False
        try:
            if qos == 2 and session.is_durable and state.is_store_failing:
                raise PublishRefused(Fault.NO_ROOM, Refusal.STORE, STORE_FAILS)
            if state.suspects and _suspect(message, session, identifier) in state.suspects:
                raise PublishRefused(Fault.UNPROCESSABLE, Refusal.SUSPECT, "this message has ended the broker twice")
            accepted = self.accept(message, session, user_properties, now, publisher)
            if qos == 1:
                if accepted.is_stored and session.is_durable:
                    state.effects += session.deduplication.take(identifier, state.limits.in_flight)
            elif qos == 2:
                session.received[identifier] = None
                if session.is_durable:
                    state.effects.append(session.saved_received(identifier))
                    accepted = accepted._replace(is_stored=True)
                if accepted.is_stored:
                    session.exchanged_in = state.turn
        except PublishRefused:
            raise
        except Exception as error:
            self._check_whole(message, session, identifier, error)
            raise
        return accepted

    def _check_whole(self, message: Message, session: Session, identifier: int, error: Exception) -> None:
        """InDoubt if a message that failed has reached some of its receivers and is to reach all of them once: its
        client publishes it again, and those that have it already would get it twice."""
        qos = message.qos
        if self._has_begun and (qos == 2 or (qos == 1 and session.deduplication.is_promised)):
            told = f"a QoS {qos} message of {session.client_id} has reached some receivers"
            raise InDoubt(told, _suspect(message, session, identifier)) from error

    def is_duplicate(self, session: Session, qos: int, identifier: int, is_repeated: bool) -> bool:
        """Whether a message was accepted before: then it is acknowledged and nothing else. `is_repeated`: the client
        says that it may have been published before."""
        if qos == 2:
            return identifier in session.received
        if qos == 1 and is_repeated and not self._state.is_store_failing:
            return session.deduplication.has(identifier)
        return False

    def release(self, session: Session, identifier: int) -> bool:
        """QoS 2: the publisher knows that the message was accepted, and forgets it; whether that was known."""
        if identifier not in session.received:
            return False
        session.received.pop(identifier, None)
        if session.is_known:
            self._state.effects.append(session.erased_received(identifier))
            session.exchanged_in = self._state.turn
        return True

    def must_stop(self, publisher: Publisher, topic: str, now: Nanos) -> bool:
        """Stop a publisher before its QoS 0 message on the topic is accepted, if there is no room on the way."""
        state = self._state
        if not state.uplink.carries(topic):
            return False
        qos = state.cluster.class_of(topic, state.settings.qos.of(topic), now)
        return backpressure.stop_if_full(state.uplink, publisher, topic, qos, now)

    # Every message

    def accept(
        self,
        message: Message,
        session: Session,
        user_properties: Sequence[tuple[str, str]],
        now: Nanos,
        publisher: Publisher | None = None,
        is_will: bool = False,
    ) -> Accepted:
        """Take responsibility for a client's message, or a will; or PublishRefused."""
        state = self._state
        topic = message.topic
        if not state.may_publish(session, topic):
            raise PublishRefused(Fault.NOT_ALLOWED, Refusal.DENIED, f"not allowed to publish on {topic[:100]}")
        audience = state.subscriptions.audience(topic)
        shared = state.cluster.directory.shared(topic)
        is_carried = bool(shared) or state.uplink.carries(topic)
        qos = state.settings.qos.of(topic)
        if is_carried or user_properties:
            qos = self._class_of(message, qos, user_properties, now)
        is_answered = message.qos > 0 and not is_will
        is_kept = message.retain and bool(message.payload or not state.can_erase)
        if (
            state.is_store_failing
            and is_answered
            and (is_kept or (is_carried and qos.reliable) or self._delivery.needs_store(message, audience))
        ):
            raise PublishRefused(Fault.NO_ROOM, Refusal.STORE, STORE_FAILS)
        unkept = self._why_not_kept(message, now) if message.retain else None
        if unkept is not None and is_answered:
            raise unkept
        is_stored, crowding = is_carried and qos.reliable, 0.0
        if unkept is None and message.retain and state.limits.retained_messages:
            is_stored |= self._retain(message, is_answered, now)
        if is_carried:
            try:
                crowding = self._send_up(message, qos, publisher, now)
            except PublishRefused as refused:
                if is_answered or is_will:
                    raise
                state.refuse(refused.why, refused.told, publisher)
        self._has_begun = True
        if unkept is not None:
            state.refuse(unkept.why, unkept.told, publisher)
            state.effects += state.retained.remove(topic)
        given = both((is_stored, crowding), self._delivery.spread(message, audience, now, session.client_id))
        if audience.groups or shared:
            given = both(given, self._share(message, audience, shared, qos, now))
        return Accepted(bool(audience.receivers or audience.groups or is_carried), *given)

    def _class_of(
        self, message: Message, qos: QosClass, user_properties: Sequence[tuple[str, str]], now: Nanos
    ) -> QosClass:
        """How it is to be carried: as the file says, and as publisher and subscribers ask for beyond that."""
        if user_properties:
            try:
                qos = self._state.cluster.apply_override(qos, read_override(user_properties), now)
            except BadOverride as bad:
                raise PublishRefused(Fault.INVALID_OVERRIDE, Refusal.PROTOCOL, str(bad)) from None
        qos = self._state.cluster.class_of(message.topic, qos, now)
        if message.qos and not qos.reliable:
            qos = apply_override(qos, RELIABLE)
        return qos

    def _share(
        self, message: Message, audience: Audience, shared: list[RemoteGroup], qos: QosClass, now: Nanos
    ) -> Given:
        """To one member of each shared subscription, wherever it is."""
        if not shared:
            return self._delivery.share_here(message, audience, now)
        given = NOT_GIVEN
        here = {(group.name, group.filter): group for group in audience.groups}
        cluster = self._state.cluster
        for one in shared:
            group = here.pop((one.group, one.filter), None)
            broker = cluster.choose(one.group, one.filter, one.brokers, group is not None)
            if not broker and group is not None:
                given = both(given, self._delivery.share(message, group, now))
            elif cluster.send_to_group(broker, one, message, qos, now) is not PublishResult.ACCEPTED:
                self._state.counters.dropped[Drop.OVERLAY_FULL] += 1
        for group in here.values():
            given = both(given, self._delivery.share(message, group, now))
        return given

    def _retain(self, message: Message, is_answered: bool, now: Nanos) -> bool:
        """Keep it at all brokers, this one included; or PublishRefused, and it is kept at none. Whether it is stored.

        That comes before anybody gets the message: what is refused is published again.
        """
        state = self._state
        state.retained.stamp_latest(message)
        match state.cluster.retain(message, now):
            case PublishResult.ACCEPTED:
                pass
            case _ if not is_answered:
                state.counters.dropped[Drop.OVERLAY_FULL] += 1
            case PublishResult.BUSY:
                raise PublishRefused(Fault.NO_ROOM, Refusal.BUSY, OVERLAY_BUSY)
            case PublishResult.TOO_LARGE:
                raise PublishRefused(Fault.NO_ROOM, Refusal.TOO_LARGE, OVERLAY_TOO_LARGE)
        kept = state.retained.keep(message)
        state.effects += kept
        return bool(kept)

    def _why_not_kept(self, message: Message, now: Nanos) -> PublishRefused | None:
        """Why it cannot be kept as its topic's retained message. Without payload it only takes one away."""
        state = self._state
        if not message.payload or not state.limits.retained_messages:
            return None
        if state.is_store_failing:
            return PublishRefused(Fault.NO_ROOM, Refusal.STORE, STORE_FAILS)
        has_room, effects = state.retained.has_room(message, now)
        state.effects += effects
        if has_room:
            return None
        return PublishRefused(Fault.NO_ROOM, Refusal.QUOTA, "no room for more retained messages")

    def _send_up(self, message: Message, qos: QosClass, publisher: Publisher | None, now: Nanos) -> float:
        """To other brokers: how far readers there are behind; or PublishRefused."""
        state = self._state
        if state.is_store_failing and qos.reliable:
            raise PublishRefused(Fault.NO_ROOM, Refusal.STORE, STORE_FAILS)
        if not state.uplink.carries(message.topic):
            return 0.0
        flags, body = envelope.pack(message, now)
        match state.uplink.publish(message.topic, body, flags, qos, now):
            case PublishResult.BUSY:
                raise PublishRefused(Fault.NO_ROOM, Refusal.BUSY, OVERLAY_BUSY)
            case PublishResult.TOO_LARGE:
                raise PublishRefused(Fault.NO_ROOM, Refusal.TOO_LARGE, OVERLAY_TOO_LARGE)
            case PublishResult.ACCEPTED:
                self._has_begun = True
                if publisher is not None:
                    backpressure.stop_for_deadline(state.uplink, publisher, message.topic, qos, now)
                return state.uplink.crowding(message.topic, qos, now)


def _suspect(message: Message, session: Session, identifier: int) -> str:
    return suspect_of(session.client_id, identifier, message.topic, message.payload)
