"""Retained replay: the retained messages that a new subscription has still to receive.

There may be a hundred thousand of them, and finding and sending them at once would block all others. So each replay
walks through the retained messages in steps, and replays take turns (`round_robin`). A replay is blocked while its
client has much to read or to acknowledge, and so loses nothing. It ends with the subscription or the connection.
Messages that are published meanwhile are delivered at once, and may arrive before older ones.

A subscription above QoS 0 whose session outlives the connection receives all of them in any case: the position of the
walk is a record, written together with the messages found, and the next connection continues there.
"""

from collections.abc import Iterator

from overlane.core.units import Nanos
from overlane.pubsub.contract.consumer import Consumer
from overlane.pubsub.delivery.delivery import SEND_AHEAD_BYTES, Delivery
from overlane.pubsub.message import Message
from overlane.pubsub.retained.handouts import AWAITS, AWAITS_BESIDES, AWAITS_ONLY
from overlane.pubsub.retained.round_robin import STEPS_AT_ONCE, Progress, RoundRobin
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.table import Subscription

MESSAGES_AT_ONCE = 100


class _Replay:
    __slots__ = ("consumer", "is_kept", "is_over", "is_own_only", "session", "steps", "subscription", "turned_away")

    def __init__(
        self,
        session: Session,
        consumer: Consumer,
        subscription: Subscription,
        steps: Iterator[Message | None],
        is_kept: bool,
        is_own_only: bool,
    ) -> None:
        self.session = session
        self.is_own_only = is_own_only
        """Only what was published at this broker: all else is awaited from others."""
        self.consumer = consumer
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
        return session.consumer is self.consumer and session.subscriptions.get(subscription.name) is subscription

    @property
    def can_go_on(self) -> bool:
        return self.consumer.backlog_bytes < SEND_AHEAD_BYTES and not self.session.window.is_waiting


class RetainedReplay:
    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self._delivery = delivery
        self._replays: RoundRobin[tuple[str, str], _Replay] = RoundRobin(state.timers, self._advance)
        """By client and subscription."""

    def begin(
        self, session: Session, consumer: Consumer, subscription: Subscription, now: Nanos, is_own_only: bool = False
    ) -> None:
        """A client has subscribed and wants to know what is retained; `is_own_only`: and was published here."""
        if session.is_durable and subscription.qos:
            self._start(self._kept_replay(session, consumer, subscription, "", is_own_only), now)
        else:
            steps = self._state.retained.walk(subscription.filter)
            self._start(_Replay(session, consumer, subscription, steps, False, is_own_only), now)

    def resume(self, session: Session, consumer: Consumer, now: Nanos) -> None:
        """A client is back that has not got everything."""
        for name, after in list(session.replays.items()):
            subscription = session.subscriptions.get(name)
            if subscription is None:
                self.forget(session, name)
            elif after != AWAITS_ONLY:
                is_own_only = after.startswith(AWAITS) and not after.startswith(AWAITS_BESIDES)
                replay = self._kept_replay(session, consumer, subscription, after.lstrip(AWAITS), is_own_only)
                self._start(replay, now)

    def forget(self, session: Session, name: str) -> None:
        """The subscription has ended."""
        if session.replays.pop(name, None) is not None and session.is_known:
            self._state.batch.add(session.erased_replay(name))

    def _finish(self, session: Session, name: str) -> None:
        """The subscription has got everything that is here."""
        if session.replays.get(name, "").startswith(AWAITS):
            session.replays[name] = AWAITS_ONLY
            self._state.batch.add(session.saved_replay(name))
        else:
            self.forget(session, name)

    def _kept_replay(
        self, session: Session, consumer: Consumer, subscription: Subscription, after: str, is_own_only: bool
    ) -> _Replay:
        steps = self._state.retained.walk(subscription.filter, after)
        return _Replay(session, consumer, subscription, steps, True, is_own_only)

    def _start(self, replay: _Replay, now: Nanos) -> None:
        if not self._replays and not self._is_blocked(replay):
            self._take_steps(replay, now)
        elif replay.is_kept:
            self._remember(replay, "")
        if not replay.is_over:
            self._replays.add((replay.session.client_id, replay.subscription.name), replay, now)

    def _is_blocked(self, replay: _Replay) -> bool:
        return not replay.can_go_on or (replay.is_kept and self._state.is_store_failing)

    def _advance(self, replay: _Replay, now: Nanos) -> Progress:
        if not replay.is_wanted:
            return Progress.UNWANTED
        if self._is_blocked(replay):
            return Progress.BLOCKED
        self._take_steps(replay, now)
        return Progress.DONE if replay.is_over else Progress.MORE

    def _take_steps(self, replay: _Replay, now: Nanos) -> None:
        last = self._give_some(replay, now)
        if replay.is_kept and replay.is_over:
            self._finish(replay.session, replay.subscription.name)
        elif replay.is_kept:
            self._remember(replay, last)

    def _remember(self, replay: _Replay, last: str) -> None:
        """How far it has come: to this topic, or with "" not further than before."""
        session, name = replay.session, replay.subscription.name
        if last or name not in session.replays:
            before = session.replays.get(name, "")
            awaits = before[: len(before) - len(before.lstrip(AWAITS))]
            session.replays[name] = awaits + last
            self._state.batch.add(session.saved_replay(name))

    def _give_some(self, replay: _Replay, now: Nanos) -> str:
        """The topic of the last that was given, if any was."""
        state, session, subscription = self._state, replay.session, replay.subscription
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        sent, last = 0, ""
        for _ in range(STEPS_AT_ONCE):
            message = self._next(replay)
            if isinstance(message, _Replay):
                replay.is_over = True
                break
            if message is None or (replay.is_own_only and not message.sender and not message.topic.startswith("$")):
                continue  # what begins with $ is the broker's own, and comes from nobody else
            if message.expires_ns <= now:
                state.batch.extend(state.retained.remove(message.topic))
                continue
            is_own = subscription.no_local and message.sender == session.publishes_as
            if is_own or not state.may_receive(session, message.topic):
                continue
            if subscription.where is not None and not self._delivery.content_filters.passes(subscription, message):
                continue
            qos = min(message.qos, subscription.qos)
            if qos and len(session.window) and not session.window.takes(message, state.limits):
                replay.turned_away = message
                break
            self._delivery.give(session, message, qos, True, identifiers, now)
            sent, last = sent + 1, message.topic
            if sent >= MESSAGES_AT_ONCE:
                break
        return last

    def _next(self, replay: _Replay) -> Message | _Replay | None:
        """What the next step finds; the replay itself at its end."""
        if (turned_away := replay.turned_away) is not None:
            replay.turned_away = None
            return self._state.retained.get(turned_away.topic)
        return next(replay.steps, replay)
