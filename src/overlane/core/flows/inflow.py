"""Inflow: a flow at its destination: what has arrived, and in which order it is delivered.

A parcel is delivered when all its predecessors, in its flow and in others, are done or no longer waited for. A reliable
parcel waits for reliable ones without a limit; if it may overtake, no longer than its deadline allows. A best-effort
parcel waits only a moment, and no longer than its deadline allows; so does any parcel for an earlier best-effort one. A
best-effort parcel that arrives behind the horizon is dropped, because it would violate the order. The waiting time is
twice the recent transit time of the flow's parcels: a parcel missing for longer is lost, and waiting longer would only
make the others late. The progress of a reliable flow is made durable before anything of it is delivered or
acknowledged; while parcels are missing, the receipt to the source is sent at once.

A reliable parcel is delivered only if its subscribers accept it. While they have no space it is held, and so are its
successors; parcels of other topics overtake it. Receipts to the source contain the held parcels and the topics with
slow subscribers, so that it neither sends these parcels again nor accepts more messages than subscribers read.

The next deliveries are yielded, and the caller sends back how each was received before the flow continues. A caller
that only iterates accepts all of them. Steps of one call must have ended before those of another begin.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from typing import NamedTuple

import msgspec

from overlane.core.events import Reception
from overlane.core.flows.arrival import Arrival, Inflow, hold_until
from overlane.core.records import Owner, OwnerKind, RecordKind, numbers_in
from overlane.core.routing.forwarding.message_losses import MessageLosses
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire.parcel import ALONE, LOSSY, FlowPart, Predecessor
from overlane.core.wire.route_answers import WayBack

BEYOND_MAX = 8192
GAPS_REMEMBERED = 1024
"""How many best-effort parcels beyond a gap are remembered before the gap is given up."""
RECEIPT_DELAY: Nanos = 50 * MS
RECEIPT_AFTER = 32
LOOK_AGAIN: Nanos = 100 * MS
"""How often readers without room are polled, in case they do not signal room."""
TELL_AGAIN: Nanos = 500 * MS
"""How often a source is told again what is held."""
IDLE_MAX: Nanos = 600 * SECOND
IDLE_RELIABLE_MAX: Nanos = 86_400 * SECOND
FLOWS_MAX = 16_384
"""Of one origin. A parcel of yet another flow is not taken until one of them is forgotten."""

InflowName = tuple[int, int, int]
"""(origin, incarnation of the flow, flow)."""

Steps = Generator[tuple[int, Arrival], Reception | None, None]
"""Origins and parcels that may be delivered, in order; None is sent back where nobody has to be asked."""
Moves = Generator[tuple[int, Arrival], Reception | None, bool]
"""Steps, and in the end whether anything was delivered."""


class InflowProgress(NamedTuple):
    """What a source is told of one flow: see `control_messages.Receipt`."""

    name: InflowName
    next: int
    beyond: int
    held: int
    behind: dict[str, int]
    return_path: Sequence[str] = ()
    way_back: WayBack | None = None


class Inflows:
    def __init__(self, me: int, save: Callable[[InflowName, bytes], None], losses: MessageLosses | None = None) -> None:
        self._losses = losses or MessageLosses()
        self._me = me
        self._save = save
        self._flows: dict[InflowName, Inflow] = {}
        self._counts: dict[int, int] = {}
        """Flows of each origin."""
        self._holding: set[InflowName] = set()
        self._barred: set[InflowName] = set()
        """Flows in which something is held only because its readers have no room."""
        self._look_again_at: Nanos = NEVER
        self._receipts: dict[InflowName, Nanos] = {}
        self.wake_at: Nanos = NEVER
        """Nothing is due before this."""

    @property
    def is_holding(self) -> bool:
        """Whether parcels wait for others."""
        return bool(self._holding)

    def restore(self, name: InflowName, value: bytes, now: Nanos) -> None:
        following, horizon, done = _decode(value)
        if name not in self._flows:
            self._counts[name[0]] = self._counts.get(name[0], 0) + 1
        self._flows[name] = Inflow(reliable=True, next=following, horizon=horizon, done=set(done), touched_ns=now)

    def accept(self, origin: int, arrival: Arrival, now: Nanos) -> Steps:
        """A parcel arrived: yields what can be delivered now."""
        part = arrival.part
        name = origin, part.incarnation, part.flow
        flow = self._flows.get(name) or self._begin(name, arrival)
        if flow is None:
            return
        flow.touch(arrival.age_ns, now)
        if part.predecessors:
            arrival.bind(self._me)
            part = arrival.part
        if not arrival.reliable and self._is_in_line(flow, part):
            flow.next += 1
            yield origin, arrival
            return
        moved = False
        if arrival.reliable:
            flow.return_path, flow.way_back = arrival.return_path, arrival.way_back
            self._owe_receipt(name, flow, now)
            if part.floor > flow.next:
                flow.raise_floor(part.floor)
                moved = True
                yield from self._release_ready(name, flow, now)
        if flow.has(part.sequence):
            if part.sequence in flow.skipped:
                flow.skipped.discard(part.sequence)
                self._losses.overtaken += self._losses.of(arrival.messages)
            held = flow.held.get(part.sequence)
            if held is not None and (gone := held.given_up(arrival)):
                self._give_up(origin, held, gone)
                yield from self._release_ready(name, flow, now)
                moved = True
            if moved:
                yield from self._release_followers(name, now)
            return
        if not arrival.reliable and part.sequence <= flow.horizon:
            self._losses.overtaken += self._losses.of(arrival.messages)
            return
        moved |= yield from self._place(name, flow, arrival, now)
        if flow.reliable and part.sequence > flow.next:
            self._hurry_receipt(name, flow, now)  # something is missing: the source should know soon
        if moved:
            yield from self._release_followers(name, now)

    def _place(self, name: InflowName, flow: Inflow, arrival: Arrival, now: Nanos) -> Moves:
        """Offer a parcel that has not come before, or hold it; whether anything can follow from that."""
        origin, part = name[0], arrival.part
        ready = self._is_ready(flow, origin, arrival)
        if not ready and name in self._barred:
            ready = self._is_ready(flow, origin, arrival, flow.held_topics)
        is_too_far = flow.reliable and part.sequence > flow.next + BEYOND_MAX
        taken = ready and not is_too_far and (yield from self._offer(name, flow, arrival, now))
        if not ready and not flow.reliable and flow.is_hold_full(arrival):
            # Best effort is sent only once, and so is what is missing: there is no room to wait for it any longer.
            flow.hold(arrival)
            flow.give_up_gaps()
            yield from self._release_ready(name, flow, now)
            return True
        if is_too_far or (flow.is_hold_full(arrival) and not taken):
            return False  # not acknowledged: it will be sent again
        if taken:
            flow.complete(part.sequence)
            yield from self._release_ready(name, flow, now, is_news=True)
            return True
        flow.hold(arrival)
        self._holding.add(name)
        if not ready:
            arrival.release_at = hold_until(arrival, flow.slowest_ns, now)
            self.wake_at = min(self.wake_at, arrival.release_at)
        return False

    def has(self, name: InflowName, sequence: int) -> bool:
        """Whether a parcel has arrived before, or is no longer waited for."""
        flow = self._flows.get(name)
        return flow is not None and flow.has(sequence)

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
        """Find the next deadline, after everything due has been done."""
        when = min(self._look_again_at, min(self._receipts.values(), default=NEVER))
        for name in self._holding:
            for arrival in self._flows[name].held.values():
                when = min(when, arrival.release_at)
        self.wake_at = when

    def release_due(self, now: Nanos) -> Steps:
        """Release what has been held as long as its deadline allows, and everything that can follow it."""
        if now >= self._look_again_at:
            yield from self.readers_ready(now)
        for name in sorted(self._holding):
            flow = self._flows[name]
            due = [sequence for sequence, arrival in flow.held.items() if arrival.release_at <= now]
            if not due:
                continue
            # These wait no longer for what they must come after; what was held before them is released with them.
            for sequence in sorted(due):
                arrival = flow.held[sequence]
                arrival.release_at = NEVER
                if arrival.is_strict:
                    arrival.drop_predecessors([one for one in arrival.part.predecessors if one.kind & LOSSY])
                    continue
                arrival.part = arrival.part._replace(predecessors=())
                flow.horizon = max(flow.horizon, arrival.part.after)
            if not flow.reliable:
                flow.release_up_to(flow.horizon)
            yield from self._release_ready(name, flow, now)
            yield from self._release_followers(name, now)
        self.set_wake()

    def readers_ready(self, now: Nanos) -> Steps:
        """Readers may have room again: yields what they may take now."""
        barred, self._barred = self._barred, set()
        self._look_again_at = NEVER
        for name in sorted(barred):
            yield from self._release_ready(name, self._flows[name], now)
            yield from self._release_followers(name, now)
        origins = {name[0] for name in self._barred}
        for name in self._holding:
            if name[0] in origins and now - self._flows[name].told_ns >= TELL_AGAIN:
                self._receipts[name] = now
                self.wake_at = min(self.wake_at, now)

    def due_receipts(self, now: Nanos) -> list[InflowProgress]:
        """Flows whose receipt is due."""
        due = sorted(name for name, at in self._receipts.items() if at <= now)
        receipts = []
        for name in due:
            del self._receipts[name]
            flow = self._flows[name]
            flow.unreceipted = 0
            flow.told_ns = now
            is_barred = any(origin == name[0] for origin, _, _ in self._barred)
            held = flow.held_bits(is_barred) if flow.held else 0
            told = name, flow.next, flow.beyond_bits(), held, flow.behind
            receipts.append(InflowProgress(*told, flow.return_path, flow.way_back))
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
            self._count_less(name[0])
        return gone

    def _begin(self, name: InflowName, arrival: Arrival) -> Inflow | None:
        """A flow that is new here; None if there are too many of its origin."""
        count = self._counts.get(name[0], 0)
        if count >= FLOWS_MAX:
            if not arrival.reliable:
                self._losses.overtaken += self._losses.of(arrival.messages)
            return None
        self._counts[name[0]] = count + 1
        # Of a reliable flow we get everything from its first parcel on; of another, what comes from now on.
        flow = self._flows[name] = Inflow(arrival.reliable, 1 if arrival.reliable else arrival.part.sequence)
        if not arrival.reliable:
            flow.skip(1, flow.next)
        return flow

    def _count_less(self, origin: int) -> None:
        self._counts[origin] -= 1
        if not self._counts[origin]:
            del self._counts[origin]

    # What may be delivered

    def _is_in_line(self, flow: Inflow, part: FlowPart) -> bool:
        """Whether it is the next one and nothing is missing: the usual case."""
        return (
            part.sequence == flow.next
            and part.after < flow.next
            and part.sequence > flow.horizon
            and not (flow.done or flow.held or part.predecessors or self._holding)
        )

    def _is_ready(self, flow: Inflow, origin: int, arrival: Arrival, waiting: Collection[str] | None = None) -> bool:
        """Whether it may be delivered; with `waiting`, also ahead of held parcels, unless of these topics."""
        part = arrival.part
        if part.follows:
            if not all(map(flow.is_done, part.follows)):
                return False
        elif part.after > flow.waits_beyond and (waiting is None or not flow.advance_to(arrival, waiting)):
            return False
        return all(self._is_past(origin, earlier) for earlier in part.predecessors)

    def _is_past(self, origin: int, earlier: Predecessor) -> bool:
        flow = self._flows.get((origin, earlier.incarnation, earlier.flow))
        return flow is not None and flow.is_past(earlier)

    def _give_up(self, origin: int, held: Arrival, gone: list[Predecessor]) -> None:
        """The source will not send again what this waited for; a copy that still comes would break the order."""
        held.drop_predecessors(gone)
        for earlier in gone:
            flow = self._flows.get((origin, earlier.incarnation, earlier.flow))
            if flow is not None and flow.reliable and earlier.kind & ALONE:
                flow.complete(earlier.sequence)

    def _offer(self, name: InflowName, flow: Inflow, arrival: Arrival, now: Nanos) -> Moves:
        """Offer a parcel to its readers; whether they take it."""
        reception = yield name[0], arrival
        if reception is None:
            return True
        is_taken, behind = reception
        for topic in flow.behind_before:
            if topic not in behind and any(topic == one[0] for one in arrival.messages):
                flow.report_behind(topic, 0)
        for topic, percent in behind.items():
            flow.report_behind(topic, percent)
        if not is_taken:
            self._barred.add(name)
            self._look_again_at = min(self._look_again_at, now + LOOK_AGAIN)
            self.wake_at = min(self.wake_at, self._look_again_at)
        return is_taken

    def _release_ready(self, name: InflowName, flow: Inflow, now: Nanos, is_news: bool = False) -> Moves:
        """Offer what can be delivered of a flow; whether any was. `is_news`: some of it has been before."""
        is_released = False
        refused: set[int] = set()
        is_barred = name in self._barred
        moved = True
        while moved and flow.held:
            moved = False
            waiting: set[str] = set()
            beyond = flow.waits_beyond
            for sequence in sorted(flow.held):
                arrival = flow.held[sequence]
                if is_barred and arrival.part.after > beyond and not waiting.isdisjoint(arrival.topics):
                    waiting |= arrival.topics
                    continue  # as most: behind one that is held, of the same topic
                is_ready = self._is_ready(flow, name[0], arrival, waiting if is_barred else None)
                if is_ready and sequence not in refused and (yield from self._offer(name, flow, arrival, now)):
                    flow.let_go(sequence)
                    flow.complete(sequence)
                    beyond = flow.waits_beyond
                    moved = is_released = True
                    continue
                if is_ready:
                    refused.add(sequence)
                    is_barred = True
                waiting |= arrival.topics
        if not flow.held:
            self._holding.discard(name)
        if not flow.reliable and len(flow.done) > GAPS_REMEMBERED:
            flow.raise_floor(sorted(flow.done)[GAPS_REMEMBERED // 2])
        if flow.reliable and is_released:
            self._owe_receipt(name, flow, now)
        if flow.reliable and (is_released or is_news):
            self._save(name, msgspec.msgpack.encode((flow.next, flow.horizon, sorted(flow.done))))
        return is_released

    def _release_followers(self, name: InflowName, now: Nanos) -> Steps:
        """Offer parcels of the same origin that waited for what was delivered, and those that waited for them."""
        moved = bool(self._holding)
        while moved:
            moved = False
            for other in sorted(self._holding):
                if other[0] == name[0]:
                    moved |= yield from self._release_ready(other, self._flows[other], now)

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
    origin, incarnation, flow = numbers_in(key, 3)
    return origin, incarnation, flow


INFLOWS = "inflow"

_decode = msgspec.msgpack.Decoder(tuple[int, int, list[int]]).decode


def _owner(key: bytes) -> Owner:
    return Owner(OwnerKind.FLOW, "/".join(map(str, decode_name(key))))


INFLOW_KIND = RecordKind(INFLOWS, _owner, lambda key, value: (decode_name(key), _decode(value)))


def bits_to_bytes(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")
