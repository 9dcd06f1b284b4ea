"""Messages that return from a consumer, or from its queue.

A consumer may return a message for another delivery, or reject it permanently. When a session ends, or has no consumer,
its messages of shared subscriptions go to other members.
"""

from collections.abc import Iterable

from overlane.core.units import Nanos
from overlane.pubsub.cluster.names import tag_of
from overlane.pubsub.contract.consumer import Consumer
from overlane.pubsub.counters import Drop
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.delivery.window import DeliveryStage, Entry
from overlane.pubsub.message import Message
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.table import Subscription


class Returns:
    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self._delivery = delivery

    def give_back(
        self, session: Session, consumer: Consumer, tags: Iterable[int], is_counted: bool, now: Nanos
    ) -> None:
        """QoS 1: the consumer does not keep these. They are given again, to it or to another one; `is_counted`: as a
        further try."""
        window = session.window
        for tag in tags:
            entry = window.sent.get(tag)
            if entry is not None and entry.qos == 1:
                window.put_back(entry, is_counted)
        window.answered_ns = now
        self._delivery.pump(session, consumer, now)

    def reject(self, session: Session, consumer: Consumer, tags: Iterable[int], now: Nanos) -> None:
        """QoS 1: the consumer cannot use these, now or later: they are dead letters."""
        for tag in tags:
            entry = session.window.sent.get(tag)
            if entry is not None and entry.qos == 1:
                self._delivery.done(session, entry)
                self._delivery.dead(session, entry.message, Drop.REJECTED, now)
        session.window.answered_ns = now
        self._delivery.pump(session, consumer, now)

    def abandon(self, session: Session, subscriptions: Iterable[Subscription], now: Nanos) -> None:
        """The session ends. What it owed of shared subscriptions goes to another member, QoS 2 under way excepted."""
        state = self._state
        shared = {one.name: one for one in subscriptions if one.group}
        for entry in list(session.window):
            state.queue_records.take(entry)
            moves = entry.group in shared and (entry.stage is DeliveryStage.WAITING or entry.qos == 1)
            if not (moves and self._share_again(entry.message, shared[entry.group], now)):
                state.counters.dropped[Drop.SESSION_ENDED] += 1

    def hand_over(self, session: Session, subscription: Subscription, at_most: int, now: Nanos) -> int:
        """Nobody takes what waits for a member of a shared subscription: messages that were published here go to
        members at other brokers, if there are any; how many did. None travels twice."""
        window, tag = session.window, tag_of(subscription.filter)
        window.reconnected()
        gone: list[Entry] = []
        for entry in window.waiting:
            if not entry.message.sender or entry.qos != 1 or entry.message.is_expired(now):
                continue
            if len(gone) >= at_most or not self._delivery.share_elsewhere(entry.message, subscription.group, tag, now):
                break
            gone.append(entry)
        if gone:
            window.take_out(gone)
            for entry in gone:
                self._state.queue_records.take(entry)
        return len(gone)

    def _share_again(self, message: Message, subscription: Subscription, now: Nanos) -> bool:
        group = self._state.subscriptions.group(subscription.group, subscription.filter)
        if group is not None and self._delivery.share(message, group, now) is not None:
            return True
        return self._delivery.share_elsewhere(message, subscription.group, tag_of(subscription.filter), now)
