"""Subscribing: adds and removes subscriptions; new ones get retained messages.

Each request is granted or refused on its own. A filter that the session already has is replaced, without a gap. The
retained messages of a new subscription follow after the client has been told that it is granted (`replay`).

The overlay is informed of the first and the last local subscription to a filter, and of the first and last member of a
group. If it keeps a history for late subscribers, it is informed of each subscription, by the name of the client, so
that the history goes to that client alone. It is informed of QoS overrides of subscribers, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from overlane.core.topics import BadTopic
from overlane.core.units import Nanos
from overlane.pubsub.cluster.cluster import LOCAL_SUBSCRIBERS
from overlane.pubsub.cluster.names import PREFIX_BYTES_MAX
from overlane.pubsub.contract.consumer import Consumer
from overlane.pubsub.contract.refused import STORE_FAILS, RequestFault, SubscriptionNotGranted
from overlane.pubsub.counters import Refusal
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.limits import uncarriable
from overlane.pubsub.policies.policy import NO_REQUEST, read_policy_request
from overlane.pubsub.publishing.qos_override import (
    AVOID,
    ENCRYPTED,
    NONE,
    BadOverride,
    QosOverride,
    read_override,
)
from overlane.pubsub.reservations.request import BadReservation, read_request
from overlane.pubsub.reservations.reserving import Answer
from overlane.pubsub.reservations.service import Reservations, own_topic
from overlane.pubsub.retained.handouts import Handouts
from overlane.pubsub.retained.replay import RetainedReplay
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.content_filters import STANDBY, WHERE, read_content_filter, read_standby
from overlane.pubsub.subscriptions.table import BadFilter, Subscription, split_shared
from overlane.selectors import SelectorError


class Replay(Enum):
    """Whether a subscription gets what is retained. A shared one never does."""

    ALWAYS = "always"
    IF_NEW = "if the session had no such subscription"
    NEVER = "never"


class Unsubscribed(Enum):
    ENDED = "it has ended"
    UNKNOWN = "there was none"
    STORE_FAILS = "it continues: its record cannot be erased now"


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """`name`: a filter, or `$share/GROUP/FILTER`. `user_properties` may hold a QoS override and a content
    filter."""

    name: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0
    replay: Replay = Replay.ALWAYS
    user_properties: Sequence[tuple[str, str]] = ()


class Subscribing:
    def __init__(self, state: State, delivery: Delivery, handouts: Handouts, reservations: Reservations) -> None:
        self._state = state
        self._replay = RetainedReplay(state, delivery)
        self._handouts = handouts
        self._reservations = reservations
        self._firsts: set[tuple[str, str]] = set()
        """Clients and subscriptions that were the first to their filters here, and have not got what is retained."""
        self._overrides: dict[tuple[QosOverride, str], int] = {}
        """How many subscriptions have an override, by override and filter."""

    def check(self, session: Session, request: SubscriptionRequest, now: Nanos) -> Subscription:
        """What `subscribe` would grant, apart from a reservation that it asks for; or SubscriptionNotGranted."""
        return self._read(session, request, now)

    def reserve(self, subscription: Subscription, answer: Answer, now: Nanos) -> None:
        """Ask the network for the reservation of a subscription before it is granted; or SubscriptionNotGranted."""
        assert subscription.reserve is not None
        client_id = subscription.session.client_id
        try:
            self._reservations.ask(client_id, subscription.name, subscription.filter, subscription.reserve, answer, now)
        except BadReservation as bad:
            raise SubscriptionNotGranted(RequestFault.NO_ROOM, Refusal.QUOTA, str(bad)) from None

    def release(self, session: Session, name: str, now: Nanos) -> None:
        """A reservation that was asked for is not needed."""
        self._reservations.release(session.client_id, name, now)

    def subscribe(self, session: Session, request: SubscriptionRequest, now: Nanos) -> tuple[Subscription, bool]:
        """The subscription, and whether it is to get what is retained (`replay`); or SubscriptionNotGranted."""
        subscription = self._read(session, request, now)
        is_new = request.name not in session.subscriptions
        self._enter(session, subscription, now)
        is_replayed = request.replay is Replay.ALWAYS or (is_new and request.replay is Replay.IF_NEW)
        return subscription, is_replayed and not subscription.group

    def replay(self, session: Session, consumer: Consumer, subscription: Subscription, now: Nanos) -> None:
        """Let the subscription have what is retained."""
        place = session.client_id, subscription.name
        is_first = place in self._firsts
        self._firsts.discard(place)
        if self._state.uplink.is_edge and (is_first or self._handouts.is_awaited(subscription.filter)):
            self._handouts.await_for(session, subscription, now, is_own_only=is_first)
        self._replay.begin(session, consumer, subscription, now, is_own_only=is_first)

    def unsubscribe(self, session: Session, name: str, can_refuse: bool, now: Nanos) -> Unsubscribed:
        """`can_refuse`: the client's protocol can report that the subscription continues."""
        state = self._state
        subscription = session.subscriptions.get(name)
        if subscription is None:
            return Unsubscribed.UNKNOWN
        if can_refuse and state.is_store_failing and not state.can_erase and session.is_known:
            return Unsubscribed.STORE_FAILS
        del session.subscriptions[name]
        self._leave(subscription, now)
        self._replay.forget(session, name)
        self._handouts.forget(session, name)
        if session.is_known:
            state.batch.add(session.erased_subscription(name))
        return Unsubscribed.ENDED

    def resume(self, session: Session, consumer: Consumer, now: Nanos) -> None:
        """The client is back: it gets what it has not got yet of what is retained."""
        self._handouts.resume(session, now)
        self._replay.resume(session, consumer, now)

    def enter_log(self, subscription: Subscription, now: Nanos) -> None:
        """A stream begins. It is known by the records of its log, and its backfill gives it what is retained."""
        state = self._state
        is_first = state.subscriptions.add(subscription)
        if subscription.is_local:
            return
        if state.settings.qos.keeps_history:
            state.uplink.subscribe(subscription.session.client_id, subscription.filter, True, now)
        elif is_first:
            state.uplink.subscribe(LOCAL_SUBSCRIBERS, subscription.filter, False, now)

    def leave_log(self, subscription: Subscription, now: Nanos) -> None:
        if subscription.is_local:
            self._state.subscriptions.remove(subscription)
        else:
            self._leave(subscription, now)

    def adopt(self, session: Session, now: Nanos) -> None:
        """The subscriptions of a session from another broker begin here."""
        subscriptions, session.subscriptions = session.subscriptions, {}
        for subscription in subscriptions.values():
            self._enter(session, subscription, now)

    def restore(self, subscription: Subscription) -> None:
        subscription.session.subscriptions[subscription.name] = subscription
        self._state.subscriptions.add(subscription)

    def recovered(self, now: Nanos) -> None:
        """After a restart: the overlay has stored subscriptions with a name, and gets the others again."""
        state = self._state
        for group, topic_filter in state.subscriptions.filters():
            if group:
                state.cluster.join_group(group, topic_filter, now)
            elif not state.settings.qos.keeps_history:
                state.uplink.subscribe(LOCAL_SUBSCRIBERS, topic_filter, False, now)
        for session in state.sessions.values():
            for subscription in session.subscriptions.values():
                if state.uplink.has_names and state.settings.qos.keeps_history:
                    self._announce_again(subscription, now)
                self._add_override(subscription, now)
                self._ask_again(subscription, now)

    def _announce_again(self, subscription: Subscription, now: Nanos) -> None:
        """The overlay has stored it, perhaps under names of before."""
        session = subscription.session
        if not subscription.group and not subscription.is_local:
            self._state.uplink.subscribe(session.client_id, subscription.filter, session.is_durable, now)

    def end(self, session: Session, now: Nanos) -> list[Subscription]:
        """The session is over; which subscriptions it had."""
        subscriptions = list(session.subscriptions.values())
        for subscription in subscriptions:
            self._leave(subscription, now)
        return subscriptions

    def _read(self, session: Session, request: SubscriptionRequest, now: Nanos) -> Subscription:
        state, limits = self._state, self._state.limits
        override, where, is_standby, reserve, asked = NONE, None, False, None, NO_REQUEST
        try:
            group, topic_filter = split_shared(request.name)
            if request.user_properties:
                where = read_content_filter(request.user_properties)
                is_standby = read_standby(request.user_properties)
                reserve = read_request(request.user_properties)
                asked = read_policy_request(request.user_properties)
                override = read_override(request.user_properties)
                if override.requires.is_trust:
                    raise BadOverride(f"{ENCRYPTED} and {AVOID} are for publishers")
                override = override._replace(deadline_ns=state.cluster.deadlines.settle(override.deadline_ns, now))
        except (BadTopic, BadFilter) as bad:
            raise SubscriptionNotGranted(RequestFault.INVALID_TOPIC, Refusal.PROTOCOL, str(bad)) from None
        except (BadOverride, BadReservation) as bad:
            raise SubscriptionNotGranted(RequestFault.INVALID_OVERRIDE, Refusal.PROTOCOL, str(bad)) from None
        except SelectorError as bad:
            raise SubscriptionNotGranted(RequestFault.INVALID_OVERRIDE, Refusal.PROTOCOL, f"{WHERE}: {bad}") from None
        if group:
            self._check_shared(topic_filter, where is not None, is_standby, reserve is not None)
        if told := uncarriable(group, "") or limits.too_long(topic_filter):
            raise SubscriptionNotGranted(RequestFault.INVALID_TOPIC, Refusal.TOO_LARGE, told)
        if topic_filter.count("/") >= limits.filter_levels:
            told = f"a filter of more than {limits.filter_levels} levels"
            raise SubscriptionNotGranted(RequestFault.INVALID_TOPIC, Refusal.QUOTA, told)
        access = state.settings.access
        is_own = topic_filter.startswith("$") and topic_filter == own_topic(session.client_id)
        if not (session.is_operators or is_own or access.may_subscribe(session.user, session.client_id, topic_filter)):
            told = f"not allowed to subscribe to {topic_filter[:100]}"
            raise SubscriptionNotGranted(RequestFault.NOT_ALLOWED, Refusal.DENIED, told)
        is_new = request.name not in session.subscriptions
        if is_new and len(session.subscriptions) >= limits.subscriptions_per_client:
            told = f"more than {limits.subscriptions_per_client} subscriptions"
            raise SubscriptionNotGranted(RequestFault.NO_ROOM, Refusal.QUOTA, told)
        count, size = state.uplink.needs_size()
        size += 2 * PREFIX_BYTES_MAX + 2 * len(topic_filter.encode())
        if is_new and (count + 2 > limits.filters or size > limits.filter_bytes):
            told = f"no room for more filters: at most {limits.filters}, and {limits.filter_bytes} bytes of them"
            raise SubscriptionNotGranted(RequestFault.NO_ROOM, Refusal.QUOTA, told)
        if state.is_store_failing and session.is_durable:
            raise SubscriptionNotGranted(RequestFault.NO_ROOM, Refusal.STORE, STORE_FAILS)
        return Subscription(
            session,
            request.name,
            group,
            topic_filter,
            request.qos,
            request.no_local,
            request.retain_as_published,
            request.identifier,
            override,
            where,
            is_local=is_standby,
            is_standby=is_standby,
            reserve=reserve,
            request=asked,
        )

    def _check_shared(self, topic_filter: str, has_where: bool, is_standby: bool, is_reserved: bool) -> None:
        """What a shared subscription cannot have; SubscriptionNotGranted."""
        told = ""
        if has_where:
            told = f"{WHERE}: a shared subscription cannot have a content filter"
        elif is_standby:
            told = f"{STANDBY}: a shared subscription cannot stand by"
        elif is_reserved:
            told = "a shared subscription cannot have a reservation"
        if told:
            raise SubscriptionNotGranted(RequestFault.INVALID_OVERRIDE, Refusal.PROTOCOL, told)
        if not self._state.uplink.can_share(topic_filter):
            told = f"not all topics of {topic_filter[:100]} have one name in the overlay, so it cannot be shared"
            raise SubscriptionNotGranted(RequestFault.INVALID_TOPIC, Refusal.PROTOCOL, told)

    def _enter(self, session: Session, subscription: Subscription, now: Nanos) -> None:
        state = self._state
        old = session.subscriptions.get(subscription.name)
        session.subscriptions[subscription.name] = subscription
        is_first = state.subscriptions.add(subscription)
        self._add_override(subscription, now)
        self._ask_again(subscription, now)
        if old is not None:
            if old.reserve is not None and subscription.reserve is None:
                self.release(session, old.name, now)
            is_last = state.subscriptions.remove(old)
            self._remove_override(old, now)
            if old.is_local != subscription.is_local:
                self._announce_otherwise(subscription, is_first, is_last, now)
        elif subscription.is_local:
            pass
        elif subscription.group:
            if is_first:
                state.cluster.join_group(subscription.group, subscription.filter, now)
        elif state.settings.qos.keeps_history:
            state.uplink.subscribe(session.client_id, subscription.filter, session.is_durable, now)
        elif is_first:
            state.uplink.subscribe(LOCAL_SUBSCRIBERS, subscription.filter, False, now)
        if is_first and old is None and state.uplink.is_edge:
            self._firsts.add((session.client_id, subscription.name))
            if not subscription.group and not subscription.is_local:
                state.uplink.renew(subscription.filter, now)
        self._replay.forget(session, subscription.name)
        self._handouts.forget(session, subscription.name)
        if session.is_durable:
            state.batch.add(session.saved_subscription(subscription))

    def _announce_otherwise(self, subscription: Subscription, is_first: bool, is_last: bool, now: Nanos) -> None:
        """A subscription begins to need something of other brokers, or ceases to."""
        state = self._state
        if state.settings.qos.keeps_history:
            client_id = subscription.session.client_id
            if subscription.is_local:
                state.uplink.unsubscribe(client_id, subscription.filter, now)
            else:
                state.uplink.subscribe(client_id, subscription.filter, subscription.session.is_durable, now)
        elif is_first:
            state.uplink.subscribe(LOCAL_SUBSCRIBERS, subscription.filter, False, now)
        elif is_last:
            state.uplink.unsubscribe(LOCAL_SUBSCRIBERS, subscription.filter, now)

    def _leave(self, subscription: Subscription, now: Nanos) -> None:
        state = self._state
        is_last = state.subscriptions.remove(subscription)
        self._remove_override(subscription, now)
        if subscription.reserve is not None:
            self.release(subscription.session, subscription.name, now)
        self._firsts.discard((subscription.session.client_id, subscription.name))
        self._handouts.forget(subscription.session, subscription.name)
        if is_last and not subscription.group:
            self._handouts.needed_no_more(subscription.filter)
        if subscription.group:
            if is_last:
                state.cluster.leave_group(subscription.group, subscription.filter, now)
        elif subscription.is_local:
            pass
        elif state.settings.qos.keeps_history:
            state.uplink.unsubscribe(subscription.session.client_id, subscription.filter, now)
        elif is_last:
            state.uplink.unsubscribe(LOCAL_SUBSCRIBERS, subscription.filter, now)

    def _ask_again(self, subscription: Subscription, now: Nanos) -> None:
        """For the reservation of a subscription from an earlier run, or from another broker."""
        reserve, client_id = subscription.reserve, subscription.session.client_id
        reservations = self._reservations
        if reserve is None or reservations.has(client_id, subscription.name):
            return
        try:
            reservations.ask(client_id, subscription.name, subscription.filter, reserve, None, now)
        except BadReservation as bad:
            self._state.refuse(Refusal.QUOTA, str(bad), client_id=client_id)

    def _add_override(self, subscription: Subscription, now: Nanos) -> None:
        key = subscription.override, subscription.filter
        if subscription.override != NONE:
            self._overrides[key] = self._overrides.get(key, 0) + 1
            if self._overrides[key] == 1:
                self._state.cluster.want(*key, now)

    def _remove_override(self, subscription: Subscription, now: Nanos) -> None:
        key = subscription.override, subscription.filter
        if subscription.override != NONE:
            self._overrides[key] -= 1
            if not self._overrides[key]:
                del self._overrides[key]
                self._state.cluster.want_no_more(*key, now)
