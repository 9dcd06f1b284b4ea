"""Timers: calls at a later time, in one heap.

A call checks itself whether it is still due, and if not sets a new timer or does nothing; so a keep-alive costs nothing
per packet. Timers that are no longer needed are cancelled, so that clients that come and go leave nothing behind.
Cancelled timers stay in the heap, empty, until they are a quarter of it.
"""

import heapq
from collections.abc import Callable
from typing import TypeVar

from overlane.core.units import NEVER, Nanos
from overlane.errors import InDoubt

Call = Callable[[Nanos], None]
Failed = Callable[[Exception], None]
Subject = TypeVar("Subject")

CANCELLED_MIN = 64
"""Fewer are not worth a new heap."""


class Timer:
    """`failed` takes what a call that concerns one client alone has raised; without it, that is raised by `run`. A
    timer with a subject calls both with it: thousands of timers then share two functions."""

    __slots__ = ("call", "failed", "subject")

    def __init__(
        self, call: Callable[..., None], failed: Callable[..., None] | None, subject: object | None = None
    ) -> None:
        self.call: Callable[..., None] | None = call
        self.failed = failed
        self.subject = subject

    def run(self, call: Callable[..., None], argument: object) -> None:
        if self.subject is None:
            call(argument)
        else:
            call(self.subject, argument)


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[Nanos, int, Timer]] = []
        self._count = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def at(self, when: Nanos, call: Call, failed: Failed | None = None) -> Timer | None:
        """The timer, to be cancelled when it does not matter any more; None if the time is never."""
        return self._add(when, Timer(call, failed))

    def at_with(
        self,
        subject: Subject,
        when: Nanos,
        call: Callable[[Subject, Nanos], None],
        failed: Callable[[Subject, Exception], None],
    ) -> Timer | None:
        """As `at`, for a call that is made for many subjects."""
        return self._add(when, Timer(call, failed, subject))

    def _add(self, when: Nanos, timer: Timer) -> Timer | None:
        if when >= NEVER:
            return None
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, timer))
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """None, or a timer that has run or was cancelled before, is left alone."""
        if timer is None or timer.call is None:
            return
        timer.call = timer.failed = timer.subject = None
        self._cancelled += 1
        if self._cancelled >= CANCELLED_MIN and self._cancelled * 4 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].call is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def next_deadline(self) -> Nanos:
        heap = self._heap
        while heap:
            when, _, timer = heap[0]
            if timer.call is not None:
                return when
            heapq.heappop(heap)
            self._cancelled -= 1
        return NEVER

    def run(self, now: Nanos) -> None:
        while self.next_deadline() <= now:
            timer = heapq.heappop(self._heap)[2]
            call, timer.call = timer.call, None
            if call is None:
                continue
            try:
                timer.run(call, now)
            except InDoubt:
                raise
            except Exception as error:
                if timer.failed is None:
                    raise
                timer.run(timer.failed, error)
