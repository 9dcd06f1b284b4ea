"""The source: messages published at this broker, on their way to the brokers that need them.

A published message joins the draft of its flow: the flow of its QoS class and of the brokers that need its topic.
At the end of the turn each draft is sealed into a parcel, retained if it is reliable, and sent along the flow's
route. What is not acknowledged is sent again, straight to the destination that misses it. A reliable parcel for which
the first link's queue has no room has not been sent: it goes, after those before it, when there is some.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import msgspec

from overlane.core.anteroom import Anteroom
from overlane.core.debt import UNSENT, Debt
from overlane.core.duplicates import DuplicateWindow
from overlane.core.events import Effect, Erase, Save
from overlane.core.federation import Federation
from overlane.core.forwarding import Forwarding
from overlane.core.headers import Headers, age_us
from overlane.core.herald import Herald
from overlane.core.history import History, Kept, wrap
from overlane.core.interest import RemoteInterest
from overlane.core.linkstate import LinkStateTable
from overlane.core.messages import Receipt
from overlane.core.outflow import FlowName, Outflow, Retained, StoredParcel
from overlane.core.parcel import Columns, FlowPart, Message, cut, pack_flow, pack_lone
from overlane.core.places import TopicPlaces
from overlane.core.qos import QosClass, QosTable
from overlane.core.routes import Route, RoutePlanner
from overlane.core.signalling import Entry, RouteTable, reached_by
from overlane.core.straight import Straight, lone_frame
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.core.wire import ParcelFlag, broker_id, parcel_size
from overlane.core.wire import parcel as parcel_frame

PARCELS = "parcel"
SWEEP_EVERY: Nanos = 5 * SECOND
IDLE_MAX: Nanos = 60 * SECOND
WAY_FULL = 0.75
DRAFT_BYTES_MAX = 4 << 20
"""What can wait is only put into queues of links that are not fuller than this; it waits here, up to so many bytes."""
ASIDES_MAX = 8
"""Topics of one flow that have flows of their own at a time: where the readers of more are behind, all are."""

_MOST = int(ParcelFlag.OWN_DEADLINE | ParcelFlag.WATCHED)
"""With these a parcel's header is as long as it gets."""


