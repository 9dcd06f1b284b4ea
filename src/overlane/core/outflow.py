"""Outflows: what this broker, as a source, owes to its destinations.

A flow is everything sent to one set of destinations in one QoS class, under sequence numbers without gaps. Reliable
parcels are retained, in the durable store too, until every destination has acknowledged them end to end, or their
lifespan ends. What stays unacknowledged is sent again to those that miss it: after a time that follows the round
trip and doubles without progress, at once when a destination comes back into reach, and never more than a window at
a time, so that a backlog does not flood the far side.

A destination that has a parcel but cannot hand it on yet says so: it is not sent again while that is believed, and
takes no room in the window. A topic whose readers fall behind gets a flow of its own, aside, until all of it has been
read: so one slow reader does not hold up others. How far behind they are, and how much waits to be sent, is for
publishers to rest by.

A flow keeps its name (incarnation, id) for ever: after a restart of the source what was retained is sent under its
old name, so that a destination that has it already knows it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from overlane.core.debt import BELIEVED, UNSENT, WINDOW_MIN, WINDOW_START, Debt
from overlane.core.parcel import Columns, FlowPart, Message, Predecessor, pack_messages
from overlane.core.qos import QosClass, Routing
from overlane.core.routes import Route
from overlane.core.units import NEVER, Nanos

FlowName = tuple[int, int]
"""(incarnation of the source, id): unique for ever at one source."""


@dataclass(slots=True)
class Retained:
    sequence: int
    after: int
    predecessors: tuple[Predecessor, ...]
    content: bytes
    messages: int
    published_ns: Nanos
    missing: set[str]
    history: bool = False
    is_saved: bool = False
    """Whether it is durable, so that it may leave."""


class StoredParcel(msgspec.Struct, array_like=True):
    """A retained parcel in the durable store."""

    destinations: list[str]
    deadline_ns: int
    lifespan_ns: int
    routing: str
    paths: int
    history: int
    after: int
    predecessors: list[Predecessor]
    messages: int
    published_ns: int
    replayed: bool
    content: bytes

    def qos(self) -> QosClass:
        return QosClass(self.deadline_ns, True, Routing(self.routing), self.paths, self.lifespan_ns, self.history)

    def parcel(self, sequence: int) -> Retained:
        return Retained(
            sequence,
            self.after,
            tuple(self.predecessors),
            self.content,
            self.messages,
            self.published_ns,
            set(),
            self.replayed,
            is_saved=True,
        )


class Outflow:
    def __init__(self, name: FlowName, qos: QosClass, destinations: tuple[str, ...]) -> None:
        self.name = name
        self.qos = qos
        self.reliable = qos.reliable
        self.can_wait = not qos.reliable and qos.deadline_ns >= NEVER
        """Whether its messages are kept by nobody, but need not be anywhere at any time."""
        self.destinations = destinations
        self.draft: list[Message] = []
        """What was published in this turn, and what could not leave at the end of the one before."""
        self.draft_bytes = 0
        self.sequence = 0
        self.retained: dict[int, Retained] = {}
        self.retained_bytes = 0
        self.debts: dict[str, Debt] = {}
        self.last_used: Nanos = 0
        self.is_plain = not (qos.reliable or qos.history)
        """Whether its parcels are not needed any more once they have left."""
        self.route: Route | None = None
        """The one that its parcels take, once there is one."""
        self.behind: frozenset[str] = frozenset()
        """Topics that go aside."""
        self.asides: dict[str, Outflow] = {}
        """Flows to the same destinations in the same class, each for one topic whose readers are behind, or were."""
        self.main: Outflow = self
        """The flow that this one is aside of, or itself."""

    def crowding(self, topic: str, now: Nanos) -> float:
        """How far the destinations, or readers of the topic there, are behind: from 0, not at all."""
        crowding = max((debt.crowding(topic, now) for debt in self.debts.values()), default=0.0)
        return max(crowding, self.asides[topic].crowding(topic, now)) if topic in self.asides else crowding

    def put_aside(self) -> None:
        """A destination told how far its readers are: which topics have to go aside now?"""
        told = {topic for one in (self, *self.asides.values()) for debt in one.debts.values() for topic in debt.behind}
        self.behind = frozenset(told | {topic for topic, one in self.asides.items() if one.retained or one.draft})

    @property
    def floor(self) -> int:
        """The oldest sequence that may still come: what lies below is delivered everywhere, or given up."""
        return next(iter(self.retained), self.sequence + 1) if self.qos.reliable else 0

    def seal(
        self,
        messages: Columns,
        after: int,
        predecessors: tuple[Predecessor, ...],
        history: bool,
        now: Nanos,
    ) -> Retained:
        """Messages become the next parcel of the flow."""
        self.sequence += 1
        self.last_used = now
        parcel = Retained(
            self.sequence, after, predecessors, pack_messages(messages), len(messages[0]), now, set(), history
        )
        if self.qos.reliable:
            self.retain(parcel, self.destinations, UNSENT if self.is_full() else now)
        return parcel

    def is_full(self) -> bool:
        """Whether no destination should be sent more before it has acknowledged something."""
        return bool(self.debts) and all(name in self.debts and self.debts[name].is_full for name in self.destinations)

    def waits_for_room(self, parcel: Retained) -> bool:
        """Whether what was sealed before this has no room on its way to any that misses it."""
        return all(self.debts[name].waits_for_room for name in parcel.missing)

    def put_back(self, parcel: Retained, destinations: Iterable[str]) -> None:
        """It has not left for these."""
        for name in destinations:
            self.debts[name].put_back(parcel.sequence, len(parcel.content))

    def retain(self, parcel: Retained, destinations: Iterable[str], sent_ns: Nanos) -> None:
        parcel.missing = set(destinations)
        self.retained[parcel.sequence] = parcel
        self.retained_bytes += len(parcel.content)
        for name in destinations:
            debt = self.debts.get(name)
            if debt is None:
                debt = self.debts[name] = Debt(window=WINDOW_START if self.main is self else WINDOW_MIN)
            debt.owed_bytes += len(parcel.content)
            debt.unacknowledged[parcel.sequence] = sent_ns
            if sent_ns != UNSENT:
                debt.under_way += len(parcel.content)

    def part(self, parcel: Retained) -> FlowPart:
        floor = self.floor
        if self.qos.reliable:
            floor = min(floor, parcel.sequence)
        return FlowPart(*self.name, parcel.sequence, floor, parcel.after, parcel.predecessors)

    def owes(self, destination: str, sequence: int) -> bool:
        """Whether something up to `sequence` may still be on its way to this destination."""
        if not self.qos.reliable:
            return destination in self.destinations
        debt = self.debts.get(destination)
        return debt is not None and any(unacknowledged <= sequence for unacknowledged in debt.unacknowledged)

    def acknowledge(self, destination: str, next_sequence: int, beyond: int, now: Nanos) -> tuple[list[int], bool]:
        """A receipt came: which parcels need not be kept any more, and whether the destination made progress."""
        debt = self.debts.get(destination)
        if debt is None:
            return [], False
        come = [
            sequence
            for sequence in debt.unacknowledged
            if sequence < next_sequence or (sequence > next_sequence and beyond >> (sequence - next_sequence - 1) & 1)
        ]
        if come:
            debt.backoff = 0
            debt.measure(come, now)
        return self._settle(destination, come), bool(come)

    def held(self, destination: str, first: int, bits: int, behind: dict[str, int], now: Nanos) -> bool:
        """A receipt tells what the destination has but could not hand on yet (bit i: sequence first+i), and which
        topics' readers are behind there. Whether there is more room in the window than before."""
        debt = self.debts.get(destination)
        if debt is None:
            return False
        there = [first + place for place in range(bits.bit_length()) if bits >> place & 1]
        sent = [sequence for sequence in there if debt.unacknowledged.get(sequence, UNSENT) != UNSENT]
        debt.hear_behind(behind, now)
        self.main.put_aside()
        return debt.hold({sequence: len(self.retained[sequence].content) for sequence in sent}, now)

    def _settle(self, destination: str, sequences: Iterable[int]) -> list[int]:
        debt = self.debts[destination]
        done = []
        for sequence in sequences:
            parcel = self.retained[sequence]
            debt.resent.discard(sequence)
            debt.owed_bytes -= len(parcel.content)
            if debt.unacknowledged.pop(sequence) != UNSENT and not debt.let_go(sequence):
                debt.arrived(len(parcel.content))
            parcel.missing.discard(destination)
            if not parcel.missing:
                self._release(parcel)
                done.append(sequence)
        if not debt.unacknowledged:
            debt.resend_at, debt.backoff, debt.under_way = NEVER, 0, 0
        return done

    def _release(self, parcel: Retained) -> None:
        del self.retained[parcel.sequence]
        self.retained_bytes -= len(parcel.content)

    def give_up(self, destination: str) -> list[int]:
        """The destination left for good: nothing is kept for it. Returns what need not be kept at all any more."""
        debt = self.debts.get(destination)
        if debt is None:
            return []
        done = self._settle(destination, list(debt.unacknowledged))
        del self.debts[destination]
        return done

    def expire(self, now: Nanos) -> list[int]:
        """Parcels whose lifespan has ended are given up."""
        gone = []
        for parcel in list(self.retained.values()):  # oldest first
            if now - parcel.published_ns < self.qos.lifespan_ns:
                break
            for name in parcel.missing:
                debt = self.debts[name]
                debt.owed_bytes -= len(parcel.content)
                sent_ns = debt.unacknowledged.pop(parcel.sequence, UNSENT)
                if sent_ns != UNSENT and not debt.let_go(parcel.sequence):
                    debt.under_way = max(0, debt.under_way - len(parcel.content))
            self._release(parcel)
            gone.append(parcel.sequence)
        return gone

    def next_expiry(self) -> Nanos:
        for parcel in self.retained.values():
            return min(NEVER, parcel.published_ns + self.qos.lifespan_ns)
        return NEVER

    def due_for_resend(self, destination: str, round_trip_ns: Nanos, now: Nanos, at_once: bool) -> list[Retained]:
        """The oldest unacknowledged parcels that have waited long enough, or were never sent, as the window allows."""
        debt = self.debts[destination]
        wait = debt.patience_ns(round_trip_ns)
        chosen: list[Retained] = []
        room = debt.window
        earliest = NEVER
        lost = False
        for sequence, sent_ns in debt.unacknowledged.items():
            parcel = self.retained[sequence]
            if not parcel.is_saved:
                break
            if debt.is_held(sequence, now) and not at_once:
                earliest = min(earliest, debt.told_ns + BELIEVED)
                continue
            size = len(parcel.content)
            overdue = sent_ns != UNSENT and now >= sent_ns + wait
            if sent_ns == UNSENT or at_once or overdue:
                if size > room and room < debt.window:
                    break
                chosen.append(parcel)
                lost |= overdue and not at_once
            else:
                earliest = min(earliest, sent_ns + wait)
            room -= size
            if room <= 0:
                break
        if lost:
            debt.congested()
            debt.backoff += 1
        for parcel in chosen:
            if debt.unacknowledged[parcel.sequence] == UNSENT or debt.let_go(parcel.sequence):
                debt.under_way += len(parcel.content)
            if debt.unacknowledged[parcel.sequence] != UNSENT:
                debt.resent.add(parcel.sequence)
            debt.unacknowledged[parcel.sequence] = now
        if chosen:
            earliest = min(earliest, now + debt.patience_ns(round_trip_ns))
        debt.resend_at = earliest
        return chosen

    # The store

    def key(self, sequence: int) -> bytes:
        return b"".join(number.to_bytes(8) for number in (*self.name, sequence))

    def stored(self, parcel: Retained) -> bytes:
        qos = self.qos
        return msgspec.msgpack.encode(
            StoredParcel(
                list(self.destinations),
                qos.deadline_ns,
                qos.lifespan_ns,
                qos.routing.value,
                qos.paths,
                qos.history,
                parcel.after,
                list(parcel.predecessors),
                parcel.messages,
                parcel.published_ns,
                parcel.history,
                parcel.content,
            )
        )

    @staticmethod
    def read_key(key: bytes) -> tuple[FlowName, int]:
        incarnation, flow, sequence = (int.from_bytes(key[at : at + 8]) for at in (0, 8, 16))
        return (incarnation, flow), sequence
