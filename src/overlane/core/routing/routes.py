"""Routes of this source: when a route changes, and how the change is described.

A route stays until one of its links fails or is silent for longer than its deadline allows, its deadline can no longer
be met, a destination comes or goes, or a clearly better path appears (a link recovered, trouble began or ended). Then
this route alone is computed anew (route_plan.py), and its next version is described for the brokers that carry it.
"""

from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.qos import QosClass, Routing
from overlane.core.requirements import Places
from overlane.core.routing.route import Route
from overlane.core.routing.selection.believed_maps import BelievedMaps, Experience
from overlane.core.routing.selection.link_risks import CAUTION, Risks
from overlane.core.routing.selection.requirement_check import RequirementCheck
from overlane.core.routing.selection.reserved_trees import ReservedTrees
from overlane.core.routing.selection.route_latency import RouteLatencies
from overlane.core.routing.selection.route_plan import Links, RoutePlan, plan
from overlane.core.routing.selection.route_quality import improved
from overlane.core.routing.selection.route_reasons import BETTER, REVIEW_GAP, RouteReasons, unless_just_planned
from overlane.core.routing.selection.trouble_history import TroubleHistory
from overlane.core.routing.signalling.route_description import describe
from overlane.core.units import MS, NEVER, US, Nanos

RENEW_MIN: Nanos = 2 * MS
VERSION_MAX = 0xFFFF


