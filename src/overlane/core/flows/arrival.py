"""Arrival: the state of one flow at its destination.

next       everything below it has been delivered or given up
done       what has been delivered beyond `next`
horizon    nothing up to it is waited for any more (but reliable parcels are still taken when they come)
held       parcels that came before something they must come after, or whose readers have no room
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire.message_fields import BEHIND_MAX, BEHIND_PERCENT_MAX
from overlane.core.wire.parcel import ALONE, LOSSY, FlowPart, Message, Predecessor
from overlane.core.wire.route_answers import WayBack

HELD_MAX = 1024
HELD_BYTES_MAX = 2 << 20
"""Per flow. A reliable parcel that finds no room is not acknowledged, and sent again; best effort waits no longer."""
SKIPPED_MAX = 256
"""Best-effort parcels of a flow that are remembered as not waited for."""
HELD_TOLD = 8192
BEHIND_LENGTH_MAX = 1 << 16
"""Of all topics in one receipt together: it must fit into a frame."""
REORDER_WAIT_MIN: Nanos = 20 * MS
REORDER_WAIT_MAX: Nanos = 250 * MS
"""How long a best-effort parcel waits at least and at most for what it must come after."""
LATE_WAIT: Nanos = 2 * SECOND
"""How long a reliable parcel that may overtake, and is late anyway, waits for what it must come after."""


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
    size: int = 0
    return_path: Sequence[str] = ()
    """To its source, the reverse of the path that it took; empty if unknown."""
    release_at: Nanos = NEVER
    topics: frozenset[str] = frozenset()
    """Topics of its messages, once they are held: cached, because it is checked repeatedly."""
    way_back: WayBack | None = None
    """The same path on the route that it took, if it took one."""

    @property
    def is_strict(self) -> bool:
        """Whether it waits for earlier reliable parcels without limit."""
        return self.reliable and not self.part.overtakes

    def bind(self, broker: int) -> None:
        """Keep only the predecessors that concern this broker."""
        bound = tuple(one for one in self.part.predecessors if broker in one.brokers)
        self.part = self.part._replace(predecessors=bound)

    def drop_predecessors(self, gone: Collection[Predecessor]) -> None:
        """Wait no longer for these."""
        still = tuple(one for one in self.part.predecessors if one not in gone)
        self.part = self.part._replace(predecessors=still)

    def given_up(self, again: "Arrival") -> list[Predecessor]:
        """Predecessors that it waits for and that its source no longer names in a retransmission."""
        still = {one[:3] for one in again.part.predecessors}
        return [one for one in self.part.predecessors if one[:3] not in still]


@dataclass(slots=True)
class Inflow:
    reliable: bool
    next: int
    horizon: int = 0
    done: set[int] = field(default_factory=set)
    held: dict[int, Arrival] = field(default_factory=dict)
    held_bytes: int = 0
    held_topics: dict[str, int] = field(default_factory=dict)
    """The topics of what is held, and how many parcels have them."""
    skipped: set[int] = field(default_factory=set)
    """Best-effort parcels that were not waited for and have not come yet, the latest of them: when they come, they are
    lost."""
    reached: int = 0
    """All up to here is done or held."""
    behind: dict[str, int] = field(default_factory=dict)
    """Topics to report in the next receipt: how far readers are behind in per cent; 0: no longer."""
    behind_before: set[str] = field(default_factory=set)
    """Topics that were last reported as behind."""
    told_ns: Nanos = 0
    touched_ns: Nanos = 0
    slowest_ns: Nanos = 0
    """The greatest age of recent parcels; decays with every parcel."""
    unreceipted: int = 0
    return_path: Sequence[str] = ()
    """Of the copy that came last: the way that receipts take. A way that loses them is left with the next copy that the
    source sends another way."""
    way_back: WayBack | None = None

    def touch(self, age_ns: Nanos, now: Nanos) -> None:
        self.touched_ns = now
        faded_ns = self.slowest_ns - (self.slowest_ns >> 6)
        self.slowest_ns = age_ns if age_ns > faded_ns else faded_ns

    def has(self, sequence: int) -> bool:
        return sequence < self.next or sequence in self.done or sequence in self.held

    def hold(self, arrival: Arrival) -> None:
        arrival.topics = frozenset([topic for topic, _, _ in arrival.messages])
        self.held[arrival.part.sequence] = arrival
        self.held_bytes += arrival.size
        for topic in arrival.topics:
            self.held_topics[topic] = self.held_topics.get(topic, 0) + 1

    def let_go(self, sequence: int) -> None:
        arrival = self.held.pop(sequence)
        self.held_bytes -= arrival.size
        for topic in arrival.topics:
            left = self.held_topics.pop(topic) - 1
            if left:
                self.held_topics[topic] = left

    def is_done(self, sequence: int) -> bool:
        """Whether it has been delivered, or is no longer waited for."""
        return sequence < self.next or sequence in self.done or sequence <= self.horizon

    def is_past(self, earlier: Predecessor) -> bool:
        return self.is_done(earlier.sequence) if earlier.kind & ALONE else self.waits_beyond >= earlier.sequence

    def advance_to(self, arrival: Arrival, waiting: Collection[str]) -> bool:
        """Note how far arrivals reach without a gap; True if all that this one must come after is done, or is here but
        of other topics than its own and these."""
        at = max(self.reached, self.next - 1, self.horizon)
        while at + 1 in self.done or at + 1 in self.held:
            at += 1
        self.reached = at
        topics = arrival.topics or [topic for topic, _, _ in arrival.messages]
        return arrival.part.after <= at and all(topic not in waiting for topic in topics)

    def is_hold_full(self, arrival: Arrival) -> bool:
        """Whether there is no room to hold one more."""
        return len(self.held) >= HELD_MAX or (bool(self.held) and self.held_bytes + arrival.size > HELD_BYTES_MAX)

    def complete(self, sequence: int) -> None:
        if sequence >= self.next:
            self.done.add(sequence)
        while self.next in self.done:
            self.done.discard(self.next)
            self.next += 1

    def raise_floor(self, floor: int) -> None:
        if floor > self.next:
            if not self.reliable:
                self.skip(self.next, floor)
            self.next = floor
            self.done = {sequence for sequence in self.done if sequence >= floor}
            while self.next in self.done:
                self.done.discard(self.next)
                self.next += 1

    def skip(self, start: int, end: int) -> None:
        """What is missing from `start` up to, and without, `end` is not waited for."""
        latest = range(max(start, end - SKIPPED_MAX), end)
        self.skipped.update(sequence for sequence in latest if not (sequence in self.done or sequence in self.held))
        if len(self.skipped) > 2 * SKIPPED_MAX:
            self.skipped = set(sorted(self.skipped)[-SKIPPED_MAX:])

    def release_up_to(self, horizon: int) -> None:
        """Stop waiting for what is missing up to there: what is held of it waits for nothing else any more, since what
        comes after it does not."""
        for sequence, arrival in self.held.items():
            if sequence <= horizon:
                arrival.part = arrival.part._replace(predecessors=())
                arrival.release_at = NEVER
        self.raise_floor(horizon + 1)

    def give_up_gaps(self) -> None:
        """Stop waiting for what is missing."""
        for arrival in self.held.values():
            arrival.part = arrival.part._replace(predecessors=())
            self.horizon = max(self.horizon, arrival.part.after)
        self.raise_floor(self.horizon + 1)

    def report_behind(self, topic: str, percent: int) -> None:
        """The source is to be told how full the queues of a topic's readers are, if a receipt has room for that."""
        # Half of the room is for those that do not fall behind any more.
        topics_max = BEHIND_MAX // 2 if percent else BEHIND_MAX
        length = sum(map(len, self.behind)) + len(topic)
        if topic in self.behind or (len(self.behind) < topics_max and length <= BEHIND_LENGTH_MAX):
            self.behind[topic] = min(percent, BEHIND_PERCENT_MAX)

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

    def held_bits(self, is_barred: bool) -> int:
        """Bit i: sequence next+i is held, and need not be sent again.

        What is held for something in another flow is, unless readers have no room: it tells if that will not come any
        more.
        """
        bits = 0
        for sequence, arrival in self.held.items():
            if 0 <= sequence - self.next < HELD_TOLD and (is_barred or not arrival.part.predecessors):
                bits |= 1 << (sequence - self.next)
        return bits


def hold_until(arrival: Arrival, slowest_ns: Nanos, now: Nanos) -> Nanos:
    """Until when it waits for what it must come after; `slowest_ns`: how long others of its flow were on their way."""
    moment_ns = min(max(2 * slowest_ns, REORDER_WAIT_MIN), REORDER_WAIT_MAX)
    if arrival.is_strict:
        return now + moment_ns if any(one.kind & LOSSY for one in arrival.part.predecessors) else NEVER
    if arrival.deadline_ns >= NEVER:
        return NEVER if arrival.reliable else now + moment_ns
    guard = arrival.deadline_ns // 20 + MS
    left = max(0, arrival.deadline_ns - arrival.age_ns - guard)
    if not arrival.reliable:
        return now + min(left, moment_ns)
    return now + (left or LATE_WAIT)
