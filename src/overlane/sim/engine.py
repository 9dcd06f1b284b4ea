"""Virtual time: a queue of events.

An entry is a time, a sequence number, an action and its argument. Entries of the same time run in the order in which
they were added, so a run depends only on what was scheduled. Time advances from entry to entry: an hour without entries
costs nothing.

Entries cannot be cancelled. A caller that may change its mind passes a generation number or the current deadline as the
argument, and ignores stale entries when they run: this is cheaper than searching the queue.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from overlane.core.units import Nanos

Action = Callable[[Any], None]


class Engine:
    """`now` is the true time: zero when the measured part of a run begins, negative while the overlay settles."""

    __slots__ = ("_queue", "_sequence", "now")

    def __init__(self, start: Nanos = 0) -> None:
        self.now: Nanos = start
        self._queue: list[tuple[Nanos, int, Action, Any]] = []
        self._sequence = 0

    def at(self, time: Nanos, action: Action, argument: Any = None) -> None:
        """Let `action(argument)` happen at `time`; what should have happened in the past happens next."""
        self._sequence = sequence = self._sequence + 1
        heappush(self._queue, (time, sequence, action, argument))

    @property
    def scheduled(self) -> int:
        """How many entries there have ever been."""
        return self._sequence

    def run_until(self, end: Nanos) -> None:
        """Let everything happen that is due up to and including `end`."""
        queue = self._queue
        while queue and queue[0][0] <= end:
            time, _, action, argument = heappop(queue)
            if time > self.now:
                self.now = time
            action(argument)
        if end > self.now:
            self.now = end
