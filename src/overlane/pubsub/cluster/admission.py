"""Admission: whether clients here have room for messages from other brokers, before these are acknowledged.

A reliable parcel that was admitted is acknowledged to its origin and is not sent again. So it is admitted only if the
queues of its receivers have room for all of it. The rule is the same as for messages published here: a receiver that is
connected and answers is waited for, however slow it is; one that is offline, or has not answered for a while, is not,
and its queue overflows. A shared subscription has room unless the queues of all members are full.

Admitted messages are delivered even if a queue exceeds its limit: a parcel may contain more than an empty queue takes.
A parcel that has other receivers too is admitted until the queue is half as long again as its limit, so that the others
need not wait; by then its origin sends the messages for slow receivers in separate parcels. Beyond that there is room
for messages published at this broker (`delivery.OVERRUN`), which cannot be postponed.

Admitted messages join the queues before the next parcel is checked.

A message of a mirrored topic is acknowledged to its origin when another host has a copy of it too, as it is to a client
that publishes it here; while no other host has one, it is not admitted.
"""

from collections.abc import Iterable

from overlane.core.events import Reception
from overlane.core.units import Nanos
from overlane.core.wire.parcel import Message as Brought
from overlane.pubsub.cluster import envelope, names
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.table import SharedGroup

TOLD_PERCENT = 25
"""From here on the origin is informed, so that publishers there pause as they would here."""
OPEN_AGAIN_PERCENT = 75
FULL_PERCENT = 100
FULL_FOR_ALL_PERCENT = 150

Load = tuple[int, int]
"""Messages, and their bytes."""


class Admission:
    def __init__(self, state: State) -> None:
        self._state = state
        self._refused_for: set[Session] = set()
        """Who had no room when something came for it."""
        self._is_refused_for_mirror = False

    def admit(self, messages: list[Brought], now: Nanos) -> Reception:
        """Whether receivers have room for the messages, for all or none, and how far they are behind."""
        topics = _loads([one for one in messages if one[1] & envelope.QOS_MASK])
        mirrored = self._mirrored(topics)
        if mirrored and self._state.lacks_mirror:
            self._is_refused_for_mirror = True
            return Reception(False, dict.fromkeys(mirrored, FULL_PERCENT))
        reception = self._admit(messages, topics, now)
        if mirrored and reception.is_taken:
            self._state.needs_mirror = True
        return reception

    def _mirrored(self, topics: Iterable[str]) -> list[str]:
        """Those that need a copy at another host."""
        table = self._state.settings.mirrored
        return [] if table is None else [topic for topic in topics if table.has(_published_topic(topic))]

    def _admit(self, messages: list[Brought], topics: dict[str, Load], now: Nanos) -> Reception:
        load: dict[Session, Load] = {}
        behind: dict[str, int] = {}
        for topic, added in topics.items():
            awaited = self._awaited(topic, now)
            percent = max((self._percent(session) for session in awaited), default=0)
            if percent >= TOLD_PERCENT:
                behind[topic] = percent
            for session in awaited:
                load[session] = _sum(load.get(session, (0, 0)), added)
        full = {session for session, added in load.items() if not self._has_room(session, added)}
        if full:
            is_overfull = any(self._percent(session) >= FULL_FOR_ALL_PERCENT for session in full)
            if is_overfull or not self._is_for_others(messages, full):
                self._refused_for |= full
                return Reception(False, {topic: max(FULL_PERCENT, percent) for topic, percent in behind.items()})
        return Reception(True, behind)

    def take_room_again(self, now: Nanos) -> bool:
        """Whether a receiver whose messages were refused has room again, or is not waited for any more; or another host
        has a copy again."""
        if self._is_refused_for_mirror and not self._state.lacks_mirror:
            self._is_refused_for_mirror = False
            return True
        if not self._refused_for:
            return False
        ready = {
            one
            for one in self._refused_for
            if not self._state.awaits(one, now) or self._percent(one) < OPEN_AGAIN_PERCENT
        }
        self._refused_for -= ready
        return bool(ready)

    # Who is behind

    def _awaited(self, topic: str, now: Nanos) -> list[Session]:
        """In whose queues messages of the topic have to wait, of those that are waited for."""
        if topic.startswith(names.SHARE):
            group = self._group(topic)
            members = [] if group is None else [one.session for one in group.members.values() if one.qos]
            if any(self._percent(session) < FULL_PERCENT for session in members):
                return []
            return [session for session in members if self._state.awaits(session, now)]
        if topic.startswith(names.RETAINED):
            return []
        receivers = self._state.subscriptions.audience(topic).receivers
        return [one.session for one in receivers if one.qos and self._state.awaits(one.session, now)]

    def _group(self, name: str) -> SharedGroup | None:
        try:
            group, _, tag, topic = names.read_share_name(name)
        except ValueError:
            return None  # it will be refused when it is delivered
        groups = self._state.subscriptions.audience(topic).groups
        return next((one for one in groups if one.name == group and names.tag_of(one.filter) == tag), None)

    def _is_for_others(self, messages: list[Brought], full: set[Session]) -> bool:
        """Whether any of its receivers has room."""
        for topic in dict.fromkeys(topic for topic, _, _ in messages):
            if topic.startswith(names.RETAINED):
                return True
            if topic.startswith(names.SHARE):
                group = self._group(topic)
                if group is not None and not full & group.members.keys():
                    return True
            elif any(one.session not in full for one in self._state.subscriptions.audience(topic).receivers):
                return True
        return False

    def _percent(self, session: Session) -> int:
        """How full its queue is, beyond 100 if it is overfull."""
        limits, window = self._state.limits, session.window
        return max(100 * len(window) // limits.queue_messages, 100 * window.bytes // limits.queue_bytes)

    def _has_room(self, session: Session, added: Load) -> bool:
        if self._percent(session) < TOLD_PERCENT:
            return True  # whatever its size: there will hardly ever be more room
        limits, window, (count, size) = self._state.limits, session.window, added
        return len(window) + count <= limits.queue_messages and window.bytes + size <= limits.queue_bytes


def _published_topic(name: str) -> str:
    """What a message was published on, that is brought for one shared subscription, or for all."""
    try:
        return names.read_share_name(name)[3] if name.startswith(names.SHARE) else name
    except ValueError:
        return name  # it will be refused when it is delivered


def _loads(messages: list[Brought]) -> dict[str, Load]:
    """How much there is of each topic."""
    found: dict[str, Load] = {}
    for topic, _, body in messages:
        count, size = found.get(topic, (0, 0))
        found[topic] = count + 1, size + len(body)
    return found


def _sum(one: Load, other: Load) -> Load:
    return one[0] + other[0], one[1] + other[1]
