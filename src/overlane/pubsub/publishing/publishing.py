"""Publishing: messages of clients, QoS 0, 1 and 2, on their way to subscribers, retention and the overlay.

A message is accepted or refused. An accepted message is not lost if it must be kept: its acknowledgement waits for the
records of the turn if there are any (`Accepted.is_stored`). A QoS 2 message is passed on when it arrives; its
identifier is kept until the publisher releases it, so that a duplicate is only acknowledged again. The same holds for
QoS 1 if the client has requested deduplication.

A message without an acknowledgement, of QoS 0 or a will, is not refused for lack of room: it is delivered as far as
possible, and the rest is counted.
"""

from collections.abc import Sequence

from overlane.core.events import HeldMessageSent, PublishResult
from overlane.core.qos import QosClass
from overlane.core.units import Nanos
from overlane.errors import InDoubt
from overlane.pubsub.cluster import envelope
from overlane.pubsub.cluster.directory import RemoteGroup
from overlane.pubsub.cluster.names import SHARE, read_share_name
from overlane.pubsub.contract.consumer import Publisher
from overlane.pubsub.contract.refused import STORE_FAILS, PublicationRefused, RequestFault
from overlane.pubsub.counters import Drop, Refusal
from overlane.pubsub.delivery.delivery import NOT_GIVEN, Delivery, Given, both
from overlane.pubsub.message import Message, Run
from overlane.pubsub.policies.policy import Policy
from overlane.pubsub.policies.publishers import PublisherPolicies
from overlane.pubsub.publishing import backpressure
from overlane.pubsub.publishing.accepted import Accepted
from overlane.pubsub.publishing.mediating import Mediating
from overlane.pubsub.publishing.message_ids import MessageId, read_id
from overlane.pubsub.publishing.mirrored import NO_MIRROR
from overlane.pubsub.publishing.qos_override import RELIABLE, BadOverride, apply_override, read_override
from overlane.pubsub.reservations.advertisement import ADVERTISE
from overlane.pubsub.reservations.advertising import AdvertisedFlow
from overlane.pubsub.reservations.request import BadReservation
from overlane.pubsub.reservations.service import Reservations, is_advertisement
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.table import Audience
from overlane.pubsub.suspects import suspect_of

OVERLAY_BUSY = "the overlay has no space now; try again"
OVERLAY_TOO_LARGE = "too large for the overlay"
WITHHELD_TOLD = 3
"""Brokers that are named."""