class RoutePlanner:
    def __init__(
        self,
        me: str,
        incarnation: int,
        table: LinkStateTable,
        places: Places | None = None,
        experience: Experience | None = None,
    ) -> None:
        self._me = me
        self._incarnation = incarnation
        self._table = table
        self.routes: dict[tuple[QosClass, tuple[str, ...]], Route] = {}
        self._next_id = 1
        self.reserved = ReservedTrees(me)
        self.maps = BelievedMaps(me, table, places, experience)
        self._latencies = RouteLatencies(me, table, self.maps)
        self._requirements = RequirementCheck(me, self.maps)
        self._trouble_history = TroubleHistory()
        self._reasons = RouteReasons(table, self.maps, self._latencies, self._requirements, self._trouble_history)
        self._reviewed = (-1, -1)
        self._is_history_behind = False
        """Whether the map has changed since the history was told."""
        self.wake_at: Nanos = NEVER
        """When a route is reviewed although the map has not changed."""
        self._renewed: list[Route] = []

    def route(self, qos: QosClass, destinations: tuple[str, ...]) -> Route:
        key = qos, destinations
        route = self.routes.get(key)
        if route is None:
            route = self.routes[key] = Route(self._next_id, qos, destinations)
            self._next_id += 1
        return route

    @property
    def version(self) -> tuple[int, int, int]:
        """Another one whenever there are new routes, or the map is believed to be another."""
        return self._next_id, *self._news()

    def drop(self, route: Route) -> None:
        del self.routes[route.qos, route.destinations]

    def is_news(self) -> bool:
        """Whether the map has changed since the last review."""
        return self._reviewed != self._news()

    def _news(self) -> tuple[int, int]:
        return self._table.changes, self.maps.experience.changes + self.reserved.changes

    def set_places(self, places: Places) -> None:
        """The brokers of the configuration, or their domains, have changed."""
        if self.maps.set_places(places):
            self._reviewed = (-1, -1)

    def review(self, now: Nanos) -> list[Route]:
        """Review every route if the map changed, otherwise those that are due; returns those that changed."""
        changed = self.is_news()
        if not changed and now < self.wake_at:
            return []
        if changed:
            self._reviewed = self._news()
            self._is_history_behind = True
        if not self.routes:
            return []  # nobody needs the map, which takes long to draw while many brokers start
        risks = self._risks(now)
        moved = []
        for route in self.routes.values():
            if changed or now >= route.review_at:
                route.review_at = NEVER
                cause = self._reason_to_move(route, risks, now)
                if cause is not None and self.plan(route, cause, now, risks):
                    moved.append(route)
                elif self._is_outdated(route, now):
                    self._next_version(route, route.plan.links, now)
                    self._renewed.append(route)
                if route.plan.redundant and route.qos.routing in CAUTION:
                    route.review_at = min(route.review_at, self._trouble_history.milder_at(now))
        self.wake_at = min((route.review_at for route in self.routes.values()), default=NEVER)
        return moved

    def _risks(self, now: Nanos) -> Risks:
        if self._is_history_behind:
            self._is_history_behind = False
            self._trouble_history.note(self._table.map, now)
        return self._trouble_history.risks(self._table.map, now)

    def take_renewed(self) -> list[Route]:
        """The routes that stay where they are, but lead elsewhere so much sooner that those on the way must know."""
        renewed, self._renewed = self._renewed, []
        return renewed

    def plan(self, route: Route, cause: str, now: Nanos, risks: Risks | None = None) -> bool:
        """Compute a route; False if it stays the same."""
        risks = risks or self._risks(now)
        avoided = self.maps.experience.avoided(route.id)
        current = route.plan.links if avoided.isdisjoint(route.plan.links) else frozenset()
        network_map = self.maps.of(route)
        if not current <= network_map.claims.keys():
            current = frozenset()
        if (links := self._reserved_links(route)) is not None:
            found = RoutePlan(links, self._latencies.over(route, links))
        else:
            found = plan(self._table, self._me, route.qos, route.destinations, risks, current, network_map)
            if route.qos.requires.is_quality:
                found = improved(found, current, network_map, self._me, route.qos)
        if avoided and not avoided.isdisjoint(found.links):
            # There is no other path: it is used however long it takes.
            found = RoutePlan(found.links, self._latencies.over(route, found.links), found.resiliency)
        route.planned_ns = now
        # The quickest path may have been in trouble, and avoided: then its recovery is a change.
        best = self._latencies.best(route)
        route.best_ns = {name: max(best.get(name, ns), ns) for name, ns in found.latency_ns.items()}
        before = route.plan
        self._requirements.note(route, found)
        same = found.links == before.links and found.latency_ns.keys() == before.latency_ns.keys()
        riskier = any(self._failure(one) > known for one, known in route.failure.items())
        if route.version and (
            same or (not riskier and self._hardly_better(route, found) and self._requirements.is_met(route))
        ):
            route.failure = self._failures(before.links)
            self._requirements.note(route, before)
            route.plan = RoutePlan(before.links, self._latencies.over(route), before.resiliency)
            if same:
                route.best_ns = {name: max(best.get(name, ns), ns) for name, ns in route.plan.latency_ns.items()}
            return False
        route.plan, route.cause = found, cause
        route.failure = self._failures(found.links)
        self._next_version(route, before.links, now)
        return True

    def _reserved_links(self, route: Route) -> Links | None:
        flow = route.qos.reservation
        return self.reserved.links(flow, route.destinations, self.maps.of(route).claims) if flow else None

    def _next_version(self, route: Route, before: Links, now: Nanos) -> None:
        route.established = False
        route.version += 1
        if route.version > VERSION_MAX:  # a new identity instead of an overflow
            route.id, route.version, before = self._next_id, 1, frozenset()
            self._next_id += 1
        route.description = describe(self._me, self._incarnation, route, before, self._latencies)
        route.described_ns = now

    def _is_outdated(self, route: Route, now: Nanos) -> bool:
        """Whether brokers on the way believe in so much less slack than there is that they may drop what is in time."""
        deadline_ns, description = route.qos.deadline_ns, route.description
        if description is None or deadline_ns >= NEVER or not route.plan.latency_ns:
            return False
        said_ns, latency_ns = description.latency_us * US, route.latency_ns
        if said_ns - latency_ns <= max(RENEW_MIN, (deadline_ns - latency_ns) // 5):
            return False
        is_urgent = said_ns > deadline_ns >= latency_ns
        return is_urgent or unless_just_planned(route, "quicker", now, REVIEW_GAP) is not None

    def _reason_to_move(self, route: Route, risks: Risks, now: Nanos) -> str | None:
        if not route.version:
            return "first use"
        if route.qos.reservation:
            links = self._reserved_links(route)
            if links is not None:
                return None if links == route.plan.links else "the path of its reservation"
        return self._reasons.to_move(route, risks, now)

    def _hardly_better(self, route: Route, found: RoutePlan) -> bool:
        """Whether a set of paths is no reason to leave the present one, which still serves."""
        if route.qos.routing is not Routing.MULTIPATH or found.latency_ns.keys() != route.plan.latency_ns.keys():
            return False
        current = self._latencies.over(route)
        serves = all(
            link in self._table.map.claims and link not in self._table.map.suspects for link in route.plan.links
        ) and all(ns <= route.qos.deadline_ns for ns in current.values())
        quicker = sum(found.latency_ns.values()) * BETTER[1] < sum(current.values()) * BETTER[0]
        return serves and not quicker and found.resiliency <= route.plan.resiliency + 1e-9

    def _failures(self, links: Links) -> dict[tuple[str, str] | str, float]:
        return {one: self._failure(one) for link in links for one in (link, *link)}

    def _failure(self, one: tuple[str, str] | str) -> float:
        network_map = self._table.map
        return network_map.broker_failure(one) if isinstance(one, str) else network_map.failure(one)
