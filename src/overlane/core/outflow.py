"""Outflows: what this broker, as a source, owes to its destinations.

A flow is everything sent to one set of destinations in one QoS class, under sequence numbers without gaps. Reliable
parcels are retained, in the durable store too, until every destination has acknowledged them end to end, or their
lifespan ends. What stays unacknowledged is sent again to those that miss it: after a time that follows the round
trip and doubles without progress, at once when a destination comes back into reach, and never more than a window at
a time, so that a backlog does not flood the far side.

A flow keeps its name (incarnation, id) for ever: after a restart of the source what was retained is sent under its
old name, so that a destination that has it already knows it.

Order. Each topic remembers where its last message went. A parcel waits at the destination for all that `after`
names; where a topic moved here from another flow, a predecessor says so to the destinations that both flows have.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from overlane.core.parcel import (
    PREDECESSORS_MAX,
    Columns,
    FlowPart,
    Message,
    Predecessor,
    pack_messages,
    unpack_messages,
)
from overlane.core.qos import QosClass, Routing
from overlane.core.routes import Route
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire import broker_id

WINDOW_MIN = 16 * 1024
WINDOW_START = 64 * 1024
WINDOW_MAX = 4 << 20
UNSENT: Nanos = -NEVER
RESEND_MARGIN: Nanos = 100 * MS
RESEND_MAX: Nanos = 5 * SECOND
RECENT: Nanos = 2 * SECOND
"""How long a topic's last best-effort message is remembered as a predecessor."""

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


