"""Reliable parcels that wait for room in the queue of the first link of their path.

The queue of a link takes a limited number of reliable bytes. A parcel that it does not take has not been sent: its
flow and destination wait here with the size of the next parcel, per neighbour and in order of arrival. The source
releases them as soon as the queue has room, so a backlog leaves as fast as the link takes it, without polling.

If the neighbour is gone, everything that waits for it is released, to be sent over another path if there is one.
"""

from collections.abc import Iterator

from overlane.core.flows.outflow import FlowName
from overlane.core.routing.forwarding.forwarding import Forwarding
from overlane.core.units import NEVER, Nanos

FlowDestination = tuple[FlowName, str]
"""A flow, and the destination that is owed something of it."""


class WaitingForLink:
    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding
        self.waiting: dict[str, dict[FlowDestination, int]] = {}
        """By neighbour, those that wait with the bytes that they need."""
        self._looked_ns: Nanos = -NEVER

    def wait(self, hop: str, place: FlowDestination, size: int, now: Nanos) -> None:
        """Wait until the queue of a neighbour has room for so many bytes."""
        self._looked_ns = now
        self.waiting.setdefault(hop, {})[place] = size

    def next_deadline(self) -> Nanos:
        """At once where one of those that wait can go; otherwise it depends on the links."""
        for hop, line in self.waiting.items():
            if self._forwarding.takes(hop, next(iter(line.values()))):
                return self._looked_ns + 1
        return NEVER

    def release(self, now: Nanos) -> Iterator[FlowDestination]:
        """Those that can be sent now, one after the other. One that waits again meanwhile is not released twice."""
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
