"""Publisher policies: liveliness, ownership and periods of topics, and their reports.

Only topics whose pattern in the network file has `liveliness`, `period` or `ownership` are affected; their messages do
not use the fast path. Changes are published here, for clients of this broker, as JSON:

    $overlane/liveliness/TOPIC      retained: a publisher is alive or lost; who is alive, and who owns the topic
    $overlane/period/TOPIC          a publisher has missed its period
    $overlane/incompatible/TOPIC    a request that an offer does not satisfy; also for clients of other brokers, since
                                    the publisher may be there

A client that may not receive a topic does not receive these either.
"""

from collections.abc import Iterable, Sequence

import msgspec

from overlane.core.qos import QosClass
from overlane.core.topics import matches
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.pubsub.cluster import envelope
from overlane.pubsub.delivery.delivery import NOT_GIVEN, OVERRUN, Delivery, Given, both
from overlane.pubsub.message import Message
from overlane.pubsub.policies.policy import (
    NO_REQUEST,
    PUBLISHER,
    STAMPED,
    Mismatch,
    Offer,
    Policy,
    Request,
    mismatches,
    read_offer,
    stamps,
)
from overlane.pubsub.policies.topic_publishers import PublisherChange, PublisherOutcome, TopicPublishers
from overlane.pubsub.properties import encode_user_properties
from overlane.pubsub.publishing.qos_override import BadOverride
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.table import Audience, Subscription

LIVELINESS_TOPIC = "$overlane/liveliness/"
PERIOD_TOPIC = "$overlane/period/"
INCOMPATIBLE_TOPIC = "$overlane/incompatible/"
TOPICS_MAX = 10_000
"""Whose publishers are told apart; of more, those without a living publisher are forgotten, else the oldest."""
REPORT_EVERY: Nanos = 60 * SECOND
"""The same mismatch is not reported more often."""
REPORTS_REMEMBERED = 10_000


