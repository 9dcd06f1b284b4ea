"""Scheduling: the order in which the items of a link queue are sent that have a deadline and may still meet it.

There are two implementations of `QueueOrder`. `KeyOrder` sorts by a constant key: the due time (`edf`), or the time of
arrival plus the latency budget of the class at this broker (`laxity`: at any moment the smallest sum is the least
laxity).

`SheddingOrder` (`edf-shed`) serves by due time the items that can all be in time (feasible_set.py), judged by the
measured rate of the link. An item with more hops ahead should leave earlier than it must, or it would be in time here
and late at the next queue. So it is planned for its `plan_ns`, and each time that this fails without the fault of
others, for the middle of what is then left until its due time. What the feasible set sheds is kept in reserve until its
due time, and served as soon as that makes no other item late: an estimate that was too pessimistic costs nothing.
After its due time a droppable item is hopeless and a reliable one late.

An order holds numbers of items that wait in the queue's own table; numbers that are no longer there are skipped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from overlane.core.links.feasible_set import FeasibleSet
from overlane.core.units import NEVER, Nanos


class SchedulingPolicy(StrEnum):
    LAXITY = "laxity"
    EDF = "edf"
    EDF_SHED = "edf-shed"


@dataclass(slots=True)
class QueuedItem:
    """One chunk in front of a link."""

    chunk: Any
    size: int
    """Bytes on the wire."""
    arrived_ns: Nanos
    """When it entered this queue."""
    due_ns: Nanos
    """When it must have left to be in time: now + deadline - age - latency still to go. NEVER without a deadline."""
    droppable: bool
    """Best effort. Reliable items are never dropped: they come late instead."""
    budget_ns: Nanos = 0
    """The latency budget of its class at this broker, for `laxity`."""
    plan_ns: Nanos = NEVER
    """When it should have left, so that the hops to come have their part of the margin, for `edf-shed`."""
    flow: tuple[int, int] | None = None
    """The reserved flow that it belongs to (`reserved_lane`)."""


class LinkRate:
    """How fast the wire behind the queue is, and how much of what was pulled has still to leave.

    The driver may pull ahead into a send buffer, several items at one moment. It tells how much lies in the buffer when
    it comes again; what is missing since has left meanwhile, and if the buffer was never empty, that tells the rate.
    Nor was it empty for long if something had been left waiting.
    """

    __slots__ = ("_ahead", "_bytes", "_moment", "_ns", "_some_wait", "ns_per_kib")

    def __init__(self) -> None:
        self._bytes = 0
        self._ns = 0
        self.ns_per_kib = 0
        """0 as long as nothing is known."""
        self._moment: Nanos = -1
        self._ahead = 0
        """Bytes pulled that had not left at this moment."""
        self._some_wait = False

    def observe(self, bytes_sent: int, duration_ns: Nanos) -> None:
        """Averages over the last sixteen or so observations, each by its bytes."""
        # In units of 1/16, so that the integer division does not eat small observations.
        self._bytes += 16 * bytes_sent - self._bytes // 16
        self._ns += 16 * duration_ns - self._ns // 16
        self.ns_per_kib = (self._ns << 10) // self._bytes

    def free_at(self, now: Nanos, in_buffer: int) -> Nanos:
        """When what is pulled now can begin to leave. The bytes in the buffer count once per moment."""
        if now != self._moment:
            if in_buffer or self._some_wait:
                left = self._ahead - in_buffer
                if left > 0:
                    self.observe(left, now - self._moment)
            self._moment, self._ahead = now, in_buffer
        return now + (self._ahead * self.ns_per_kib >> 10)

    def pulled(self, size: int, *, some_wait: bool) -> Nanos:
        """So many bytes go to the wire at this moment, and perhaps something is left waiting; how long they take."""
        self._ahead += size
        self._some_wait = some_wait
        return size * self.ns_per_kib >> 10

    def passed(self, size: int, now: Nanos, in_buffer: int) -> Nanos:
        """As `free_at` and `pulled` for what goes at once and leaves nothing waiting; when it will have left."""
        if now != self._moment:
            if (in_buffer or self._some_wait) and self._ahead > in_buffer:
                self.observe(self._ahead - in_buffer, now - self._moment)
            self._moment, self._ahead = now, in_buffer
        self._ahead += size
        self._some_wait = False
        return now + (self._ahead * self.ns_per_kib >> 10)


@dataclass(slots=True)
class Choice:
    """What an order found: the item to send, if any, those too late to be of use, and reliable ones that are late."""

    number: int | None
    hopeless: list[int]
    late: list[int]


class QueueOrder(Protocol):
    def add(self, number: int, item: QueuedItem) -> None: ...

    def remove(self, number: int) -> None:
        """The item has left the table by another way than `choose`."""

    def choose(self, now: Nanos, start: Nanos) -> Choice:
        """`start` is when what is chosen now can begin to leave."""

    def spare(self) -> int | None:
        """A droppable item that will be in time only if the rate was misjudged; the one least likely to."""


class KeyOrder:
    def __init__(self, policy: SchedulingPolicy, waiting: Mapping[int, QueuedItem]) -> None:
        self._by_budget = policy is SchedulingPolicy.LAXITY
        self._waiting = waiting
        self._heap: list[tuple[Nanos, int]] = []

    def add(self, number: int, item: QueuedItem) -> None:
        key = item.arrived_ns + item.budget_ns if self._by_budget else item.due_ns
        heappush(self._heap, (key, number))

    def remove(self, number: int) -> None:  # noqa: ARG002
        # Left in the heap and skipped later, unless that would fill the memory with the dead.
        if len(self._heap) > 2 * len(self._waiting) + 64:
            self._heap = [entry for entry in self._heap if entry[1] in self._waiting]
            heapify(self._heap)

    def choose(self, now: Nanos, start: Nanos) -> Choice:  # noqa: ARG002
        choice = Choice(None, [], [])
        while self._heap:
            _, number = heappop(self._heap)
            item = self._waiting.get(number)
            if item is None:
                continue
            if not (item.droppable and item.due_ns < now):
                choice.number = number
                break
            choice.hopeless.append(number)
        return choice

    def spare(self) -> int | None:
        return None


class SheddingOrder:
    def __init__(self, waiting: Mapping[int, QueuedItem], wire: LinkRate) -> None:
        self._waiting = waiting
        self._wire = wire
        self._ns_per_kib = 0
        """The rate by which the feasible set was made."""
        self._feasible = FeasibleSet()
        self._by: dict[int, Nanos] = {}
        """What is in the feasible set, and its deadline there."""
        self._reserve: list[tuple[Nanos, int]] = []
        """Droppable items that gave way, by due time."""
        self._reserve_reliable: list[tuple[Nanos, int]] = []

    def add(self, number: int, item: QueuedItem) -> None:
        self._plan(number, item, min(item.plan_ns, item.due_ns))

    def remove(self, number: int) -> None:
        by = self._by.pop(number, None)
        if by is not None:
            self._feasible.remove(number, by)

    def choose(self, now: Nanos, start: Nanos) -> Choice:
        if 8 * abs(self._wire.ns_per_kib - self._ns_per_kib) > self._ns_per_kib:
            self._plan_anew()
        while shed := self._feasible.shed(start):
            for each in shed:
                self._move_to_reserve(each, start)
        hopeless = self._pop_all(self._reserve, now)
        late = self._pop_all(self._reserve_reliable, now)
        number = self._from_reserve(self._reserve_reliable, start)
        if number is None:
            number = self._from_reserve(self._reserve, start)
        if number is None:
            number = self._feasible.pop()
            if number is not None:
                del self._by[number]
        return Choice(number, hopeless, late)

    def spare(self) -> int | None:
        return self._pop(self._reserve)

    def _plan_anew(self) -> None:
        """All works have changed, and with them what can be in time, those in reserve included."""
        self._ns_per_kib = self._wire.ns_per_kib
        reserve = [number for _, number in self._reserve + self._reserve_reliable if number in self._waiting]
        numbers = sorted([*self._by, *reserve])
        self._feasible, self._by, self._reserve, self._reserve_reliable = FeasibleSet(), {}, [], []
        for number in numbers:
            self.add(number, self._waiting[number])

    def _plan(self, number: int, item: QueuedItem, by_ns: Nanos) -> None:
        self._by[number] = by_ns
        self._feasible.add(number, by_ns, self._work(item), may_be_lost=item.droppable)

    def _work(self, item: QueuedItem) -> Nanos:
        return item.size * self._ns_per_kib >> 10

    def _move_to_reserve(self, number: int, start: Nanos) -> None:
        by = self._by.pop(number)
        item = self._waiting[number]
        end = start + self._work(item)
        if by < end <= item.due_ns:
            # Its plan was missed, though it would have been first: something long was on the wire. Planned for its due
            # time, it would leave at the last moment and be late at the next queue, so it keeps half of what is left.
            self._plan(number, item, (end + item.due_ns) // 2)
        else:
            heappush(self._reserve if item.droppable else self._reserve_reliable, (item.due_ns, number))

    def _pop(self, reserve: list[tuple[Nanos, int]], before: Nanos = NEVER) -> int | None:
        while reserve and reserve[0][0] < before:
            _, number = heappop(reserve)
            if number in self._waiting:
                return number
        return None

    def _from_reserve(self, reserve: list[tuple[Nanos, int]], start: Nanos) -> int | None:
        """The most urgent, if it makes none of those late that should be in time."""
        number = self._pop(reserve)
        if number is None:
            return None
        item = self._waiting[number]
        if start + self._work(item) <= self._feasible.safe_until:
            return number
        heappush(reserve, (item.due_ns, number))
        return None

    def _pop_all(self, reserve: list[tuple[Nanos, int]], before: Nanos) -> list[int]:
        if not reserve or reserve[0][0] >= before:
            return []
        return list(iter(lambda: self._pop(reserve, before), None))