@dataclass(slots=True)
class Debt:
    """What one destination of a flow has not acknowledged: sequence -> when it was last sent (UNSENT: not yet).

    At most a window of it is under way: it grows with what is acknowledged, doubling at first, and halves when what was
    sent does not come, so that neither a backlog nor a fast publisher floods the far side.
    """

    unacknowledged: dict[int, Nanos] = field(default_factory=dict)
    backoff: int = 0
    resend_at: Nanos = NEVER
    window: int = WINDOW_START
    threshold: int = WINDOW_MAX
    under_way: int = 0
    resent: set[int] = field(default_factory=set)
    round_trip_ns: Nanos = 0
    variation_ns: Nanos = 0

    def measure(self, sequences: Iterable[int], now: Nanos) -> None:
        """How long acknowledgements take, by the last parcel that was sent but once (Karn)."""
        for sequence in reversed(list(sequences)):
            sent_ns = self.unacknowledged[sequence]
            if sent_ns != UNSENT and sequence not in self.resent:
                sample = now - sent_ns
                if not self.round_trip_ns:
                    self.round_trip_ns, self.variation_ns = sample, sample >> 1
                self.variation_ns += (abs(sample - self.round_trip_ns) - self.variation_ns) >> 2
                self.round_trip_ns += (sample - self.round_trip_ns) >> 3
                return

    def patience_ns(self, path_ns: Nanos) -> Nanos:
        """When to send again, given the round trip of the path: that, or what acknowledgements really take."""
        measured = self.round_trip_ns + 4 * self.variation_ns
        return min(RESEND_MAX, max(path_ns, measured) + RESEND_MARGIN << min(self.backoff, 8))

    def arrived(self, size: int) -> None:
        self.under_way = max(0, self.under_way - size)
        grown = size if self.window < self.threshold else size * size // self.window + 1
        self.window = min(WINDOW_MAX, self.window + grown)

    def congested(self) -> None:
        self.threshold = max(WINDOW_MIN, self.window // 2)
        self.window = self.threshold


class Outflow:
    def __init__(self, name: FlowName, qos: QosClass, destinations: tuple[str, ...]) -> None:
        self.name = name
        self.qos = qos
        self.reliable = qos.reliable
        self.destinations = destinations
        self.draft: list[Message] = []
        """What was published in this turn."""
        self.sequence = 0
        self.retained: dict[int, Retained] = {}
        self.retained_bytes = 0
        self.debts: dict[str, Debt] = {}
        self.last_used: Nanos = 0
        self.is_plain = not (qos.reliable or qos.history)
        """Whether its parcels are not needed any more once they have left."""
        self.route: Route | None = None
        """The one that its parcels take, once there is one."""

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
        return bool(self.debts) and all(
            name in self.debts and self.debts[name].under_way >= self.debts[name].window for name in self.destinations
        )

    def retain(self, parcel: Retained, destinations: Iterable[str], sent_ns: Nanos) -> None:
        parcel.missing = set(destinations)
        self.retained[parcel.sequence] = parcel
        self.retained_bytes += len(parcel.content)
        for name in destinations:
            debt = self.debts.setdefault(name, Debt())
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

    def _settle(self, destination: str, sequences: Iterable[int]) -> list[int]:
        debt = self.debts[destination]
        done = []
        for sequence in sequences:
            parcel = self.retained[sequence]
            debt.resent.discard(sequence)
            if debt.unacknowledged.pop(sequence) != UNSENT:
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
                if debt.unacknowledged.pop(parcel.sequence, UNSENT) != UNSENT:
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
            if debt.unacknowledged[parcel.sequence] == UNSENT:
                debt.under_way += len(parcel.content)
            else:
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


class TopicPlaces:
    """Where the last messages of each topic went, so that the next one can be put after them."""

    def __init__(self) -> None:
        self._places: dict[str, dict[FlowName, tuple[int, Nanos]]] = {}

    def order(
        self, flow: Outflow, topics: Iterable[str], flows: dict[FlowName, Outflow], now: Nanos
    ) -> tuple[int, tuple[Predecessor, ...]]:
        """What the parcel about to be sealed must come after; its topics' places become that parcel."""
        after = 0
        elsewhere: dict[FlowName, int] = {}
        here, place = flow.name, (flow.sequence + 1, now)
        for topic in dict.fromkeys(topics):
            places = self._places.get(topic)
            if places is None:
                self._places[topic] = {here: place}
                continue
            for name, (sequence, at) in places.items():
                if name == here:
                    after = max(after, sequence)
                elif flow.qos.reliable or now - at < RECENT:
                    elsewhere[name] = max(elsewhere.get(name, 0), sequence)
            if len(places) > 1 or here not in places:
                self._places[topic] = {here: place}
            else:
                places[here] = place
        return after, _predecessors(flow, flows, elsewhere) if elsewhere else ()

    def order_lone(self, flow: Outflow, topic: str, now: Nanos) -> int | None:
        """As `order` for a parcel of one topic whose last messages went here alone; None, and nothing done, if not."""
        places = self._places.get(topic)
        if places is None or len(places) != 1 or (place := places.get(flow.name)) is None:
            return None
        places[flow.name] = flow.sequence + 1, now
        return place[0]

    def of(self, topic: str) -> dict[FlowName, tuple[int, Nanos]]:
        return self._places.get(topic, {})

    def also_at(self, topic: str, name: FlowName, sequence: int, now: Nanos) -> None:
        """A message of the topic went here too: replayed from history, or retained from an earlier life."""
        self._places.setdefault(topic, {})[name] = sequence, now

    def recover(self, parcel: Retained, name: FlowName) -> None:
        for topic, _, _ in unpack_messages(parcel.content, 0, parcel.messages):
            self.also_at(topic, name, parcel.sequence, parcel.published_ns)


def _predecessors(
    flow: Outflow, flows: dict[FlowName, Outflow], elsewhere: dict[FlowName, int]
) -> tuple[Predecessor, ...]:
    predecessors = []
    for name in sorted(elsewhere):
        earlier = flows.get(name)
        if earlier is None:
            continue
        both = [broker for broker in flow.destinations if earlier.owes(broker, elsewhere[name])]
        if both:
            predecessors.append(Predecessor(*name, elsewhere[name], tuple(map(broker_id, both))))
    return tuple(predecessors[:PREDECESSORS_MAX])
