"""A broker as a pure state machine.

Bytes, events and the time go in; bytes, effects and the next deadline come out. The driver's turn:

    effects  = broker.handle(event, now), broker.receive(peer, data, now, lane), broker.publish(...), in any number
    effects += broker.flush(now, turn)
    make the Saves and Erases durable, then carry out the other effects
    effects  = broker.durable(turn, now): what had to wait for that goes out; carry them out too
    for each peer in broker.ready(): send what broker.pull(peer, room, now) gives, while the link takes it
    call broker.handle(Tick(), t) at t = broker.next_deadline()

The parts are put together here: frame dispatch (what neighbours send), drafts and source (what is published here), sink
(what is delivered here), forwarding (parcels that pass), gossip (link state, interest), routes and signalling (which
links parcels take), route demands (what routes require of this broker), and one neighbour per link.
"""

from collections import deque
from collections.abc import Iterable
from hashlib import sha256
from typing import assert_never

import msgspec

from overlane.core.config import BrokerConfig, InboundRouteView, RouteView
from overlane.core.events import (
    CloseLink,
    Effect,
    Event,
    Lane,
    Leave,
    LinkDown,
    LinkUp,
    NamesakeRefused,
    ReadersReady,
    Reception,
    SetConfig,
    SetFailureRisk,
    Subscribe,
    Tick,
    Unsubscribe,
)
from overlane.core.flows.cut_through import CutThrough
from overlane.core.flows.drafts import Drafts
from overlane.core.flows.history import TABLE as HISTORY
from overlane.core.flows.history import TopicHistory
from overlane.core.flows.inflow import INFLOWS, decode_name
from overlane.core.flows.outflow import PARCELS
from overlane.core.flows.sink import SUBSCRIPTIONS, Sink, read_subscription
from overlane.core.flows.source import Source
from overlane.core.frame_dispatch import FrameDispatcher
from overlane.core.gossip.broker_admission import BrokerAdmission
from overlane.core.gossip.gossip import Gossip
from overlane.core.gossip.incarnation_proofs import BrokerIdentity, IncarnationProofs
from overlane.core.gossip.interest import TABLE as INTEREST
from overlane.core.gossip.interest import LocalInterest, RemoteInterest, ReservedListener
from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.link_supervisor import LinkSupervisor
from overlane.core.links.link_queue import SchedulingPolicy
from overlane.core.links.link_view import LinkView, view_of
from overlane.core.links.neighbour import Neighbour
from overlane.core.qos import QosClass
from overlane.core.record_kinds import KINDS
from overlane.core.records import Record, restore
from overlane.core.routing.forwarding import Forwarding
from overlane.core.routing.message_losses import MessageCount, MessageLosses
from overlane.core.routing.route_announcer import RouteAnnouncer
from overlane.core.routing.route_demands import RouteDemands
from overlane.core.routing.routes import RoutePlanner
from overlane.core.routing.signalling import RouteTable, links_of
from overlane.core.units import NEVER, SECOND, US, Nanos
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import Receipt
from overlane.core.wire.mixed_run import Split
from overlane.errors import Failure, InDoubt

INTERNAL_ERROR = "internal error"
"""The reason that a neighbour is given whose bytes caused an unexpected exception here."""
SLOW_SWEEP: Nanos = 5 * SECOND


