"""Records a simulation as overlay states, for replay by the page.

The simulated world is sampled every quarter of a second of virtual time. Delivery figures are measured from outside, in
true time, as in the report of the simulation; links and routes are as the brokers report them to a monitor.
"""

from overlane.adminapi.views import OVERLAY_LOSSES
from overlane.core.broker import OverlayBroker as Core
from overlane.core.events import Deliver
from overlane.core.links.link_health import LinkState
from overlane.core.links.link_view import LinkStatus
from overlane.core.routing.paths import paths_in
from overlane.core.units import MS, NEVER, SECOND, US, Nanos
from overlane.monitor.figures import DeliveryCounters, RateSmoother
from overlane.monitor.history import TARGET, Head
from overlane.monitor.overlay_state import (
    PATHS_SHOWN,
    TOPICS_SHOWN,
    BrokerStatus,
    Link,
    LinkDirection,
    OverlayDelta,
    OverlayState,
    Route,
    Topic,
    link_name,
    rounded,
    state_delta,
    worse,
)
from overlane.monitor.overlay_state import LinkState as State
from overlane.monitor.timeline import Timeline
from overlane.network import Network
from overlane.sim.host import Host
from overlane.sim.judge import Row
from overlane.sim.line import Condition
from overlane.sim.link import End
from overlane.sim.link import Link as SimulatedLink
from overlane.sim.world import World

TOPICS_SAMPLED_MAX = 2_000
OVERDUE_NS: Nanos = 2 * SECOND
"""A message not delivered after this time is missing."""

_STATES: dict[LinkState, State] = {LinkState.UP: "up", LinkState.SUSPECT: "suspect", LinkState.FAILED: "failed"}


