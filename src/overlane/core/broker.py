"""A broker as a pure state machine.

Bytes, events and the time go in; bytes, effects and the next deadline come out. The driver's turn:

    effects  = broker.handle(event, now), broker.receive(peer, data, now, lane), broker.publish(...), in any number
    effects += broker.flush(now)
    make the Saves and Erases durable, then carry out the other effects
    for each peer in broker.ready(): send what broker.pull(peer, room, now) gives, while the link takes it
    call broker.handle(Tick(), t) at t = broker.next_deadline()

The parts know nothing of each other but through here: gossip (link state, interest), source (what is published
here), sink (what is delivered here), forwarding (what passes), routes and signalling (where things go), one
neighbour per link.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import assert_never

import msgspec

from overlane.core import wire
from overlane.core.budgets import BudgetTable, Demand
from overlane.core.events import (
    Close,
    Deliver,
    Delivery,
    Effect,
    Event,
    Lane,
    Leave,
    LinkChanged,
    LinkDown,
    LinkUp,
    Published,
    RouteEstablished,
    Subscribe,
    Tick,
    Unsubscribe,
)
from overlane.core.forwarding import Forwarding
from overlane.core.gossip import Gossip, News
from overlane.core.history import TABLE as HISTORY
from overlane.core.history import History
from overlane.core.inflow import Arrival, bits_to_bytes
from overlane.core.interest import TABLE as INTEREST
from overlane.core.interest import LocalInterest, RemoteInterest
from overlane.core.linkhealth import LinkState
from overlane.core.linkqueue import Policy
from overlane.core.linkstate import MILLION, LinkStateTable, differs, processing_differs
from overlane.core.messages import (
    Advert,
    Establish,
    Established,
    Farewell,
    Interest,
    InterestWanted,
    LinkClaim,
    Message,
    Receipt,
    Summary,
    Teardown,
    decode,
)
from overlane.core.neighbour import Chunk, Neighbour, Outgoing
from overlane.core.parcel import BadContent, unpack_flow, unpack_messages
from overlane.core.qos import QosClass, QosTable
from overlane.core.routes import RoutePlanner
from overlane.core.signalling import Entry, RouteTable
from overlane.core.sink import INFLOWS, SUBSCRIPTIONS, Sink
from overlane.core.source import PARCELS, Source
from overlane.core.units import MS, NEVER, SECOND, US, Nanos
from overlane.core.wire import AGE_US_MAX, FrameType, Header, ParcelFlag
from overlane.errors import ProtocolViolation

RECEIPT_HOPS_MAX = 32
RISK_REMEMBERED = 60_000
"""Millionths: how likely a link that was in trouble lately is taken to fail a message."""
PROCESSING_US_MIN = 500
"""Processing latency below this is not worth a word."""
SLOW_SWEEP: Nanos = 5 * SECOND

_WATCHED = int(ParcelFlag.WATCHED)
_REPAIR = int(ParcelFlag.REPAIR)
_RELIABLE = int(ParcelFlag.RELIABLE)
_HISTORY = int(ParcelFlag.HISTORY)
_DIRECT = int(ParcelFlag.DIRECT)


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    name: str
    qos: QosTable
    scheduling: str = "edf-shed"
    ping_interval_ns: Nanos = 500 * MS
    failure: float = 0.0
    link_failure: Mapping[str, float] = field(default_factory=dict)
    queue_bytes_max: int = 256 * 1024
    retention_bytes_max: int = 64 << 20


@dataclass(frozen=True, slots=True)
class RouteView:
    """A route of this source, for people and tests."""

    id: int
    version: int
    qos: QosClass
    destinations: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    latency_ns: dict[str, Nanos]
    cause: str
    established: bool


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
        self._neighbours: dict[str, Neighbour] = {}
        self._names: dict[int, str] = {self.identity: self.name}
        self._table = LinkStateTable(self.name)
        self._local = LocalInterest(self.name, incarnation)
        self._remote = RemoteInterest()
        self._history = History(self.identity)
        self._gossip = Gossip(self.name, incarnation, self._neighbours, self._table, self._local, self._remote)
        self._routes = RouteTable(self.name)
        self._planner = RoutePlanner(self.name, incarnation, self._table)
        self._forwarding = Forwarding(self.name, self._neighbours, self._table)
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
            self._history,
            config.retention_bytes_max,
        )
        self._sink = Sink(self.identity, self.name, config.qos, self._local, self._history)
        self._published: list[Delivery] = []
        self._effects: list[Effect] = []
        self._processing_us: dict[str, int] = {}
        self._processing_said: dict[str, int] = {}
        self._processing_news = False
        self._left = False
        self._next_sweep: Nanos = now + SLOW_SWEEP
        self._seen_changes = 0
        if config.scheduling == Policy.LAXITY:
            self._forwarding.budget = self._budget
        self._budgets: BudgetTable[tuple[int, int]] = BudgetTable()
        self._budgets_of = -1
        self._counters = {
            "parcel_bytes_sent": 0,
            "control_bytes_sent": 0,
            "parcels_sent": 0,
            "messages_sent": 0,
            "violations": 0,
        }
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
        match event:
            case LinkUp(peer):
                self._link_up(peer, now)
            case LinkDown(peer):
                self._link_down(peer, now)
            case Subscribe(subscriber, topic_filter, durable):
                self._sink.subscribe(subscriber, topic_filter, durable, now)
            case Unsubscribe(subscriber, topic_filter):
                self._sink.unsubscribe(subscriber, topic_filter)
            case Tick():
                pass  # whatever is due is done at the end of every turn
            case Leave():
                self._left = True
                self._advertise(now)
            case _:
                assert_never(event)
        return self._collect()

    def publish(self, topic: str, body: bytes, now: Nanos, flags: int = 0) -> Published:
        """A local publisher's message. Nothing leaves before `flush`."""
        answer = self._source.publish(topic, body, flags, now)
        if answer is Published.ACCEPTED and (subscribers := self._sink.subscribers(topic)):
            self._published.append(Delivery(topic, body, flags, subscribers))
        return answer

    def receive(self, peer: str, data: bytes, now: Nanos, lane: Lane = Lane.CONTROL) -> list[Effect]:
        """Bytes from a neighbour. Whatever is wrong with them closes that link and changes nothing else."""
        neighbour = self._neighbours.get(peer)
        if neighbour is None or not neighbour.connected:
            return []
        try:
            for kind, body in neighbour.frames(data, lane):
                if neighbour.greeted or kind == FrameType.HELLO:
                    self._frame(neighbour, kind, body, now)
                elif lane is Lane.CONTROL:
                    raise ProtocolViolation("the first frame of a connection must be a greeting")
        except _Goodbye as goodbye:
            self._close(neighbour, goodbye.reason, now)
        except ProtocolViolation as violation:
            self._counters["violations"] += 1
            self._close(neighbour, violation.reason, now)
        return self._collect()

    def flush(self, now: Nanos) -> list[Effect]:
        """The end of a turn: everything due is done, everything to be sent is ready to be pulled."""
        self._source.flush(now)
        if self._published:
            self._effects.append(Deliver(self._published, self.name, 0, NEVER))
            self._published = []
        self._do_what_is_due(now)
        return self._collect()

    def _collect(self) -> list[Effect]:
        effects = [*self._remote.effects, *self._source.effects, *self._sink.effects, *self._effects]
        self._remote.effects.clear()
        self._source.effects.clear()
        self._sink.effects.clear()
        self._effects.clear()
        return effects

    def ready(self) -> list[str]:
        return sorted(name for name, one in self._neighbours.items() if one.has_something_to_send())

    def pull(self, peer: str, bytes_max: int, now: Nanos) -> list[Chunk]:
        """What to send to a neighbour next, up to about so many bytes."""
        neighbour = self._neighbours[peer]
        chunks: list[Chunk] = []
        room = bytes_max
        while room > 0 and neighbour.connected:
            chunk = neighbour.pull_control()
            if chunk is not None:
                self._counters["control_bytes_sent"] += len(chunk[1])
            else:
                out, data, dropped = neighbour.pull_parcel(now)
                self._forwarding.counters.expired_dropped += len(dropped)
                if out is None:
                    break
                self._count(out, data, now)
                chunk = Lane.DATA, data
            chunks.append(chunk)
            room -= len(chunk[1])
        return chunks

    def next_deadline(self) -> Nanos:
        when = min(
            self._source.next_deadline(),
            self._gossip.next_deadline(),
            self._sink.inflows.wake_at,
            self._next_sweep,
        )
        for neighbour in self._neighbours.values():
            when = min(when, neighbour.next_deadline())
        return when

    # For people and tests

    @property
    def queue_bytes_max(self) -> int:
        return self.config.queue_bytes_max

    def queue_bytes(self, peer: str) -> int:
        return self._neighbours[peer].queue.bytes

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
    def counters(self) -> dict[str, int]:
        counters = self._forwarding.counters
        return {
            **self._counters,
            "duplicates_dropped": counters.duplicates_dropped,
            "expired_dropped": counters.expired_dropped,
            "queue_full_dropped": counters.queue_full_dropped,
            "unroutable_dropped": counters.unroutable_dropped,
            "overtaken_dropped": self._sink.inflows.overtaken_dropped,
            "repairs": counters.repairs,
            "detours": counters.detours,
            "retained_bytes": self._source.retained_bytes,
        }

    def map_digest(self) -> str:
        """The same at all brokers that have heard the same."""
        links = [(name, claim.peer, claim.state) for name, claim in self._table.claims()]
        needs = {name: message.added for name in self._remote.brokers() if (message := self._remote.everything(name))}
        needs[self.name] = self._local.everything().added
        known = sorted((name, sorted(filters)) for name, filters in needs.items() if filters)
        return sha256(msgspec.json.encode((links, known))).hexdigest()

    # Links

    def _link_up(self, peer: str, now: Nanos) -> None:
        neighbour = self._neighbours.get(peer)
        if neighbour is None:
            config = self.config
            neighbour = Neighbour(peer, config.scheduling, config.queue_bytes_max, config.ping_interval_ns)
            self._neighbours[peer] = neighbour
        elif neighbour.connected:
            self._strand(neighbour, now)
        self._names[neighbour.identity] = peer
        neighbour.connect(self.name, self.incarnation, now)

    def _link_down(self, peer: str, now: Nanos) -> None:
        neighbour = self._neighbours.get(peer)
        if neighbour is not None and neighbour.connected:
            self._strand(neighbour, now)

    def _close(self, neighbour: Neighbour, reason: str, now: Nanos) -> None:
        self._effects.append(Close(neighbour.name, reason))
        self._strand(neighbour, now)

    def _strand(self, neighbour: Neighbour, now: Nanos) -> None:
        """The link is gone: what waited for it goes around, where it may."""
        for out in neighbour.disconnect(now):
            if out.header.flags & _REPAIR and not out.hops:
                self._forwarding.go_around(out, neighbour.name, self._entry(out.header), now)

    # Frames

    def _frame(self, neighbour: Neighbour, kind: int, body: memoryview, now: Nanos) -> None:
        match kind:
            case FrameType.PARCEL:
                header, rest = wire.read_parcel(body)
                self._parcel(neighbour, self._aged(neighbour, header), rest, now)
            case FrameType.NOTICE:
                neighbour.noticed(wire.read_notice(body), now)
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
        if neighbour.greeted:
            raise ProtocolViolation("a second greeting")
        if hello.name != neighbour.name:
            raise ProtocolViolation(f"calls itself {hello.name}, expected {neighbour.name}")
        neighbour.greet(hello.incarnation, now)
        self._routes.origin_restarted(hello.name, hello.incarnation)
        self._gossip.greet(neighbour)

    def _control(self, neighbour: Neighbour, message: Message, now: Nanos) -> None:
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
                    self._effects.append(RouteEstablished(message.route, message.version))
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

    def _aged(self, neighbour: Neighbour, header: Header) -> Header:
        return header._replace(age_us=min(AGE_US_MAX, header.age_us + neighbour.health.latency_ns // US))

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
        header, rest = wire.read_parcel(detour.parcel)
        header = self._aged(neighbour, header)
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
        elif (entry := self._entry(header)) is not None:
            self._forwarding.forward(entry, header, rest, now, None, now)
            if entry.deliver:
                self._arrive(header, rest, now)

    def _arrive(self, header: Header, rest: memoryview, now: Nanos) -> None:
        content = bytes(rest)
        try:
            part, position = unpack_flow(content)
            messages = unpack_messages(content, position, header.messages)
            if header.flags & _HISTORY and any(len(body) < 16 for _, _, body in messages):
                raise BadContent("replayed messages without names")
        except BadContent:
            # Its origin's fault, not the neighbour's that passed it on untouched.
            self._counters["violations"] += 1
            return
        arrival = Arrival(
            part,
            messages,
            reliable=bool(header.flags & _RELIABLE),
            history=bool(header.flags & _HISTORY),
            deadline_ns=header.deadline_us * US if header.deadline_us else NEVER,
            age_ns=header.age_us * US,
            arrived_ns=now,
        )
        self._sink.arrive(header.origin, self._names.get(header.origin, "?"), arrival, now)

    def _count(self, out: Outgoing, data: bytes, now: Nanos) -> None:
        counters = self._counters
        counters["parcels_sent"] += 1
        counters["parcel_bytes_sent"] += len(data)
        counters["messages_sent"] += out.header.messages
        if out.header.deadline_us:
            label = str(out.header.deadline_us)
            spent_us = (now - out.entered_ns) // US
            known = self._processing_us.get(label, 0)
            self._processing_us[label] = average = known + ((spent_us - known) >> 3)
            if processing_differs(self._processing_said.get(label, 0), average):
                self._processing_news = True

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

    def _entry(self, header: Header) -> Entry | None:
        return self._routes.entry(header.origin, header.route, header.version)

    # Time

    def _do_what_is_due(self, now: Nanos) -> None:
        for name in sorted(self._neighbours):
            self._tend(self._neighbours[name], now)
        if now >= self._sink.inflows.wake_at:
            self._sink.release_due(self._names, now)
            for (origin, incarnation, flow), following, beyond in self._sink.inflows.due_receipts(now):
                if origin in self._names:
                    self._post_receipt(
                        Receipt(
                            self._names[origin],
                            self.name,
                            RECEIPT_HOPS_MAX,
                            incarnation,
                            flow,
                            following,
                            bits_to_bytes(beyond),
                        )
                    )
            self._sink.inflows.set_wake()
        if now >= self._next_sweep:
            self._next_sweep = now + SLOW_SWEEP
            self._table.forget_silent(now)
            self._sink.forget_idle(now)
            self._routes.sweep(now)
            # A class that no longer passes here waits here no longer.
            self._processing_us = {label: us >> 1 for label, us in self._processing_us.items() if us > 1}
            self._processing_news = bool(self._processing_said)
        self._gossip.tell_interest()
        if self._links_differ(now) or self._processing_news or now >= self._gossip.next_deadline():
            self._processing_news = False
            self._advertise(now)
        if self._seen_changes != self._table.changes:
            self._seen_changes = self._table.changes
            self._source.reachable_again(now)
        self._source.review(now)
        self._source.tick(now)
        for name, message in self._source.letters:
            if (neighbour := self._neighbours.get(name)) is not None:
                neighbour.send(message)
        self._source.letters.clear()

    def _tend(self, neighbour: Neighbour, now: Nanos) -> None:
        if not neighbour.connected or now < neighbour.next_deadline():
            return
        state = neighbour.health.state
        for out in neighbour.tick(now):
            self._forwarding.repair(out, neighbour.name, self._entry(out.header), now)
        if neighbour.is_mute(now):
            self._close(neighbour, "no greeting came", now)
        elif neighbour.health.dead:
            self._close(neighbour, "nothing passes: three pings in a row were not answered", now)
        elif neighbour.choked:
            self._close(neighbour, "blocked: it takes nothing more", now)
        elif state is LinkState.UP and neighbour.health.state is LinkState.SUSPECT:
            for out in neighbour.take_watched():
                self._forwarding.repair(out, neighbour.name, self._entry(out.header), now)

    def _links_differ(self, now: Nanos) -> bool:
        """Whether something was learned of a link that the others should know."""
        news = False
        for neighbour in self._neighbours.values():
            if not neighbour.touched:
                continue
            neighbour.touched = False
            state = neighbour.health.state
            if state is not neighbour.reported_state:
                neighbour.reported_state = state
                self._effects.append(LinkChanged(neighbour.name, state.name.lower()))
            claim = self._claim(neighbour, now)
            said = neighbour.claimed
            news |= claim != said if claim is None or said is None else differs(said, claim)
        return news

    def _claim(self, neighbour: Neighbour, now: Nanos) -> LinkClaim | None:
        if not neighbour.greeted or self._left:
            return None
        health = neighbour.health
        remembered = RISK_REMEMBERED if now < health.risky_until else 0
        return LinkClaim(
            neighbour.name,
            health.latency_ns // US,
            health.jitter_ns // US,
            max(health.loss_millionths, remembered),
            int(self.config.link_failure.get(neighbour.name, 0.0) * MILLION),
            int(health.state),
        )

    def _advertise(self, now: Nanos) -> None:
        claims = {name: self._claim(self._neighbours[name], now) for name in sorted(self._neighbours)}
        links = [claim for claim in claims.values() if claim is not None]
        failure = int(self.config.failure * MILLION)
        processing_us = {label: us for label, us in self._processing_us.items() if us >= PROCESSING_US_MIN}
        if self._gossip.announce(links, processing_us, failure, self._left, now):
            self._processing_said = processing_us
            for name, claim in claims.items():
                self._neighbours[name].claimed = claim
