"""Outflow: a flow at its source: what its destinations have not acknowledged.

A flow is everything sent to one set of destinations in one QoS class, under sequence numbers without gaps. Reliable
parcels are retained, in the durable store too, until every destination has acknowledged them end to end, or their
lifespan ends. Unacknowledged parcels are retransmitted to the destinations that miss them: after a timeout that follows
the round trip and doubles without progress, at once when a destination becomes reachable again, and never more than a
send window at a time (send_window.py).

A destination that has a parcel but cannot deliver it yet says so: the parcel is not sent again while that is believed,
and takes no room in the window. A topic whose readers fall behind gets a separate flow until all of it has been read,
so that a slow reader does not delay others. How far readers are behind, and how much waits to be sent, is backpressure
for publishers.

A flow keeps its name (incarnation, id) forever: after a restart of the source, retained parcels are sent under their
old name, so that a destination that already has one recognises it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

import msgspec

from overlane.core.flows.send_window import BELIEVED, UNSENT, WINDOW_MIN, WINDOW_START, SendWindow
from overlane.core.qos import Order, QosClass, Routing
from overlane.core.records import Owner, OwnerKind, RecordKind, numbers_in
from overlane.core.requirements import StoredRequirements, read_requirements, stored_requirements
from overlane.core.routing.route import Route
from overlane.core.units import NEVER, Nanos
from overlane.core.wire.mixed_run import MixedRun
from overlane.core.wire.parcel import ALONE, Columns, FlowPart, Message, Predecessor, pack_messages

FlowName = tuple[int, int]
"""(incarnation of the source, id): unique forever at one source."""


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
    follows: tuple[int, ...] = ()


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
    order: str = Order.STRICT.value
    follows: tuple[int, ...] = ()
    requires: StoredRequirements = None

    def qos(self) -> QosClass:
        return QosClass(
            self.deadline_ns,
            True,
            Routing(self.routing),
            self.paths,
            self.lifespan_ns,
            self.history,
            Order(self.order),
            requires=read_requirements(self.requires),
        )

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
            follows=self.follows,
        )


class Outflow:
    def __init__(self, name: FlowName, qos: QosClass, destinations: tuple[str, ...]) -> None:
        self.name = name
        self.qos = qos
        self.reliable = qos.reliable
        self.overtakes = qos.may_overtake
        self.can_wait = not qos.reliable and qos.deadline_ns >= NEVER and not qos.reservation
        """Whether its messages are not retained and have no deadline: they can wait at the source."""
        self.destinations = destinations
        self.draft: list[Message] = []
        """Messages published in this turn, and those that could not leave at the end of the one before."""
        self.draft_bytes = 0
        self.mixed_run: MixedRun | None = None
        """The mixed run of this turn's plain messages; it follows the draft."""
        self.joinable: tuple[Message, int, bytes] | None = None
        """A message that others may still join, if it is the last of the draft; its flags and bytes in a mixed run."""
        self.sequence = 0
        self.retained: dict[int, Retained] = {}
        self.retained_bytes = 0
        self.send_windows: dict[str, SendWindow] = {}
        self.last_used: Nanos = 0
        self.is_plain = not (qos.reliable or qos.history or qos.is_shared)
        """Whether its parcels are not needed any more once they have left, on a route of its own."""
        self.sent_bytes = 0
        """Of bodies, where it shares routes."""
        self.route: Route | None = None
        """The route of its parcels, once there is one; one of them where it shares routes."""
        self.behind: frozenset[str] = frozenset()
        """Topics with a separate flow."""
        self.separate_flows: dict[str, Outflow] = {}
        """Flows to the same destinations in the same class, each for one topic whose readers are behind, or were."""
        self.main: Outflow = self
        """The flow that this one was separated from, or itself."""

    def open_mixed_run(self, flags: int, size: int) -> MixedRun:
        """The mixed run that so many more bytes can join; a single message at the end of the draft becomes one."""
        mixed_run, draft = self.mixed_run, self.draft
        if mixed_run is None and draft and self.joinable is not None and draft[-1] is self.joinable[0]:
            message, its_flags, encoded = self.joinable
            draft.pop()
            mixed_run = self.mixed_run = MixedRun(its_flags)
            mixed_run.add(message[:1], encoded, 1, message[1:])
        if mixed_run is None or not mixed_run.takes(flags, size):
            self.close_mixed_run()
            mixed_run = self.mixed_run = MixedRun(flags)
        self.joinable = None
        return mixed_run

    def bound_draft(self, size_max: int) -> list[Message]:
        """What waits for room is left as it is, but no more of it than that: the newest, which is returned, goes."""
        gone = []
        while self.draft_bytes > size_max and len(self.draft) > 1:
            gone.append(self.draft.pop())
            self.draft_bytes -= len(gone[-1][2])
        return gone

    def close_mixed_run(self) -> None:
        """Nothing more joins it: it is the last message of the draft."""
        if self.mixed_run is not None:
            self.draft.append(self.mixed_run.message())
            self.mixed_run = None

    def backpressure(self, topic: str, now: Nanos) -> float:
        """How far the destinations, or readers of the topic there, are behind; 0: not at all."""
        backpressure = max(
            (send_window.backpressure(topic, now) for send_window in self.send_windows.values()), default=0.0
        )
        return (
            max(backpressure, self.separate_flows[topic].backpressure(topic, now))
            if topic in self.separate_flows
            else backpressure
        )

    def update_separated_topics(self) -> None:
        """A destination has reported how far its readers are behind: find the topics that need a flow of their own."""
        told = {
            topic
            for one in (self, *self.separate_flows.values())
            for send_window in one.send_windows.values()
            for topic in send_window.behind
        }
        self.behind = frozenset(
            told | {topic for topic, one in self.separate_flows.items() if one.retained or one.draft}
        )

    @property
    def floor(self) -> int:
        """The oldest sequence that may still be sent: everything below is delivered everywhere, or given up."""
        return next(iter(self.retained), self.sequence + 1) if self.qos.reliable else 0

    def seal(
        self,
        messages: Columns,
        after: int,
        predecessors: tuple[Predecessor, ...],
        history: bool,
        now: Nanos,
        follows: tuple[int, ...] = (),
    ) -> Retained:
        """Make messages the next parcel of the flow."""
        self.sequence += 1
        self.last_used = now
        content = pack_messages(messages)
        parcel = Retained(
            self.sequence, after, predecessors, content, len(messages[0]), now, set(), history, follows=follows
        )
        if self.qos.reliable:
            self.retain(parcel, self.destinations, UNSENT if self.is_full() else now)
        return parcel

    def is_full(self) -> bool:
        """Whether the send windows of all destinations are full."""
        return bool(self.send_windows) and all(
            name in self.send_windows and self.send_windows[name].is_full for name in self.destinations
        )

    def waits_for_room(self, parcel: Retained) -> bool:
        """Whether earlier parcels wait for space to a destination that lacks them."""
        return all(self.send_windows[name].waits_for_room for name in parcel.missing)

    def put_back(self, parcel: Retained, destinations: Iterable[str]) -> None:
        """It has not been sent to these destinations."""
        for name in destinations:
            self.send_windows[name].put_back(parcel.sequence, len(parcel.content))

    def retain(self, parcel: Retained, destinations: Iterable[str], sent_ns: Nanos) -> None:
        parcel.missing = set(destinations)
        self.retained[parcel.sequence] = parcel
        self.retained_bytes += len(parcel.content)
        for name in destinations:
            send_window = self.send_windows.get(name)
            if send_window is None:
                send_window = self.send_windows[name] = SendWindow(
                    window=WINDOW_START if self.main is self else WINDOW_MIN
                )
            send_window.owed_bytes += len(parcel.content)
            send_window.unacknowledged[parcel.sequence] = sent_ns
            if sent_ns != UNSENT:
                send_window.in_flight += len(parcel.content)

    def part(self, parcel: Retained) -> FlowPart:
        floor = self.floor
        if self.qos.reliable:
            floor = min(floor, parcel.sequence)
        return FlowPart(
            *self.name, parcel.sequence, floor, parcel.after, parcel.predecessors, parcel.follows, self.overtakes
        )

    def owes(self, destination: str, sequence: int, kind: int = 0) -> bool:
        """Whether what a predecessor of this kind names may still be on its way to this destination."""
        if not self.qos.reliable:
            return destination in self.destinations
        if kind & ALONE:
            return destination in self.missing(sequence)
        send_window = self.send_windows.get(destination)
        return send_window is not None and any(
            unacknowledged <= sequence for unacknowledged in send_window.unacknowledged
        )

    def missing(self, sequence: int) -> set[str] | frozenset[str]:
        """Which destinations have not acknowledged a parcel that is still retained."""
        parcel = self.retained.get(sequence)
        return frozenset() if parcel is None else parcel.missing

    def acknowledge(self, destination: str, next_sequence: int, beyond: int, now: Nanos) -> tuple[list[int], bool]:
        """Handle a receipt: which parcels need not be retained any more, and whether the destination made progress."""
        send_window = self.send_windows.get(destination)
        if send_window is None:
            return [], False
        come = [
            sequence
            for sequence in send_window.unacknowledged
            if sequence < next_sequence or (sequence > next_sequence and beyond >> (sequence - next_sequence - 1) & 1)
        ]
        if come:
            send_window.backoff = send_window.tries = 0
            send_window.note_arrived(come)
            send_window.measure(come, now)
        return self._settle(destination, come), bool(come)

    def held(self, destination: str, first: int, bits: int, behind: dict[str, int], now: Nanos) -> bool:
        """A receipt tells what the destination has but could not hand on yet (bit i: sequence first+i), and which
        topics' readers are behind there. Whether there is more room in the window than before."""
        send_window = self.send_windows.get(destination)
        if send_window is None:
            return False
        there = [first + place for place in range(bits.bit_length()) if bits >> place & 1]
        sent = [sequence for sequence in there if send_window.unacknowledged.get(sequence, UNSENT) != UNSENT]
        send_window.note_arrived(there)
        send_window.update_behind(behind, now)
        self.main.update_separated_topics()
        return send_window.hold({sequence: len(self.retained[sequence].content) for sequence in sent}, now)

    def _settle(self, destination: str, sequences: Iterable[int]) -> list[int]:
        send_window = self.send_windows[destination]
        done = []
        for sequence in sequences:
            parcel = self.retained[sequence]
            send_window.resent.discard(sequence)
            send_window.owed_bytes -= len(parcel.content)
            if send_window.unacknowledged.pop(sequence) != UNSENT and not send_window.let_go(sequence):
                send_window.arrived(len(parcel.content))
            parcel.missing.discard(destination)
            if not parcel.missing:
                self._release(parcel)
                done.append(sequence)
        if not send_window.unacknowledged:
            send_window.resend_at, send_window.backoff, send_window.in_flight = NEVER, 0, 0
        return done

    def _release(self, parcel: Retained) -> None:
        del self.retained[parcel.sequence]
        self.retained_bytes -= len(parcel.content)

    def give_up(self, destination: str) -> list[int]:
        """The destination left for good: nothing is kept for it. Returns what need not be kept at all any more."""
        send_window = self.send_windows.get(destination)
        if send_window is None:
            return []
        done = self._settle(destination, list(send_window.unacknowledged))
        del self.send_windows[destination]
        return done

    def owed_to(self, destination: str) -> list[Retained]:
        """The parcels that a destination has not acknowledged."""
        send_window = self.send_windows.get(destination)
        return [] if send_window is None else [self.retained[sequence] for sequence in send_window.unacknowledged]

    def too_old(self, now: Nanos) -> list[Retained]:
        """Parcels whose lifespan has ended."""
        oldest_first = self.retained.values()
        return list(takewhile(lambda parcel: now - parcel.published_ns >= self.qos.lifespan_ns, oldest_first))

    def expire(self, now: Nanos) -> list[int]:
        """Give up parcels whose lifespan has ended."""
        gone = []
        for parcel in self.too_old(now):
            for name in parcel.missing:
                send_window = self.send_windows[name]
                send_window.owed_bytes -= len(parcel.content)
                sent_ns = send_window.unacknowledged.pop(parcel.sequence, UNSENT)
                if sent_ns != UNSENT and not send_window.let_go(parcel.sequence):
                    send_window.in_flight = max(0, send_window.in_flight - len(parcel.content))
            self._release(parcel)
            gone.append(parcel.sequence)
        return gone

    def send_held(self, now: Nanos) -> None:
        """Some parcels were given up: send again what destinations hold because of them, which tells them so."""
        for send_window in self.send_windows.values():
            if send_window.held:
                send_window.hold({}, now)
                send_window.resend_at = now

    def next_expiry(self) -> Nanos:
        for parcel in self.retained.values():
            return min(NEVER, parcel.published_ns + self.qos.lifespan_ns)
        return NEVER

    def due_for_resend(self, destination: str, round_trip_ns: Nanos, now: Nanos, at_once: bool) -> list[Retained]:
        """The oldest unacknowledged parcels that are due for (re)transmission, as the window allows."""
        send_window = self.send_windows[destination]
        wait = send_window.patience_ns(round_trip_ns)
        chosen: list[Retained] = []
        room = send_window.window
        earliest = NEVER
        lost = overtaken = False
        for sequence, sent_ns in send_window.unacknowledged.items():
            parcel = self.retained[sequence]
            if not parcel.is_saved:
                break
            if send_window.is_held(sequence, now) and not at_once:
                earliest = min(earliest, send_window.told_ns + BELIEVED)
                continue
            size = len(parcel.content)
            overdue = sent_ns != UNSENT and now >= sent_ns + wait
            is_overtaken = sent_ns != UNSENT and send_window.is_overtaken(sent_ns)
            if sent_ns == UNSENT or at_once or overdue or is_overtaken:
                if size > room and room < send_window.window:
                    break
                chosen.append(parcel)
                lost |= overdue and not at_once
                overtaken |= is_overtaken and not at_once
            else:
                earliest = min(earliest, sent_ns + wait)
            room -= size
            if room <= 0:
                break
        if lost:
            send_window.congested()
            send_window.backoff += 1
        elif overtaken:
            send_window.overtaken(now)
        for parcel in chosen:
            if send_window.unacknowledged[parcel.sequence] == UNSENT or send_window.let_go(parcel.sequence):
                send_window.in_flight += len(parcel.content)
            if send_window.unacknowledged[parcel.sequence] != UNSENT:
                send_window.resent.add(parcel.sequence)
            send_window.unacknowledged[parcel.sequence] = now
        if chosen:
            earliest = min(earliest, now + send_window.patience_ns(round_trip_ns))
        send_window.resend_at = earliest
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
                qos.order.value,
                parcel.follows,
                stored_requirements(qos.requires),
            )
        )

    @staticmethod
    def read_key(key: bytes) -> tuple[FlowName, int]:
        incarnation, flow, sequence = numbers_in(key, 3)
        return (incarnation, flow), sequence


PARCELS = "parcel"


def read_parcel(key: bytes, value: bytes) -> tuple[FlowName, Retained, QosClass, tuple[str, ...]]:
    """A retained parcel of an earlier run: its flow with the flow's class and destinations, and the parcel."""
    name, sequence = Outflow.read_key(key)
    stored = msgspec.msgpack.decode(value, type=StoredParcel)
    return name, stored.parcel(sequence), stored.qos(), tuple(stored.destinations)


def _owner(key: bytes) -> Owner:
    (incarnation, flow), _ = Outflow.read_key(key)
    return Owner(OwnerKind.FLOW, f"{incarnation}/{flow}")


PARCEL_KIND = RecordKind(PARCELS, _owner, read_parcel)
