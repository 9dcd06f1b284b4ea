"""A broker as a pure state machine.

Bytes, events and the time go in; bytes, effects and the next deadline come out. The driver's turn:

    effects  = broker.handle(event, now), broker.receive(peer, data, now, lane), broker.publish(...), in any number
    effects += broker.flush(now)
    make the Saves and Erases durable, then carry out the other effects
    effects  = broker.durable(broker.turn, now): what had to wait for that goes out; carry them out too
    for each peer in broker.ready(): send what broker.pull(peer, room, now) gives, while the link takes it
    call broker.handle(Tick(), t) at t = broker.next_deadline()

The parts are put together here: reception (what neighbours send), drafts and source (what is published here), sink
(what is delivered here), forwarding (what passes), gossip (link state, interest), routes and signalling (where things
go), demands (what they ask of this broker), one neighbour per link.
"""

from collections import deque
from collections.abc import Iterable
from hashlib import sha256
from typing import assert_never

import msgspec

from overlane.core import wire
from overlane.core.births import Births, Identity
from overlane.core.config import BrokerConfig, InboundRouteView, RouteView
from overlane.core.demands import Demands
from overlane.core.drafts import Drafts
from overlane.core.events import (
    Effect,
    Event,
    Foresee,
    Lane,
    Leave,
    LinkDown,
    LinkUp,
    RoomAgain,
    Subscribe,
    Tick,
    Unsubscribe,
)
from overlane.core.forwarding import Forwarding
from overlane.core.gossip import Gossip
from overlane.core.herald import Herald
from overlane.core.history import TABLE as HISTORY
from overlane.core.history import History
from overlane.core.inflow import Readers
from overlane.core.interest import TABLE as INTEREST
from overlane.core.interest import LocalInterest, RemoteInterest
from overlane.core.linkqueue import Policy
from overlane.core.links import Links
from overlane.core.linkstate import LinkStateTable
from overlane.core.linkview import LinkView, view_of
from overlane.core.messages import Receipt
from overlane.core.neighbour import Chunk, Neighbour
from overlane.core.qos import QosClass
from overlane.core.reception import Reception
from overlane.core.routes import RoutePlanner
from overlane.core.signalling import RouteTable, links_of
from overlane.core.sink import INFLOWS, SUBSCRIPTIONS, Sink
from overlane.core.source import PARCELS, Source
from overlane.core.straight import Straight
from overlane.core.units import NEVER, SECOND, US, Nanos

