"""The past: the retained messages that a new subscription has still to get.

There may be a hundred thousand of them, and all others would have to wait while they are looked for and sent. So each
subscription is a walk through what is retained, and walks take turns: some steps of one, then everybody else. A walk
stands still while its client has much to read or to acknowledge, and so loses nothing. It ends when the subscription
does, or the connection. What is published meanwhile goes its own way, and may come before what is older.

Only a walk for a session that outlives its connection goes to its end at once, if it is for more than QoS 0: all it
finds is kept together with the subscription, or nothing.
"""

from collections.abc import Iterator

from overlane.core.units import MS, Nanos
from overlane.mqtt.connection import Connection
from overlane.mqtt.delivery import SEND_AHEAD_BYTES, Delivery
from overlane.mqtt.message import Message
from overlane.mqtt.session import Session
from overlane.mqtt.state import State
from overlane.mqtt.subscriptions import Subscription

STEPS_AT_ONCE = 500
MESSAGES_AT_ONCE = 100
SOON: Nanos = MS
STANDSTILL: Nanos = 10 * MS
"""When all clients that have walks left have much to read."""


class _Walk:
    __slots__ = ("connection", "is_over", "session", "steps", "subscription")

    def __init__(
        self, session: Session, connection: Connection, subscription: Subscription, steps: Iterator[Message | None]
    ) -> None:
        self.session = session
        self.connection = connection
        self.subscription = subscription
        self.steps = steps
        self.is_over = False

    @property
    def is_wanted(self) -> bool:
        """Neither the connection has ended since, nor the subscription, or been replaced by another."""
        session, subscription = self.session, self.subscription
        return session.connection is self.connection and session.subscriptions.get(subscription.name) is subscription

    @property
    def can_go_on(self) -> bool:
        return self.connection.backlog_bytes < SEND_AHEAD_BYTES and not self.session.window.waiting


class Past:
    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self._delivery = delivery
        self._walks: dict[tuple[str, str], _Walk] = {}
        """By client and subscription; the first is the next."""

    def begin(self, session: Session, connection: Connection, subscription: Subscription, now: Nanos) -> None:
        """A client has subscribed and wants to know what is retained."""
        walk = _Walk(session, connection, subscription, self._state.retained.walk(subscription.filter))
        if session.is_durable and subscription.qos:
            while not walk.is_over:
                self._take_steps(walk, now)
            return
        if not self._walks:
            self._take_steps(walk, now)
        if not walk.is_over:
            if not self._walks:
                self._state.agenda.at(now + SOON, self._go_on)
            self._walks[session.client_id, subscription.name] = walk

    def _go_on(self, now: Nanos) -> None:
        """Some steps of the first walk that can go on; then it is the last."""
        for key, walk in list(self._walks.items()):
            if not walk.is_wanted:
                del self._walks[key]
            elif walk.can_go_on:
                self._take_steps(walk, now)
                del self._walks[key]
                if not walk.is_over:
                    self._walks[key] = walk
                self._come_again(now + SOON)
                return
        self._come_again(now + STANDSTILL)

    def _come_again(self, when: Nanos) -> None:
        if self._walks:
            self._state.agenda.at(when, self._go_on)

    def _take_steps(self, walk: _Walk, now: Nanos) -> None:
        state, session, subscription = self._state, walk.session, walk.subscription
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        sent = 0
        for _ in range(STEPS_AT_ONCE):
            message = next(walk.steps, walk)
            if isinstance(message, _Walk):
                walk.is_over = True
                return
            if message is None:
                continue
            if message.expires_ns <= now:
                state.effects += state.retained.remove(message.topic)
                continue
            is_own = subscription.no_local and message.sender == session.client_id
            if not is_own and state.may_receive(session, message.topic):
                qos = min(message.qos, subscription.qos)
                self._delivery.give(session, message, qos, True, identifiers, now)
                sent += 1
                if sent >= MESSAGES_AT_ONCE:
                    return
