"""Subscribing: SUBSCRIBE and UNSUBSCRIBE, and the retained messages that a new subscription gets.

Each filter of a SUBSCRIBE is granted or refused on its own. A filter that the session has already is replaced, without
a gap. Retained messages follow the SUBACK (`past`).

The overlay hears of the first and the last local subscription to a filter, and of a group's first and last member.
Where it keeps the past for those who come late it hears of each subscription, by the client's name, so that the past
goes to that client alone. It hears of what subscribers ask for beyond what the file gives, too.
"""

import mqtt5

from overlane.core.topics import BadTopic
from overlane.core.units import NEVER, Nanos
from overlane.mqtt.connection import V5, Connection
from overlane.mqtt.counters import Refusal
from overlane.mqtt.delivery import Delivery
from overlane.mqtt.elsewhere import EVERYBODY
from overlane.mqtt.malformed import PACKET_TOO_LARGE, Malformed
from overlane.mqtt.past import Past
from overlane.mqtt.session import Session
from overlane.mqtt.state import State
from overlane.mqtt.subscriptions import BadFilter, Subscription, split_shared
from overlane.mqtt.tightening import BadWish, wishes

FAULTS_CHARS_MAX = 500

Granted = mqtt5.SubAckReasonCode
Ended = mqtt5.UnsubAckReasonCode


