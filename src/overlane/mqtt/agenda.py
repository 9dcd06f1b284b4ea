"""What the server has to do later: one heap of times and calls.

A call that comes finds out whether it is still due, and if not does nothing, or asks again for a later time; so a
keep-alive costs nothing per packet. What will never be due is called off, so that clients that come and go leave
nothing behind that lasts longer than they did: such calls lie in the heap, empty, until they are the larger part of it.
"""

import heapq
from collections.abc import Callable

from overlane.core.units import NEVER, Nanos

Call = Callable[[Nanos], None]

CALLED_OFF_MIN = 64
"""Fewer than these are not worth a new heap."""


class Appointment:
    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        self.call: Call | None = call


class Agenda:
    def __init__(self) -> None:
        self._heap: list[tuple[Nanos, int, Appointment]] = []
        self._count = 0
        self._called_off = 0

    def __len__(self) -> int:
        return len(self._heap) - self._called_off

    def at(self, when: Nanos, call: Call) -> Appointment | None:
        """What to call off if it does not matter any more; None if it is never."""
        if when >= NEVER:
            return None
        self._count += 1
        appointment = Appointment(call)
        heapq.heappush(self._heap, (when, self._count, appointment))
        return appointment

    def call_off(self, appointment: Appointment | None) -> None:
        """Whatever it was: one that was kept already, or none, does not matter."""
        if appointment is None or appointment.call is None:
            return
        appointment.call = None
        self._called_off += 1
        if self._called_off >= CALLED_OFF_MIN and self._called_off * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].call is not None]
            heapq.heapify(self._heap)
            self._called_off = 0

    def next_deadline(self) -> Nanos:
        while self._heap and self._heap[0][2].call is None:
            heapq.heappop(self._heap)
            self._called_off -= 1
        return self._heap[0][0] if self._heap else NEVER

    def run(self, now: Nanos) -> None:
        while self.next_deadline() <= now:
            appointment = heapq.heappop(self._heap)[2]
            call, appointment.call = appointment.call, None
            if call is not None:
                call(now)
