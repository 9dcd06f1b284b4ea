"""Observer: derives overlay states and timeline events from the responses of brokers.

Each call gets the time and, per broker, its response or why there is none. Both ends of a link report it; the worse
report counts. Brokers report their own events, with causes; that a broker is lost or back is detected here. Does no I/O
and reads no clock.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec import structs

from overlane.adminapi.topic_filters import TopicFilters
from overlane.adminapi.views import (
    OVERLAY_LOSSES,
    DeliveryList,
    EmulationView,
    EventView,
    GatewayView,
    LinkView,
    RecoveryView,
    RouteView,
    SnapshotView,
)
from overlane.core.units import MS, NEVER
from overlane.monitor.figures import CounterIncrease, DeliveryCounters, HistogramIncrease, RateSmoother
from overlane.monitor.overlay_state import (
    PATHS_SHOWN,
    TOPICS_SHOWN,
    BrokerStatus,
    Copies,
    ForeignBroker,
    Link,
    LinkDirection,
    Mirror,
    OverlayDelta,
    OverlayState,
    Route,
    Topic,
    link_name,
    rounded,
    state_delta,
    worse,
)
from overlane.monitor.tiers import Tiers
from overlane.monitor.timeline import Timeline
from overlane.network.schema import Network

OTHER_TOPICS = "(other topics)"
"""Name of topics that no filter of the network file matches."""
MISSES_MAX = 1
"""Missed polls in a row before a broker is lost. A broker that refuses connections is lost at once."""

Answer = SnapshotView | str
"""The response of a broker, or why there is none."""


@dataclass(slots=True)
class _BrokerRecord:
    """The last known state of one broker."""

    snapshot: SnapshotView | None = None
    why: str = ""
    misses: int = 0
    is_lost: bool = False
    event: int = 0
    cpu: float = 0.0
    cpu_s: float = 0.0
    cpu_at_s: float = 0.0


class Observer:
    """`state` is the newest state; timeline events are part of the next delta."""

    def __init__(self, network: Network, at_s: float = 0.0) -> None:
        self._topic_filters = TopicFilters(network)
        self._network = network
        self._places = {broker.name: broker for broker in network.brokers}
        self._known: dict[str, _BrokerRecord] = {name: _BrokerRecord() for name in self._places}
        self._ledgers: dict[str, DeliveryCounters] = {topic.filter: DeliveryCounters() for topic in network.topics}
        self._arrivals: dict[str, DeliveryCounters] = {}
        self._published: dict[str, frozenset[str]] = {}
        """Filters under which clients of a broker have published."""
        self._tiers = Tiers(network)
        self._growth, self._ages = CounterIncrease(), HistogramIncrease()
        self._rates = RateSmoother()
        self.timeline = Timeline()
        self.picture = OverlayState(at_s=at_s)
        self.picture = self._current_state(at_s)

    def after(self, broker: str) -> int:
        """The number of the last known event of a broker."""
        return self._known[broker].event

    @property
    def is_reachable(self) -> bool:
        """Whether any broker responds."""
        return any(known.snapshot is not None and not known.is_lost for known in self._known.values())

    def update(self, at_s: float, answers: Mapping[str, Answer]) -> OverlayDelta:
        """The delta to the previous state."""
        for name, answer in sorted(answers.items()):
            if isinstance(answer, SnapshotView):
                self._responded(name, answer, at_s)
            else:
                self._missed(name, answer, at_s)
        for ledger in (*self._ledgers.values(), *self._arrivals.values()):
            ledger.sample(at_s)
        fresh = self._current_state(at_s)
        self.timeline.measured(at_s, fresh.links)
        change = state_delta(self.picture, fresh, self.timeline.take())
        self.picture = fresh
        return change

    # Brokers

    def _responded(self, name: str, snapshot: SnapshotView, at_s: float) -> None:
        known, broker = self._known[name], snapshot.broker
        before = known.snapshot
        is_restarted = before is not None and before.broker.incarnation != broker.incarnation
        if known.is_lost:
            self.timeline.broker(at_s, "good", name, "is back, restarted" if is_restarted else "answers again")
        elif is_restarted:
            self.timeline.broker(at_s, "warning", name, "was restarted")
        if before is not None and broker.state == "draining" and before.broker.state != "draining":
            self.timeline.broker(at_s, "warning", name, "shuts down")
        if is_restarted or before is None:
            known.event, known.cpu = 0, 0.0
        else:
            past_s = at_s - known.cpu_at_s
            known.cpu = max(0.0, broker.process.cpu_s - known.cpu_s) / past_s if past_s > 0 else 0.0
        known.cpu_s, known.cpu_at_s = broker.process.cpu_s, at_s
        self._published[name] = frozenset(one.filter for one in snapshot.deliveries.published if one.messages)
        for event in snapshot.events.items:
            if event.number > known.event:
                self._add_event(name, event, at_s - event.ago_s, is_old=before is None)
        known.event = max(known.event, snapshot.events.newest)
        known.snapshot, known.why, known.misses, known.is_lost = snapshot, "", 0, False
        self._count(name, broker.incarnation, snapshot.deliveries)

    def _missed(self, name: str, why: str, at_s: float) -> None:
        known = self._known[name]
        known.misses += 1
        known.why = why
        if known.snapshot is None or known.is_lost:
            return
        if known.misses > MISSES_MAX or "refused" in why:
            known.is_lost = True
            self.timeline.broker(at_s, "bad", name, "is lost", why)

    def _broker(self, name: str) -> BrokerStatus:
        status = self._status(name)
        tier = self._tiers.of(name)
        return structs.replace(
            status, role=tier.role, domain=tier.domain, is_leader=tier.is_leader, bundles=tier.bundles
        )

    def _status(self, name: str) -> BrokerStatus:
        place, known = self._places.get(name), self._known.get(name)
        latitude, longitude = (place.latitude, place.longitude) if place is not None else (None, None)
        if known is None or known.snapshot is None:
            why = known.why if known is not None else "not in the network file, not polled"
            return BrokerStatus(latitude=latitude, longitude=longitude, state="unknown", why=why)
        told = known.snapshot.broker
        if known.is_lost:
            return BrokerStatus(
                latitude=latitude, longitude=longitude, state="lost", why=known.why, incarnation=told.incarnation
            )
        arrivals = self._arrivals.get(name)
        return BrokerStatus(
            latitude=latitude,
            longitude=longitude,
            state=told.state,
            why="; ".join(told.not_ready),
            incarnation=told.incarnation,
            clients=told.clients,
            subscriptions=told.subscriptions,
            in_hz=rounded(told.rates.messages_in),
            out_hz=rounded(told.rates.messages_out),
            queue_messages=told.queues.messages,
            dropped=sum(told.dropped.values()) + sum(told.overlay.get(what, 0) for what in OVERLAY_LOSSES),
            lag_ms=rounded(told.loop.lag_max_us / 1000, 2),
            cpu=round(known.cpu, 2),
            memory_mib=told.process.memory_bytes >> 20,
            in_time=arrivals.in_time_lately() if arrivals is not None else None,
            address=told.listeners.get("mqtt", ""),
            copies=None if told.recovery is None else _copies(told.recovery),
            gateways=tuple(_foreign(one) for one in known.snapshot.gateways),
        )

    # Links

    def _links(self, at_s: float) -> dict[str, Link]:
        pairs: dict[str, tuple[str, str]] = {}
        ways: dict[tuple[str, str], LinkDirection] = {}
        for link in self._network.links:
            one, other = sorted(link.ends)
            pairs[link_name(one, other)] = one, other
        for name, known in self._known.items():
            if known.snapshot is not None and not known.is_lost:
                for view in known.snapshot.links:
                    one, other = sorted((name, view.peer))
                    pairs[link_name(one, other)] = one, other
                    ways[name, view.peer] = self._way(name, view, at_s)
        links = {}
        for name, (one, other) in pairs.items():
            if self._is_unused(one, other, ways) or self._is_unused(other, one, ways):
                continue
            there, back = ways.get((one, other), LinkDirection()), ways.get((other, one), LinkDirection())
            links[name] = Link(ends=(one, other), state=worse(there.state, back.state), ways=(there, back))
        return links

    def _is_unused(self, edge: str, other: str, ways: Mapping[tuple[str, str], LinkDirection]) -> bool:
        """An edge dials the routing brokers that it needs; these expect all edges, and have no link with the others."""
        is_pair = self._tiers.of(edge).role == "edge" and self._tiers.of(other).role == "routing"
        known = self._known.get(edge)
        is_there = known is not None and known.snapshot is not None and not known.is_lost
        return is_pair and is_there and (edge, other) not in ways

    def _way(self, sender: str, view: LinkView, at_s: float) -> LinkDirection:
        return LinkDirection(
            state=view.state,
            latency_ms=None if view.latency_ms is None else rounded(view.latency_ms),
            jitter_ms=None if view.jitter_ms is None else round(view.jitter_ms, 2),
            loss=None if view.loss is None else rounded(view.loss, 2),
            rate_bps=self._rates.of((sender, view.peer), 8 * view.bytes_out, at_s),
            queue_bytes=view.queue_bytes,
            queue_bytes_max=view.queue_bytes_max,
            emulated=_emulated(view.emulation),
            reserved=round(view.reserved, 2),
        )

    # Routes and topics

    def _routes(self) -> Iterator[tuple[str, Route]]:
        for name, known in self._known.items():
            if known.snapshot is not None and not known.is_lost:
                for view in known.snapshot.routes:
                    topics = tuple(topic for topic in view.topics if not topic.startswith("$"))
                    if topics or not view.topics:
                        yield f"{name}/{view.id}", self._route(name, view, topics)

    def _route(self, source: str, view: RouteView, topics: tuple[str, ...]) -> Route:
        return Route(
            source=source,
            destinations=view.destinations,
            filters=self._filters(source, topics, view.deadline_ms),
            topics=topics[:TOPICS_SHOWN],
            paths={to: paths[:PATHS_SHOWN] for to, paths in view.paths.items()},
            latency_ms={to: rounded(latency_ms) for to, latency_ms in view.latency_ms.items()},
            deadline_ms=view.deadline_ms,
            reliable=view.reliable,
            routing=view.routing,
            cause=view.cause,
            version=view.version,
            is_established=view.is_established,
            unmet=view.unmet,
        )

    def _filters(self, source: str, topics: tuple[str, ...], deadline_ms: float | None) -> tuple[str, ...]:
        """Filters of the network file; if no topic is known, those that are published there with this deadline."""
        if topics:
            return tuple(dict.fromkeys(self._topic_filters.of(topic) or OTHER_TOPICS for topic in topics))
        published = self._published.get(source, frozenset())
        deadlines = self._topic_filters.deadlines
        return tuple(name for name in deadlines if name in published and _ms(deadlines[name]) == deadline_ms)

    def _count(self, name: str, incarnation: int, told: DeliveryList) -> None:
        for one in told.published:
            row = one.filter or OTHER_TOPICS
            grown = self._growth.of(("published", name, row), incarnation, one.messages)
            if grown or row in self._ledgers:
                self._ledgers.setdefault(row, DeliveryCounters()).totals.published += grown
        arrivals = self._arrivals.setdefault(name, DeliveryCounters())
        for item in told.items:
            row, key = item.filter or OTHER_TOPICS, (name, item.filter, item.origin)
            messages = self._growth.of(("messages", *key), incarnation, item.messages)
            in_time = self._growth.of(("in time", *key), incarnation, item.in_time)
            missing = self._growth.of(("missing", *key), incarnation, item.missing)
            ages_us = self._ages.of(key, incarnation, item.ages_us)
            for ledger in (arrivals, self._ledgers.setdefault(row, DeliveryCounters())):
                ledger.totals.delivered += messages
                ledger.totals.in_time += in_time
                ledger.totals.missing += missing
                ledger.totals.ages_us += ages_us

    def _topics(self) -> dict[str, Topic]:
        classes = {topic.filter: topic for topic in self._network.topics}
        topics = {}
        for row, ledger in self._ledgers.items():
            described = classes.get(row)
            topics[row] = Topic(
                deadline_ms=_ms(described.deadline_ns) if described is not None else None,
                reliable=described is not None and described.reliability == "reliable",
                routing=described.routing if described is not None else self._network.defaults.routing,
                rate_hz=ledger.rate_hz(),
                lately=ledger.lately(),
                total=ledger.total(),
            )
        return topics

    # The whole

    def _current_state(self, at_s: float) -> OverlayState:
        self._tiers.update(
            known.snapshot.broker.coordination
            for known in self._known.values()
            if known.snapshot is not None and not known.is_lost
        )
        links = self._links(at_s)
        names = dict.fromkeys([*self._places, *(end for link in links.values() for end in link.ends)])
        return OverlayState(
            at_s=round(at_s, 3),
            brokers={name: self._broker(name) for name in names},
            links=links,
            routes=dict(self._routes()),
            topics=self._topics(),
        )

    # Timeline

    def _add_event(self, name: str, event: EventView, at_s: float, is_old: bool) -> None:
        """`is_old`: it happened before monitoring started."""
        match event.kind:
            case "link":
                self.timeline.link(at_s, name, event.peer, event.state, is_old=is_old)
            case "route":
                topics = tuple(topic for topic in event.topics if not topic.startswith("$"))
                if topics or not event.topics:  # the others are internal topics
                    filters = self._filters(name, topics, event.deadline_ms)
                    self.timeline.route(at_s, name, filters, event.destinations, event.paths, event.cause)
            case "deadline":
                self.timeline.deadline(at_s, name, event.peer, event.deadline_ms, event.latency_ms)
            case "requirement":
                self.timeline.requirement(at_s, name, event.peer, event.cause, is_met=event.state == "met")
            case "path":
                self.timeline.path(at_s, name, event.peer, event.destinations, event.state)
            case "name-conflict":
                self.timeline.broker(at_s, "bad", event.peer, f"runs twice, says {name}", event.cause)
            case "brokers-refused":
                self.timeline.broker(at_s, "bad", event.peer, f"tells {name} of too many brokers", event.cause)
            case "border":
                self.timeline.broker(at_s, "bad", event.peer, f"sends {name} what may not enter", event.cause)


def _ms(deadline_ns: int) -> float | None:
    return None if deadline_ns >= NEVER else deadline_ns / MS


def _copies(view: RecoveryView) -> Copies:
    mirrors = (
        Mirror(host=one.host, in_sync=one.in_sync, lag_bytes=one.lag_bytes, lag_ms=rounded(one.lag_ms))
        for one in view.mirrors
    )
    return Copies(host=view.host, epoch=view.epoch, mirrors=tuple(mirrors))


def _foreign(view: GatewayView) -> ForeignBroker:
    lanes = (view.inwards, view.outwards)
    is_up = view.state == "up"
    return ForeignBroker(
        gateway=view.name,
        to=view.to,
        state=view.state,
        why="" if is_up else view.foreign.last_error or view.overlay.last_error or view.last_error,
        in_hz=rounded(view.inwards.per_second) if is_up else 0.0,
        out_hz=rounded(view.outwards.per_second) if is_up else 0.0,
        waiting=sum(lane.waiting if lane.backlog is None else lane.backlog for lane in lanes),
    )


def _emulated(view: EmulationView | None) -> str:
    if view is None:
        return ""
    if view.is_cut:
        return "cut"
    words = [f"{view.latency_ms:g} ms"]
    words += [f"jitter {view.jitter_ms:g} ms"] if view.jitter_ms else []
    words += [f"loss {view.loss:.1%}"] if view.loss else []
    words += [f"{view.rate_bps / 1e6:g} Mbit/s"] if view.rate_bps is not None else []
    return ", ".join(words)
