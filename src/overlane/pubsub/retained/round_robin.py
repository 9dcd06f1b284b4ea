"""Round robin: long tasks take turns, so that they block neither each other nor anything else.

A task does some steps at a time. The next one follows a little later, so that everything else runs in between. While
all of them are blocked, they are checked at longer intervals.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Generic, TypeVar

from overlane.core.units import MS, Nanos
from overlane.pubsub.timers import Timers

STEPS_AT_ONCE = 500
SOON: Nanos = MS
BLOCKED_RETRY: Nanos = 10 * MS

Key = TypeVar("Key")
Task = TypeVar("Task")


class Progress(Enum):
    MORE = "it took some steps, and there are more"
    DONE = "it took its last steps"
    BLOCKED = "it can take no step now"
    UNWANTED = "nobody wants it any more; it took no step"


class RoundRobin(Generic[Key, Task]):
    def __init__(self, timers: Timers, advance: Callable[[Task, Nanos], Progress]) -> None:
        self._timers = timers
        self._advance = advance
        self._tasks: dict[Key, Task] = {}
        """The first is the next."""
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks.values())

    def get(self, key: Key) -> Task | None:
        return self._tasks.get(key)

    def add(self, key: Key, task: Task, now: Nanos) -> None:
        """In the place of one with the same key, if there is one."""
        self._tasks[key] = task
        self._schedule(now + SOON)

    def pop(self, key: Key) -> Task | None:
        return self._tasks.pop(key, None)

    def _schedule(self, when: Nanos) -> None:
        if self._tasks and not self._is_scheduled:
            self._is_scheduled = True
            self._timers.at(when, self._run)

    def _run(self, now: Nanos) -> None:
        """Let the first that is not blocked advance; then it is the last."""
        self._is_scheduled = False
        for key, task in list(self._tasks.items()):
            progress = self._advance(task, now)
            if progress is Progress.BLOCKED:
                continue
            if self._tasks.get(key) is task:
                del self._tasks[key]
            if progress is Progress.UNWANTED:
                continue
            if progress is Progress.MORE:
                self._tasks[key] = task
            self._schedule(now + SOON)
            return
        self._schedule(now + BLOCKED_RETRY)