class SimulationRecorder:
    """Pass `sample` to the world as its progress callback; then use `head` and `changes`."""

    def __init__(self, world: World, network: Network, title: str) -> None:
        self._world = world
        self._network = network
        self._title = title
        self._timeline = Timeline()
        self._clients = [one.broker for one in network.publishers] + [one.broker for one in network.subscribers]
        self._told = {"deeds": 0, "links": 0, "routes": 0, "unmeetable": 0, "requirements": 0}
        self._ledgers = {name: DeliveryCounters() for name in world.judge.rows}
        self._latencies = dict.fromkeys(world.judge.rows, 0)
        self._arrivals = {name: DeliveryCounters() for name in world.hosts}
        self._settled: dict[int, tuple[int, list[int]]] = {}
        """Per publisher: number of messages that should have arrived, and those not yet delivered everywhere."""
        self._rates = RateSmoother()
        self._published: dict[str, tuple[float, int]] = {}
        self._first: OverlayState | None = None
        self._picture = OverlayState(at_s=0.0)
        self.changes: list[OverlayDelta] = []
        self._judge = world.watch.delivered
        world.watch.delivered = self._delivered

    def head(self) -> Head:
        return Head(
            title=self._title,
            is_live=False,
            target=TARGET,
            until_s=self._picture.at_s,
            picture=self._first or self._picture,
        )

    def sample(self, now: Nanos) -> None:
        """Called repeatedly as virtual time advances."""
        if now < 0:
            return
        at_s = now / SECOND
        self._note_happenings()
        self._count()
        for ledger in (*self._ledgers.values(), *self._arrivals.values()):
            ledger.sample(at_s)
        fresh = self._current_state(at_s)
        self._timeline.measured(at_s, fresh.links)
        if self._first is None:
            self._first = fresh
            self.changes.append(OverlayDelta(at_s=fresh.at_s, happenings=self._timeline.take()))
        else:
            self.changes.append(state_delta(self._picture, fresh, self._timeline.take()))
        self._picture = fresh

    # Messages

    def _delivered(self, broker: str, effect: Deliver) -> None:
        totals = self._arrivals[broker].totals
        count = sum(len(delivery.subscribers) for delivery in effect.deliveries)
        totals.published += count  # here: what was handed out
        if effect.origin != broker:
            totals.delivered += count
            totals.in_time += count if effect.age_ns <= effect.deadline_ns else 0
        self._judge(broker, effect)

    def _count(self) -> None:
        for name, row in self._world.judge.rows.items():
            totals = self._ledgers.setdefault(name, DeliveryCounters()).totals
            totals.published, totals.delivered, totals.in_time = row.published, row.delivered, row.in_time
            totals.missing = 0
            seen = self._latencies.get(name, 0)
            for latency_ns in row.latencies_ns[seen:]:
                totals.ages_us[int(rounded(latency_ns / US))] += 1
            self._latencies[name] = len(row.latencies_ns)
        for publisher in self._world.publishers:
            row_name = self._world.plan.row_of(publisher.topic)
            self._ledgers[row_name].totals.missing += self._overdue(publisher.index)

    def _overdue(self, publisher: int) -> int:
        """Deliveries that have not happened though they should have by now. Looks at each message but once or twice."""
        times, missing = self._world.judge.record(publisher)
        settled_ns = self._world.engine.now - OVERDUE_NS
        at, late = self._settled.get(publisher, (0, []))
        while at < len(times) and times[at] <= settled_ns:
            if missing[at]:
                late.append(at)
            at += 1
        late = [number for number in late if missing[number]]
        self._settled[publisher] = at, late
        return sum(missing[number] for number in late)

    def _topic(self, name: str, row: Row) -> Topic:
        ledger, qos = self._ledgers[name], self._world.plan.classes.get(name, self._world.plan.default)
        return Topic(
            deadline_ms=None if row.deadline_ns >= NEVER else row.deadline_ns / MS,
            reliable=qos.reliable,
            routing=qos.routing.value,
            rate_hz=ledger.rate_hz(),
            lately=ledger.lately(),
            total=ledger.total(),
        )

    # Brokers and links

    def _current_state(self, at_s: float) -> OverlayState:
        world = self._world
        alive = {name: host.core for name, host in world.hosts.items() if host.is_alive}
        views = {name: {view.peer: view for view in core.link_views()} for name, core in alive.items()}
        return OverlayState(
            at_s=round(at_s, 3),
            brokers={
                spec.name: self._broker(spec.name, world.hosts[spec.name], at_s) for spec in self._network.brokers
            },
            links={link_name(*ends): self._link(ends, link, views, at_s) for ends, link in world.links.items()},
            routes={name: route for source in alive for name, route in self._routes(source, alive[source])},
            topics={name: self._topic(name, row) for name, row in world.judge.rows.items()},
        )

    def _broker(self, name: str, host: Host[Core], at_s: float) -> BrokerStatus:
        place = next(spec for spec in self._network.brokers if spec.name == name)
        has_lived = self._published.get(name) is not None or host.is_alive
        arrivals = self._arrivals[name]
        published = sum(
            publisher.accepted
            for publisher, spec in zip(self._world.publishers, self._network.publishers, strict=False)
            if spec.broker == name
        )
        before_s, before = self._published.get(name, (at_s, published))
        if has_lived:
            self._published[name] = at_s, published
        return BrokerStatus(
            latitude=place.latitude,
            longitude=place.longitude,
            state="serving" if host.is_open else "draining" if host.is_alive else "lost" if has_lived else "unknown",
            why="" if host.is_alive else "it does not run",
            incarnation=host.incarnation,
            clients=self._clients.count(name),
            in_hz=rounded((published - before) / (at_s - before_s)) if at_s > before_s else 0.0,
            out_hz=arrivals.rate_hz(),
            dropped=sum(host.counters().get(what, 0) for what in OVERLAY_LOSSES),
            in_time=arrivals.in_time_lately(),
            role="" if place.role == "plain" else place.role,
            domain=place.domain or "",
        )

    def _link(
        self, ends: tuple[str, str], link: SimulatedLink, views: dict[str, dict[str, LinkStatus]], at_s: float
    ) -> Link:
        there, back = (self._way(end, views.get(end.station.name, {}).get(end.peer), at_s) for end in link.ends)
        return Link(ends=ends, state=worse(there.state, back.state), ways=(there, back))

    def _way(self, end: End, view: LinkStatus | None, at_s: float) -> LinkDirection:
        name, emulated = (end.station.name, end.peer), _emulated(end.line.condition)
        rate_bps = self._rates.of(name, 8 * end.line.sent_bytes, at_s)
        if view is None:
            return LinkDirection(state="down" if end.station.is_alive else "unknown", emulated=emulated)
        return LinkDirection(
            state=_STATES[view.state] if view.is_open else "down",
            latency_ms=rounded(view.latency_ns / MS) if view.is_measured else None,
            jitter_ms=round(view.jitter_ns / MS, 2) if view.is_measured else None,
            loss=rounded(view.loss_millionths / 1e6, 2) if view.is_measured else None,
            rate_bps=rate_bps,
            queue_bytes=view.queue_bytes,
            queue_bytes_max=view.queue_bytes_max,
            emulated=emulated,
        )

    def _routes(self, source: str, core: Core) -> list[tuple[str, Route]]:
        topics = core.carried_topics(TOPICS_SAMPLED_MAX)
        return [
            (
                f"{source}/{route.id}",
                Route(
                    source=source,
                    destinations=route.destinations,
                    filters=self._world.plan.filters_affected(source, route.qos),
                    topics=tuple(topics.get((route.qos, route.destinations), ())[:TOPICS_SHOWN]),
                    paths={to: tuple(paths_in(route.links, source, to, PATHS_SHOWN)) for to in route.destinations},
                    latency_ms={to: rounded(ns / MS) for to, ns in sorted(route.latency_ns.items())},
                    deadline_ms=None if route.qos.deadline_ns >= NEVER else route.qos.deadline_ns / MS,
                    reliable=route.qos.reliable,
                    routing=route.qos.routing.value,
                    cause=route.cause,
                    version=route.version,
                    is_established=route.established,
                    unmet={one.destination: str(one) for one in route.unmet},
                ),
            )
            for route in core.routes()
        ]

    # What happened

    def _note_happenings(self) -> None:
        run_log, told = self._world.run_log, self._told
        for deed in run_log.deeds[told["deeds"] :]:
            self._timeline.action(deed.at / SECOND, deed.what)
        for link in run_log.link_moves[told["links"] :]:
            self._timeline.link(link.at / SECOND, link.broker, link.peer, link.state, is_old=link.at < 0)
        for move in run_log.route_moves[told["routes"] :]:
            if move.at >= 0:
                effect = move.effect
                paths = {to: paths_in(effect.links, move.source, to, PATHS_SHOWN) for to in effect.destinations}
                self._timeline.route(
                    move.at / SECOND, move.source, move.topics, effect.destinations, paths, effect.cause
                )
        for found in run_log.unmeetable[told["unmeetable"] :]:
            latency_ns, deadline_ns = found.effect.latency_ns, found.effect.qos.deadline_ns
            self._timeline.deadline(
                found.at / SECOND,
                found.source,
                found.effect.destination,
                deadline_ns / MS,
                None if latency_ns >= NEVER else latency_ns / MS,
            )
        for one in run_log.requirements[told["requirements"] :]:
            unmet = one.effect.unmet
            told_of = f"{unmet.requirement}: {'met again' if one.effect.is_met else unmet}"
            self._timeline.requirement(
                one.at / SECOND, one.source, unmet.destination, told_of, is_met=one.effect.is_met
            )
        self._told = {
            "deeds": len(run_log.deeds),
            "links": len(run_log.link_moves),
            "routes": len(run_log.route_moves),
            "unmeetable": len(run_log.unmeetable),
            "requirements": len(run_log.requirements),
        }


def _emulated(condition: Condition) -> str:
    if not condition.passes():
        return "cut"
    return f"{condition.latency_ns / MS:g} ms" + (f", loss {condition.loss:.1%}" if condition.loss else "")