class PublisherPolicies:
    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self._delivery = delivery
        self._topics: dict[str, TopicPublishers] = {}
        self._reported: dict[tuple[str, str, str, Mismatch], Nanos] = {}

    def of(self, topic: str) -> Policy | None:
        policies = self._state.settings.policies
        return None if policies is None else policies.of(topic)

    # At the publisher's broker

    def stamp(
        self, message: Message, session: Session, policy: Policy, user_properties: Sequence[tuple[str, str]]
    ) -> None:
        """Let all brokers know who has published a message, and what that publisher offers; BadOverride."""
        offer = read_offer(user_properties, f"{session.client_id}@{self._state.name}", policy)
        if any(name in STAMPED for name, _ in user_properties):
            others = tuple(pair for pair in message.properties.user_properties if pair[0] not in STAMPED)
            message.encoded = message.properties._replace(user_properties=others).encode()
        message.encoded += encode_user_properties(stamps(offer))
        message.size_bytes = len(message.payload) + len(message.topic_utf8) + len(message.encoded)
        message.head, message.head_version = b"", 0

    # Where there are subscribers

    def spread(
        self,
        message: Message,
        audience: Audience,
        policy: Policy | None,
        now: Nanos,
        sender: str | None = None,
        overrun: int = OVERRUN,
    ) -> Given:
        """As `Delivery.spread`, of what the policy of the topic lets pass now."""
        if policy is None:
            return self._delivery.spread(message, audience, now, sender, overrun=overrun)
        pairs = message.properties.user_properties
        publisher = next((value for name, value in pairs if name == PUBLISHER), None)
        if publisher is None:  # a will
            return self._delivery.spread(message, audience, now, sender, overrun=overrun)
        try:
            offer = read_offer(pairs, publisher, policy)
        except BadOverride:
            offer = read_offer((), publisher, policy)  # of another version
        topic = message.topic
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = self._begin()
        wake_at = known.next_deadline()
        is_new = (tracked := known.publishers.get(publisher)) is None or tracked.offer != offer
        outcome = known.heard(offer, message, now)
        self._tell(topic, known, outcome.changes, now)
        if is_new:
            self._check(topic, offer, audience, now)
        if (due := known.next_deadline()) < wake_at:
            self._wake(topic, due)
        given = NOT_GIVEN
        for one in outcome.deliver:
            of_sender = sender if one is message else one.sender or None
            given = both(given, self._delivery.spread(one, audience, now, of_sender, overrun=overrun))
        return given

    def _begin(self) -> TopicPublishers:
        if len(self._topics) >= TOPICS_MAX:
            silent = next((topic for topic, one in self._topics.items() if not one.alive), next(iter(self._topics)))
            del self._topics[silent]
        return TopicPublishers()

    def _wake(self, topic: str, at: Nanos) -> None:
        state = self._state

        def failed(error: Exception) -> None:
            state.failed("timer", topic, error)

        if at < NEVER:
            state.timers.at(at, lambda now: self._expired(topic, now), failed)

    def _expired(self, topic: str, now: Nanos) -> None:
        known = self._topics.get(topic)
        if known is None:
            return
        if self.of(topic) is None:  # the file has changed
            del self._topics[topic]
            return
        outcome: PublisherOutcome = known.expire(now)
        self._tell(topic, known, outcome.changes, now)
        audience = self._state.subscriptions.audience(topic)
        for message in outcome.deliver:
            if not message.is_expired(now):
                self._delivery.spread(message, audience, now, message.sender or None)
        self._wake(topic, known.next_deadline())

    # Reports

    def _tell(self, topic: str, known: TopicPublishers, changes: Iterable[PublisherChange], now: Nanos) -> None:
        for change in changes:
            if change.kind == "missed":
                period_ns = known.publishers[change.publisher].offer.period_ns
                body: dict[str, object] = {
                    "publisher": change.publisher,
                    "missed": change.missed,
                    "period_ms": period_ns / MS,
                }
                self.publish_here(Message(PERIOD_TOPIC + topic, msgspec.json.encode(body), published_ns=now), now)
                continue
            body = {"publisher": change.publisher, "state": change.kind, "alive": known.alive, "owner": known.owner}
            told = Message(LIVELINESS_TOPIC + topic, msgspec.json.encode(body), retain=True, published_ns=now)
            self._state.retained.keep_own(told)
            self.publish_here(told, now)

    def publish_here(self, message: Message, now: Nanos) -> None:
        """A message of the broker's own, for local subscribers."""
        audience = self._state.subscriptions.audience(message.topic)
        self._delivery.spread(message, audience, now)
        self._delivery.share_here(message, audience, now)

    def _check(self, topic: str, offer: Offer, audience: Audience, now: Nanos) -> None:
        """A publisher offers something new: is it what subscribers here request?"""
        for receiver in audience.receivers:
            for one in receiver.session.subscriptions.values():
                if one.request != NO_REQUEST:
                    self.report(topic, offer, one, now)

    def check_subscription(self, subscription: Subscription, now: Nanos) -> list[Mismatch]:
        """What neither the file nor living publishers offer of what a new subscription requests."""
        if subscription.request == NO_REQUEST:
            return []
        policies = self._state.settings.policies
        offered = [Policy()] if policies is None else policies.offered(subscription.filter)
        found = [one for policy in offered for one in mismatches(policy, subscription.request)]
        for topic, known in self._topics.items():
            for tracked in known.publishers.values():
                if tracked.is_alive:
                    found += self.report(topic, tracked.offer, subscription, now)
        return list(dict.fromkeys(found))

    def report(self, topic: str, offer: Offer, subscription: Subscription, now: Nanos) -> list[Mismatch]:
        """Tell both sides what does not go together, if a topic is one of the subscription."""
        request: Request = subscription.request
        found = mismatches(offer, request)
        audience = self._state.subscriptions.audience(topic) if found else None
        if audience is None or all(one.session is not subscription.session for one in audience.receivers):
            return []
        if not matches(subscription.filter, topic):
            return []
        for one in found:
            key = topic, offer.publisher, subscription.session.client_id, one
            if now - self._reported.get(key, -NEVER) < REPORT_EVERY:
                continue
            if len(self._reported) >= REPORTS_REMEMBERED:
                self._reported.clear()
            self._reported[key] = now
            body = {
                "publisher": offer.publisher,
                "subscriber": f"{subscription.session.client_id}@{self._state.name}",
                "policy": one.policy,
                "offered": one.offered,
                "requested": one.requested,
            }
            told = Message(INCOMPATIBLE_TOPIC + topic, msgspec.json.encode(body), published_ns=now)
            self.publish_here(told, now)
            if self._state.uplink.carries(told.topic):
                flags, packed = envelope.pack(told, now)
                self._state.uplink.publish(told.topic, packed, flags, QosClass(), now)
        return found
