"""Inspection of a running broker: its state machines, store and event loop, as views for operators. It changes nothing.

Most values are read directly. Values that must be counted over all sessions are counted in pieces, and the count is
cached briefly, so that frequent requests cost no more than rare ones.
"""

import os
import resource
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from time import monotonic, process_time

from overlane import __version__
from overlane.adminapi.views import (
    BrokerView,
    ClientDetail,
    ClientPage,
    CoordinationView,
    DeliveryList,
    DeliveryView,
    DirectoryView,
    EventList,
    GatewayList,
    LinkView,
    LoopView,
    ProcessView,
    PublishedView,
    QueuesView,
    RatesView,
    RecoveryView,
    ReservationsView,
    RetainedView,
    RouteView,
    SnapshotView,
    StoreView,
    SubscriptionPage,
    TopicPage,
    TopicView,
    TrafficView,
)
from overlane.core.qos import QosClass
from overlane.core.requirements import Requirements, Unmet
from overlane.core.routing.paths import paths_in
from overlane.core.topics import matches
from overlane.core.units import MS, NEVER, US
from overlane.network.endpoints import Endpoints
from overlane.network.schema import Network
from overlane.node.admin.delivery_stats import Count, DeliveryStats, bucket_us
from overlane.node.admin.gateway_views import gateway_list
from overlane.node.admin.link_views import link_view
from overlane.node.admin.loop_lag import LoopLag
from overlane.node.admin.paging import in_pieces, page
from overlane.node.admin.reservation_views import reservations_view
from overlane.node.admin.session_views import all_subscriptions, client_view, place, subscription_view
from overlane.node.driver import Driver
from overlane.node.links.overlay import Overlay
from overlane.node.logs.event_log import EventLog
from overlane.node.store.timed import TimedStore
from overlane.pubsub.counters import TopicStats
from overlane.pubsub.sessions.session import Session

CENSUS_FOR_S = 1.0
STORE_WITHIN_S = 10.0
"""A store that takes longer than this to write something keeps clients waiting for their acknowledgements."""
TOPICS_LOOKED_AT = 2_000
TOPICS_SHOWN = 20
PATHS_SHOWN = 8


@dataclass(slots=True)
class Census:
    """What all sessions come to."""

    clients: int = 0
    queue_messages: int = 0
    queue_bytes: int = 0
    in_flight: int = 0

    def count(self, sessions: list[Session]) -> None:
        for session in sessions:
            window = session.window
            self.clients += session.consumer is not None
            self.queue_messages += len(window)
            self.queue_bytes += window.bytes
            self.in_flight += len(window.sent)

    def queues(self) -> QueuesView:
        return QueuesView(messages=self.queue_messages, bytes=self.queue_bytes, in_flight=self.in_flight)


