"""A broker as a pure state machine.

Bytes, events and the time go in; bytes, effects and the next deadline come out. The driver's turn:

    effects  = broker.handle(event, now), broker.receive(peer, data, now, lane), broker.publish(...), in any number
    effects += broker.flush(now)
    make the Saves and Erases durable, then carry out the other effects
    effects  = broker.durable(broker.turn, now): what had to wait for that goes out; carry them out too
    for each peer in broker.ready(): send what broker.pull(peer, room, now) gives, while the link takes it
    call broker.handle(Tick(), t) at t = broker.next_deadline()

The parts know nothing of each other but through here: gossip (link state, interest), source (what is published
here), sink (what is delivered here), forwarding (what passes), routes and signalling (where things go), one
neighbour per link.
"""

from collections import deque
from collections.abc import Iterable
from hashlib import sha256
from itertools import chain, islice
from typing import assert_never

import msgspec

from overlane.core import wire
from overlane.core.budgets import BudgetTable, Demand
from overlane.core.config import BrokerConfig, InboundRouteView, RouteView
from overlane.core.events import (
    Deliver,
    Effect,
    Event,
    Foresee,
    Lane,
    Leave,
    LinkDown,
    LinkUp,
    Published,
    RoomAgain,
    RouteEstablished,
    Subscribe,
    Tick,
    Unsubscribe,
)
from overlane.core.forwarding import Forwarding
from overlane.core.gossip import Gossip, News
from overlane.core.history import TABLE as HISTORY
from overlane.core.history import History
from overlane.core.inflow import Readers
from overlane.core.interest import TABLE as INTEREST
from overlane.core.interest import LocalInterest, RemoteInterest
from overlane.core.linkqueue import Policy
from overlane.core.links import Links
from overlane.core.linkstate import LinkStateTable
from overlane.core.linkview import LinkView, view_of
from overlane.core.messages import (
    Advert,
    Establish,
    Established,
    Farewell,
    Interest,
    InterestWanted,
    Receipt,
    Summary,
    Teardown,
    decode,
)
from overlane.core.messages import (
    Message as ControlMessage,
)
from overlane.core.neighbour import Chunk, Neighbour
from overlane.core.outflow import Outflow
from overlane.core.parcel import MESSAGE_BYTES_MAX, BadContent, Message
from overlane.core.qos import TOPICS_REMEMBERED, QosClass
from overlane.core.routes import RoutePlanner
from overlane.core.signalling import RouteTable, links_of
from overlane.core.sink import INFLOWS, SUBSCRIPTIONS, Sink
from overlane.core.source import PARCELS, Source
from overlane.core.straight import Straight
from overlane.core.units import NEVER, SECOND, US, Nanos
from overlane.core.wire import FrameType, Header, ParcelFlag
from overlane.errors import ProtocolViolation

SLOW_SWEEP: Nanos = 5 * SECOND
SLACK_PART = 4
"""What is urgent may lose this part of the time it has to spare before a broker that does not read."""

TopicEntry = tuple[Outflow | None, tuple[str, ...], int]
"""Of a topic: the flow that its messages join, its local subscribers, and the longest body."""

_ACCEPTED = Published.ACCEPTED
_PARCEL = int(FrameType.PARCEL)
_NOTICE = int(FrameType.NOTICE)
_WATCHED = int(ParcelFlag.WATCHED)
_DIRECT = int(ParcelFlag.DIRECT)