class OverlayBroker:
    def __init__(
        self,
        config: BrokerConfig,
        incarnation: int,
        recovered: Iterable[Record] = (),
        now: Nanos = 0,
        identity: BrokerIdentity | None = None,
        instance: int = 0,
        asks_readers: bool = False,
    ) -> None:
        """`instance`: identifies the broker's store, and so tells it from others with its name.
        `asks_readers`: the driver says of every reliable Deliver how it was received (`delivered`).
        `identity`: proves this incarnation to brokers that are not neighbours, if there are certificates."""
        self.config = config
        self.name = config.name
        self.identity = frame_codec.broker_id(config.name)
        self.incarnation = incarnation
        self.interest_changes = 0
        """Grows whenever the brokers that need a topic may have changed."""
        self._neighbours: dict[str, Neighbour] = {}
        self._names: dict[int, str] = {self.identity: self.name}
        self._table = LinkStateTable(self.name)
        self._local = LocalInterest(self.name, incarnation, self._interest_changed, config.federation.may_ever_enter)
        self._remote = RemoteInterest(self._interest_changed)
        self._history = TopicHistory(self.identity)
        self._proofs = IncarnationProofs(self.name, incarnation, identity)
        self._admission = BrokerAdmission(
            self.name,
            self._table,
            config.named,
            config.brokers_max,
            lambda broker: self._proofs.incarnation_of(broker) is not None,
        )
        self._gossip = Gossip(
            self.name,
            incarnation,
            self._neighbours,
            self._table,
            self._local,
            self._remote,
            self._proofs,
            self._admission,
            instance,
        )
        self._routes = RouteTable(self.name)
        self._planner = RoutePlanner(self.name, incarnation, self._table)
        self._losses = MessageLosses()
        self._forwarding = Forwarding(self.name, self._neighbours, self._table, self._losses)
        self._sink = Sink(
            self.identity,
            self.name,
            config.qos,
            self._local,
            self._history,
            self._names,
            config.federation,
            asks_readers,
            losses=self._losses,
        )
        self._cut_through = CutThrough(
            self.identity, self._names, self._neighbours, self._routes, self._forwarding, self._sink
        )
        self._links = LinkSupervisor(
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
        self._links.instance = instance
        self._route_announcer = RouteAnnouncer(self.name, incarnation, self._planner, self._routes)
        self._source = Source(
            self.name,
            self.identity,
            incarnation,
            config.qos,
            self._remote,
            self._table,
            self._route_announcer,
            self._forwarding,
            self._cut_through,
            self._history,
            config.retention_bytes_max,
            config.federation,
            self._forget_topics,
        )
        self._drafts = Drafts(self._source, self._sink, self._neighbours, config.queue_bytes_max, now)
        # Bound once, since they are called for every message.
        self.publish = self._drafts.publish
        self.send, self.send_mixed_run = self._drafts.send, self._drafts.send_mixed_run
        self.path_fullness = self._drafts.path_fullness
        self.flow_key = self._drafts.flow_key
        self.fullness_of = self._drafts.fullness_of
        self.progress_of = self._drafts.progress_of
        self.backpressure = self._drafts.backpressure
        self._dispatcher = FrameDispatcher(
            self.name,
            self.identity,
            self._names,
            self._links,
            self._gossip,
            self._routes,
            self._forwarding,
            self._route_announcer,
            self._source,
            self._sink,
        )
        self._demands = RouteDemands(self._routes)
        self._inflows = self._sink.inflows
        self.ready = self._links.ready
        self.pull, self.pull_urgent = self._links.pull, self._links.pull_urgent
        self._effects = self._remote.effects, self._source.effects, self._sink.effects, self._links.effects
        self._next_sweep: Nanos = now + SLOW_SWEEP
        self._seen_changes = 0
        self._has_changes = True
        """More has happened in this turn than parcels and probes: everything that depends on state is checked."""
        self._slow_at: Nanos = NEVER
        """The next deadline of everything that parcels and probes alone do not change."""
        if config.scheduling == SchedulingPolicy.LAXITY:
            self._forwarding.budget = self._demands.budget
        self._receipts: deque[tuple[int, Receipt]] = deque()
        """Receipts to be sent when their turn is durable."""
        self._recover(recovered, now)

    def _recover(self, records: Iterable[Record], now: Nanos) -> None:
        restore(
            KINDS,
            records,
            {
                HISTORY: lambda _, value: self._history.restore(value, self._history_class(value)),
                INFLOWS: lambda key, value: self._inflows.restore(decode_name(key), value, now),
                INTEREST: lambda key, _: self._remote.restore(key),
                PARCELS: lambda key, value: self._source.restore(key, value, now),
                SUBSCRIPTIONS: lambda key, _: self._local.add(*read_subscription(key)),
            },
        )

    def _history_class(self, record: bytes) -> QosClass:
        return self.config.qos.of(self._history.topic_of(record))

    # The contract

    def start(self, now: Nanos, turn: int = 0) -> list[Effect]:
        return self.flush(now, turn)

    def handle(self, event: Event, now: Nanos) -> list[Effect]:
        self._has_changes = True
        match event:
            case LinkUp(peer):
                self._names[self._links.up(peer, now).identity] = peer
            case NamesakeRefused(peer, address):
                self._gossip.namesake(peer, address, now)
            case LinkDown(peer):
                self._links.down(peer, now)
            case CloseLink(peer, reason):
                self._close_link(peer, reason, now)
            case Subscribe(subscriber, topic_filter, durable):
                self._sink.subscribe(subscriber, topic_filter, durable, now)
            case Unsubscribe(subscriber, topic_filter):
                self._sink.unsubscribe(subscriber, topic_filter)
            case Tick():
                pass  # everything due is done at the end of every turn
            case Leave():
                self._links.leave(now)
            case SetFailureRisk(failure, links):
                self._links.set_failure_risk(failure, links)
            case SetConfig(config):
                self._set_config(config, now)
            case ReadersReady():
                self._sink.readers_ready(now)
            case _:
                assert_never(event)
        return self._collect()

    def _set_config(self, config: BrokerConfig, now: Nanos) -> None:
        if fixed := self.config.needs_restart(config):
            raise ValueError(f"{', '.join(fixed)} cannot change while the broker runs")
        gone = self.config.link_failure.keys() - config.link_failure.keys()
        self.config = config
        self._sink.qos = self._source.qos = config.qos
        self._admission.reconfigure(config.named, config.brokers_max)
        self._links.set_links(config.link_failure, gone, now)
        self._interest_changed()

    def carries(self, topic: str) -> bool:
        """Whether other brokers need the topic, or its history is kept for late subscribers."""
        return bool(self.config.qos.of(topic).history or self._source.destinations(topic))

    def watch_reserved(self, listener: ReservedListener) -> None:
        """Call `listener` with (filter, broker, whether it is needed) for all filters of others that begin with `$`:
        now, and whenever one changes."""
        self._remote.watch_reserved(listener)

    def needs_size(self) -> tuple[int, int]:
        """Number and bytes of the filters that this broker has announced as its interest."""
        return self._local.size

    def is_congested(self, besides: str) -> bool:
        """Whether the queue of any link, except the one to `besides`, is more than half full."""
        for name, one in self._neighbours.items():
            if 2 * one.queue.bytes > one.queue.bytes_max and one.connected and name != besides:
                return True
        return False

    def left_bytes(self, besides: str) -> int:
        """Bytes of parcels sent to all neighbours except `besides`."""
        return sum([one.queue.left_bytes for name, one in self._neighbours.items() if name != besides])

    def patience_ns(self, peer: str) -> Nanos:
        """For how long a neighbour may be left unread, given the most urgent route that comes from it."""
        return self._demands.patience_ns(peer)

    def count_messages(self, count: MessageCount) -> None:
        """Set how to count the messages of an entry of a parcel, by its flags and body."""
        self._losses.count = count

    def split_mixed_runs(self, split: Split) -> None:
        """Set how to tell the messages of a mixed run apart."""
        self._sink.split = split

    def destinations(self, topic: str) -> tuple[str, ...]:
        """The other brokers that messages published here on the topic go to."""
        return self._source.destinations(topic)

    def is_subscribed(self, topic: str) -> bool:
        """Whether there are local subscribers to a topic that others know of."""
        return bool(self._sink.subscribers(topic))

    def can_reach(self, broker: str) -> bool:
        return self._table.map.quickest_path(self.name, broker) is not None

    def _interest_changed(self) -> None:
        """Forget which topic goes to whom."""
        self.interest_changes += 1
        self._forget_topics()
        self._sink.forget_matches()

    def _forget_topics(self) -> None:
        self._drafts.forget_topics()

    def receive(self, peer: str, data: bytes, now: Nanos, lane: Lane = Lane.CONTROL) -> list[Effect]:
        """Bytes from a neighbour. Whatever is wrong with them closes that link and changes nothing else.

        So does an unexpected exception (`take_failures`), unless it leaves a reliable parcel half taken in: InDoubt.
        """
        neighbour = self._neighbours.get(peer)
        if neighbour is None or not neighbour.connected:
            return []
        try:
            if self._cut_through.try_forward(neighbour, data, now):
                return self._sink.take_effects()
            self._has_changes |= self._dispatcher.take(neighbour, data, lane, now)
        except InDoubt:
            raise
        except Exception as error:
            self._dispatcher.failures.append(Failure("neighbour", peer, error))
            self._has_changes = True
            self._close_link(peer, INTERNAL_ERROR, now)
        return self._collect()

    def delivered(self, reception: Reception, now: Nanos) -> list[Effect]:
        """How local readers have received the last reliable Deliver: the effects that had to wait for that. InDoubt as
        of `receive`."""
        try:
            self._sink.delivered(reception, now)
        except InDoubt:
            raise
        except Exception as error:
            self._dispatcher.failures.append(Failure("parcel", "?", error))
        return self._collect()

    def take_failures(self) -> list[Failure]:
        """Inputs that caused unexpected exceptions since the last call."""
        failures = [*self._dispatcher.failures, *self._links.failures]
        self._dispatcher.failures.clear()
        self._links.failures.clear()
        return failures

    @property
    def has_failures(self) -> bool:
        return bool(self._dispatcher.failures or self._links.failures)

    def _close_link(self, peer: str, reason: str, now: Nanos) -> None:
        neighbour = self._neighbours.get(peer)
        if neighbour is not None and neighbour.connected:
            self._links.close(neighbour, reason, now)

    def flush(self, now: Nanos, turn: int = 0) -> list[Effect]:
        """The end of a turn: everything due is done, everything to be sent is ready to be pulled.

        `turn`: its number, where turns become durable later than they end.
        """
        if self._drafts.open or self._drafts.published:
            self._has_changes |= self._drafts.flush(now)
        is_due = self._has_changes or now >= self.next_deadline()
        if not is_due and self._links.has_news():
            is_due = self._links.advertise(now)
        if is_due:
            self._do_what_is_due(turn, now)
            self._has_changes = False
            self._find_slow_deadline()
        self._source.end_turn(turn)
        return self._collect()

    @property
    def is_quiescent(self) -> bool:
        """Whether nothing but parcels passed through since the end of the last turn: only time may require `flush`.

        Then a driver may go on to `ready` and `pull` without ending a turn.
        """
        return not (self._has_changes or self._drafts.open or self._drafts.published or self._links.has_news())

    def durable(self, turn: int, now: Nanos) -> list[Effect]:
        """The records of all turns up to this one are durable: parcels and receipts that promise so may leave.

        A driver that makes them durable while further turns go on tells so when it is done, in the order of turns.
        """
        source = self._source
        if source.is_unsaved():
            self._has_changes = True
            source.saved(turn, now)
        elif not (self._receipts or self._route_announcer.outbox):
            return []
        while self._receipts and self._receipts[0][0] <= turn:
            self._forwarding.post(self._receipts.popleft()[1])
        self._send_outbox()
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

    def next_deadline(self) -> Nanos:
        if self._has_changes:
            self._find_slow_deadline()
        when = min(self._links.next_deadline(), self._slow_at, self._inflows.wake_at)
        if self._source.waiting_for_link.waiting:
            when = min(when, self._source.waiting_for_link.next_deadline())
        return min(when, self._drafts.next_deadline()) if self._drafts.open else when

    def _find_slow_deadline(self) -> None:
        self._slow_at = min(
            self._source.next_deadline(), self._gossip.next_deadline(), self._next_sweep, self._remote.sweep_at
        )

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
                tuple(sorted(self._source.trust.avoided(route.id))),
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
        sent, counters, losses = self._links.sent, self._forwarding.counters, self._losses
        return {
            "parcel_bytes_sent": sent.parcel_bytes,
            "control_bytes_sent": sent.control_bytes,
            "parcels_sent": sent.parcels,
            "messages_sent": sent.messages,
            "violations": self._dispatcher.violations,
            "duplicates_dropped": counters.duplicates_dropped,
            "expired_dropped": losses.expired,
            "queue_full_dropped": losses.queue_full,
            "unroutable_dropped": losses.unroutable,
            "link_lost_dropped": losses.link_lost,
            "overtaken_dropped": losses.overtaken,
            "lifespan_ended_dropped": losses.lifespan_ended,
            "destination_left_dropped": losses.destination_left,
            "unproven_dropped": self._proofs.dropped,
            "brokers_refused": self._admission.refused,
            "name_conflicts": self._gossip.name_conflicts,
            "repairs": counters.repairs,
            "detours": counters.detours,
            "filters_refused": self._remote.refused,
            "unsendable_dropped": self._links.unsendable,
            "refused_at_border": self._sink.refused,
            "retained_bytes": self._source.retained_bytes,
            "unconfirmed_samples": self._source.trust.missed,
            "path_suspicions": self._source.trust.episodes,
            "suspected_links": self._source.trust.suspected,
        }

    def map_digest(self) -> str:
        """The same at all brokers that have heard the same."""
        links = [(*ends, claim.state) for ends, claim in sorted(self._table.map.claims.items())]
        needs = {name: message.added for name in self._remote.brokers() if (message := self._remote.everything(name))}
        needs[self.name] = self._local.everything().added
        known = sorted((name, sorted(filters)) for name, filters in needs.items() if filters)
        return sha256(msgspec.json.encode((links, known))).hexdigest()

    # Time

    def _do_what_is_due(self, turn: int, now: Nanos) -> None:
        self._links.tend(now)
        if now >= self._sink.inflows.wake_at:
            self._sink.release_due(now)
            self._receipts.extend((turn, receipt) for receipt in self._sink.due_receipts(now))
            self._sink.inflows.set_wake()
        is_sweep = now >= self._next_sweep
        if is_sweep:
            self._next_sweep = now + SLOW_SWEEP
            self._links.effects += self._admission.take_told(now)
            self._sink.forget_idle(now)
            self._routes.sweep(now)
            self._links.forget_processing()
        if self._gossip.effects:
            self._links.effects += self._gossip.effects
            self._gossip.effects.clear()
        if now >= self._remote.sweep_at:
            self._remote.sweep(now)
        self._gossip.tell_interest()
        self._links.advertise(now)
        self._dispatcher.learn(self._gossip.settle(now, is_sweep=is_sweep), now)
        if self._seen_changes != self._table.changes:
            self._seen_changes = self._table.changes
            self._source.reachable_again(now)
        self._source.review(now)
        self._source.tick(now)
        self._send_outbox()

    def _send_outbox(self) -> None:
        outbox = self._route_announcer.outbox
        if not outbox:
            return
        unsent = outbox.copy()
        outbox.clear()
        for name, message in unsent:
            if (neighbour := self._neighbours.get(name)) is not None:
                neighbour.send(message)
