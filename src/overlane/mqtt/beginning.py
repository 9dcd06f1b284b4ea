"""Beginning: what is retained, on its way into the log of a new stream.

There may be a hundred thousand of them, and all others would have to wait while they are looked for and logged. So each
log that is to begin with them is a walk through what is retained, and walks take turns: some steps of one, then
everybody else. The log still gets what was retained when it was made, each message once, and before what has taken its
place since, whatever falls between two parts. Only what is not retained may come before what is older.

    a topic changes that the walk has not come to    what it had is logged at once, and it is left out later
    the broker dies                                  the walk goes on behind the last topic that is in the log on disk

How far a walk has come and which topics are left out are records, of the same turn as what is logged. While the store
fails all walks stand still.
"""

from collections.abc import Callable, Iterator

from overlane.core.events import Effect, Erase, Save
from overlane.core.topics import matches
from overlane.core.units import MS, Nanos
from overlane.mqtt.delivery import Delivery
from overlane.mqtt.message import Message
from overlane.mqtt.session import Session
from overlane.mqtt.state import State
from overlane.mqtt.streamlog import StreamLog

TABLE = "mqtt.beginning"

STEPS_AT_ONCE = 500
MESSAGES_AT_ONCE = 200
SOON: Nanos = MS
STANDSTILL: Nanos = 10 * MS
"""While the store fails."""


class _Walk:
    __slots__ = ("changed", "has_records", "levels", "log", "session", "steps", "topic", "waiting")

    def __init__(self, log: StreamLog, session: Session, topic: str) -> None:
        self.log = log
        self.session = session
        self.topic = topic
        """The last one that the walk has come to; "" if none."""
        self.levels: list[str] = topic.split("/") if topic else []
        self.steps: Iterator[Message | None] = iter(())
        self.changed: set[str] = set()
        """Topics that are left out, because what they had is in the log."""
        self.has_records = False
        self.waiting: list[Callable[[], object]] = []
        """Who is to be told of the end."""

    def come_to(self, topic: str) -> None:
        self.topic, self.levels = topic, topic.split("/")

    def is_ahead(self, topic: str) -> bool:
        """Whether the walk has still to come to it; in the order of levels, in which it goes."""
        return matches(self.log.filter, topic) and topic.split("/") > self.levels

    # Records

    def saved(self) -> Effect:
        self.has_records = True
        return Save(TABLE, self._key(""), self.topic.encode())

    def saved_change(self, topic: str) -> Effect:
        self.has_records = True
        return Save(TABLE, self._key(topic), b"")

    def erased(self) -> list[Effect]:
        if not self.has_records:
            return []
        return [Erase(TABLE, self._key("")), *(Erase(TABLE, self._key(topic)) for topic in sorted(self.changed))]

    def _key(self, topic: str) -> bytes:
        return f"{self.log.name}\0{topic}".encode()


class Beginnings:
    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self._delivery = delivery
        self._walks: dict[str, _Walk] = {}
        """By stream; the first is the next."""
        self._now: Nanos = 0

    def begin(self, log: StreamLog, session: Session, now: Nanos) -> None:
        """A stream is made that is to begin with what is retained."""
        walk = _Walk(log, session, "")
        walk.steps = self._state.retained.walk_on(log.filter, "")
        self._now = now
        if not self._take_steps(walk):
            self._set_out(walk, now)

    def when_begun(self, log: StreamLog, call: Callable[[], object]) -> None:
        """Called when everything is in the log that it is to begin with: now, if it is."""
        walk = self._walks.get(log.name)
        if walk is None:
            call()
        else:
            walk.waiting.append(call)

    def forget(self, log: StreamLog) -> None:
        """The stream is removed."""
        if (walk := self._walks.pop(log.name, None)) is not None:
            self._end(walk)

    # Steps

    def _set_out(self, walk: _Walk, now: Nanos) -> None:
        self._walks[walk.log.name] = walk
        if self._state.retained.before_change is None:
            self._state.retained.before_change = self._before_change
            self._state.agenda.at(now + SOON, self._go_on)

    def _go_on(self, now: Nanos) -> None:
        """Some steps of the first walk; then it is the last."""
        state, self._now = self._state, now
        if not self._walks:
            state.retained.before_change = None
            return
        if not state.is_store_failing:
            name = next(iter(self._walks))
            walk = self._walks.pop(name)
            if self._take_steps(walk):
                self._end(walk)
            else:
                self._walks[name] = walk
        state.agenda.at(now + (STANDSTILL if state.is_store_failing else SOON), self._go_on)

    def _take_steps(self, walk: _Walk) -> bool:
        """Whether that was the end."""
        found = 0
        for _ in range(STEPS_AT_ONCE):
            kept = next(walk.steps, walk)
            if isinstance(kept, _Walk):
                return True
            if kept is None:
                continue
            walk.come_to(kept.topic)
            if kept.topic not in walk.changed:
                self._log(walk, kept)
            found += 1
            if found == MESSAGES_AT_ONCE:
                break
        self._state.effects.append(walk.saved())
        return False

    def _before_change(self, topic: str, kept: Message | None) -> None:
        for walk in self._walks.values():
            if walk.is_ahead(topic) and topic not in walk.changed:
                if kept is not None:
                    self._log(walk, kept)
                walk.changed.add(topic)
                self._state.effects.append(walk.saved_change(topic))

    def _log(self, walk: _Walk, kept: Message) -> None:
        if self._state.may_receive(walk.session, kept.topic) and not kept.is_expired(walk.log.since_ns):
            self._delivery.give(walk.session, kept, kept.qos, True, (), self._now)

    def _end(self, walk: _Walk) -> None:
        self._state.effects += walk.erased()
        for call in walk.waiting:
            call()

    # Recovery

    def restore(self, log: StreamLog, session: Session, topic: str, value: bytes) -> None:
        """A record of an earlier life of the broker; the first of each stream says how far the walk had come."""
        if not topic:
            self._walks[log.name] = _Walk(log, session, value.decode())
            self._walks[log.name].has_records = True
        elif (walk := self._walks.get(log.name)) is not None:
            walk.changed.add(topic)
        else:
            self._state.effects.append(Erase(TABLE, f"{log.name}\0{topic}".encode()))

    def recovered(self, now: Nanos) -> None:
        walks, self._walks = self._walks, {}
        for walk in walks.values():
            walk.steps = self._state.retained.walk_on(walk.log.filter, walk.topic)
            self._set_out(walk, now)


def owner(key: bytes) -> tuple[str, str]:
    """Of which stream a record is, and of which topic; "": of the walk itself."""
    name, _, topic = key.decode().partition("\0")
    return name, topic
