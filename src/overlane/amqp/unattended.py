"""Queues without consumers here: what waits in them goes to brokers that have consumers.

A queue begins where it is first named, perhaps by a sender, and its consumers may come to other brokers. From then on
new messages go there (`pubsub.publishing`). Those that wait here follow, some at a time. A message that has come from
another broker stays, so that none travels for ever.
"""

from overlane.core.units import MS, SECOND, Nanos
from overlane.pubsub.service import PubSub
from overlane.pubsub.timers import Timer

EVERY: Nanos = SECOND
EVERY_WHILE_MOVING: Nanos = 50 * MS
AT_ONCE = 200


class Unattended:
    def __init__(self, pubsub: PubSub) -> None:
        self._pubsub = pubsub
        self._state = pubsub.state
        self._names: set[str] = set()
        self._timer: Timer | None = None

    def add(self, name: str, now: Nanos) -> None:
        """The session of this name has no consumer."""
        self._names.add(name)
        if self._timer is None or self._timer.call is None:
            self._set(now + EVERY)

    def _set(self, due_ns: Nanos) -> None:
        self._timer = self._state.timers.at(due_ns, self._look, self._failed)

    def _failed(self, error: Exception) -> None:
        self._state.failed("timer", "queues", error)

    def _look(self, now: Nanos) -> None:
        moved = 0
        for name in sorted(self._names):
            session = self._state.sessions.get(name)
            if session is None or session.consumer is not None:
                self._names.discard(name)
            elif len(session.window) and not self._state.is_store_failing:
                for subscription in session.subscriptions.values():
                    if subscription.group and self._is_elsewhere(subscription.group, subscription.filter):
                        moved += self._pubsub.returns.hand_over(session, subscription, AT_ONCE, now)
        if self._names:
            self._set(now + (EVERY_WHILE_MOVING if moved else EVERY))

    def _is_elsewhere(self, group: str, topic_filter: str) -> bool:
        if "+" in topic_filter or "#" in topic_filter:
            return False  # which topics are meant is known only of messages; such subscriptions stay where they are
        found = self._state.cluster.directory.shared(topic_filter)
        return any(one.group == group and one.filter == topic_filter for one in found)
