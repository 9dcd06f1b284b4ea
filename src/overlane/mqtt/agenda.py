"""What the server has to do later: one heap of times and calls.

Nothing is ever taken out. A call that comes finds out whether it is still due, and if not does nothing, or asks again
for a later time; so a keep-alive costs nothing per packet.
"""

import heapq
from collections.abc import Callable

from overlane.core.units import NEVER, Nanos

Call = Callable[[Nanos], None]


class Agenda:
    def __init__(self) -> None:
        self._heap: list[tuple[Nanos, int, Call]] = []
        self._count = 0

    def at(self, when: Nanos, call: Call) -> None:
        if when >= NEVER:
            return
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, call))

    def next_deadline(self) -> Nanos:
        return self._heap[0][0] if self._heap else NEVER

    def run(self, now: Nanos) -> None:
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2](now)
