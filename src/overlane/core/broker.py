"""A broker as a pure state machine.

Inputs are bytes, events and the time; outputs are bytes, effects and the next deadline. The driver's turn:

    effects  = broker.handle(event, now), broker.receive(peer, data, now, lane), broker.publish(...), in any number
    effects += broker.flush(now, turn)
    make the Saves and Erases durable, then carry out the other effects
    effects  = broker.durable(turn, now): effects that waited for it; carry them out too
    for each peer in broker.ready(): send what broker.pull(peer, room, now) gives, while the link takes it
    call broker.handle(Tick(), t) at t = broker.next_deadline()

It combines frame dispatch (input from neighbours), drafts and source (messages published here), sink (deliveries
here), forwarding (other parcels), gossip (link state, interest), routes and signalling (links of parcels), route
demands, the role in a tier, upkeep (work at the end of a turn), views (for people), and one neighbour per link.
"""

from collections.abc import Iterable, Mapping
from typing import assert_never

from overlane.core.broker_views import BrokerViews
from overlane.core.bundles import group_of
from overlane.core.config import BrokerConfig
from overlane.core.events import (
    CloseLink,
    Effect,
    Event,
    Lane,
    Leave,
    LinkDown,
    LinkUp,
    NamesakeRefused,
    PathChanged,
    ReadersReady,
    Reception,
    RenewInterest,
    SendToNeighbour,
    SetConfig,
    SetFailureRisk,
    StandbyChanged,
    Subscribe,
    Tick,
    Unsubscribe,
)
from overlane.core.flows.cut_through import CutThrough
from overlane.core.flows.destinations import Destinations
from overlane.core.flows.drafts import Drafts
from overlane.core.flows.held_messages import TABLE as HELD
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
from overlane.core.gossip.interest import RemoteInterest
from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.gossip.local_interest import LocalInterest
from overlane.core.link_supervisor import LinkSupervisor
from overlane.core.links.link_queue import SchedulingPolicy
from overlane.core.links.neighbour import Neighbour
from overlane.core.qos import QosClass
from overlane.core.record_kinds import KINDS
from overlane.core.records import Record, restore
from overlane.core.requirements import Places
from overlane.core.route_settings import set_routes
from overlane.core.routing.forwarding.forwarding import Forwarding
from overlane.core.routing.forwarding.message_losses import MessageCount, MessageLosses, each_is_one
from overlane.core.routing.routes import RoutePlanner
from overlane.core.routing.selection.path_trust import PathTrust
from overlane.core.routing.signalling.route_announcer import RouteAnnouncer
from overlane.core.routing.signalling.route_demands import RouteDemands
from overlane.core.routing.signalling.route_establishment import RouteTable
from overlane.core.tier_role import TierRole
from overlane.core.units import NEVER, Nanos
from overlane.core.upkeep import Upkeep
from overlane.core.wire import frame_codec
from overlane.core.wire.mixed_run import Split, no_mixed_runs
from overlane.errors import Failure, InDoubt

