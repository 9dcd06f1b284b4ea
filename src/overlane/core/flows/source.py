"""Source: messages published at this broker, sent to the brokers that need them.

A published message joins the draft of its flow: the flow of its QoS class and of the brokers that need its topic. At
the end of the turn each draft is sealed into a parcel, retained if it is reliable, and sent along the flow's route.
Unacknowledged parcels are sent again, directly to the destination that lacks them. A reliable parcel for which the
first link's queue has no space is sent later, in order, when there is space.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from overlane.core.events import Effect, Erase, PublishResult, Save
from overlane.core.federation import Federation
from overlane.core.flows.channels import Channels
from overlane.core.flows.cut_through import CutThrough, single_message_frame
from overlane.core.flows.destinations import Destinations
from overlane.core.flows.flow_table import FlowTable
from overlane.core.flows.held_messages import HeldMessages, Send, Served
from overlane.core.flows.history import Kept, TopicHistory
from overlane.core.flows.history_replay import HistoryReplay
from overlane.core.flows.outflow import PARCELS, FlowName, Outflow, Retained, read_parcel
from overlane.core.flows.parcel_headers import Headers, age_us
from overlane.core.flows.retransmission import PARCEL_FLAGS_MOST, Retransmission
from overlane.core.flows.send_window import UNSENT, SendWindow
from overlane.core.flows.topic_order import TopicOrder
from overlane.core.flows.waiting_for_link import WaitingForLink
from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.qos import QosClass, QosTable
from overlane.core.routing.forwarding.duplicate_window import DuplicateWindow
from overlane.core.routing.forwarding.forwarding import Forwarding
from overlane.core.routing.route import Route
from overlane.core.routing.routes import RoutePlanner
from overlane.core.routing.selection.path_trust import PathTrust
from overlane.core.routing.signalling.route_announcer import RouteAnnouncer
from overlane.core.routing.signalling.route_establishment import RouteTable
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.core.wire.control_messages import Receipt
from overlane.core.wire.frame_codec import Header, ParcelFlag, parcel_size
from overlane.core.wire.frame_codec import parcel as parcel_frame
from overlane.core.wire.parcel import Columns, Message, cut, names_too_many, pack_flow, pack_single

SWEEP_EVERY: Nanos = 5 * SECOND
IDLE_MAX: Nanos = 60 * SECOND
PATH_FULL = 0.75
DRAFT_BYTES_MAX = 4 << 20
"""What can wait is only put into queues of links that are not fuller than this; it waits here, up to so many bytes."""

_CONFIRM = int(ParcelFlag.CONFIRM)


@dataclass(slots=True)
class Source:
    me: str
    identity: int
    incarnation: int
    qos: QosTable
    destinations: Destinations
    table: LinkStateTable
    route_announcer: RouteAnnouncer
    trust: PathTrust
    """What routes are planned with besides the map: it learns from what becomes of parcels."""
    forwarding: Forwarding
    cut_through: CutThrough
    history: TopicHistory
    retention_bytes_max: int
    federation: Federation
    on_drop: Callable[[], None]
    """Called when a flow is dropped, so that nothing is published into it."""
    flows: dict[FlowName, Outflow] = field(default_factory=dict)
    retained_bytes: int = 0
    room: int = field(init=False)
    """Bytes left for bodies of reliable messages."""
    wake_at: Nanos = NEVER
    _places: TopicOrder = field(default_factory=TopicOrder)
    _sealed: list[tuple[Outflow, Retained, bool]] = field(default_factory=list)
    """Reliable parcels of this turn, and whether their flow is full."""
    unsaved: deque[tuple[int, list[tuple[Outflow, Retained, bool]]]] = field(default_factory=deque)
    """Those of earlier turns that are not durable yet."""
    _next_sweep: Nanos = -NEVER

    effects: list[Effect] = field(default_factory=list)
    _is_asked: bool = False
    """Something that was sent in this turn requests a confirmation."""
    _planner: RoutePlanner = field(init=False)
    _routes: RouteTable = field(init=False)
    _headers: Headers = field(init=False)
    _own: DuplicateWindow = field(init=False)
    held: HeldMessages = field(init=False)
    waiting_for_link: WaitingForLink = field(init=False)
    channels: Channels = field(init=False)
    _table: FlowTable = field(init=False)
    _retransmission: Retransmission = field(init=False)
    _replay: HistoryReplay = field(init=False)

    def __post_init__(self) -> None:
        self.held = HeldMessages(self.forwarding.losses)
        self._planner, self._routes = self.route_announcer.planner, self.route_announcer.routes
        self._headers = Headers(self.identity, self.incarnation)
        self.waiting_for_link = WaitingForLink(self.forwarding)
        self.channels = Channels(self.identity, self._planner, self._routes, self.flows)
        self._table = FlowTable(self.incarnation, self.flows)
        known = self.flows, self._planner, self.trust, self.forwarding, self._headers, self.waiting_for_link
        self._retransmission = Retransmission(self.incarnation, *known)
        self._replay = HistoryReplay(
            (self.identity, self.incarnation), self.history, self.federation, self._table, self._places, self._seal
        )
        self.room = self.retention_bytes_max
        self._own = self.forwarding.duplicates.window(self.identity, self.incarnation)

    # Publishing

    def flow_of(self, topic: str, now: Nanos, qos: QosClass | None = None) -> Outflow | None:
        """The flow of a topic, in its own class or in `qos`; None if no other broker needs it."""
        destinations = self.destinations.of(topic)
        qos = qos or self.qos.of(topic)
        if qos.only:  # it shares no routes: others that need the topic would take what is not for them
            destinations = tuple(one for one in destinations if one in qos.only)
            qos = replace(qos, only=())
        elif self.channels.routes_max:
            qos = self.channels.class_of(topic, qos)
        if qos.reservation:
            qos, destinations = self._planner.reserved.part_for(qos, destinations)
        return self._table.open(qos, destinations, now) if destinations else None

    def is_unsent(self, topic: str) -> bool:
        """Whether nothing was sent on a topic lately."""
        return not self._places.of(topic)

    def flush(self, open_flows: Iterable[Outflow], now: Nanos) -> tuple[list[Outflow], bool]:
        """End of a turn: every draft becomes a parcel, or several. Returns the flows of which some has to wait, and
        whether anything is to be done later about what was sent."""
        losses, is_more_to_do = self.forwarding.losses, False
        waiting = []
        for flow in open_flows:
            if flow.mixed_run is not None:
                flow.close_mixed_run()
            messages, body_bytes = flow.draft, flow.draft_bytes
            route = flow.route if flow.is_plain else None
            if route is not None and len(messages) == 1 and self._send_single(flow, route, messages[0], now):
                flow.draft, flow.draft_bytes = [], 0
                continue
            if flow.can_wait and not self.has_room(flow):
                losses.queue_full += losses.of(flow.bound_draft(DRAFT_BYTES_MAX))
                waiting.append(flow)
                continue
            flow.draft, flow.draft_bytes = [], 0
            is_more_to_do |= route is None
            sealed = 0
            for piece in cut(messages, body_bytes):
                if sealed and flow.can_wait and not self.has_room(flow):
                    flow.draft, flow.draft_bytes = messages[sealed:], body_bytes
                    losses.queue_full += losses.of(flow.bound_draft(DRAFT_BYTES_MAX))
                    waiting.append(flow)
                    break
                self._seal(flow, piece, now)
                sealed += len(piece[0])
                body_bytes -= sum(map(len, piece[2]))
        self.room = self.retention_bytes_max - self.retained_bytes - self.held.reliable_bytes
        self._is_asked, is_more_to_do = False, is_more_to_do or self._is_asked
        return waiting, is_more_to_do

    def _send_single(self, flow: Outflow, route: Route, message: Message, now: Nanos) -> bool:
        """Fast path for one best-effort message that concerns only its flow; False if it must be sealed."""
        entry = self._routes.entry(self.identity, route.id, route.version)
        if entry is None:
            return False
        asks = now >= route.sample_at
        onward = self.cut_through.free_next_hop(entry) if flow.can_wait and not asks else None
        if onward is None and flow.can_wait and not self.has_room(flow):
            return False
        if (after := self._places.order_single(flow, message[0], now)) is None:
            return False
        flow.sequence += 1
        flow.last_used = now
        if onward is not None:
            number = self._headers.sequence + 1
            if frame := single_message_frame(entry.key, number, flow.name[1], flow.sequence, after, message):
                self._headers.sequence = number
                self._own.record(number)
                onward.park(frame, entry.name, 0, 1, now)
                return True
        header = self._headers.on_route(flow.qos, route, 0, 1)
        if asks:
            header = header._replace(flags=header.flags | _CONFIRM)
        self._own.record(header.sequence)
        rest = pack_single(flow.name, flow.sequence, after, message)
        if onward is not None:
            onward.park(parcel_frame(header, rest), entry.name, 0, 1, now)
        elif not self.forwarding.forward(entry, header, rest, now, None, now):
            self._take_back(flow, message[:1], after, now)
        elif asks:
            self._ask(flow, route, header, rest, now)
        return True

    def has_room(self, flow: Outflow) -> bool:
        """Whether the queues of the flow's next links have room for messages that can wait."""
        return self.path_fullness(flow) <= PATH_FULL

    def path_fullness(self, flow: Outflow) -> float:
        """Fullness of the fullest queue among the flow's next links: from 0 to 1."""
        return self.forwarding.queue_share(self.channels.next_hops(flow))

    def progress(self, flow: Outflow) -> int:
        """Bytes sent so far over the flow's next links."""
        return self.forwarding.progress(self.channels.next_hops(flow))

    def separate_flow(self, flow: Outflow, topic: str, now: Nanos) -> Outflow:
        """The separate flow of a topic whose readers are behind; otherwise `flow` itself."""
        return self._table.separate(flow, topic, now)

    def _seal(
        self,
        flow: Outflow,
        messages: Columns,
        now: Nanos,
        history: bool = False,
        published_ns: Nanos | None = None,
    ) -> None:
        place = self._places.order(flow, messages[0], self.flows, now)
        held_back = flow.qos.reliable and flow.is_full()
        parcel = flow.seal(messages, place.after, place.predecessors, history, now, place.follows)
        if published_ns is not None:
            parcel.published_ns = published_ns
        if flow.qos.is_shared:
            flow.sent_bytes += sum(map(len, messages[2]))
        if flow.qos.reliable:
            self._sealed.append((flow, parcel, held_back))
            self.retained_bytes += len(parcel.content)
            self.effects.append(Save(PARCELS, flow.key(parcel.sequence), flow.stored(parcel)))
            for send_window in flow.send_windows.values():
                self._wake_for(send_window, now + SECOND)
        if flow.qos.history and not history:
            for index, (topic, flags, body) in enumerate(zip(*messages, strict=True)):
                name = self.identity, *flow.name, parcel.sequence, index
                self.effects += self.history.keep(Kept(name, topic, flags, body, flow.qos, now), now)
        if not flow.qos.reliable and not self._send(flow, parcel, now):
            self._take_back(flow, messages[0], place.after, now)

    def seal_draft(self, flow: Outflow, now: Nanos, published_ns: Nanos | None = None) -> None:
        """Seal the draft of a flow before the end of the turn. `published_ns`: if that was earlier."""
        flow.close_mixed_run()
        messages, flow.draft = flow.draft, []
        flow.draft_bytes = 0
        for piece in cut(messages):
            self._seal(flow, piece, now, published_ns=published_ns)

    def _take_back(self, flow: Outflow, topics: Iterable[str], after: int, now: Nanos) -> None:
        """The best-effort parcel sealed last was not sent: reuse its number, unless it is kept as history."""
        if not flow.qos.history:
            flow.sequence -= 1
            self._places.withdraw(flow, topics, after, now)

    def end_turn(self, turn: int) -> None:
        """What was sealed since the last turn may leave when this one is durable."""
        if self._sealed:
            self.unsaved.append((turn, self._sealed))
            self._sealed = []

    def saved(self, turn: int, now: Nanos) -> None:
        """All turns up to this one are durable: the reliable parcels sealed in them may leave."""
        unsaved = self.unsaved
        held: dict[FlowName, Outflow] = {}
        while unsaved and unsaved[0][0] <= turn:
            for flow, parcel, held_back in unsaved.popleft()[1]:
                parcel.is_saved = True
                if held_back:
                    held[flow.name] = flow
                elif parcel.missing and flow.waits_for_room(parcel):
                    flow.put_back(parcel, parcel.missing)
                elif parcel.missing:
                    self._send(flow, parcel, now)
        for flow in held.values():
            # There may have been room while they were not durable yet; nothing else would release them.
            for destination in sorted(flow.send_windows):
                if not flow.send_windows[destination].is_full:
                    self._resend(flow, destination, now, at_once=False)

    def _send(self, flow: Outflow, parcel: Retained, now: Nanos, channel: Route | None = None) -> bool:
        """False if no queue took it. `channel`: one of the routes that it takes, where it shares them."""
        if channel is None and flow.qos.is_shared:
            return sum(self._send(flow, parcel, now, one) for one in self.channels.routes_of(flow)) > 0
        route = flow.route = channel or self._planner.route(flow.qos, flow.destinations)
        if not route.version:
            self.route_announcer.open(route, now)
        entry = self._routes.entry(self.identity, route.id, route.version)
        if entry is None or not entry.next_hops:
            if not flow.qos.reliable:
                losses = self.forwarding.losses
                losses.unroutable += losses.of_content(parcel.content, parcel.messages)
            return False
        owed = self._retransmission.part_owed
        part = flow.part(parcel) if not parcel.predecessors else owed(flow, parcel, flow.destinations)
        if names_too_many(part):
            return False  # it is sent to each when that is not so any more
        rest = pack_flow(part, self.incarnation) + parcel.content
        asks = now >= route.sample_at
        size = parcel_size(PARCEL_FLAGS_MOST, rest) if flow.qos.reliable else 0
        if size and not all(self.forwarding.takes(hop, size) for hop in entry.next_hops):
            asks = False
            entry = self._retransmission.with_room(flow, parcel, entry, route.destinations, size, now)
            if not entry.next_hops:
                return False
        header = self._headers.on_route(flow.qos, route, age_us(parcel, now), parcel.messages, parcel.history)
        self._own.record(header.sequence)
        if not asks:
            return self.forwarding.forward(entry, header, rest, now, None, now)
        header = header._replace(flags=header.flags | _CONFIRM)
        is_taken = self.forwarding.forward(entry, header, rest, now, None, now)
        if is_taken:
            self._ask(flow, route, header, rest, now)
        return is_taken

    def _ask(self, flow: Outflow, route: Route, header: Header, rest: bytes, now: Nanos) -> None:
        """A parcel on a route asks for a confirmation. Where that is in doubt, or some path is on probation, copies of
        it take other paths."""
        self._is_asked = True
        self.trust.sent(route, header.sequence, header.age_us, now)
        for path in self.trust.copies(route, now):
            is_for_it = not flow.qos.is_shared or path[-1] in flow.destinations
            if not is_for_it or not self._planner.maps.may_take(route.qos, path):
                continue
            copy = self._headers.copy_on_path(route.qos, header)
            due_ns = NEVER if not header.deadline_us else now + route.slack_ns
            if self.forwarding.send_on_path(path, copy, rest, now, due_ns, now):
                self.trust.copied(route.id, path, copy.sequence, copy.age_us, route.qos.label, now)

    def _release_waiting(self, now: Nanos) -> None:
        """Send what waited for room in the queues of links."""
        for name, destination in self.waiting_for_link.release(now):
            flow = self.flows.get(name)
            send_window = None if flow is None else flow.send_windows.get(destination)
            if flow is not None and send_window is not None:
                self._resend(flow, destination, now, at_once=False)

    def keep_unsent(self, topic: str, body: bytes, flags: int, now: Nanos) -> None:
        """Keep a message that no other broker needs yet for late subscribers."""
        qos = self.qos.of(topic)
        if qos.history:
            self.effects += self._replay.keep_unsent(topic, body, flags, qos, now)

    def hold(
        self, topic: str, body: bytes, flags: int, qos: QosClass, now: Nanos, served: Served = ()
    ) -> PublishResult:
        """Hold a message whose destinations are unknown. A reliable one is a record, and takes room."""
        before = self.held.reliable_bytes
        result = self.held.hold(topic, flags, body, qos, self.room, now, served)
        self.room -= self.held.reliable_bytes - before
        if isinstance(result, Save):
            self.effects.append(result)
            return PublishResult.ACCEPTED
        return result

    def release_held(self, groups: Iterable[int], send: Send, now: Nanos) -> None:
        """Send the held messages of groups whose destinations are known."""
        self.effects += self.held.release(groups, send, now)

    # Interest

    def needed(self, broker: str, filters: list[str], now: Nanos) -> None:
        """A broker newly needs filters: send it what is kept for late subscribers."""
        if not self.qos.keeps_history or broker == self.me:
            return
        self._replay.send(broker, filters, now)

    def left(self, broker: str) -> None:
        """A broker left for good: nothing is kept for it."""
        losses = self.forwarding.losses
        for flow in self.flows.values():
            for parcel in flow.owed_to(broker):
                losses.destination_left += losses.of_content(parcel.content, parcel.messages)
            self._free(flow, flow.give_up(broker))

    # Acknowledgement and retransmission

    def receipt(self, message: Receipt, now: Nanos) -> None:
        if message.heard:
            if message.incarnation == self.incarnation:
                self.trust.confirmed(message.heard, message.sender, message.came_from, message.age_us, now)
            return
        flow = self.flows.get((message.incarnation, message.flow))
        if flow is None:
            return
        beyond = int.from_bytes(message.beyond, "little")
        done, progress = flow.acknowledge(message.sender, message.next, beyond, now)
        self._free(flow, done)
        held = int.from_bytes(message.held, "little")
        progress |= flow.held(message.sender, message.next, held, message.behind, now)
        if (
            progress
            and (send_window := flow.send_windows[message.sender]).unacknowledged
            and not send_window.waits_for_room
        ):
            self._resend(flow, message.sender, now, at_once=False)

    def _resend(self, flow: Outflow, destination: str, now: Nanos, at_once: bool) -> None:
        self.wake_at = min(self.wake_at, self._retransmission.resend(flow, destination, now, at_once))

    def _free(self, flow: Outflow, sequences: list[int]) -> None:
        for sequence in sequences:
            self.effects.append(Erase(PARCELS, flow.key(sequence)))
        if sequences:
            before = self.retained_bytes
            self.retained_bytes = sum(one.retained_bytes for one in self.flows.values())
            self.room += before - self.retained_bytes

    def _wake_for(self, send_window: SendWindow, at: Nanos) -> None:
        if send_window.resend_at == NEVER:
            send_window.resend_at = at
        self.wake_at = min(self.wake_at, send_window.resend_at)

    # Timers, and routes that change

    def review(self, now: Nanos) -> None:
        """The map may have changed: send again what was on routes that had to change."""
        if self.forwarding.unsent_samples:
            self.trust.withdraw(self.forwarding.unsent_samples)
            self.forwarding.unsent_samples.clear()
        if now >= self.trust.wake_at:
            self.trust.tick(now)
        self.effects += self.trust.take_effects()
        if now >= self.route_announcer.review_at():
            for route in self.route_announcer.review(now):
                self._retransmit_route(route, now)

    def _retransmit_route(self, route: Route, now: Nanos) -> None:
        moved = self.channels.flows_on(route) if route.qos.is_shared else self._table.of(route.qos, route.destinations)
        for one in moved:
            for destination in sorted(one.send_windows):
                if one.send_windows[destination].unacknowledged and destination in route.destinations:
                    self._resend(one, destination, now, at_once=True)

    def tick(self, now: Nanos) -> None:
        if self.waiting_for_link.waiting:
            self._release_waiting(now)
        if now >= self.wake_at:
            self.wake_at = NEVER
            for flow in list(self.flows.values()):
                self._expire(flow, now)
                for destination in sorted(flow.send_windows):
                    send_window = flow.send_windows[destination]
                    if send_window.unacknowledged and send_window.resend_at <= now:
                        self._resend(flow, destination, now, at_once=False)
                    if send_window.unacknowledged:
                        self.wake_at = min(self.wake_at, send_window.resend_at)
                self.wake_at = min(self.wake_at, flow.next_expiry())
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_EVERY
            self._sweep(now)

    def _expire(self, flow: Outflow, now: Nanos) -> None:
        losses = self.forwarding.losses
        for parcel in flow.too_old(now):
            losses.lifespan_ended += losses.of_content(parcel.content, parcel.messages)
        if given_up := flow.expire(now):
            self._free(flow, given_up)
            flow.send_held(now)

    def next_deadline(self) -> Nanos:
        return min(self.wake_at, self._next_sweep, self.route_announcer.review_at(), self.trust.wake_at)

    def reachable_again(self, now: Nanos) -> None:
        """The map changed: check again the send windows of destinations that were unreachable."""
        for flow in self.flows.values():
            for send_window in flow.send_windows.values():
                if send_window.unacknowledged and send_window.resend_at == NEVER:
                    send_window.resend_at = now
                    self.wake_at = now

    def _sweep(self, now: Nanos) -> None:
        self.route_announcer.refresh(now)
        self.trust.sweep((route.id for route in self._planner.routes.values()), now)
        for flow in list(self.flows.values()):
            if now - flow.last_used > IDLE_MAX and not (flow.retained or flow.draft or flow.separate_flows):
                self._drop(flow)
        for qos, destinations in self.channels.idle_routes():
            self.route_announcer.take_down(qos, destinations)

    def _drop(self, flow: Outflow) -> None:
        """Drop a flow that was not used for a while."""
        if self._table.drop(flow):
            self.on_drop()
            if not self.channels.forget(flow):
                self.route_announcer.take_down(flow.qos, flow.destinations)

    # The store

    def restore(self, key: bytes, value: bytes, now: Nanos) -> None:
        """A parcel retained in an earlier incarnation: it keeps its name and its destinations."""
        name, parcel, qos, destinations = read_parcel(key, value)
        flow = self.flows.get(name)
        if flow is None:
            flow = self.flows[name] = Outflow(name, qos, destinations)
            flow.last_used = now
        flow.sequence = max(flow.sequence, parcel.sequence)
        flow.retain(parcel, flow.destinations, UNSENT)
        self.retained_bytes += len(parcel.content)
        self._places.recover(parcel, name)
        for send_window in flow.send_windows.values():
            self._wake_for(send_window, now)
