"""Arriving: what the overlay brings from other brokers, on its way to the clients here.

It is a run of plain messages for the fast lane, a retained message that brokers exchange, a message for one member of a
shared subscription, or a message for everybody who has subscribed. What cannot be read is counted as refused, and
concerns nothing else that came with it.
"""

from overlane.core.events import Deliver
from overlane.core.events import Delivery as Delivered
from overlane.core.units import Nanos
from overlane.mqtt import elsewhere, envelope
from overlane.mqtt.counters import Drop, Refusal
from overlane.mqtt.delivery import Delivery
from overlane.mqtt.fastlane import FastLane
from overlane.mqtt.state import State
from overlane.mqtt.streams import Streams


class Arriving:
    def __init__(self, state: State, delivery: Delivery, fastlane: FastLane, streams: Streams) -> None:
        self._state = state
        self._delivery = delivery
        self._fastlane = fastlane
        self._streams = streams

    def deliver(self, effect: Deliver, now: Nanos) -> None:
        """What the overlay brought for local subscribers."""
        state = self._state
        state.is_let_in = effect.reliable
        for topic, flags, body in effect.messages:
            subscribers = effect.subscribers.get(topic)
            if not subscribers:
                continue
            try:
                if flags & envelope.LANE and not topic.startswith(elsewhere.RESERVED):
                    if flags & envelope.RUN:
                        run, count, is_v5 = envelope.unpack_run(flags, body)
                        self._fastlane.arrive(topic, run, count, is_v5, now)
                    else:
                        is_v5 = bool(flags & envelope.RUN_OF_V5)
                        run = self._fastlane.arrive_lone(topic, body, is_v5, now)
                    self._streams.arrive(topic, run, is_v5, now)
                else:
                    self._deliver_one(Delivered(topic, body, flags, subscribers), now - effect.age_ns, now)
            except (ValueError, IndexError):
                state.refuse(Refusal.MALFORMED, f"a message of {effect.origin} that cannot be read")
        state.is_let_in = False

    def _deliver_one(self, one: Delivered, published_ns: Nanos, now: Nanos) -> None:
        state = self._state
        if one.topic.startswith(elsewhere.RETAINED):
            state.effects += state.retained.keep_if_later(state.elsewhere.read_retained(one.topic, one.flags, one.body))
            return
        if one.topic.startswith(elsewhere.SHARE):
            self._deliver_to_group(one, published_ns, now)
            return
        arrived = envelope.unpack(one.topic, one.flags, one.body, published_ns)
        if arrived.expires_ns > now:
            only = () if one.subscribers == (elsewhere.EVERYBODY,) else one.subscribers
            self._delivery.spread(arrived, state.subscriptions.audience(one.topic), now, only=only)

    def _deliver_to_group(self, one: Delivered, published_ns: Nanos, now: Nanos) -> None:
        """Another broker has chosen this one for a message of a shared subscription."""
        name, _, tag, topic = elsewhere.read_share_name(one.topic)
        arrived = envelope.unpack(topic, one.flags, one.body, published_ns)
        if arrived.expires_ns <= now:
            return
        for group in self._state.subscriptions.audience(topic).groups:
            if (
                group.name == name
                and elsewhere.tag_of(group.filter) == tag
                and self._delivery.share(arrived, group, now)
            ):
                return
        self._state.counters.dropped[Drop.SESSION_ENDED] += 1  # the last member has gone meanwhile