INTERNAL_ERROR = "internal error"
"""The reason that a neighbour is given whose bytes caused an unexpected exception here."""


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
        count: MessageCount = each_is_one,
        split: Split = no_mixed_runs,
    ) -> None:
        """`instance`: identifies the broker's store, and so tells it from others with its name.
        `asks_readers`: the driver says of every reliable Deliver how it was received (`delivered`).
        `count`, `split`: how many messages an entry of a parcel stands for, and which are in a mixed run.
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
        trust = PathTrust(self.name, self._table)
        self._planner = RoutePlanner(self.name, incarnation, self._table, Places(config.domains), trust)
        self._losses = MessageLosses(count=count)
        self._demands = RouteDemands(self._routes)
        budget = self._demands.budget if config.scheduling == SchedulingPolicy.LAXITY else None
        self._forwarding = Forwarding(self.name, self._neighbours, self._table, self._losses, budget)
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
            split=split,
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
            config.encrypted,
            instance=instance,
        )
        self._route_announcer = RouteAnnouncer(self.name, incarnation, self._planner, self._routes)
        self._source = Source(
            self.name,
            self.identity,
            incarnation,
            config.qos,
            Destinations(self.name, self._remote, config.federation, self._table),
            self._table,
            self._route_announcer,
            trust,
            self._forwarding,
            self._cut_through,
            self._history,
            config.retention_bytes_max,
            config.federation,
            self._forget_topics,
        )
        self._source.channels.configure(config)
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
        self.patience_ns = self._demands.patience_ns
        self._role = TierRole(self._links, self._local, self._source, self._drafts, self._interest_changed, now)
        self.scope_digest, self.scope_size = self._role.digest, self._role.size
        self._upkeep = Upkeep(self._links, self._admission, self._source, self._sink, self._dispatcher, self._role, now)
        self._receipts, self._link_failures = self._upkeep.receipts, self._links.failures
        self._set_views()
        self._inflows = self._sink.inflows
        self.ready, self.is_linked = self._links.ready, self._links.is_linked
        self.pull, self.pull_urgent = self._links.pull, self._links.pull_urgent
        announced = self._route_announcer.effects
        self._effects = self._remote.effects, announced, self._source.effects, self._sink.effects, self._links.effects
        """What each part has caused, until it is returned (`_collect`); a part adds to its own list only."""
        self._has_changes = True
        """More has happened in this turn than parcels and probes: everything that depends on state is checked."""
        self._slow_at: Nanos = NEVER
        """The next deadline of everything that parcels and probes alone do not change."""
        self._recover(recovered, now)
        self._role.configure(config, now)

    def _recover(self, records: Iterable[Record], now: Nanos) -> None:
        restore(
            KINDS,
            records,
            {
                HELD: self._source.held.restore,
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
        self._has_changes |= not isinstance(event, Tick)
        match event:
            case LinkUp(peer, is_encrypted):
                self._names[self._links.up(peer, now, is_encrypted=is_encrypted).identity] = peer
            case NamesakeRefused(peer, address):
                self._gossip.own_name.namesake(peer, address, now)
            case LinkDown(peer):
                self._links.down(peer, now)
            case PathChanged(peer, rtt_ns):
                self._links.path_changed(peer, rtt_ns, now)
            case StandbyChanged(peer, rtt_ns):
                self._links.standby_changed(peer, rtt_ns)
            case CloseLink(peer, reason):
                self._links.close_peer(peer, reason, now)
            case Subscribe() | Unsubscribe() | RenewInterest():
                self._change_interest(event, now)
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
            case SendToNeighbour(peer, body):
                self._links.send_to(peer, body)
            case _:
                if set_routes(event, self._planner.reserved, self._neighbours, self._source.channels):
                    self._interest_changed()
        return self._collect()

    def _change_interest(self, event: Subscribe | Unsubscribe | RenewInterest, now: Nanos) -> None:
        match event:
            case Subscribe(subscriber, topic_filter, durable):
                self._sink.subscribe(subscriber, topic_filter, durable, now)
            case Unsubscribe(subscriber, topic_filter):
                self._sink.unsubscribe(subscriber, topic_filter)
            case RenewInterest(topic_filter):
                self._role.renew(topic_filter)
            case _:
                assert_never(event)

    def _set_config(self, config: BrokerConfig, now: Nanos) -> None:
        if fixed := self.config.needs_restart(config):
            raise ValueError(f"{', '.join(fixed)} cannot change while the broker runs")
        gone = self.config.link_failure.keys() - config.link_failure.keys()
        self.config = config
        self._sink.qos = self._source.qos = config.qos
        self._admission.reconfigure(config.named, config.brokers_max)
        self._planner.set_places(Places(config.domains))
        self._links.set_links(config.link_failure, gone, now, config.encrypted)
        self._source.channels.configure(config)
        self._interest_changed()
        self._source.reachable_again(now)
        self._role.configure(config, now)

    def carries(self, topic: str) -> bool:
        """Whether other brokers need the topic, or its history is kept for late subscribers."""
        if self._drafts.waits(topic):
            return True
        return bool(self.config.qos.of(topic).history or self._source.destinations.of(topic))

    def carriers(self) -> Mapping[int, str]:
        """Bundles, and the routing brokers that carry them."""
        return self.config.assignment

    def destinations(self, topic: str) -> tuple[str, ...]:
        """The other brokers that messages published here on the topic go to; at an edge, as long as these are not
        known, a word for the group of the topic."""
        if self._drafts.waits(topic):
            return (f"?{group_of(topic)}",)
        return self._source.destinations.of(topic)

    def withheld_from(self, topic: str) -> tuple[str, ...]:
        """The brokers that need the topic, and get nothing from here by the rules of the border."""
        return self._source.destinations.withheld_from(topic)

    @property
    def map_changes(self) -> int:
        """Grows whenever the map of the links may have changed."""
        return self._table.changes

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
            self._links.close_peer(peer, INTERNAL_ERROR, now)
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
        return bool(self._dispatcher.failures or self._link_failures)

    def flush(self, now: Nanos, turn: int = 0) -> list[Effect]:
        """The end of a turn: everything due is done, everything to be sent is ready to be pulled.

        `turn`: its number, where turns become durable later than they end.
        """
        if self._source.held.is_waiting:
            self._role.release_held(now)
        if self._drafts.open or self._drafts.published:
            self._has_changes |= self._drafts.flush(now)
        # What is due is mostly a ping or a hop acknowledgement, which concerns its link alone.
        is_due = self._has_changes or (
            now >= self.next_deadline() and (self._links.tend(now) or now >= self.next_deadline())
        )
        if not is_due and self._links.has_news():
            is_due = self._links.advertise(now)
        due: list[Effect] = []
        if is_due:
            due = self._upkeep.run(turn, now)
            self._has_changes = False
            self._slow_at = self._upkeep.next_deadline()
        self._source.end_turn(turn)
        return self._collect() + due if due else self._collect()

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
        if source.unsaved:
            self._has_changes = True
            source.saved(turn, now)
        elif not (self._receipts or self._route_announcer.outbox):
            return []
        self._upkeep.send_receipts(turn)
        self._upkeep.send_outbox(now)
        return self._collect()

    def _collect(self) -> list[Effect]:
        remote, announced, source, sink, links = self._effects
        if not (sink or source or links or remote or announced):
            return []
        effects = [*remote, *announced, *source, *sink, *links]
        remote.clear()
        announced.clear()
        source.clear()
        sink.clear()
        links.clear()
        return effects

    def next_deadline(self) -> Nanos:
        if self._has_changes:
            self._slow_at = self._upkeep.next_deadline()
        when = self._links.next_deadline()
        if self._slow_at < when:
            when = self._slow_at
        if self._inflows.wake_at < when:
            when = self._inflows.wake_at
        if self._source.waiting_for_link.waiting:
            when = min(when, self._source.waiting_for_link.next_deadline())
        return min(when, self._drafts.next_deadline()) if self._drafts.open else when

    # For people and tests

    def queue_bytes_max(self, peer: str) -> int:
        return self.config.link_queue_bytes_max.get(peer, self.config.queue_bytes_max)

    def _set_views(self) -> None:
        links, source, sink, dispatcher = self._links, self._source, self._sink, self._dispatcher
        parts = self._names, self._local, self._proofs, self._admission, sink, links, source, self._drafts, dispatcher
        views = BrokerViews(*parts)
        self.link_views, self.queue_bytes, self.missing = views.link_views, views.queue_bytes, views.missing
        self.link_state = views.link_state
        self.routes, self.inbound_routes = views.routes, views.inbound_routes
        self.carried_topics, self.map_digest = views.carried_topics, views.map_digest
        self.known_brokers, self.needs_size, self.can_reach = views.known_brokers, views.needs_size, views.can_reach
        self.is_congested, self.left_bytes = views.is_congested, views.left_bytes
        self.needing, self.is_subscribed = views.needing, views.is_subscribed
        self.shared_demand, self.shared_routes = source.channels.demand, source.channels.planned_routes
        self.reserved_interest = self._remote.reserved
        self.claimed_links, self.reserved_counters = views.claimed_links, views.reserved_counters
        self._counters = views.counters

    @property
    def route_changes(self) -> int:
        """Grows whenever a route that passes or ends here was set up or changed."""
        return self._routes.changes

    @property
    def counters(self) -> dict[str, int]:
        return self._counters()
