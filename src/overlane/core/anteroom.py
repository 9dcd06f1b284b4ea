"""The anteroom: what is owed to other brokers, and found no room in the queue of the first link on its way.

A link's queue takes only so much that must not be lost. What it does not take has not been sent: it waits at its
source, which calls it as soon as the queue has room for it, in the order in which it came to wait. Each debt waits with
the size of its next parcel. So a backlog goes out as quickly as the link takes it, and nobody has to look again and
again.

Where the neighbour is gone there is nothing to wait for: whatever waits is called, to go another way if there is one.
"""

from collections.abc import Iterator

from overlane.core.forwarding import Forwarding
from overlane.core.outflow import FlowName
from overlane.core.units import NEVER, Nanos

Place = tuple[FlowName, str]
"""A flow, and the destination that is owed something of it."""


class Anteroom:
    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding
        self.waiting: dict[str, dict[Place, int]] = {}
        """By neighbour, those that wait with the bytes that they need."""
        self._looked_ns: Nanos = -NEVER

    def wait(self, hop: str, place: Place, size: int, now: Nanos) -> None:
        """Let a debt wait for a neighbour's queue to have room for so many bytes."""
        self._looked_ns = now
        self.waiting.setdefault(hop, {})[place] = size

    def next_deadline(self) -> Nanos:
        """At once where one of those that wait can go; otherwise it depends on the links."""
        for hop, line in self.waiting.items():
            if self._forwarding.takes(hop, next(iter(line.values()))):
                return self._looked_ns + 1
        return NEVER

    def called(self, now: Nanos) -> Iterator[Place]:
        """Those that can go, one after the other; who finds too little room again may wait again, but not be called."""
        self._looked_ns = now
        for hop in sorted(self.waiting):
            line = self.waiting[hop]
            for _ in range(len(line)):
                place, size = next(iter(line.items()))
                if not self._forwarding.takes(hop, size):
                    break
                del line[place]
                yield place
            if not line:
                del self.waiting[hop]