@dataclass(slots=True)
class Inspection:
    """`network` is the latest configuration of the broker; reloading replaces it."""

    name: str
    network: Network
    endpoints: Endpoints
    driver: Driver
    overlay: Overlay
    store: TimedStore
    loop_lag: LoopLag
    tally: DeliveryStats
    logbook: EventLog
    is_durable: bool
    is_serving: bool = False
    """Whether it listens to clients."""
    closed_listeners: Callable[[], list[str]] = list
    """Names of listeners that do not accept connections."""
    coordination: Callable[[], CoordinationView | None] = lambda: None
    recovery: Callable[[], RecoveryView] = RecoveryView
    directory: Callable[[], DirectoryView] = DirectoryView
    item_of: Callable[[str], str | None] = field(default=lambda _: None)
    _since_s: float = field(default_factory=monotonic)
    _census: Census = field(default_factory=Census)
    _census_s: float = -CENSUS_FOR_S

    # The broker

    def not_ready(self) -> tuple[str, ...]:
        """Why clients had better not come here now."""
        reasons = []
        if not self.is_serving:
            reasons.append("the broker starts")
        if self.driver.server.state.is_draining:
            reasons.append("the broker is shutting down")
        else:
            reasons += [f"the listener {name} is closed" for name in self.closed_listeners()]
        if self.driver.is_stuck:
            reasons.append("the broker does not get on: a turn was not ended in time")
        if self.store.failing is not None:
            reasons.append(f"the store cannot write: {self.store.failing.cause.value}")
        elif (waits_s := self.store.longest_wait_s()) > STORE_WITHIN_S:
            reasons.append(f"the store has not answered for {waits_s:.0f} s")
        return tuple(reasons)

    @property
    def is_alive(self) -> bool:
        """Whether the broker gets on with its work. If not, only a restart helps."""
        return not self.driver.is_stuck

    async def census(self) -> Census:
        """At most a moment old."""
        if monotonic() - self._census_s >= CENSUS_FOR_S:
            census = Census()
            await in_pieces(list(self.driver.server.state.sessions.values()), census.count)
            self._census, self._census_s = census, monotonic()
        return self._census

    @property
    def uptime_s(self) -> float:
        return monotonic() - self._since_s

    async def broker(self) -> BrokerView:
        census = await self.census()
        state, counters = self.driver.server.state, self.driver.server.counters
        messages_in, messages_out, bytes_in, bytes_out = self.loop_lag.rates()
        listeners = {name: str(at) for name, at in self.endpoints.all().items()}
        links = self.links()
        return BrokerView(
            name=self.name,
            version=__version__,
            incarnation=self.store.incarnation,
            uptime_s=round(self.uptime_s, 3),
            state="draining" if state.is_draining else "serving",
            not_ready=self.not_ready(),
            listeners=listeners,
            connections=len(state.connections),
            clients=census.clients,
            sessions=len(state.sessions),
            subscriptions=len(state.subscriptions),
            topics=len(state.topics),
            retained=self.retained(),
            queues=census.queues(),
            traffic=TrafficView(
                messages_in=counters.messages_in,
                messages_out=counters.messages_out,
                bytes_in=counters.bytes_in,
                bytes_out=counters.bytes_out,
            ),
            rates=RatesView(
                messages_in=round(messages_in, 1),
                messages_out=round(messages_out, 1),
                bytes_in=round(bytes_in, 1),
                bytes_out=round(bytes_out, 1),
            ),
            throttled=counters.throttled,
            dead_letters=counters.dead_letters,
            dropped={why.value: count for why, count in sorted(counters.dropped.items())},
            refused={why.value: count for why, count in sorted(counters.refused.items())},
            internal_errors=dict(sorted(self.driver.failures.counts.items())),
            overlay=self.driver.core.counters,
            links=len(links),
            links_up=sum(link.state == "up" for link in links),
            store=self._store(),
            loop=LoopView(lag_us=int(self.loop_lag.lag_s * 1e6), lag_max_us=int(self.loop_lag.lag_max_s * 1e6)),
            process=ProcessView(id=os.getpid(), memory_bytes=memory_bytes(), cpu_s=round(process_time(), 3)),
            coordination=self.coordination(),
            recovery=recovery if (recovery := self.recovery()).epoch else None,
        )

    def gateways(self) -> GatewayList:
        return gateway_list(self.name, self.network, self.driver.server.state)

    def retained(self) -> RetainedView:
        retained = self.driver.server.state.retained
        return RetainedView(
            messages=len(retained),
            bytes=retained.bytes,
            messages_max=retained.limits.retained_messages,
            bytes_max=retained.limits.retained_bytes,
        )

    def _store(self) -> StoreView:
        store, failing = self.store, self.store.failing
        return StoreView(
            state="failing" if failing is not None else "writing" if self.is_durable else "none",
            trouble="" if failing is None else str(failing),
            commits=store.commits,
            pending=store.pending,
            latency_p50_us=store.percentile_ns(50) // US,
            latency_p99_us=store.percentile_ns(99) // US,
            quarantined=len(store.quarantined),
            unknown=sum(store.unknown.values()),
        )

    # Clients

    async def clients(self, limit: int, after: str | None, wanted: str) -> ClientPage:
        """Those with `wanted` in their identifier or user name, ordered by identifier."""
        found = await page(
            list(self.driver.server.state.sessions.values()),
            lambda session: session.client_id,
            limit,
            after=after,
            matches=lambda session: wanted in session.client_id or wanted in (session.user or ""),
        )
        now = self.driver.clock.now()
        items = tuple(client_view(session, now) for session in found.items)
        return ClientPage(items=items, total=found.total, next=items[-1].id if found.has_more else None)

    def client(self, client_id: str) -> ClientDetail | None:
        session = self.driver.server.state.sessions.get(client_id)
        if session is None:
            return None
        subscriptions = tuple(subscription_view(one) for _, one in sorted(session.subscriptions.items()))
        return ClientDetail(client=client_view(session, self.driver.clock.now()), subscriptions=subscriptions)

    def disconnect(self, client_id: str, with_session: bool) -> bool:
        """End a client's connection, and its session if that is wanted; False if it has none."""
        is_ended = self.driver.server.disconnect(client_id, self.driver.clock.now(), with_session)
        self.driver.end_turn_soon()
        return is_ended

    async def subscriptions(self, limit: int, after: str | None, wanted: str) -> SubscriptionPage:
        """Those with `wanted` in their filter or client identifier, ordered by client and filter."""
        found = await page(
            all_subscriptions(list(self.driver.server.state.sessions.values())),
            place,
            limit,
            after=after,
            matches=lambda one: wanted in one.name or wanted in one.session.client_id,
        )
        items = tuple(subscription_view(one) for one in found.items)
        return SubscriptionPage(items=items, total=found.total, next=place(found.items[-1]) if found.has_more else None)

    # Topics

    async def topics(self, limit: int, after: str | None, topic_filter: str, busiest: bool) -> TopicPage:
        """Those that match an MQTT filter, ordered by name; or those with the most messages, on one page."""
        state = self.driver.server.state
        found = await page(
            list(state.topics.items()),
            (lambda item: (-item[1].messages, item[0])) if busiest else (lambda item: item[0]),
            limit,
            after=after,
            matches=lambda item: not topic_filter or matches(topic_filter, item[0]),
        )
        items = tuple(self._topic(topic, stats.messages, stats.bytes) for topic, stats in found.items)
        has_next = found.has_more and not busiest
        return TopicPage(items=items, total=found.total, next=items[-1].topic if has_next else None)

    def _topic(self, topic: str, messages: int, size: int) -> TopicView:
        state = self.driver.server.state
        qos = state.settings.qos.of(topic)
        return TopicView(
            topic=topic,
            messages=messages,
            bytes=size,
            deadline_ms=_deadline_ms(qos),
            reliability="reliable" if qos.reliable else "best-effort",
            is_retained=state.retained.get(topic) is not None,
        )

    # The overlay

    def links(self) -> tuple[LinkView, ...]:
        """To all neighbours: those of the file, and those that came besides."""
        known = {view.peer: view for view in self.driver.core.link_views()}
        overlay, reserving = self.overlay, self.driver.turn.reserving
        return tuple(
            link_view(peer, known.get(peer), overlay.links.get(peer), overlay.conditions(peer), reserving)
            for peer in overlay.neighbours
        )

    def events(self, after: int) -> EventList:
        return EventList(items=self.logbook.after(after), newest=self.logbook.newest)

    async def deliveries(self) -> DeliveryList:
        """What was published and delivered here, by the filters of the network file."""
        published: dict[str, int] = dict.fromkeys(self.tally.filters.deadlines, 0)

        def add(topics: list[tuple[str, TopicStats]]) -> None:
            for topic, stats in topics:
                row = self.tally.filters.of(topic)
                published[row] = published.get(row, 0) + stats.messages

        await in_pieces(list(self.driver.server.state.topics.items()), add)
        missing: dict[tuple[str, str], int] = {}
        for origin, topic, count in self.driver.core.missing():
            if not topic.startswith("$"):
                key = self.tally.filters.of(topic), origin
                missing[key] = missing.get(key, 0) + count
        return DeliveryList(
            published=tuple(PublishedView(filter=row, messages=count) for row, count in published.items()),
            items=tuple(
                _delivery_view(row, origin, count, missing.get((row, origin), 0))
                for row, origin, count in self.tally.counts()
            ),
        )

    async def snapshot(self, after: int) -> SnapshotView:
        return SnapshotView(
            broker=await self.broker(),
            links=self.links(),
            routes=self.routes(),
            events=self.events(after),
            deliveries=await self.deliveries(),
            gateways=self.gateways().items,
        )

    def reservations(self) -> ReservationsView:
        turn = self.driver.turn
        return reservations_view(self.driver.core, turn.pubsub.reservations, turn.reserving)

    def capture(self) -> bytes:
        """RSVP messages of this broker and its neighbours."""
        return self.driver.turn.reserving.capture()

    def routes(self) -> tuple[RouteView, ...]:
        core = self.driver.core
        topics = core.carried_topics(TOPICS_LOOKED_AT)
        return tuple(
            RouteView(
                id=route.id,
                version=route.version,
                destinations=route.destinations,
                paths={
                    destination: tuple(paths_in(route.links, self.name, destination, PATHS_SHOWN))
                    for destination in route.destinations
                },
                latency_ms={destination: ns / MS for destination, ns in sorted(route.latency_ns.items())},
                deadline_ms=_deadline_ms(route.qos),
                reliable=route.qos.reliable,
                routing=route.qos.routing.value,
                cause=route.cause,
                is_established=route.established,
                topics=tuple(topics.get((route.qos, route.destinations), ())[:TOPICS_SHOWN]),
                suspects=tuple(sorted({hop for hop, _ in route.avoided})),
                requires=_requires(route.qos),
                unmet={
                    destination: "; ".join(str(one) for one in unmet)
                    for destination, unmet in _by_destination(route.unmet).items()
                },
                loss={destination: loss for destination, (loss, _) in route.quality.items()},
                resiliency={destination: up for destination, (_, up) in route.quality.items()},
            )
            for route in core.routes()
        )


def _delivery_view(row: str, origin: str, count: Count, missing: int) -> DeliveryView:
    return DeliveryView(
        filter=row,
        origin=origin,
        messages=count.messages,
        in_time=count.in_time,
        missing=missing,
        ages_us=tuple((bucket_us(index), messages) for index, messages in sorted(count.ages.items())),
    )


def _requires(qos: QosClass) -> dict[str, bool | float | tuple[str, ...]]:
    """What differs from a class that requires nothing."""
    default = Requirements()
    return {
        one.name: getattr(qos.requires, one.name)
        for one in fields(Requirements)
        if getattr(qos.requires, one.name) != getattr(default, one.name)
    }


def _by_destination(unmet: Iterable[Unmet]) -> dict[str, list[Unmet]]:
    found: dict[str, list[Unmet]] = {}
    for one in unmet:
        found.setdefault(one.destination, []).append(one)
    return found


def _deadline_ms(qos: QosClass) -> float | None:
    return None if qos.deadline_ns >= NEVER else qos.deadline_ns / MS


def memory_bytes() -> int:
    """Resident memory now, if the system reports it; otherwise the maximum so far."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