class Subscribing:
    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self._past = Past(state, delivery)
        self._wishes: dict[tuple[Nanos, bool, str], int] = {}
        """How many subscriptions ask for a deadline and reliability beyond the file's."""

    def subscribe(self, connection: Connection, session: Session, packet: mqtt5.SubscribePacket, now: Nanos) -> None:
        before = len(self._state.effects)
        codes: list[Granted] = []
        faults: list[str] = []
        past: list[Subscription] = []
        for asked in packet.topic_filters:
            try:
                subscription = self._read(session, asked, packet)
            except _Refused as refused:
                codes.append(refused.code)
                faults.append(str(refused))
                self._state.refuse(refused.why, str(refused), connection)
                continue
            codes.append(Granted(subscription.qos))
            is_new = asked.pattern not in session.subscriptions
            self._enter(session, subscription, now)
            always, once = mqtt5.RetainHandling.SEND_ALWAYS, mqtt5.RetainHandling.SEND_IF_SUBSCRIPTION_NOT_EXISTS
            if not subscription.group and (
                asked.retain_handling == always or (is_new and asked.retain_handling == once)
            ):
                past.append(subscription)
        told = "; ".join(faults)[:FAULTS_CHARS_MAX] if faults else None
        if not connection.send_explained(
            lambda told: mqtt5.SubAckPacket(packet.packet_id, codes, reason_str=told), told
        ):
            raise Malformed(PACKET_TOO_LARGE, "the client does not take a packet as large as the SUBACK")
        for subscription in past:
            self._past.begin(session, connection, subscription, now)
        connection.waits |= len(self._state.effects) > before

    def unsubscribe(
        self, connection: Connection, session: Session, packet: mqtt5.UnsubscribePacket, now: Nanos
    ) -> None:
        codes: list[Ended] = []
        must_wait = self._state.is_store_failing and not self._state.can_erase and session.is_known
        for name in packet.patterns:
            if must_wait and connection.version == V5 and name in session.subscriptions:
                codes.append(Ended.IMPLEMENTATION_SPECIFIC_ERROR)
                self._state.refuse(Refusal.STORE, "the durable store takes nothing at the moment", connection)
                continue
            subscription = session.subscriptions.pop(name, None)
            if subscription is None:
                codes.append(Ended.NO_SUBSCRIPTION_EXISTED)
                continue
            codes.append(Ended.SUCCESS)
            self._leave(subscription, now)
            self._past.forget(session, name)
            if session.is_known:
                self._state.effects.append(session.erased_subscription(name))
                connection.waits = True
        if not connection.send_packet(mqtt5.UnsubAckPacket(packet.packet_id, codes)):
            raise Malformed(PACKET_TOO_LARGE, "the client does not take a packet as large as the UNSUBACK")

    def resume(self, session: Session, connection: Connection, now: Nanos) -> None:
        """The client is back: it gets what it has not got yet of what is retained."""
        self._past.resume(session, connection, now)

    def enter_log(self, subscription: Subscription, now: Nanos) -> None:
        """A stream begins. It is known by the records of its log, and of what is retained it gets what it wants."""
        state = self._state
        is_first = state.subscriptions.add(subscription)
        if subscription.is_local:
            return
        if state.settings.qos.keeps_history:
            state.uplink.subscribe(subscription.session.client_id, subscription.filter, True, now)
        elif is_first:
            state.uplink.subscribe(EVERYBODY, subscription.filter, False, now)

    def leave_log(self, subscription: Subscription, now: Nanos) -> None:
        if subscription.is_local:
            self._state.subscriptions.remove(subscription)
        else:
            self._leave(subscription, now)

    def restore(self, subscription: Subscription) -> None:
        subscription.session.subscriptions[subscription.name] = subscription
        self._state.subscriptions.add(subscription)

    def recovered(self, now: Nanos) -> None:
        """After a restart: the overlay remembers those that it knows by name, and is told of the others."""
        state = self._state
        for group, topic_filter in state.subscriptions.filters():
            if group:
                state.elsewhere.join_group(group, topic_filter, now)
            elif not state.settings.qos.keeps_history:
                state.uplink.subscribe(EVERYBODY, topic_filter, False, now)
        for session in state.sessions.values():
            for subscription in session.subscriptions.values():
                self._wish(subscription, now)

    def end(self, session: Session, now: Nanos) -> list[Subscription]:
        """The session is over; which subscriptions it had."""
        subscriptions = list(session.subscriptions.values())
        for subscription in subscriptions:
            self._leave(subscription, now)
        return subscriptions

    def _read(self, session: Session, asked: mqtt5.TopicFilter, packet: mqtt5.SubscribePacket) -> Subscription:
        state, limits = self._state, self._state.limits
        deadline_ns, reliable = NEVER, False
        try:
            group, topic_filter = split_shared(asked.pattern)
            if packet.user_properties:
                deadline_ns, reliable = wishes(packet.user_properties)
        except (BadTopic, BadFilter) as bad:
            raise _Refused(Granted.TOPIC_FILTER_INVALID, Refusal.PROTOCOL, str(bad)) from None
        except BadWish as bad:
            raise _Refused(Granted.IMPLEMENTATION_SPECIFIC_ERROR, Refusal.PROTOCOL, str(bad)) from None
        if topic_filter.count("/") >= limits.filter_levels:
            told = f"a filter of more than {limits.filter_levels} levels"
            raise _Refused(Granted.TOPIC_FILTER_INVALID, Refusal.QUOTA, told)
        if not state.settings.access.may_subscribe(session.user, session.client_id, topic_filter):
            told = f"not allowed to subscribe to {topic_filter[:100]}"
            raise _Refused(Granted.NOT_AUTHORIZED, Refusal.DENIED, told)
        is_new = asked.pattern not in session.subscriptions
        if is_new and len(session.subscriptions) >= limits.subscriptions_per_client:
            told = f"more than {limits.subscriptions_per_client} subscriptions"
            raise _Refused(Granted.QUOTA_EXCEEDED, Refusal.QUOTA, told)
        if state.is_store_failing and session.is_durable:
            told = "the durable store takes nothing at the moment"
            raise _Refused(Granted.QUOTA_EXCEEDED, Refusal.STORE, told)
        return Subscription(
            session,
            asked.pattern,
            group,
            topic_filter,
            int(asked.max_qos),
            asked.no_local,
            asked.retain_as_published,
            packet.subscription_id or 0,
            deadline_ns,
            reliable,
        )

    def _enter(self, session: Session, subscription: Subscription, now: Nanos) -> None:
        state = self._state
        old = session.subscriptions.get(subscription.name)
        session.subscriptions[subscription.name] = subscription
        is_first = state.subscriptions.add(subscription)
        self._wish(subscription, now)
        if old is not None:
            state.subscriptions.remove(old)
            self._wish_no_more(old, now)
        elif subscription.group:
            if is_first:
                state.elsewhere.join_group(subscription.group, subscription.filter, now)
        elif state.settings.qos.keeps_history:
            state.uplink.subscribe(session.client_id, subscription.filter, session.is_durable, now)
        elif is_first:
            state.uplink.subscribe(EVERYBODY, subscription.filter, False, now)
        self._past.forget(session, subscription.name)
        if session.is_durable:
            state.effects.append(session.saved_subscription(subscription))

    def _leave(self, subscription: Subscription, now: Nanos) -> None:
        state = self._state
        is_last = state.subscriptions.remove(subscription)
        self._wish_no_more(subscription, now)
        if subscription.group:
            if is_last:
                state.elsewhere.leave_group(subscription.group, subscription.filter, now)
        elif state.settings.qos.keeps_history:
            state.uplink.unsubscribe(subscription.session.client_id, subscription.filter, now)
        elif is_last:
            state.uplink.unsubscribe(EVERYBODY, subscription.filter, now)

    def _wish(self, subscription: Subscription, now: Nanos) -> None:
        wish = subscription.deadline_ns, subscription.reliable, subscription.filter
        if subscription.wishes:
            self._wishes[wish] = self._wishes.get(wish, 0) + 1
            if self._wishes[wish] == 1:
                self._state.elsewhere.want(*wish, now)

    def _wish_no_more(self, subscription: Subscription, now: Nanos) -> None:
        wish = subscription.deadline_ns, subscription.reliable, subscription.filter
        if subscription.wishes:
            self._wishes[wish] -= 1
            if not self._wishes[wish]:
                del self._wishes[wish]
                self._state.elsewhere.want_no_more(*wish, now)


class _Refused(Exception):
    def __init__(self, code: Granted, why: Refusal, told: str) -> None:
        super().__init__(told)
        self.code = code
        self.why = why
