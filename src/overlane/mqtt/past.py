"""The past: the retained messages that a new subscription has still to get.

There may be a hundred thousand of them, and all others would have to wait while they are looked for and sent. So each
subscription is a walk through what is retained, and walks take turns: some steps of one, then everybody else. A walk
stands still while its client has much to read or to acknowledge, and so loses nothing. It ends when the subscription
does, or the connection. What is published meanwhile goes its own way, and may come before what is older.

A subscription of more than QoS 0 whose session outlives the connection gets all of them, whatever happens meanwhile:
it is remembered how far the walk has come, together with what it has found, and the next connection goes on there.
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
    __slots__ = ("connection", "is_kept", "is_over", "session", "steps", "subscription", "turned_away")

    def __init__(
        self,
        session: Session,
        connection: Connection,
        subscription: Subscription,
        steps: Iterator[Message | None],
        is_kept: bool,
    ) -> None:
        self.session = session
        self.connection = connection
        self.subscription = subscription
        self.steps = steps
        self.is_kept = is_kept
        self.is_over = False
        self.turned_away: Message | None = None
        """What was found, and the client's queue had no room for."""

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
        if session.is_durable and subscription.qos:
            self._set_out(self._kept_walk(session, connection, subscription, ""), now)
        else:
            steps = self._state.retained.walk(subscription.filter)
            self._set_out(_Walk(session, connection, subscription, steps, False), now)

    def resume(self, session: Session, connection: Connection, now: Nanos) -> None:
        """A client is back that has not got everything."""
        for name, after in list(session.past.items()):
            subscription = session.subscriptions.get(name)
            if subscription is None:
                self.forget(session, name)
            else:
                self._set_out(self._kept_walk(session, connection, subscription, after), now)

    def forget(self, session: Session, name: str) -> None:
        """The subscription has ended, or has got everything."""
        if session.past.pop(name, None) is not None and session.is_known:
            self._state.effects.append(session.erased_past(name))

    def _kept_walk(self, session: Session, connection: Connection, subscription: Subscription, after: str) -> _Walk:
        return _Walk(session, connection, subscription, self._state.retained.walk_on(subscription.filter, after), True)

    def _set_out(self, walk: _Walk, now: Nanos) -> None:
        name = walk.subscription.name
        if not self._walks and self._may_go_on(walk):
            self._take_steps(walk, now)
        elif walk.is_kept:
            self._remember(walk, "")
        if not walk.is_over:
            if not self._walks:
                self._state.agenda.at(now + SOON, self._go_on)
            self._walks[walk.session.client_id, name] = walk

    def _may_go_on(self, walk: _Walk) -> bool:
        return walk.can_go_on and not (walk.is_kept and self._state.is_store_failing)

    def _go_on(self, now: Nanos) -> None:
        """Some steps of the first walk that can go on; then it is the last."""
        for key, walk in list(self._walks.items()):
            if not walk.is_wanted:
                del self._walks[key]
            elif self._may_go_on(walk):
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
        last = self._give_some(walk, now)
        if walk.is_kept and walk.is_over:
            self.forget(walk.session, walk.subscription.name)
        elif walk.is_kept:
            self._remember(walk, last)

    def _remember(self, walk: _Walk, last: str) -> None:
        """How far it has come: to this topic, or with "" not further than before."""
        session, name = walk.session, walk.subscription.name
        if last or name not in session.past:
            session.past[name] = last
            self._state.effects.append(session.saved_past(name))

    def _give_some(self, walk: _Walk, now: Nanos) -> str:
        """The topic of the last that was given, if any was."""
        state, session, subscription = self._state, walk.session, walk.subscription
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        sent, last = 0, ""
        for _ in range(STEPS_AT_ONCE):
            message = self._next(walk)
            if isinstance(message, _Walk):
                walk.is_over = True
                break
            if message is None:
                continue
            if message.expires_ns <= now:
                state.effects += state.retained.remove(message.topic)
                continue
            is_own = subscription.no_local and message.sender == session.client_id
            if is_own or not state.may_receive(session, message.topic):
                continue
            qos = min(message.qos, subscription.qos)
            if qos and len(session.window) and not session.window.takes(message, state.limits):
                walk.turned_away = message
                break
            self._delivery.give(session, message, qos, True, identifiers, now)
            sent, last = sent + 1, message.topic
            if sent >= MESSAGES_AT_ONCE:
                break
        return last

    def _next(self, walk: _Walk) -> Message | _Walk | None:
        """What the next step finds; the walk itself at its end."""
        if (turned_away := walk.turned_away) is not None:
            walk.turned_away = None
            return self._state.retained.get(turned_away.topic)
        return next(walk.steps, walk)