class Publishing:
    def __init__(
        self, state: State, delivery: Delivery, policies: PublisherPolicies, reservations: Reservations
    ) -> None:
        self._state = state
        self._policies = policies
        self._delivery = delivery
        self._has_begun = False
        """Whether the current message may have reached a receiver."""
        self._reservations = reservations
        self.mediating = Mediating(state, self, delivery)

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
        """Accept a message of a client, or PublicationRefused. `identifier`: the publisher's own, at QoS 1 and 2."""
        state, qos = self._state, message.qos
        self._has_begun = False
        try:
            if qos == 2 and session.is_durable and state.is_store_failing:
                raise PublicationRefused(RequestFault.NO_ROOM, Refusal.STORE, STORE_FAILS)
            if state.suspects and _suspect(message, session, identifier) in state.suspects:
                raise PublicationRefused(
                    RequestFault.UNPROCESSABLE, Refusal.SUSPECT, "this message has crashed the broker twice"
                )
            if is_advertisement(message.topic):
                self._advertise(message, session, now)
            accepted = self.accept(message, session, user_properties, now, publisher)
            if qos == 1:
                if accepted.is_stored and session.is_durable:
                    state.batch.extend(session.deduplication.take(identifier, state.limits.in_flight))
            elif qos == 2:
                session.received[identifier] = None
                if session.is_durable:
                    state.batch.add(session.saved_received(identifier))
                    accepted = accepted._replace(is_stored=True)
                if accepted.is_stored:
                    session.exchanged_in = state.turn
        except PublicationRefused:
            raise
        except Exception as error:
            self._check_whole(message, session, identifier, error)
            raise
        return accepted

    def publish_run(
        self, run: Run, session: Session, audience: Audience, identifiers: Sequence[bytes], now: Nanos
    ) -> Accepted:
        """Accept messages of QoS 1 of a client that may publish them, for receivers here alone, while the store works;
        one at a time of a client that was promised to have each taken once. `identifiers`: the publisher's own."""
        state = self._state
        self._has_begun = True
        try:
            is_stored, crowding = self._delivery.spread_run(run, audience, now)
            if is_stored and session.is_durable and session.promises_once:
                for identifier in identifiers:
                    state.batch.extend(session.deduplication.take(int.from_bytes(identifier), state.limits.in_flight))
        except Exception as error:
            self._check_whole(run.messages[0], session, int.from_bytes(identifiers[0]), error)
            raise
        return Accepted(bool(audience.receivers), is_stored, crowding)

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
            self._state.batch.add(session.erased_received(identifier))
            session.exchanged_in = self._state.turn
        return True

    def must_stop(self, publisher: Publisher, topic: str, now: Nanos) -> bool:
        """Stop a publisher before its QoS 0 message on the topic is accepted, if there is no room on the way."""
        state = self._state
        if not state.uplink.carries(topic):
            return False
        if (flow := self._reservations.flow_of(topic)) is not None and flow.leaves:
            # It does not wait for others; of what is beyond its profile, what finds no room is dropped.
            return flow.excess == "wait" and backpressure.stop_for(
                publisher, ("reservation", flow.filter), flow.policer.wait_ns(now), now
            )
        qos = state.cluster.class_of(topic, state.settings.qos.of(topic), now)
        return backpressure.stops_when_full(qos) and backpressure.stop_if_full(state.uplink, publisher, topic, qos, now)

    # Every message

    def accept(  # noqa: C901 - every message comes here: further calls would cost more than they explain
        self,
        message: Message,
        session: Session,
        user_properties: Sequence[tuple[str, str]],
        now: Nanos,
        publisher: Publisher | None = None,
        is_will: bool = False,
        is_mediated: bool = False,
    ) -> Accepted:
        """Take responsibility for a client's message, or a will; or PublicationRefused. `is_mediated`: its client may
        publish it, and no rule of mediation is to change it any more."""
        state, topic = self._state, message.topic
        message_id = read_id(user_properties) if user_properties and not is_will else None
        if not is_mediated:
            if not state.may_publish(session, topic):
                raise PublicationRefused(
                    RequestFault.NOT_ALLOWED, Refusal.DENIED, f"not allowed to publish on {topic[:100]}"
                )
            if message_id is not None or state.settings.mediation is not None:
                otherwise = self._otherwise(message, session, message_id, now, publisher, is_will)
                if otherwise is not None:
                    return otherwise
        if message.qos and not is_will and state.settings.mirrored is not None:
            self._need_mirror(topic)
        policy = self._stamp(message, session, user_properties) if state.settings.policies and not is_will else None
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
            raise PublicationRefused(RequestFault.NO_ROOM, Refusal.STORE, STORE_FAILS)
        unkept = self._why_not_kept(message, now) if message.retain else None
        if unkept is not None and is_answered:
            raise unkept
        is_stored, crowding = is_carried and qos.reliable, 0.0
        if unkept is None and message.retain and state.limits.retained_messages:
            is_stored |= self._retain(message, is_answered, now)
        if is_carried:
            try:
                crowding = self._send_up(message, qos, publisher, now, _served(audience, shared))
            except PublicationRefused as refused:
                if is_answered or is_will:
                    raise
                state.refuse(refused.why, refused.told, publisher)
        self._has_begun = True
        if unkept is not None:
            state.refuse(unkept.why, unkept.told, publisher)
            state.batch.extend(state.retained.remove(topic))
        if message_id is not None:
            state.message_ids.published.add(message_id)
            if not state.message_ids.delivered.add(message_id):
                # Another broker's copy was here before; it is still passed on, since that one may be lost.
                state.message_ids.duplicates += 1
                return Accepted(True, is_stored, crowding)
        if policy is None:
            stored, crowded = self._delivery.spread(message, audience, now, session.client_id)
        else:
            stored, crowded = self._policies.spread(message, audience, policy, now, session.client_id)
        given = is_stored or stored, max(crowding, crowded)
        if audience.groups or shared:
            given = both(given, self._share(message, audience, shared, qos, now))
        told = self._withheld(topic, publisher) if state.uplink.has_border else ""
        return Accepted(bool(audience.receivers or audience.groups or is_carried), *given, told=told)

    def _withheld(self, topic: str, publisher: Publisher | None) -> str:
        """Count and report a message that some brokers need and may not get; returns the text for its publisher."""
        names = self._state.uplink.withheld_from(topic)
        if not names:
            return ""
        told = f"{topic[:100]} may not leave for {', '.join(names[:WITHHELD_TOLD])}"
        told += f" and {len(names) - WITHHELD_TOLD} more" if len(names) > WITHHELD_TOLD else ""
        self._state.refuse(Refusal.BORDER, told, publisher)
        return told

    def _otherwise(
        self,
        message: Message,
        session: Session,
        message_id: MessageId | None,
        now: Nanos,
        publisher: Publisher | None,
        is_will: bool,
    ) -> Accepted | None:
        """Accept a message that was published before, or that a rule of mediation concerns; None if it is neither."""
        published = self._state.message_ids.published
        if message_id is not None and published.has(message_id):
            self._state.message_ids.duplicates += 1
            return Accepted(True, message.qos > 0, 0.0)  # its acknowledgement rests on records of this turn or before
        mediation = self._state.settings.mediation
        if mediation is None or not mediation.concerns(message.topic):
            return None
        accepted = self.mediating.accept(message, session, now, publisher, is_will)
        if message_id is not None:
            published.add(message_id)
        return accepted

    def _need_mirror(self, topic: str) -> None:
        """On a mirrored topic its records have to be on another host too; PublicationRefused while there is none."""
        state = self._state
        if state.settings.mirrored is not None and state.settings.mirrored.has(topic):
            if state.lacks_mirror:
                raise PublicationRefused(RequestFault.NO_ROOM, Refusal.STORE, NO_MIRROR)
            state.needs_mirror = True

    def _advertise(self, message: Message, session: Session, now: Nanos) -> None:
        """An advertisement of a publisher; or PublicationRefused."""
        state, name = self._state, message.topic[len(ADVERTISE) :]
        try:
            topic_filter = self._reservations.filter_of(name, message.payload)
            if not state.settings.access.may_advertise(session.user, session.client_id, topic_filter):
                told = f"not allowed to publish on all of {topic_filter[:100]}"
                raise PublicationRefused(RequestFault.NOT_ALLOWED, Refusal.DENIED, told)
            self._reservations.document(name, message.payload, session.client_id, message.retain, now)
        except BadReservation as bad:
            raise PublicationRefused(
                RequestFault.INVALID_OVERRIDE, Refusal.PROTOCOL, f"{message.topic[:100]}: {bad}"
            ) from None

    def _within_profile(self, flow: AdvertisedFlow, message: Message, qos: QosClass, now: Nanos) -> QosClass:
        """The class of a message that is advertised, by its profile; or PublicationRefused."""
        found = self._reservations.classify(flow, qos, len(message.payload), now)
        if found is None:
            raise PublicationRefused(
                RequestFault.NO_ROOM, Refusal.QUOTA, f"beyond the profile advertised for {flow.filter[:100]}"
            )
        return found

    def _stamp(self, message: Message, session: Session, user_properties: Sequence[tuple[str, str]]) -> Policy | None:
        """The policy of its topic, which distinguishes publishers; or PublicationRefused."""
        policy = self._policies.of(message.topic)
        if policy is None:
            return None
        try:
            self._policies.stamp(message, session, policy, user_properties)
            return policy
        except BadOverride as bad:
            raise PublicationRefused(RequestFault.INVALID_OVERRIDE, Refusal.PROTOCOL, str(bad)) from None

    def _class_of(
        self, message: Message, qos: QosClass, user_properties: Sequence[tuple[str, str]], now: Nanos
    ) -> QosClass:
        """Its QoS class: that of the file, tightened by publisher and subscribers."""
        if user_properties:
            try:
                override = read_override(user_properties)
                if override.requires.is_trust and (message.retain or qos.history):
                    raise BadOverride("a message that is kept for later has the requirements of its topic only")
                qos = self._state.cluster.apply_override(qos, override, now)
            except BadOverride as bad:
                raise PublicationRefused(RequestFault.INVALID_OVERRIDE, Refusal.PROTOCOL, str(bad)) from None
        qos = self._state.cluster.class_of(message.topic, qos, now)
        if message.qos and not qos.reliable:
            qos = apply_override(qos, RELIABLE)
        flow = self._reservations.flow_of(message.topic)
        return qos if flow is None else self._within_profile(flow, message, qos, now)

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
            # Those who are all away get it only if there is no other broker with members.
            is_here = group is not None and group.is_attended
            broker = cluster.choose(one.group, one.filter, one.brokers, is_here)
            if not broker and group is not None:
                given = both(given, self._delivery.share(message, group, now))
            elif cluster.send_to_group(broker, one, message, qos, now) is not PublishResult.ACCEPTED:
                self._state.counters.dropped[Drop.OVERLAY_FULL] += 1
        for group in here.values():
            given = both(given, self._delivery.share(message, group, now))
        return given

    def held_message_sent(self, held: HeldMessageSent, now: Nanos) -> None:
        """A message that had to wait is sent to those who are known to need it now: so it is to members of shared
        subscriptions that were not known before."""
        topic, flags, body, qos, served = held
        if topic.startswith(SHARE):
            self._held_for_group_sent(topic, flags, body, now)
            return
        shared = self._state.cluster.directory.shared(topic)
        if not shared or flags & envelope.RUN_MASK:
            return
        message = envelope.unpack(topic, flags, body, now)
        for one in shared:
            if f"{one.group}/{one.filter}" not in served:
                broker = self._state.cluster.choose(one.group, one.filter, one.brokers, is_here=False)
                if self._state.cluster.send_to_group(broker, one, message, qos, now) is not PublishResult.ACCEPTED:
                    self._state.counters.dropped[Drop.OVERLAY_FULL] += 1

    def _held_for_group_sent(self, name: str, flags: int, body: bytes, now: Nanos) -> None:
        """If the last member has gone from the broker that was chosen before the message had to wait, another one gets
        it."""
        group, broker, tag, topic = read_share_name(name)
        if broker not in self._state.uplink.needing(name):
            message = envelope.unpack(topic, flags, body, now)
            if not self._delivery.share_by_name(message, group, tag, now, may_hold=False):
                self._state.counters.dropped[Drop.SESSION_ENDED] += 1

    def _retain(self, message: Message, is_answered: bool, now: Nanos) -> bool:
        """Keep it at all brokers, this one included; a topic of the broker's own is kept here only. Or
        PublicationRefused, and it is kept at none. Whether it is stored.

        This comes before any delivery: a refused message is published again.
        """
        state = self._state
        state.retained.stamp_latest(message)
        is_for_all = not message.topic.startswith("$")
        match state.cluster.retain(message, now) if is_for_all else PublishResult.ACCEPTED:
            case PublishResult.ACCEPTED:
                pass
            case _ if not is_answered:
                state.counters.dropped[Drop.OVERLAY_FULL] += 1
            case PublishResult.BUSY:
                raise PublicationRefused(RequestFault.NO_ROOM, Refusal.BUSY, OVERLAY_BUSY)
            case PublishResult.TOO_LARGE:
                raise PublicationRefused(RequestFault.NO_ROOM, Refusal.TOO_LARGE, OVERLAY_TOO_LARGE)
        kept = state.retained.keep(message)
        state.batch.extend(kept)
        return bool(kept)

    def remove_retained(self, topic: str, now: Nanos) -> None:
        """An operator removes a topic's retained message, at all brokers. Subscribers are not notified.
        PublicationRefused if it cannot be done now."""
        if not self._state.can_erase:
            raise PublicationRefused(RequestFault.NO_ROOM, Refusal.STORE, STORE_FAILS)
        self._retain(Message(topic, b"", 1, True, published_ns=now), True, now)

    def _why_not_kept(self, message: Message, now: Nanos) -> PublicationRefused | None:
        """Why it cannot be kept as its topic's retained message. Without payload it only takes one away."""
        state = self._state
        if not message.payload or not state.limits.retained_messages:
            return None
        if state.is_store_failing:
            return PublicationRefused(RequestFault.NO_ROOM, Refusal.STORE, STORE_FAILS)
        has_room, effects = state.retained.make_room(message, now)
        state.batch.extend(effects)
        if has_room:
            return None
        return PublicationRefused(RequestFault.NO_ROOM, Refusal.QUOTA, "no space for more retained messages")

    def _send_up(
        self, message: Message, qos: QosClass, publisher: Publisher | None, now: Nanos, served: tuple[str, ...]
    ) -> float:
        """To other brokers: how far readers there are behind; or PublicationRefused."""
        state = self._state
        if state.is_store_failing and qos.reliable:
            raise PublicationRefused(RequestFault.NO_ROOM, Refusal.STORE, STORE_FAILS)
        if not state.uplink.carries(message.topic):
            return 0.0
        flags, body = envelope.pack(message, now)
        match state.uplink.publish(message.topic, body, flags, qos, now, served):
            case PublishResult.BUSY:
                raise PublicationRefused(RequestFault.NO_ROOM, Refusal.BUSY, OVERLAY_BUSY)
            case PublishResult.TOO_LARGE:
                raise PublicationRefused(RequestFault.NO_ROOM, Refusal.TOO_LARGE, OVERLAY_TOO_LARGE)
            case PublishResult.ACCEPTED:
                self._has_begun = True
                if publisher is not None:
                    backpressure.stop_for_deadline(state.uplink, publisher, message.topic, qos, now)
                return state.uplink.crowding(message.topic, qos, now)


def _served(audience: Audience, shared: list[RemoteGroup]) -> tuple[str, ...]:
    """The shared subscriptions that a message is given to now."""
    if not audience.groups and not shared:
        return ()
    return (*(f"{one.name}/{one.filter}" for one in audience.groups), *(f"{one.group}/{one.filter}" for one in shared))


def _suspect(message: Message, session: Session, identifier: int) -> str:
    return suspect_of(session.client_id, identifier, message.topic, message.payload)