SLOW_SWEEP: Nanos = 5 * SECOND


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        incarnation: int,
        recovered: Iterable[tuple[str, bytes, bytes]] = (),
        now: Nanos = 0,
        identity: Identity | None = None,
    ) -> None:
        """`identity`: what proves to those who are not neighbours that this life is ours, where there is such."""
        self.config = config
        self.name = config.name
        self.identity = wire.broker_id(config.name)
        self.incarnation = incarnation
        self.interest_changes = 0
        """Grows whenever a topic may be needed elsewhere than before."""
        self._neighbours: dict[str, Neighbour] = {}
        self._names: dict[int, str] = {self.identity: self.name}
        self._table = LinkStateTable(self.name)
        self._local = LocalInterest(self.name, incarnation, self._interest_changed, config.federation.may_ever_enter)
        self._remote = RemoteInterest(self._interest_changed)
        self._history = History(self.identity)
        self._births = Births(self.name, incarnation, identity)
        self._gossip = Gossip(
            self.name, incarnation, self._neighbours, self._table, self._local, self._remote, self._births
        )
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
        self._herald = Herald(self.name, incarnation, self._planner, self._routes)
        self._source = Source(
            self.name,
            self.identity,
            incarnation,
            config.qos,
            self._remote,
            self._table,
            self._herald,
            self._forwarding,
            self._straight,
            self._history,
            config.retention_bytes_max,
            config.federation,
            self._forget_topics,
        )
        self._drafts = Drafts(self._source, self._sink, self._neighbours, config.queue_bytes_max, now)
        # Bound once, since they are called for every message.
        self.publish = self._drafts.publish
        self.send = self._drafts.send
        self.way_share = self._drafts.way_share
        self.crowding = self._drafts.crowding
        self._reception = Reception(
            self.name,
            self.identity,
            self._names,
            self._links,
            self._gossip,
            self._routes,
            self._forwarding,
            self._herald,
            self._source,
            self._sink,
        )
        self._demands = Demands(self._routes)
        self._inflows = self._sink.inflows
        self._effects = self._remote.effects, self._source.effects, self._sink.effects, self._links.effects
        self._next_sweep: Nanos = now + SLOW_SWEEP
        self._seen_changes = 0
        self._stirred = True
        """More has happened in this turn than parcels and probes: whatever depends on anything is to be looked at."""
        self._slow_at: Nanos = NEVER
        """The next deadline of all that parcels and probes alone do not change."""
        if config.scheduling == Policy.LAXITY:
            self._forwarding.budget = self._demands.budget
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

    def carries(self, topic: str) -> bool:
        """Whether other brokers need the topic, or its past is kept for late subscribers."""
        return bool(self.config.qos.of(topic).history or self._source.destinations(topic))

    def reserved_needs(self) -> list[tuple[str, str]]:
        """What other brokers need under names of the overlay's own: (filter, broker)."""
        return self._remote.reserved()

    def is_crowded(self, besides: str) -> bool:
        """Whether the queue of a link, that to one neighbour left out, is more than half full: who can wait should."""
        for name, one in self._neighbours.items():
            if 2 * one.queue.bytes > one.queue.bytes_max and one.connected and name != besides:
                return True
        return False

    def patience_ns(self, peer: str) -> Nanos:
        """How long what comes from a neighbour can be left unread, for the sake of the most urgent of it."""
        return self._demands.patience_ns(peer)

    def heed_readers(self, readers: Readers) -> None:
        """Hand reliable messages from elsewhere on only if local readers take them."""
        self._inflows.readers = readers

    def can_reach(self, broker: str) -> bool:
        return self._table.map.way(self.name, broker) is not None

    def _interest_changed(self) -> None:
        """Who gets which topic must be found out anew."""
        self.interest_changes += 1
        self._forget_topics()
        self._sink.forget_matches()

    def _forget_topics(self) -> None:
        self._drafts.forget_topics()

    def receive(self, peer: str, data: bytes, now: Nanos, lane: Lane = Lane.CONTROL) -> list[Effect]:
        """Bytes from a neighbour. Whatever is wrong with them closes that link and changes nothing else."""
        neighbour = self._neighbours.get(peer)
        if neighbour is None or not neighbour.connected:
            return []
        if not self._straight.passes(neighbour, data, now):
            self._stirred |= self._reception.take(neighbour, data, lane, now)
        elif not self._sink.effects:
            return []
        return self._collect()

    def flush(self, now: Nanos) -> list[Effect]:
        """The end of a turn: everything due is done, everything to be sent is ready to be pulled."""
        if self._drafts.open or self._drafts.published:
            self._stirred |= self._drafts.flush(now)
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
        return not (self._stirred or self._drafts.open or self._drafts.published or self._links.has_news())

    def durable(self, turn: int, now: Nanos) -> list[Effect]:
        """The records of all turns up to this one are durable: parcels and receipts that promise so may leave.

        A driver that makes them durable while further turns go on tells so when it is done, in the order of turns.
        """
        source = self._source
        if source.is_unsaved():
            self._stirred = True
            source.saved(turn, now)
        elif not (self._receipts or self._herald.letters):
            return []
        while self._receipts and self._receipts[0][0] <= turn:
            self._forwarding.post(self._receipts.popleft()[1])
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

    def pull_urgent(self, peer: str, bytes_max: int, now: Nanos, in_buffer: int = 0) -> list[Chunk]:
        """As `pull`, of what has a deadline or measures the link alone: for a driver that has a way for that while the
        one for everything else is blocked."""
        return self._links.pull_urgent(peer, bytes_max, now, in_buffer)

    def next_deadline(self) -> Nanos:
        if self._stirred:
            self._find_slow_deadline()
        when = min(self._links.next_deadline(), self._slow_at, self._inflows.wake_at)
        if self._source.anteroom.waiting:
            when = min(when, self._source.anteroom.next_deadline())
        return min(when, self._drafts.next_deadline()) if self._drafts.open else when

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
        return self._drafts.carried_topics(topics_max)

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
            "violations": self._reception.violations,
            "duplicates_dropped": counters.duplicates_dropped,
            "expired_dropped": counters.expired_dropped,
            "queue_full_dropped": counters.queue_full_dropped,
            "unroutable_dropped": counters.unroutable_dropped,
            "unproven_dropped": self._births.dropped,
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

    # Time

    def _do_what_is_due(self, now: Nanos) -> None:
        self._links.tend(now)
        if now >= self._sink.inflows.wake_at:
            self._sink.release_due(self._names, now)
            self._receipts.extend((self._source.turn, receipt) for receipt in self._sink.due_receipts(self._names, now))
            self._sink.inflows.set_wake()
        if now >= self._next_sweep:
            self._next_sweep = now + SLOW_SWEEP
            self._gossip.forget(self._table.forget_silent(now))
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
        letters = self._herald.letters
        if not letters:
            return
        for name, message in letters:
            if (neighbour := self._neighbours.get(name)) is not None:
                neighbour.send(message)
        letters.clear()
