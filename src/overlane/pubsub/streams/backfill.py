"""Stream backfill: retained messages, written to the log of a new stream.

There may be a hundred thousand retained messages, and finding and logging them at once would block all others. So each
backfill walks through the retained messages in steps, and backfills take turns (`retained.round_robin`). The log still
gets the messages that were retained when it was created, each once, and before those that have replaced them since.
Only messages that are not retained may come before older ones.

    a topic changes before the walk reaches it       its old message is logged at once, and is skipped later
    the broker fails                                 the walk continues after the last topic in the log on disk

The position of a walk and the skipped topics are records, of the same turn as the logged messages. While the store has
failed, all backfills are blocked.
"""

from collections.abc import Callable, Iterator

from overlane.core.events import Erase, RecordChange, Save
from overlane.core.records import Owner, OwnerKind, RecordKind
from overlane.core.topics import matches
from overlane.core.units import Nanos
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.message import Message
from overlane.pubsub.retained.round_robin import STEPS_AT_ONCE, Progress, RoundRobin
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.streams.log import StreamLog

TABLE = "mqtt.beginning"

MESSAGES_AT_ONCE = 200


class _Backfill:
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
        """Called at the end."""

    def come_to(self, topic: str) -> None:
        self.topic, self.levels = topic, topic.split("/")

    def is_ahead(self, topic: str) -> bool:
        """Whether the walk has still to come to it; in the order of levels, in which it goes."""
        return matches(self.log.filter, topic) and topic.split("/") > self.levels

    # Records

    def saved(self) -> RecordChange:
        self.has_records = True
        return Save(TABLE, self._key(""), self.topic.encode())

    def saved_change(self, topic: str) -> RecordChange:
        self.has_records = True
        return Save(TABLE, self._key(topic), b"")

    def erased(self) -> list[RecordChange]:
        if not self.has_records:
            return []
        return [Erase(TABLE, self._key("")), *(Erase(TABLE, self._key(topic)) for topic in sorted(self.changed))]

    def _key(self, topic: str) -> bytes:
        return f"{self.log.name}\0{topic}".encode()


class Backfills:
    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self._delivery = delivery
        self._backfills: RoundRobin[str, _Backfill] = RoundRobin(state.timers, self._advance)
        """By stream."""
        self._restored: dict[str, _Backfill] = {}
        self._now: Nanos = 0

    def begin(self, log: StreamLog, session: Session, now: Nanos) -> None:
        """A stream is made that is to begin with what is retained."""
        backfill = _Backfill(log, session, "")
        backfill.steps = self._state.retained.walk(log.filter, "")
        self._now = now
        if not self._take_steps(backfill):
            self._start(backfill, now)

    def when_begun(self, log: StreamLog, call: Callable[[], object]) -> None:
        """Called when everything is in the log that it is to begin with: now, if it is."""
        backfill = self._backfills.get(log.name)
        if backfill is None:
            call()
        else:
            backfill.waiting.append(call)

    def forget(self, log: StreamLog) -> None:
        """The stream is removed."""
        if (backfill := self._backfills.pop(log.name)) is not None:
            self._end(backfill)

    # Steps

    def _start(self, backfill: _Backfill, now: Nanos) -> None:
        self._backfills.add(backfill.log.name, backfill, now)
        self._state.retained.before_change = self._before_change

    def _advance(self, backfill: _Backfill, now: Nanos) -> Progress:
        if self._state.is_store_failing:
            return Progress.BLOCKED
        self._now = now
        if not self._take_steps(backfill):
            return Progress.MORE
        self._end(backfill)
        return Progress.DONE

    def _take_steps(self, backfill: _Backfill) -> bool:
        """Whether that was the end."""
        found = 0
        for _ in range(STEPS_AT_ONCE):
            kept = next(backfill.steps, backfill)
            if isinstance(kept, _Backfill):
                return True
            if kept is None:
                continue
            backfill.come_to(kept.topic)
            if kept.topic not in backfill.changed:
                self._log(backfill, kept)
            found += 1
            if found == MESSAGES_AT_ONCE:
                break
        self._state.batch.add(backfill.saved())
        return False

    def _before_change(self, topic: str, kept: Message | None) -> None:
        if not self._backfills:
            self._state.retained.before_change = None
        for backfill in self._backfills:
            if backfill.is_ahead(topic) and topic not in backfill.changed:
                if kept is not None:
                    self._log(backfill, kept)
                backfill.changed.add(topic)
                self._state.batch.add(backfill.saved_change(topic))

    def _log(self, backfill: _Backfill, kept: Message) -> None:
        if self._state.may_receive(backfill.session, kept.topic) and not kept.is_expired(backfill.log.since_ns):
            self._delivery.give(backfill.session, kept, kept.qos, True, (), self._now)

    def _end(self, backfill: _Backfill) -> None:
        self._state.batch.extend(backfill.erased())
        for call in backfill.waiting:
            call()

    # Recovery

    def restore(self, log: StreamLog, session: Session, topic: str, value: bytes) -> None:
        """A record of an earlier run of the broker; the first of each stream has the position of the walk."""
        if not topic:
            self._restored[log.name] = _Backfill(log, session, value.decode())
            self._restored[log.name].has_records = True
        elif (backfill := self._restored.get(log.name)) is not None:
            backfill.changed.add(topic)
        else:
            self._state.batch.add(Erase(TABLE, f"{log.name}\0{topic}".encode()))

    def recovered(self, now: Nanos) -> None:
        restored, self._restored = self._restored, {}
        for backfill in restored.values():
            backfill.steps = self._state.retained.walk(backfill.log.filter, backfill.topic)
            self._start(backfill, now)


def owner(key: bytes) -> tuple[str, str]:
    """Of which stream a record is, and of which topic; "": of the walk itself."""
    name, separator, topic = key.decode().partition("\0")
    if not separator:
        raise ValueError("a key without a stream")
    return name, topic


BACKFILL_KIND = RecordKind(
    TABLE, lambda key: Owner(OwnerKind.STREAM, owner(key)[0]), lambda key, value: (owner(key), value.decode())
)
