"""Inflows: what this broker, as a destination, has of each flow, and in which order it hands it on.

A parcel is handed on when all up to its `after` is done or beyond waiting for, and its predecessors in other flows
too. It is held for a missing one no longer than its deadline allows; without a deadline, a reliable one waits as
long as it takes, a best-effort one only a moment. A best-effort parcel that comes after the horizon has passed it
is dropped: it would break the order. The moment follows from how long the flow's parcels have lately been on their
way: what is missing for twice that has been lost, and waiting longer would only make the others late. Of a reliable
flow the progress is made durable before anything of it is handed on or acknowledged.

A reliable parcel is only handed on if its readers take it. While they have no room it is held, and so is what must
come after it; parcels of other topics pass by it. The source is told what is held, and of topics whose readers fall
behind, so that it neither sends these parcels again nor lets more be published than is read.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from overlane.core.arrival import Arrival, Inflow, hold_until
from overlane.core.parcel import FlowPart, Message
from overlane.core.units import MS, NEVER, SECOND, Nanos

BEYOND_MAX = 8192
GAPS_REMEMBERED = 1024
"""How many best-effort parcels beyond a gap are remembered before the gap is given up."""
RECEIPT_DELAY: Nanos = 50 * MS
RECEIPT_AFTER = 32
LOOK_AGAIN: Nanos = 100 * MS
"""How often readers without room are asked again, if they do not speak up before: some are not waited for any more."""
TELL_AGAIN: Nanos = 500 * MS
"""How often a source is told what is still held."""
IDLE_MAX: Nanos = 600 * SECOND
IDLE_RELIABLE_MAX: Nanos = 86_400 * SECOND

InflowName = tuple[int, int, int]
"""(origin, incarnation of the flow, flow)."""

Readers = Callable[[list[Message], Nanos], tuple[bool, dict[str, int]]]
"""Asks local readers to take messages, all or none: whether they do, and the topics whose readers fall behind, with how
full the fullest queue is, in per cent."""


def _take_all(_messages: list[Message], _now: Nanos) -> tuple[bool, dict[str, int]]:
    return True, {}


class Progress(NamedTuple):
    """What a source is told of one flow: see `messages.Receipt`."""

    name: InflowName
    next: int
    beyond: int
    held: int
    behind: dict[str, int]


class Inflows:
    def __init__(self, me: int, save: Callable[[InflowName, bytes], None]) -> None:
        self._me = me
        self._save = save
        self._flows: dict[InflowName, Inflow] = {}
        self._holding: set[InflowName] = set()
        self._barred: set[InflowName] = set()
        """Flows of which something is held only because its readers have no room."""
        self._look_again_at: Nanos = NEVER
        self._receipts: dict[InflowName, Nanos] = {}
        self.readers: Readers = _take_all
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
        moved = False
        if arrival.reliable:
            self._owe_receipt(name, flow, now)
            if part.floor > flow.next:
                flow.raise_floor(part.floor)
                moved = True
                released = self._release_ready(name, flow, now)
        if flow.has(part.sequence):
            held = flow.held.get(part.sequence)
            if held is not None and len(part.predecessors) < len(held.part.predecessors):
                # The source has given up what this waited for.
                held.part = held.part._replace(predecessors=part.predecessors)
                released += self._release_ready(name, flow, now)
                moved = True
            return released + self._release_followers(name, now) if moved else released
        if not arrival.reliable and part.sequence <= flow.horizon:
            self.overtaken_dropped += 1
            return released
        ready = self._is_ready(flow, origin, arrival)
        if not ready and name in self._barred:
            ready = self._is_ready(flow, origin, arrival, flow.held_topics)
        is_too_far = flow.reliable and part.sequence > flow.next + BEYOND_MAX
        taken = ready and not is_too_far and self._is_taken(name, flow, arrival, now)
        if not ready and not flow.reliable and flow.is_crammed(arrival):
            # It comes only once, and so does what is missing: there is no room to wait for that any longer.
            flow.hold(arrival)
            flow.give_up_gaps()
            released += self._release_ready(name, flow, now)
            moved = True
        elif is_too_far or (flow.is_crammed(arrival) and not taken):
            pass  # not acknowledged: it will be sent again
        elif taken:
            released.append(arrival)
            flow.complete(part.sequence)
            released += self._release_ready(name, flow, now, is_news=True)
            moved = True
        else:
            flow.hold(arrival)
            self._holding.add(name)
            if not ready:
                arrival.release_at = hold_until(arrival, flow.slowest_ns, now)
                self.wake_at = min(self.wake_at, arrival.release_at)
        if flow.reliable and len(flow.done) > 0 and part.sequence > flow.next:
            self._hurry_receipt(name, flow, now)  # something is missing: the source should know soon
        return released + self._release_followers(name, now) if moved else released

    def with_next(self, name: InflowName, sequence: int, after: int) -> Inflow | None:
        """The flow of which a best-effort parcel is just the next one, and nothing is missing, as nearly always."""
        flow = self._flows.get(name)
        if (
            flow is not None
            and sequence == flow.next
            and after < sequence > flow.horizon
            and not (flow.done or flow.held or flow.reliable or self._holding)
        ):
            return flow
        return None

    def set_wake(self) -> None:
        """After everything due has been done: when is the next?"""
        when = min(self._look_again_at, min(self._receipts.values(), default=NEVER))
        for name in self._holding:
            for arrival in self._flows[name].held.values():
                when = min(when, arrival.release_at)
        self.wake_at = when

    def release_due(self, now: Nanos) -> list[tuple[int, Arrival]]:
        """What has been held for as long as its deadline allows, with everything that follows from letting it go."""
        released: list[tuple[int, Arrival]] = []
        if now >= self._look_again_at:
            released += self.room_again(now)
        for name in sorted(self._holding):
            flow = self._flows[name]
            due = [sequence for sequence, arrival in flow.held.items() if arrival.release_at <= now]
            if not due:
                continue
            # Waiting for what these must come after is over; with them goes what was held before them.
            for sequence in sorted(due):
                arrival = flow.held[sequence]
                arrival.part = arrival.part._replace(predecessors=())
                arrival.release_at = NEVER
                flow.horizon = max(flow.horizon, arrival.part.after)
            if not flow.reliable:
                flow.raise_floor(flow.horizon + 1)
            out = self._release_ready(name, flow, now) + self._release_followers(name, now)
            released += [(name[0], arrival) for arrival in out]
        return released

    def room_again(self, now: Nanos) -> list[tuple[int, Arrival]]:
        """Readers that had no room may have some: what they take now."""
        barred, self._barred = self._barred, set()
        self._look_again_at = NEVER
        released: list[tuple[int, Arrival]] = []
        for name in sorted(barred):
            flow = self._flows[name]
            out = self._release_ready(name, flow, now) + self._release_followers(name, now)
            released += [(name[0], arrival) for arrival in out]
        origins = {name[0] for name in self._barred}
        for name in self._holding:
            if name[0] in origins and now - self._flows[name].told_ns >= TELL_AGAIN:
                self._receipts[name] = now
                self.wake_at = min(self.wake_at, now)
        return released

    def due_receipts(self, now: Nanos) -> list[Progress]:
        """Flows whose source is to be told what has come."""
        due = sorted(name for name, at in self._receipts.items() if at <= now)
        receipts = []
        for name in due:
            del self._receipts[name]
            flow = self._flows[name]
            flow.unreceipted = 0
            flow.told_ns = now
            # What is held for want of something else is sent again, and tells if that will not come any more.
            is_barred = any(origin == name[0] for origin, _, _ in self._barred)
            held = flow.held_bits() if is_barred else 0
            receipts.append(Progress(name, flow.next, flow.beyond_bits(), held, flow.behind))
            flow.behind_before = {topic for topic, percent in flow.behind.items() if percent}
            flow.behind = {}
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

    def _is_ready(self, flow: Inflow, origin: int, arrival: Arrival, waiting: Collection[str] | None = None) -> bool:
        """Whether its turn has come; with `waiting`, also past parcels that are held, and of these topics."""
        if arrival.part.after > flow.waits_beyond and (waiting is None or not flow.passes(arrival, waiting)):
            return False
        return all(
            self._me not in earlier.brokers
            or self._is_past(origin, earlier.incarnation, earlier.flow, earlier.sequence)
            for earlier in arrival.part.predecessors
        )

    def _is_past(self, origin: int, incarnation: int, flow: int, sequence: int) -> bool:
        earlier = self._flows.get((origin, incarnation, flow))
        return earlier is not None and earlier.waits_beyond >= sequence

    def _is_taken(self, name: InflowName, flow: Inflow, arrival: Arrival, now: Nanos) -> bool:
        """Whether the readers take what is ready for them."""
        if not arrival.reliable or arrival.history:
            return True
        taken, behind = self.readers(arrival.messages, now)
        for topic in flow.behind_before:
            if topic not in behind and any(topic == one[0] for one in arrival.messages):
                flow.tell_behind(topic, 0)
        for topic, percent in behind.items():
            flow.tell_behind(topic, percent)
        if not taken:
            self._barred.add(name)
            self._look_again_at = min(self._look_again_at, now + LOOK_AGAIN)
            self.wake_at = min(self.wake_at, self._look_again_at)
        return taken

    def _release_ready(self, name: InflowName, flow: Inflow, now: Nanos, is_news: bool = False) -> list[Arrival]:
        """What of a flow can go; `is_news`: something of it went already."""
        released: list[Arrival] = []
        refused: set[int] = set()
        is_barred = name in self._barred
        moved = True
        while moved and flow.held:
            moved = False
            waiting: set[str] = set()
            beyond = flow.waits_beyond
            for sequence in sorted(flow.held):
                arrival = flow.held[sequence]
                if arrival.part.after > beyond and is_barred and not waiting.isdisjoint(arrival.topics):
                    waiting |= arrival.topics
                    continue  # as most: behind one that is held, of the same topic
                is_ready = self._is_ready(flow, name[0], arrival, waiting if is_barred else None)
                if is_ready and sequence not in refused and self._is_taken(name, flow, arrival, now):
                    flow.let_go(sequence)
                    flow.complete(sequence)
                    released.append(arrival)
                    beyond = flow.waits_beyond
                    moved = True
                    continue
                if is_ready:
                    refused.add(sequence)
                    is_barred = True
                waiting |= arrival.topics
        if not flow.held:
            self._holding.discard(name)
        if not flow.reliable and len(flow.done) > GAPS_REMEMBERED:
            flow.raise_floor(sorted(flow.done)[GAPS_REMEMBERED // 2])
        if flow.reliable and released:
            self._owe_receipt(name, flow, now)
        if flow.reliable and (released or is_news):
            self._save(name, msgspec.msgpack.encode((flow.next, flow.horizon, sorted(flow.done))))
        return released

    def _release_followers(self, name: InflowName, now: Nanos) -> list[Arrival]:
        """Parcels of flows of the same origin that waited for what was handed on, and those that waited for them."""
        released: list[Arrival] = []
        moved = bool(self._holding)
        while moved:
            more: list[Arrival] = []
            for other in sorted(self._holding):
                if other[0] == name[0]:
                    more += self._release_ready(other, self._flows[other], now)
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


def encode_name(name: InflowName) -> bytes:
    return b"".join(number.to_bytes(8) for number in name)


def decode_name(key: bytes) -> InflowName:
    return int.from_bytes(key[:8]), int.from_bytes(key[8:16]), int.from_bytes(key[16:24])


def bits_to_bytes(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")