@dataclass(slots=True)
class Source:
    me: str
    identity: int
    incarnation: int
    qos: QosTable
    remote: RemoteInterest
    table: LinkStateTable
    herald: Herald
    forwarding: Forwarding
    straight: Straight
    history: History
    retention_bytes_max: int
    federation: Federation
    on_drop: Callable[[], None]
    """Called when a flow is no more, so that nobody publishes into it."""
    flows: dict[FlowName, Outflow] = field(default_factory=dict)
    retained_bytes: int = 0
    room: int = field(init=False)
    """For bodies of reliable messages."""
    wake_at: Nanos = NEVER
    _by_place: dict[tuple[QosClass, tuple[str, ...]], Outflow] = field(default_factory=dict)
    _places: TopicPlaces = field(default_factory=TopicPlaces)
    _next_flow: int = 1
    _local_count: int = 0
    turn: int = 1
    """The number of the turn that is open."""
    _unsaved: deque[tuple[int, Outflow, Retained, bool]] = field(default_factory=deque)
    """Reliable parcels that are not durable yet: of which turn, and whether their flow is full."""
    _next_sweep: Nanos = -NEVER

    effects: list[Effect] = field(init=False)
    """Those of the herald too, in the order in which all of them came about."""
    _planner: RoutePlanner = field(init=False)
    _routes: RouteTable = field(init=False)
    _headers: Headers = field(init=False)
    _own: DuplicateWindow = field(init=False)
    anteroom: Anteroom = field(init=False)

    def __post_init__(self) -> None:
        self.effects = self.herald.effects
        self._planner, self._routes = self.herald.planner, self.herald.routes
        self._headers = Headers(self.identity, self.incarnation)
        self.anteroom = Anteroom(self.forwarding)
        self.room = self.retention_bytes_max
        self._own = self.forwarding.duplicates.window(self.identity, self.incarnation)

    # Publishing

    def flow_of(self, topic: str, now: Nanos, qos: QosClass | None = None) -> Outflow | None:
        """The flow a topic's messages join, in its own class if not in another; None if no other broker needs it."""
        destinations = self.destinations(topic)
        return self._flow_to(qos or self.qos.of(topic), destinations, now) if destinations else None

    def destinations(self, topic: str) -> tuple[str, ...]:
        """The other brokers that need a topic and may have it from here."""
        may_leave = self.federation.may_leave
        return tuple(name for name in self.remote.needing(topic) if name != self.me and may_leave(topic, name))

    def flush(self, open_flows: Iterable[Outflow], now: Nanos) -> tuple[list[Outflow], bool]:
        """End of a turn: every draft becomes a parcel, or several. Returns the flows of which some has to wait, and
        whether anything is to be done later about what was sent."""
        waiting = []
        is_more_to_do = False
        for flow in open_flows:
            messages, flow.draft = flow.draft, []
            flow.draft_bytes = 0
            if flow.is_plain and flow.route is not None:
                if len(messages) == 1 and self._send_lone(flow, flow.route, messages[0], now):
                    continue
            else:
                is_more_to_do = True
            for piece in cut(messages):
                if not flow.draft and (not flow.can_wait or self.has_room(flow)):
                    self._seal(flow, piece, now)
                elif flow.draft_bytes < DRAFT_BYTES_MAX:
                    flow.draft += zip(*piece, strict=True)
                    flow.draft_bytes += sum(map(len, piece[2]))
                else:
                    self.forwarding.counters.queue_full_dropped += 1
            if flow.draft:
                waiting.append(flow)
        self.room = self.retention_bytes_max - self.retained_bytes
        return waiting, is_more_to_do

    def _send_lone(self, flow: Outflow, route: Route, message: Message, now: Nanos) -> bool:
        """The short way of one best-effort message that nothing but its own flow concerns; False if it has to take the
        long one."""
        entry = self._routes.entry(self.identity, route.id, route.version)
        if entry is None:
            return False
        onward = None if flow.qos.deadline_ns < NEVER else self.straight.onward(entry)
        if onward is None and flow.can_wait and not self.has_room(flow):
            return False
        if (after := self._places.order_lone(flow, message[0], now)) is None:
            return False
        flow.sequence += 1
        flow.last_used = now
        if onward is not None:
            number = self._headers.sequence + 1
            if frame := lone_frame(entry.key, number, flow.name[1], flow.sequence, after, message):
                self._headers.sequence = number
                self._own.is_new(number)
                onward.park(frame, entry.name, 0, 1, now)
                return True
        header = self._headers.on_route(flow.qos, route, 0, 1)
        self._own.is_new(header.sequence)
        rest = pack_lone(flow.name, flow.sequence, after, message)
        if onward is not None:
            onward.park(parcel_frame(header, rest), entry.name, 0, 1, now)
        elif not self.forwarding.forward(entry, header, rest, now, None, now):
            self._take_back(flow, message[:1], after, now)
        return True

    def has_room(self, flow: Outflow) -> bool:
        """Whether what can wait may join the queues on its way."""
        return self.way_share(flow) <= WAY_FULL

    def way_share(self, flow: Outflow) -> float:
        """How full the fullest queue is that the flow's messages join next: from 0 to 1."""
        route = flow.route or self._planner.route(flow.qos, flow.destinations)
        entry = self._routes.entry(self.identity, route.id, route.version)
        return 0.0 if entry is None else self.forwarding.queue_share(entry.next_hops)

    def aside(self, flow: Outflow, topic: str, now: Nanos) -> Outflow:
        """The flow for a topic whose readers may be behind; the same where they are not."""
        if topic not in flow.behind:
            return flow
        flow.last_used = now
        found = flow.asides.get(topic)
        if found is None:
            if len(flow.asides) >= ASIDES_MAX:
                return flow
            found = flow.asides[topic] = Outflow((self.incarnation, self._next_flow), flow.qos, flow.destinations)
            found.main = flow
            found.last_used = now
            self._next_flow += 1
            self.flows[found.name] = found
        return found

    def _flow_to(self, qos: QosClass, destinations: tuple[str, ...], now: Nanos) -> Outflow:
        flow = self._by_place.get((qos, destinations))
        if flow is None:
            flow = Outflow((self.incarnation, self._next_flow), qos, destinations)
            self._next_flow += 1
            flow.last_used = now
            self.flows[flow.name] = self._by_place[qos, destinations] = flow
        return flow

    def _seal(self, flow: Outflow, messages: Columns, now: Nanos, history: bool = False) -> None:
        after, predecessors = self._places.order(flow, messages[0], self.flows, now)
        held_back = flow.qos.reliable and flow.is_full()
        parcel = flow.seal(messages, after, predecessors, history, now)
        if flow.qos.reliable:
            self._unsaved.append((self.turn, flow, parcel, held_back))
            self.retained_bytes += len(parcel.content)
            self.effects.append(Save(PARCELS, flow.key(parcel.sequence), flow.stored(parcel)))
            for debt in flow.debts.values():
                self._wake_for(debt, now + SECOND)
        if flow.qos.history and not history:
            for index, (topic, flags, body) in enumerate(zip(*messages, strict=True)):
                name = self.identity, *flow.name, parcel.sequence, index
                self.effects += self.history.keep(Kept(name, topic, flags, body, flow.qos, now), now)
        if not flow.qos.reliable and not self._send(flow, parcel, now):
            self._take_back(flow, messages[0], after, now)

    def _take_back(self, flow: Outflow, topics: Iterable[str], after: int, now: Nanos) -> None:
        """The best-effort parcel that was sealed last has gone nowhere: another takes its place, and nobody waits for
        it. What is kept as history has its name for good."""
        if not flow.qos.history:
            flow.sequence -= 1
            self._places.withdraw(flow, topics, after, now)

    def is_unsaved(self) -> bool:
        """Whether anything waits for a turn to be durable."""
        return bool(self._unsaved)

    def saved(self, turn: int, now: Nanos) -> None:
        """All turns up to this one are durable: the reliable parcels sealed in them may leave."""
        unsaved = self._unsaved
        held: dict[FlowName, Outflow] = {}
        while unsaved and unsaved[0][0] <= turn:
            _, flow, parcel, held_back = unsaved.popleft()
            parcel.is_saved = True
            if held_back:
                held[flow.name] = flow
            elif parcel.missing and flow.waits_for_room(parcel):
                flow.put_back(parcel, parcel.missing)
            elif parcel.missing:
                self._send(flow, parcel, now)
        for flow in held.values():
            # What they waited for may have come while they were not durable yet; nothing else would call them.
            for destination in sorted(flow.debts):
                if not flow.debts[destination].is_full:
                    self._resend(flow, destination, now, at_once=False)

    def _send(self, flow: Outflow, parcel: Retained, now: Nanos) -> bool:
        """False if it has gone nowhere."""
        route = flow.route = self._planner.route(flow.qos, flow.destinations)
        if not route.version:
            self.herald.open(route, now)
        entry = self._routes.entry(self.identity, route.id, route.version)
        if entry is None or not entry.next_hops:
            return False
        rest = pack_flow(flow.part(parcel), self.incarnation) + parcel.content
        if flow.qos.reliable and not all(
            self.forwarding.takes(hop, parcel_size(_MOST, rest)) for hop in entry.next_hops
        ):
            entry = self._with_room(flow, parcel, entry, parcel_size(_MOST, rest), now)
            if not entry.next_hops:
                return False
        header = self._headers.on_route(flow.qos, route, age_us(parcel, now), parcel.messages, parcel.history)
        self._own.is_new(header.sequence)
        return self.forwarding.forward(entry, header, rest, now, None, now)

    def _with_room(self, flow: Outflow, parcel: Retained, entry: Entry, size: int, now: Nanos) -> Entry:
        """The route without next hops whose queues have no room; destinations behind only these wait."""
        open_hops = tuple(hop for hop in entry.next_hops if self.forwarding.takes(hop, size))
        shut_hop = next(hop for hop in entry.next_hops if hop not in open_hops)
        waiting = parcel.missing - reached_by(entry.message, open_hops)
        flow.put_back(parcel, waiting)
        for destination in sorted(waiting):
            self._wait(flow, destination, shut_hop, size, now)
        return replace(entry, next_hops=open_hops)

    def _wait(self, flow: Outflow, destination: str, hop: str, size: int, now: Nanos) -> None:
        flow.debts[destination].waits_for_room = True
        self.anteroom.wait(hop, (flow.name, destination), size, now)

    def _call(self, now: Nanos) -> None:
        """Links have room again: whoever waited for that goes on."""
        for name, destination in self.anteroom.called(now):
            flow = self.flows.get(name)
            debt = None if flow is None else flow.debts.get(destination)
            if flow is not None and debt is not None:
                self._resend(flow, destination, now, at_once=False)

    def keep_unsent(self, topic: str, body: bytes, flags: int, now: Nanos) -> None:
        """Nobody elsewhere needs it yet; a late subscriber may."""
        qos = self.qos.of(topic)
        if qos.history:
            self._local_count += 1
            name = self.identity, self.incarnation, 0, self._local_count, 0
            self.effects += self.history.keep(Kept(name, topic, flags, body, qos, now), now)

    # Interest

    def needed(self, broker: str, filters: list[str], now: Nanos) -> None:
        """A broker newly needs filters: it gets what is kept for late subscribers."""
        if not self.qos.keeps_history or broker == self.me:
            return
        chosen: dict[tuple[int, ...], Kept] = {}
        for topic_filter in filters:
            for kept in self.history.matching(topic_filter, own_only=True, now=now):
                if self.federation.may_leave(kept.topic, broker):
                    chosen[kept.name] = kept
        flows: dict[FlowName, tuple[Outflow, list[Kept]]] = {}
        for kept in chosen.values():
            flow = self._flow_to(kept.qos, (broker,), now)
            flows.setdefault(flow.name, (flow, []))[1].append(kept)
        for flow, past in flows.values():
            for piece in cut([(kept.topic, kept.flags, wrap(kept)) for kept in past]):
                self._replay(flow, piece, now)

    def _replay(self, flow: Outflow, messages: Columns, now: Nanos) -> None:
        before = {topic: self._places.of(topic) for topic in messages[0]}
        self._seal(flow, messages, now, history=True)
        for topic, places in before.items():
            for name, (sequence, at) in places.items():
                if name != flow.name:
                    self._places.also_at(topic, name, sequence, at)

    def left(self, broker: str) -> None:
        """A broker left for good: nothing is kept for it."""
        for flow in self.flows.values():
            self._free(flow, flow.give_up(broker))

    # Acknowledgement and resending

    def receipt(self, message: Receipt, now: Nanos) -> None:
        flow = self.flows.get((message.incarnation, message.flow))
        if flow is None:
            return
        beyond = int.from_bytes(message.beyond, "little")
        done, progress = flow.acknowledge(message.sender, message.next, beyond, now)
        self._free(flow, done)
        held = int.from_bytes(message.held, "little")
        progress |= flow.held(message.sender, message.next, held, message.behind, now)
        if progress and (debt := flow.debts[message.sender]).unacknowledged and not debt.waits_for_room:
            self._resend(flow, message.sender, now, at_once=False)

    def _resend(self, flow: Outflow, destination: str, now: Nanos, at_once: bool) -> None:
        debt = flow.debts[destination]
        debt.waits_for_room = False
        found = self.table.map.way(self.me, destination)
        if found is None:
            debt.resend_at = NEVER  # until it can be reached again
            debt.is_reachable = False
            return
        debt.is_reachable = True
        way, latency_ns = found
        due = flow.due_for_resend(destination, 2 * latency_ns, now, at_once)
        for place, parcel in enumerate(due):
            rest = pack_flow(self._part_owed(flow, parcel), self.incarnation) + parcel.content
            if not self.forwarding.takes(way[1], parcel_size(_MOST, rest)):
                for unsent in due[place:]:
                    flow.put_back(unsent, (destination,))
                self._wait(flow, destination, way[1], parcel_size(_MOST, rest), now)
                break
            header = self._headers.on_path(flow.qos, parcel, now)
            due_ns = NEVER if not header.deadline_us else parcel.published_ns + flow.qos.deadline_ns - latency_ns
            self.forwarding.send_on_path(way, header, rest, now, due_ns, now)
        self._wake_for(debt, debt.resend_at)

    def _part_owed(self, flow: Outflow, parcel: Retained) -> FlowPart:
        """As `part`, without predecessors that will not come any more."""
        part = flow.part(parcel)
        if not part.predecessors:
            return part
        names = {broker_id(name): name for name in flow.destinations}
        still = []
        for one in part.predecessors:
            earlier = self.flows.get((one.incarnation, one.flow))
            if earlier is not None:
                owed = tuple(at for at in one.brokers if earlier.owes(names.get(at, ""), one.sequence))
                if owed:
                    still.append(one._replace(brokers=owed))
        return part._replace(predecessors=tuple(still))

    def _free(self, flow: Outflow, sequences: list[int]) -> None:
        for sequence in sequences:
            self.effects.append(Erase(PARCELS, flow.key(sequence)))
        if sequences:
            before = self.retained_bytes
            self.retained_bytes = sum(one.retained_bytes for one in self.flows.values())
            self.room += before - self.retained_bytes

    def _wake_for(self, debt: Debt, at: Nanos) -> None:
        if debt.resend_at == NEVER:
            debt.resend_at = at
        self.wake_at = min(self.wake_at, debt.resend_at)

    # Time, and routes that move

    def review(self, now: Nanos) -> None:
        """The map may have changed: send again what was on routes that had to move."""
        if now >= self.herald.review_at():
            for route in self.herald.review(now):
                self._make_good(route, now)

    def _make_good(self, route: Route, now: Nanos) -> None:
        flow = self._by_place.get((route.qos, route.destinations))
        if flow is not None and flow.qos.reliable:
            for one in (flow, *flow.asides.values()):
                for destination in sorted(one.debts):
                    if one.debts[destination].unacknowledged:
                        self._resend(one, destination, now, at_once=True)

    def tick(self, now: Nanos) -> None:
        if self.anteroom.waiting:
            self._call(now)
        if now >= self.wake_at:
            self.wake_at = NEVER
            for flow in list(self.flows.values()):
                self._free(flow, flow.expire(now))
                for destination in sorted(flow.debts):
                    debt = flow.debts[destination]
                    if debt.unacknowledged and debt.resend_at <= now:
                        self._resend(flow, destination, now, at_once=False)
                    if debt.unacknowledged:
                        self.wake_at = min(self.wake_at, debt.resend_at)
                self.wake_at = min(self.wake_at, flow.next_expiry())
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_EVERY
            self._sweep(now)

    def next_deadline(self) -> Nanos:
        return min(self.wake_at, self._next_sweep, self.herald.review_at())

    def reachable_again(self, now: Nanos) -> None:
        """The map changed: debts to destinations that could not be reached are looked at again."""
        for flow in self.flows.values():
            for debt in flow.debts.values():
                if debt.unacknowledged and debt.resend_at == NEVER:
                    debt.resend_at = now
                    self.wake_at = now

    def _sweep(self, now: Nanos) -> None:
        self.herald.refresh(now)
        for flow in list(self.flows.values()):
            if now - flow.last_used > IDLE_MAX and not (flow.retained or flow.draft or flow.asides):
                self._drop(flow)

    def _drop(self, flow: Outflow) -> None:
        """Nobody has used it for a while."""
        del self.flows[flow.name]
        if flow.main is not flow:
            flow.main.asides = {topic: one for topic, one in flow.main.asides.items() if one is not flow}
            flow.main.put_aside()
        elif self._by_place.get((flow.qos, flow.destinations)) is flow:
            del self._by_place[flow.qos, flow.destinations]
            self.on_drop()
            self.herald.take_down(flow.qos, flow.destinations)

    # The store

    def restore(self, key: bytes, value: bytes, now: Nanos) -> None:
        """A parcel retained in an earlier life: it keeps its name, and is owed to those it was for."""
        name, sequence = Outflow.read_key(key)
        stored = msgspec.msgpack.decode(value, type=StoredParcel)
        flow = self.flows.get(name)
        if flow is None:
            flow = self.flows[name] = Outflow(name, stored.qos(), tuple(stored.destinations))
            flow.last_used = now
        flow.sequence = max(flow.sequence, sequence)
        parcel = stored.parcel(sequence)
        flow.retain(parcel, flow.destinations, UNSENT)
        self.retained_bytes += len(parcel.content)
        self._places.recover(parcel, name)
        for debt in flow.debts.values():
            self._wake_for(debt, now)
