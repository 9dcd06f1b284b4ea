"""Inflows: what this broker, as a destination, has of each flow, and in which order it hands it on.

  next       everything below it has been handed on or given up
  done       what has been handed on beyond `next`
  horizon    nothing up to it is waited for any more (but what is reliable is still taken when it comes)
  held       parcels that came before something they must come after

A parcel is handed on when all up to its `after` is done or beyond waiting for, and its predecessors in other flows
too. It is held for a missing one no longer than its deadline allows; without a deadline, a reliable one waits as
long as it takes, a best-effort one only a moment. A best-effort parcel that comes after the horizon has passed it
is dropped: it would break the order. The moment follows from how long the flow's parcels have lately been on their
way: what is missing for twice that has been lost, and waiting longer would only make the others late. Of a reliable
flow the progress is made durable before anything of it is handed on or acknowledged.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from overlane.core.parcel import FlowPart, Message
from overlane.core.units import MS, NEVER, SECOND, Nanos

HELD_MAX = 1024
BEYOND_MAX = 8192
GAPS_REMEMBERED = 1024
"""How many best-effort parcels beyond a gap are remembered before the gap is given up."""
REORDER_WAIT_MIN: Nanos = 20 * MS
REORDER_WAIT_MAX: Nanos = 250 * MS
"""How long a best-effort parcel waits at least and at most for what it must come after."""
LATE_WAIT: Nanos = 2 * SECOND
"""How long a reliable parcel that is late anyway waits for what it must come after."""
RECEIPT_DELAY: Nanos = 50 * MS
RECEIPT_AFTER = 32
IDLE_MAX: Nanos = 600 * SECOND
IDLE_RELIABLE_MAX: Nanos = 86_400 * SECOND

InflowName = tuple[int, int, int]
"""(origin, incarnation of the flow, flow)."""


@dataclass(slots=True)
class Arrival:
    """A parcel at its destination."""

    part: FlowPart
    messages: list[Message]
    reliable: bool
    history: bool
    deadline_ns: Nanos
    age_ns: Nanos
    arrived_ns: Nanos
    release_at: Nanos = NEVER


@dataclass(slots=True)
class Inflow:
    reliable: bool
    next: int
    horizon: int = 0
    done: set[int] = field(default_factory=set)
    held: dict[int, Arrival] = field(default_factory=dict)
    touched_ns: Nanos = 0
    slowest_ns: Nanos = 0
    """The greatest age of those that came lately; fades with every parcel."""
    receipt_at: Nanos = NEVER
    unreceipted: int = 0

    def touch(self, age_ns: Nanos, now: Nanos) -> None:
        self.touched_ns = now
        faded_ns = self.slowest_ns - (self.slowest_ns >> 6)
        self.slowest_ns = age_ns if age_ns > faded_ns else faded_ns

    def has(self, sequence: int) -> bool:
        return sequence < self.next or sequence in self.done or sequence in self.held

    def complete(self, sequence: int) -> None:
        if sequence >= self.next:
            self.done.add(sequence)
        while self.next in self.done:
            self.done.discard(self.next)
            self.next += 1

    def raise_floor(self, floor: int) -> None:
        if floor > self.next:
            self.next = floor
            self.done = {sequence for sequence in self.done if sequence >= floor}
            while self.next in self.done:
                self.done.discard(self.next)
                self.next += 1

    @property
    def waits_beyond(self) -> int:
        """Nothing up to here is waited for."""
        at = max(self.next - 1, self.horizon)
        while at + 1 in self.done:
            at += 1
        return at

    def beyond_bits(self) -> int:
        """Bit i: sequence next+1+i is done."""
        bits = 0
        for sequence in self.done:
            bits |= 1 << (sequence - self.next - 1)
        return bits


class Inflows:
    def __init__(self, me: int, save: Callable[[InflowName, bytes], None]) -> None:
        self._me = me
        self._save = save
        self._flows: dict[InflowName, Inflow] = {}
        self._holding: set[InflowName] = set()
        self._receipts: dict[InflowName, Nanos] = {}
        self.wake_at: Nanos = NEVER
        """Nothing is due before this."""
        self.overtaken_dropped = 0

    def restore(self, name: InflowName, value: bytes, now: Nanos) -> None:
        following, horizon, done = msgspec.msgpack.decode(value, type=tuple[int, int, list[int]])
        self._flows[name] = Inflow(reliable=True, next=following, horizon=horizon, done=set(done), touched_ns=now)

    def accept(self, origin: int, arrival: Arrival, now: Nanos) -> list[Arrival]:
        """A parcel came for us; what can be handed on now, in order."""
        part = arrival.part
        name = origin, part.incarnation, part.flow
        flow = self._flows.get(name)
        if flow is None:
            # Of a reliable flow we get everything from its first parcel on; of another, what comes from now on.
            first = 1 if arrival.reliable else part.sequence
            flow = self._flows[name] = Inflow(arrival.reliable, first)
        flow.touch(arrival.age_ns, now)
        if not arrival.reliable and self._is_in_line(flow, part):
            flow.next += 1
            return [arrival]
        released: list[Arrival] = []
        if arrival.reliable:
            self._owe_receipt(name, flow, now)
            if part.floor > flow.next:
                flow.raise_floor(part.floor)
                released = self._release_ready(name, flow)
        if flow.has(part.sequence):
            held = flow.held.get(part.sequence)
            if held is not None and len(part.predecessors) < len(held.part.predecessors):
                # The source has given up what this waited for.
                held.part = held.part._replace(predecessors=part.predecessors)
                released += self._release_ready(name, flow) + self._release_followers(name)
            return released
        if not arrival.reliable and part.sequence <= flow.horizon:
            self.overtaken_dropped += 1
            return released
        ready = self._is_ready(flow, origin, arrival)
        if (len(flow.held) >= HELD_MAX and not ready) or (flow.reliable and part.sequence > flow.next + BEYOND_MAX):
            return released  # not acknowledged: it will be sent again
        flow.held[part.sequence] = arrival
        if ready:
            released += self._release_ready(name, flow)
        else:
            arrival.release_at = _hold_until(arrival, flow.slowest_ns, now)
            self.wake_at = min(self.wake_at, arrival.release_at)
            self._holding.add(name)
        if flow.reliable and len(flow.done) > 0 and part.sequence > flow.next:
            self._hurry_receipt(name, flow, now)  # something is missing: the source should know soon
        return released + self._release_followers(name)

    def is_next(self, name: InflowName, sequence: int, after: int) -> bool:
        """Whether a best-effort parcel is just the next one of a flow of which nothing is missing, as nearly always."""
        flow = self._flows.get(name)
        return (
            flow is not None
            and sequence == flow.next
            and after < sequence > flow.horizon
            and not (flow.done or flow.held or flow.reliable or self._holding)
        )

    def advance(self, name: InflowName, age_ns: Nanos, now: Nanos) -> None:
        """The next one came, and is handed on."""
        flow = self._flows[name]
        flow.touch(age_ns, now)
        flow.next += 1

    def set_wake(self) -> None:
        """After everything due has been done: when is the next?"""
        when = min(self._receipts.values(), default=NEVER)
        for name in self._holding:
            for arrival in self._flows[name].held.values():
                when = min(when, arrival.release_at)
        self.wake_at = when

    def release_due(self, now: Nanos) -> list[tuple[int, Arrival]]:
        """What has been held for as long as its deadline allows, with everything that follows from letting it go."""
        released: list[tuple[int, Arrival]] = []
        for name in sorted(self._holding):
            flow = self._flows[name]
            due = [sequence for sequence, arrival in flow.held.items() if arrival.release_at <= now]
            if not due:
                continue
            # Waiting for what these must come after is over; with them goes what was held before them.
            for sequence in sorted(due):
                arrival = flow.held[sequence]
                arrival.part = arrival.part._replace(predecessors=())
                flow.horizon = max(flow.horizon, arrival.part.after)
            if not flow.reliable:
                flow.raise_floor(flow.horizon + 1)
            out = self._release_ready(name, flow) + self._release_followers(name)
            released += [(name[0], arrival) for arrival in out]
        return released

    def due_receipts(self, now: Nanos) -> list[tuple[InflowName, int, int]]:
        """Flows whose source is to be told what has come: (name, next, bits beyond)."""
        due = sorted(name for name, at in self._receipts.items() if at <= now)
        receipts = []
        for name in due:
            del self._receipts[name]
            flow = self._flows[name]
            flow.unreceipted = 0
            receipts.append((name, flow.next, flow.beyond_bits()))
        return receipts

    def forget_idle(self, now: Nanos) -> list[InflowName]:
        """Flows nobody has used for long; returns those whose record can go too."""
        idle = [
            name
            for name, flow in self._flows.items()
            if not flow.held and now - flow.touched_ns > (IDLE_RELIABLE_MAX if flow.reliable else IDLE_MAX)
        ]
        gone = [name for name in idle if self._flows[name].reliable]
        for name in idle:
            del self._flows[name]
            self._receipts.pop(name, None)
        return gone

    # What may be handed on

    def _is_in_line(self, flow: Inflow, part: FlowPart) -> bool:
        """Whether it is just the next one, and nothing has been missing, as nearly always."""
        return (
            part.sequence == flow.next
            and part.after < flow.next
            and part.sequence > flow.horizon
            and not (flow.done or flow.held or part.predecessors or self._holding)
        )

    def _is_ready(self, flow: Inflow, origin: int, arrival: Arrival) -> bool:
        if arrival.part.after > flow.waits_beyond:
            return False
        return all(
            self._me not in earlier.brokers
            or self._is_past(origin, earlier.incarnation, earlier.flow, earlier.sequence)
            for earlier in arrival.part.predecessors
        )

    def _is_past(self, origin: int, incarnation: int, flow: int, sequence: int) -> bool:
        earlier = self._flows.get((origin, incarnation, flow))
        return earlier is not None and earlier.waits_beyond >= sequence

    def _release_ready(self, name: InflowName, flow: Inflow) -> list[Arrival]:
        released: list[Arrival] = []
        moved = True
        while moved and flow.held:
            moved = False
            for sequence in sorted(flow.held):
                arrival = flow.held[sequence]
                if self._is_ready(flow, name[0], arrival):
                    del flow.held[sequence]
                    flow.complete(sequence)
                    released.append(arrival)
                    moved = True
        if not flow.held:
            self._holding.discard(name)
        if not flow.reliable and len(flow.done) > GAPS_REMEMBERED:
            flow.raise_floor(sorted(flow.done)[GAPS_REMEMBERED // 2])
        if flow.reliable and released:
            self._save(name, msgspec.msgpack.encode((flow.next, flow.horizon, sorted(flow.done))))
        return released

    def _release_followers(self, name: InflowName) -> list[Arrival]:
        """Parcels of flows of the same origin that waited for what was handed on, and those that waited for them."""
        released: list[Arrival] = []
        moved = bool(self._holding)
        while moved:
            more: list[Arrival] = []
            for other in sorted(self._holding):
                if other[0] == name[0]:
                    more += self._release_ready(other, self._flows[other])
            released += more
            moved = bool(more)
        return released

    # Receipts

    def _owe_receipt(self, name: InflowName, flow: Inflow, now: Nanos) -> None:
        flow.unreceipted += 1
        at = now if flow.unreceipted >= RECEIPT_AFTER else now + RECEIPT_DELAY
        self._receipts[name] = min(at, self._receipts.get(name, NEVER))
        self.wake_at = min(self.wake_at, at)

    def _hurry_receipt(self, name: InflowName, flow: Inflow, now: Nanos) -> None:
        if flow.unreceipted <= 3:
            self._receipts[name] = now
            self.wake_at = min(self.wake_at, now)


def _hold_until(arrival: Arrival, slowest_ns: Nanos, now: Nanos) -> Nanos:
    moment_ns = min(max(2 * slowest_ns, REORDER_WAIT_MIN), REORDER_WAIT_MAX)
    if arrival.deadline_ns >= NEVER:
        return NEVER if arrival.reliable else now + moment_ns
    guard = arrival.deadline_ns // 20 + MS
    left = max(0, arrival.deadline_ns - arrival.age_ns - guard)
    if not arrival.reliable:
        return now + min(left, moment_ns)
    return now + (left or LATE_WAIT)


def encode_name(name: InflowName) -> bytes:
    return b"".join(number.to_bytes(8) for number in name)


def decode_name(key: bytes) -> InflowName:
    return int.from_bytes(key[:8]), int.from_bytes(key[8:16]), int.from_bytes(key[16:24])


def bits_to_bytes(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def bits_from_bytes(data: Iterable[int]) -> int:
    return int.from_bytes(bytes(data), "little")