class _Goodbye(ProtocolViolation):
    """No violation, but it ends a connection in the same way."""


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        incarnation: int,
        recovered: Iterable[tuple[str, bytes, bytes]] = (),
        now: Nanos = 0,
    ) -> None:
        self.config = config
        self.name = config.name
        self.identity = wire.broker_id(config.name)
        self.incarnation = incarnation
        self._topics: dict[str, TopicEntry] = {}
        self._carried: dict[tuple[str, QosClass], Outflow | None] = {}
        self.interest_changes = 0
        """Grows whenever a topic may be needed elsewhere than before."""
        self._open: list[Outflow] = []
        """Flows with a draft."""
        self._flushed_ns: Nanos = now
        self._published: list[Message] = []
        self._neighbours: dict[str, Neighbour] = {}
        self._names: dict[int, str] = {self.identity: self.name}
        self._table = LinkStateTable(self.name)
        self._local = LocalInterest(self.name, incarnation, self._interest_changed, config.federation.may_ever_enter)
        self._remote = RemoteInterest(self._interest_changed)
        self._history = History(self.identity)
        self._gossip = Gossip(self.name, incarnation, self._neighbours, self._table, self._local, self._remote)
        self._routes = RouteTable(self.name)
        self._planner = RoutePlanner(self.name, incarnation, self._table)
        self._forwarding = Forwarding(self.name, self._neighbours, self._table)
        self._sink = Sink(self.identity, self.name, config.qos, self._local, self._history, config.federation)
        self._straight = Straight(
            self.identity, self._names, self._neighbours, self._routes, self._forwarding, self._sink
        )
        self._links = Links(
            self.name,
            incarnation,
            config.scheduling,
            config.ping_interval_ns,
            self.queue_bytes_max,
            config.failure,
            config.link_failure,
            self._neighbours,
            self._gossip,
            self._routes,
            self._forwarding,
        )
        self._source = Source(
            self.name,
            self.identity,
            incarnation,
            config.qos,
            self._remote,
            self._table,
            self._planner,
            self._routes,
            self._forwarding,
            self._straight,
            self._history,
            config.retention_bytes_max,
            config.federation,
            self._forget_topics,
        )
        self._inflows = self._sink.inflows
        self._effects = self._remote.effects, self._source.effects, self._sink.effects, self._links.effects
        self._next_sweep: Nanos = now + SLOW_SWEEP
        self._seen_changes = 0
        self._stirred = True
        """More has happened in this turn than parcels and probes: whatever depends on anything is to be looked at."""
        self._slow_at: Nanos = NEVER
        """The next deadline of all that parcels and probes alone do not change."""
        if config.scheduling == Policy.LAXITY:
            self._forwarding.budget = self._budget
        self._budgets: BudgetTable[tuple[int, int]] = BudgetTable()
        self._budgets_of = -1
        self._patience: dict[str, Nanos] = {}
        self._patience_of = -1
        self._violations = 0
        self.turn = 0
        """The turn that was ended last."""
        self._receipts: deque[tuple[int, Receipt]] = deque()
        """Receipts to be sent when their turn is durable."""
        self._recover(recovered, now)

    def _recover(self, records: Iterable[tuple[str, bytes, bytes]], now: Nanos) -> None:
        for table, key, value in sorted(records):
            if table == PARCELS:
                self._source.restore(key, value, now)
            elif table == INTEREST:
                self._remote.restore(key)
            elif table in (SUBSCRIPTIONS, INFLOWS):
                self._sink.restore(table, key, value, now)
            elif table == HISTORY:
                self._history.restore(value, self.config.qos.of(self._history.topic_of(value)))

    # The contract

    def start(self, now: Nanos) -> list[Effect]:
        return self.flush(now)

    def handle(self, event: Event, now: Nanos) -> list[Effect]:
        self._stirred = True
        match event:
            case LinkUp(peer):
                self._names[self._links.up(peer, now).identity] = peer
            case LinkDown(peer):
                self._links.down(peer, now)
            case Subscribe(subscriber, topic_filter, durable):
                self._sink.subscribe(subscriber, topic_filter, durable, now)
            case Unsubscribe(subscriber, topic_filter):
                self._sink.unsubscribe(subscriber, topic_filter)
            case Tick():
                pass  # whatever is due is done at the end of every turn
            case Leave():
                self._links.leave(now)
            case Foresee(failure, links):
                self._links.foresee(failure, links)
            case RoomAgain():
                self._sink.room_again(self._names, now)
            case _:
                assert_never(event)
        return self._collect()

    def publish(self, topic: str, body: bytes, now: Nanos, flags: int = 0) -> Published:
        """A local publisher's message. Nothing leaves before `flush`."""
        entry = self._topics.get(topic)
        if entry is None:
            entry = self._enter(topic, now)
        flow, subscribers, body_max = entry
        if len(body) > body_max:
            return Published.TOO_LARGE
        if flow is None:
            self._source.keep_unsent(topic, body, flags, now)
        else:
            if flow.reliable:
                source = self._source
                source.room -= len(body)
                if source.room < 0:
                    source.room += len(body)
                    return Published.BUSY
            draft = flow.draft
            if not draft:
                self._open.append(flow)
            draft.append((topic, flags, body))
            flow.draft_bytes += len(body)
        if subscribers:
            self._published.append((topic, flags, body))
        return _ACCEPTED

    def send(self, topic: str, body: bytes, now: Nanos, flags: int, qos: QosClass) -> Published:
        """As `publish`, in a class of its own, by a driver that serves the local subscribers itself."""
        if len(body) > MESSAGE_BYTES_MAX - 4 * len(topic):
            return Published.TOO_LARGE
        key = topic, qos
        flow = self._carried.get(key)
        if flow is None:
            if key not in self._carried:
                if len(self._carried) >= TOPICS_REMEMBERED:
                    self._carried.clear()
                flow = self._carried[key] = self._source.flow_of(topic, now, qos)
            if flow is None:
                self._source.keep_unsent(topic, body, flags, now)
                return _ACCEPTED
        if flow.reliable:
            if flow.behind:
                flow = self._source.aside(flow, topic, now)
            self._source.room -= len(body)
            if self._source.room < 0:
                self._source.room += len(body)
                return Published.BUSY
        if not flow.draft:
            self._open.append(flow)
        flow.draft.append((topic, flags, body))
        flow.draft_bytes += len(body)
        return _ACCEPTED

    def carries(self, topic: str) -> bool:
        """Whether other brokers need the topic, or its past is kept for late subscribers."""
        return bool(self.config.qos.of(topic).history or self._source.destinations(topic))

    def reserved_needs(self) -> list[tuple[str, str]]:
        """What other brokers need under names of the overlay's own: (filter, broker)."""
        return self._remote.reserved()

    def is_crowded(self, besides: str = "") -> bool:
        """Whether the queue of a link, that to one neighbour left out, is more than half full: who can wait should."""
        for name, one in self._neighbours.items():
            if 2 * one.queue.bytes > one.queue.bytes_max and one.connected and name != besides:
                return True
        return False

    def way_share(self, topic: str, qos: QosClass) -> float:
        """How full the queues are that messages of the topic join, with what waits to join them: from 0, 1 is full."""
        much = self.config.queue_bytes_max // 4
        for flow in self._open:
            if flow.draft_bytes > much:
                break
        else:
            for one in self._neighbours.values():
                if 4 * one.queue.bytes > one.queue.bytes_max:
                    break
            else:
                return 0.0  # as nearly always, and found out quickly
        found = self._carried.get((topic, qos))
        if found is None:
            return 0.0
        return self._source.way_share(found) + found.draft_bytes / self.config.queue_bytes_max

    def patience_ns(self, peer: str) -> Nanos:
        """How long what comes from a neighbour can be left unread, for the sake of the most urgent of it."""
        if self._patience_of != self._routes.changes:
            self._patience_of = self._routes.changes
            self._patience = {}
            for _, entry in self._routes.newest():
                described = entry.message
                if described.deadline_us:
                    slack_ns = max(0, described.deadline_us - described.latency_us) * US
                    for upstream in entry.upstream:
                        self._patience[upstream] = min(self._patience.get(upstream, NEVER), slack_ns // SLACK_PART)
        return self._patience.get(peer, NEVER)

    def crowding(self, topic: str, qos: QosClass, now: Nanos) -> float:
        """How far readers elsewhere, or the way to them, are behind what is published here: from 0, not at all."""
        flow = self._carried.get((topic, qos))
        return 0.0 if flow is None else flow.crowding(topic, now)

    def heed_readers(self, readers: Readers) -> None:
        """Hand reliable messages from elsewhere on only if local readers take them."""
        self._inflows.readers = readers

    def can_reach(self, broker: str) -> bool:
        return self._table.map.way(self.name, broker) is not None

    def _enter(self, topic: str, now: Nanos) -> TopicEntry:
        if len(self._topics) >= TOPICS_REMEMBERED:
            self._topics.clear()
        flow, subscribers = self._source.flow_of(topic, now), self._sink.subscribers(topic)
        entry = self._topics[topic] = flow, subscribers, MESSAGE_BYTES_MAX - 4 * len(topic)
        return entry

    def _interest_changed(self) -> None:
        """Who gets which topic must be found out anew."""
        self.interest_changes += 1
        self._forget_topics()
        self._sink.forget_matches()

    def _forget_topics(self) -> None:
        self._topics.clear()
        self._carried.clear()

    def receive(self, peer: str, data: bytes, now: Nanos, lane: Lane = Lane.CONTROL) -> list[Effect]:
        """Bytes from a neighbour. Whatever is wrong with them closes that link and changes nothing else."""
        neighbour = self._neighbours.get(peer)
        if neighbour is None or not neighbour.connected:
            return []
        if self._straight.passes(neighbour, data, now):
            return self._collect()
        try:
            for kind, body in neighbour.frames(data, lane):
                if neighbour.greeted or kind == FrameType.HELLO:
                    self._frame(neighbour, kind, body, now)
                elif lane is Lane.CONTROL:
                    raise ProtocolViolation("the first frame of a connection must be a greeting")
        except _Goodbye as goodbye:
            self._stirred = True
            self._links.close(neighbour, goodbye.reason, now)
        except ProtocolViolation as violation:
            self._stirred = True
            self._violations += 1
            self._links.close(neighbour, violation.reason, now)
        return self._collect()

    def flush(self, now: Nanos) -> list[Effect]:
        """The end of a turn: everything due is done, everything to be sent is ready to be pulled."""
        if self._open:
            self._flushed_ns = now
            self._open, is_stirred = self._source.flush(self._open, now)
            self._stirred |= is_stirred
        if self._published:
            messages, self._published = self._published, []
            found = {topic: self._sink.subscribers(topic) for topic in dict.fromkeys(one[0] for one in messages)}
            self._sink.effects.append(Deliver(messages, found, self.name, 0, NEVER))
        is_due = self._stirred or now >= self.next_deadline()
        if not is_due and self._links.has_news():
            is_due = self._links.advertise(now)
        if is_due:
            self._do_what_is_due(now)
            self._stirred = False
            self._find_slow_deadline()
        self.turn = self._source.turn
        self._source.turn += 1
        return self._collect()

    @property
    def is_calm(self) -> bool:
        """Whether parcels have passed at most since the last turn was ended: time alone may want something of `flush`.

        Then a driver may go on to `ready` and `pull` without ending a turn.
        """
        return not (self._stirred or self._open or self._published or self._links.has_news())

    def durable(self, turn: int, now: Nanos) -> list[Effect]:
        """The records of all turns up to this one are durable: parcels and receipts that promise so may leave.

        A driver that makes them durable while further turns go on tells so when it is done, in the order of turns.
        """
        source = self._source
        if source.is_unsaved():
            self._stirred = True
            source.saved(turn, now)
        elif not (self._receipts or source.letters):
            return []
        while self._receipts and self._receipts[0][0] <= turn:
            self._post_receipt(self._receipts.popleft()[1])
        self._send_letters()
        return self._collect()

    def _collect(self) -> list[Effect]:
        remote, source, sink, links = self._effects
        if not (sink or source or links or remote):
            return []
        effects = [*remote, *source, *sink, *links]
        remote.clear()
        source.clear()
        sink.clear()
        links.clear()
        return effects

    def ready(self) -> list[str]:
        return self._links.ready()

    def pull(self, peer: str, bytes_max: int, now: Nanos, in_buffer: int = 0) -> list[Chunk]:
        """What to send to a neighbour next, up to about so many bytes.

        `in_buffer`: how many bytes pulled before this moment lie in the driver's send buffer and have still to leave.
        """
        return self._links.pull(peer, bytes_max, now, in_buffer)

    def next_deadline(self) -> Nanos:
        if self._stirred:
            self._find_slow_deadline()
        when = min(self._links.next_deadline(), self._slow_at, self._inflows.wake_at)
        if self._open and any(self._source.has_room(flow) for flow in self._open):
            when = min(when, self._flushed_ns + 1)
        return when

    def _find_slow_deadline(self) -> None:
        self._slow_at = min(self._source.next_deadline(), self._gossip.next_deadline(), self._next_sweep)

    def expect_link(self, peer: str, failure: float, queue_bytes_max: int) -> None:
        """What is known of a link beforehand is this from now on."""
        self.config.link_failure[peer] = failure
        self.config.link_queue_bytes_max[peer] = queue_bytes_max
        if (neighbour := self._neighbours.get(peer)) is not None:
            neighbour.queue.bytes_max = queue_bytes_max

    # For people and tests

    def queue_bytes_max(self, peer: str) -> int:
        return self.config.link_queue_bytes_max.get(peer, self.config.queue_bytes_max)

    def queue_bytes(self, peer: str) -> int:
        return self._neighbours[peer].queue_bytes

    def link_views(self) -> list[LinkView]:
        return [view_of(self._neighbours[name]) for name in sorted(self._neighbours)]

    def carried_topics(self, topics_max: int) -> dict[tuple[QosClass, tuple[str, ...]], list[str]]:
        """Topics that lately went along each route, which has this class and these destinations; some of them."""
        found: dict[tuple[QosClass, tuple[str, ...]], list[str]] = {}
        sent = ((topic, flow) for (topic, _), flow in self._carried.items())
        published = ((topic, entry[0]) for topic, entry in self._topics.items())
        for topic, flow in islice(chain(sent, published), topics_max):
            if flow is not None:
                found.setdefault((flow.qos, flow.destinations), []).append(topic)
        return found

    def missing(self) -> list[tuple[str, str, int]]:
        """Best-effort parcels that have not come: (origin, a topic of theirs, how many); 0 where none is missing."""
        return [(self._names.get(gap.origin, "?"), gap.topic, gap.missing) for gap in self._sink.gaps.all()]

    def routes(self) -> list[RouteView]:
        return [
            RouteView(
                route.id,
                route.version,
                route.qos,
                route.destinations,
                tuple(sorted(route.plan.links)),
                dict(route.plan.latency_ns),
                route.cause,
                route.established,
            )
            for route in self._planner.routes.values()
        ]

    @property
    def route_changes(self) -> int:
        """Grows whenever a route that passes or ends here was set up or changed."""
        return self._routes.changes

    def inbound_routes(self) -> list[InboundRouteView]:
        """The newest version of every route of another broker that delivers here."""
        return [
            InboundRouteView(entry.message.origin, links_of(entry.message), entry.message.deadline_us * US or NEVER)
            for _, entry in self._routes.newest()
            if entry.deliver and entry.message.origin != self.name
        ]

    @property
    def counters(self) -> dict[str, int]:
        sent, counters = self._links.sent, self._forwarding.counters
        return {
            "parcel_bytes_sent": sent.parcel_bytes,
            "control_bytes_sent": sent.control_bytes,
            "parcels_sent": sent.parcels,
            "messages_sent": sent.messages,
            "violations": self._violations,
            "duplicates_dropped": counters.duplicates_dropped,
            "expired_dropped": counters.expired_dropped,
            "queue_full_dropped": counters.queue_full_dropped,
            "unroutable_dropped": counters.unroutable_dropped,
            "overtaken_dropped": self._sink.inflows.overtaken_dropped,
            "repairs": counters.repairs,
            "detours": counters.detours,
            "refused_at_border": self._sink.refused,
            "retained_bytes": self._source.retained_bytes,
        }

    def map_digest(self) -> str:
        """The same at all brokers that have heard the same."""
        links = [(*ends, claim.state) for ends, claim in sorted(self._table.map.claims.items())]
        needs = {name: message.added for name in self._remote.brokers() if (message := self._remote.everything(name))}
        needs[self.name] = self._local.everything().added
        known = sorted((name, sorted(filters)) for name, filters in needs.items() if filters)
        return sha256(msgspec.json.encode((links, known))).hexdigest()

    # Frames

    def _frame(self, neighbour: Neighbour, kind: int, body: memoryview, now: Nanos) -> None:
        # Nearly all are of the first two types, and a constant is much quicker than a member of an enumeration.
        if kind == _PARCEL:
            header, rest = wire.read_parcel(body, neighbour.health.latency_ns // US)
            self._parcel(neighbour, header, rest, now)
            return
        if kind == _NOTICE:
            neighbour.noticed(wire.read_notice(body), now)
            return
        match kind:
            case FrameType.PING:
                neighbour.send_urgent(wire.pong(wire.read_token(body)))
            case FrameType.PONG:
                neighbour.answered(wire.read_token(body), now)
            case FrameType.DETOUR:
                self._detour(neighbour, wire.read_detour(body), now)
            case FrameType.ROUTE:
                message = decode(body)
                if not isinstance(message, Establish):
                    raise ProtocolViolation("a route frame that describes no route")
                self._control(neighbour, message, now)
            case FrameType.CONTROL:
                sequence, content = wire.read_control(body)
                neighbour.check_order(sequence)
                self._control(neighbour, decode(content), now)
            case FrameType.HELLO:
                self._hello(neighbour, wire.read_hello(body), now)
            case _:
                raise ProtocolViolation(f"a frame of unknown type {kind}")

    def _hello(self, neighbour: Neighbour, hello: wire.Hello, now: Nanos) -> None:
        self._stirred = True
        if neighbour.greeted:
            raise ProtocolViolation("a second greeting")
        if hello.name != neighbour.name:
            raise ProtocolViolation(f"calls itself {hello.name}, expected {neighbour.name}")
        neighbour.greet(hello.incarnation, now)
        self._routes.origin_restarted(hello.name, hello.incarnation)
        self._gossip.greet(neighbour)

    def _control(self, neighbour: Neighbour, message: ControlMessage, now: Nanos) -> None:
        self._stirred = True
        sender = neighbour.name
        match message:
            case Advert() | Interest() | InterestWanted() | Summary():
                self._learn(self._gossip.hear(sender, message, now), now)
                if isinstance(message, Advert):
                    self._names[wire.broker_id(message.broker)] = message.broker
            case Establish():
                if message.origin == self.name:
                    raise ProtocolViolation("a route of our own that we did not make")
                letters, _ = self._routes.establish(sender, message, now)
                self._source.letters += letters
            case Established():
                letters, ours = self._routes.acknowledged(sender, message)
                self._source.letters += letters
                if ours and self._source.established(message.route, message.version):
                    self._source.effects.append(RouteEstablished(message.route, message.version))
            case Teardown():
                if message.origin == self.name:
                    raise ProtocolViolation("a route of our own torn down by another")
                self._source.letters += self._routes.tear_down(sender, message)
            case Receipt():
                self._receipt(message, now)
            case Farewell(reason):
                raise _Goodbye(f"closed by the neighbour: {reason}")
            case _:
                assert_never(message)

    def _learn(self, news: News, now: Nanos) -> None:
        for broker, incarnation in news.restarted:
            self._routes.origin_restarted(broker, incarnation)
        for broker in news.left:
            self._source.left(broker)
        for broker, filters in news.needed:
            self._source.needed(broker, filters, now)

    def _receipt(self, receipt: Receipt, now: Nanos) -> None:
        if receipt.to == self.name:
            self._source.receipt(receipt, now)
        elif receipt.hops_left:
            self._post_receipt(msgspec.structs.replace(receipt, hops_left=receipt.hops_left - 1))

    def _post_receipt(self, receipt: Receipt) -> None:
        hop = self._forwarding.next_hop(receipt.to)
        if hop is not None:
            self._neighbours[hop].send(receipt)

    # Parcels

    def _parcel(self, neighbour: Neighbour, header: Header, rest: memoryview, now: Nanos) -> None:
        if header.origin == self.identity:
            self._forwarding.counters.duplicates_dropped += 1
            return
        entry = self._routes.entry(header.origin, header.route, header.version)
        if entry is None:
            self._forwarding.counters.unroutable_dropped += 1
            return
        if header.flags & _WATCHED:
            neighbour.notice_parcel(header, now)
        if not self._forwarding.duplicates.is_new(header.origin, header.incarnation, header.sequence):
            self._forwarding.counters.duplicates_dropped += 1
            return
        if entry.next_hops:
            self._forwarding.forward(entry, header, rest, now, neighbour.name, now)
        if entry.deliver:
            self._arrive(header, rest, now)

    def _detour(self, neighbour: Neighbour, detour: wire.Detour, now: Nanos) -> None:
        header, rest = wire.read_parcel(detour.parcel, neighbour.health.latency_ns // US)
        if detour.hops[detour.position] != self.identity:
            raise ProtocolViolation("a detour that does not pass here")
        if header.flags & _WATCHED:
            neighbour.notice_parcel(header, now)
        if detour.position + 1 < len(detour.hops):
            self._forwarding.pass_on(detour.hops, detour.position, header, rest, now, now)
        elif not self._forwarding.duplicates.is_new(header.origin, header.incarnation, header.sequence):
            self._forwarding.counters.duplicates_dropped += 1
        elif header.flags & _DIRECT:
            self._arrive(header, rest, now)
        elif (entry := self._routes.entry_of(header)) is not None:
            self._forwarding.forward(entry, header, rest, now, None, now)
            if entry.deliver:
                self._arrive(header, rest, now)

    def _arrive(self, header: Header, rest: memoryview, now: Nanos) -> None:
        try:
            self._sink.arrive(header, bytes(rest), self._names.get(header.origin, "?"), now)
        except BadContent:
            # Its origin's fault, not the neighbour's that passed it on untouched.
            self._violations += 1

    def _budget(self, route: tuple[int, int]) -> Nanos:
        """The latency budget of a route's messages here, by the routes that pass now (H8)."""
        if self._budgets_of != self._routes.changes:
            self._budgets_of = self._routes.changes
            self._budgets = BudgetTable()
            for key, entry in self._routes.newest():
                described = entry.message
                deadline_ns = described.deadline_us * US or NEVER
                self._budgets.put(key, Demand(deadline_ns, described.latency_us * US, described.hops))
        return self._budgets.budget(route)

    # Time

    def _do_what_is_due(self, now: Nanos) -> None:
        self._links.tend(now)
        if now >= self._sink.inflows.wake_at:
            self._sink.release_due(self._names, now)
            self._receipts.extend((self._source.turn, receipt) for receipt in self._sink.due_receipts(self._names, now))
            self._sink.inflows.set_wake()
        if now >= self._next_sweep:
            self._next_sweep = now + SLOW_SWEEP
            self._table.forget_silent(now)
            self._sink.forget_idle(now)
            self._routes.sweep(now)
            self._links.forget_processing()
        self._gossip.tell_interest()
        self._links.advertise(now)
        if self._seen_changes != self._table.changes:
            self._seen_changes = self._table.changes
            self._source.reachable_again(now)
        self._source.review(now)
        self._source.tick(now)
        self._send_letters()

    def _send_letters(self) -> None:
        letters = self._source.letters
        if not letters:
            return
        for name, message in letters:
            if (neighbour := self._neighbours.get(name)) is not None:
                neighbour.send(message)
        letters.clear()
