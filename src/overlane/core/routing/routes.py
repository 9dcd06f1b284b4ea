"""Routes of this source: when a route changes, and how the change is described.

A route stays until one of its links fails or is silent for longer than its deadline allows, its deadline can no longer
be met, a destination comes or goes, or a clearly better path appears (a link recovered, trouble began or ended). Then
this route alone is computed anew (route_plan.py), and its next version is described for the brokers that carry it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from msgspec import structs

from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.gossip.network_map import NetworkMap
from overlane.core.qos import QosClass, Routing
from overlane.core.requirements import Places, Requirements, Unmet
from overlane.core.routing.link_risks import CAUTION, Risks
from overlane.core.routing.reserved_trees import ReservedTrees
from overlane.core.routing.route_plan import Links, RoutePlan, plan
from overlane.core.routing.route_quality import Quality, improved, judged
from overlane.core.routing.trouble_history import TroubleHistory
from overlane.core.units import MS, NEVER, SECOND, US, Nanos
from overlane.core.wire.control_messages import BROKERS_MAX, Advert, Establish, EstablishReserved

BETTER = 4, 5
"""A route is left for a quicker one when that takes at most this part of its time."""
REVIEW_GAP: Nanos = 1 * SECOND
"""A route that is merely not the best is reconsidered no more often than this."""
TROUBLE_GAP: Nanos = 200 * MS
RENEW_MIN: Nanos = 2 * MS
SILENCE_MAX: Nanos = 1 * SECOND
VERSION_MAX = 0xFFFF
DESCRIBED_MAX = 32_768
"""Links in the description of a route: with as many brokers as there may be, it fits into a frame."""
AVOIDED_US = 60 * SECOND // US
"""Added to the latency of a link that is to be avoided: any other path is quicker."""


Adverts = tuple[Advert | None, ...]


class Experience(Protocol):
    """What a source has learned about links beyond the map."""

    @property
    def changes(self) -> int:
        """Grows whenever routes should be planned otherwise."""

    @property
    def extra_us(self) -> Mapping[tuple[str, str], int]:
        """How much longer links take than is claimed."""

    def avoided(self, route: int) -> Links:
        """Links that a route should do without."""


class NoExperience:
    changes = 0
    extra_us: Mapping[tuple[str, str], int] = {}

    def avoided(self, _: int) -> Links:
        return frozenset()


@dataclass(slots=True)
class Route:
    """The route for one class and set of destinations; version 0: nothing decided yet."""

    id: int
    qos: QosClass
    destinations: tuple[str, ...]
    version: int = 0
    plan: RoutePlan = field(default_factory=lambda: RoutePlan(frozenset(), {}))
    cause: str = ""
    description: Establish | None = None
    described_ns: Nanos = -NEVER
    established: bool = False
    planned_ns: Nanos = -NEVER
    best_ns: dict[str, Nanos] = field(default_factory=dict)
    """The quickest there was when the route was last planned."""
    review_at: Nanos = NEVER
    failure: dict[tuple[str, str] | str, float] = field(default_factory=dict)
    """How likely its links and brokers were down, by what was known when it was last planned."""
    sample_at: Nanos = 0
    """When one of its parcels requests a confirmation again."""
    measured: tuple[Links, Adverts, dict[str, Nanos]] = frozenset(), (), {}
    """Its links, what their brokers said when its latency was last computed, and what that was."""
    unmet: tuple[Unmet, ...] = ()
    """Requirements of its class that it does not meet."""
    quality: Quality = field(default_factory=dict)
    """Where its class asks for quality."""
    told: tuple[Unmet, ...] = ()
    """What of it was reported."""

    @property
    def latency_ns(self) -> Nanos:
        """To the farthest destination."""
        return max(self.plan.latency_ns.values(), default=0)

    @property
    def slack_ns(self) -> Nanos:
        return self.qos.deadline_ns - self.latency_ns


class RoutePlanner:
    def __init__(self, me: str, incarnation: int, table: LinkStateTable, places: Places | None = None) -> None:
        self._me = me
        self._places = places or Places()
        self._incarnation = incarnation
        self._table = table
        self.routes: dict[tuple[QosClass, tuple[str, ...]], Route] = {}
        self._next_id = 1
        self.experience: Experience = NoExperience()
        self.reserved = ReservedTrees(me)
        self._maps: dict[Links, NetworkMap] = {}
        self._allowed_maps: dict[tuple[Links, Requirements, tuple[str, ...]], NetworkMap] = {}
        self._maps_of = (-1, -1)
        self._reviewed = (-1, -1)
        self._trouble_history = TroubleHistory()
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

    def believed_map(self, route: Route, destination: str) -> NetworkMap | None:
        """With the links alone that the class of a route may use; None if the destination may not have its messages."""
        if not self._places.may_receive(destination, route.qos.requires):
            return None
        return self._allowed(route.qos.requires, route.destinations)

    def drop(self, route: Route) -> None:
        del self.routes[route.qos, route.destinations]

    def is_news(self) -> bool:
        """Whether the map has changed since the last review."""
        return self._reviewed != self._news()

    def _news(self) -> tuple[int, int]:
        return self._table.changes, self.experience.changes + self.reserved.changes

    def quickest_path(self, qos: QosClass, route: int, destination: str) -> tuple[tuple[str, ...], Nanos] | None:
        """The quickest path for what is sent again to a destination of a route of this class, and its latency."""
        avoided = self.experience.avoided(route)
        found = self._allowed(qos.requires, (destination,), avoided).quickest_path(self._me, destination)
        if found is None or avoided.isdisjoint(pairwise(found[0])):
            return found
        return self._allowed(qos.requires, (destination,)).quickest_path(self._me, destination)

    def may_take(self, qos: QosClass, path: Sequence[str]) -> bool:
        """Whether a class may be sent along a path that was found without regard to it."""
        if not qos.requires.is_trust:
            return True
        return {*pairwise(path)} <= self._allowed(qos.requires, (path[-1],)).claims.keys()

    def set_places(self, places: Places) -> None:
        """The brokers of the configuration, or their domains, have changed."""
        if places != self._places:
            self._places, self._maps_of, self._reviewed = places, (-1, -1), (-1, -1)

    def map_for(self, route: Route) -> NetworkMap:
        """The map as this source believes it, with the links alone that the class of a route may use."""
        return self._allowed(route.qos.requires, route.destinations, self.experience.avoided(route.id))

    def _allowed(
        self, requires: Requirements, destinations: tuple[str, ...], avoided: Links = frozenset()
    ) -> NetworkMap:
        believed = self._map(avoided)
        if not requires.is_trust:
            return believed
        key = avoided, requires, destinations
        found = self._allowed_maps.get(key)
        if found is None:
            places, ends = self._places, {*destinations}
            passing = {name for name in believed.brokers() if places.may_pass(name, requires)}
            reached = passing | {name for name in ends if places.may_receive(name, requires)}
            found = self._allowed_maps[key] = believed.restricted(
                lambda one, other: (one == self._me or one in passing) and other in reached,
                is_encrypted=requires.encrypted,
            )
        return found

    def _map(self, avoided: Links = frozenset()) -> NetworkMap:
        """The map as this source believes it, with links to be avoided as the last resort."""
        now = self._table.changes, self.experience.changes
        if self._maps_of != now:
            self._maps_of, self._maps, self._allowed_maps = now, {}, {}
        found = self._maps.get(avoided)
        if found is None:
            extra_us = {**self.experience.extra_us}
            for link in avoided:
                extra_us[link] = extra_us.get(link, 0) + AVOIDED_US
            found = self._maps[avoided] = self._table.map.slowed(extra_us)
        return found

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
        avoided = self.experience.avoided(route.id)
        current = route.plan.links if avoided.isdisjoint(route.plan.links) else frozenset()
        network_map = self.map_for(route)
        if not current <= network_map.claims.keys():
            current = frozenset()
        if (links := self._reserved_links(route)) is not None:
            found = RoutePlan(links, self._latency_over(route, links))
        else:
            found = plan(self._table, self._me, route.qos, route.destinations, risks, current, network_map)
            if route.qos.requires.is_quality:
                found = improved(found, current, network_map, self._me, route.qos)
        if avoided and not avoided.isdisjoint(found.links):
            # There is no other path: it is used however long it takes.
            found = RoutePlan(found.links, self._latency_over(route, found.links), found.resiliency)
        route.planned_ns = now
        # The quickest path may have been in trouble, and avoided: then its recovery is a change.
        best = self._best_latency(route)
        route.best_ns = {name: max(best.get(name, ns), ns) for name, ns in found.latency_ns.items()}
        before = route.plan
        self._judge(route, found)
        same = found.links == before.links and found.latency_ns.keys() == before.latency_ns.keys()
        riskier = any(self._failure(one) > known for one, known in route.failure.items())
        if route.version and (same or (not riskier and self._hardly_better(route, found) and self._serves(route))):
            route.failure = self._failures(before.links)
            self._judge(route, before)
            route.plan = RoutePlan(before.links, self._latency_over(route), before.resiliency)
            if same:
                route.best_ns = {name: max(best.get(name, ns), ns) for name, ns in route.plan.latency_ns.items()}
            return False
        route.plan, route.cause = found, cause
        route.failure = self._failures(found.links)
        self._next_version(route, before.links, now)
        return True

    def _reserved_links(self, route: Route) -> Links | None:
        flow = route.qos.reservation
        return self.reserved.links(flow, route.destinations, self.map_for(route).claims) if flow else None

    def _serves(self, route: Route) -> bool:
        """Whether the present links are allowed, and as good as the class asks for."""
        requires, network_map = route.qos.requires, self.map_for(route)
        if requires.is_trust and not route.plan.links <= network_map.claims.keys():
            return False
        return not requires.is_quality or not self._quality(route, route.plan)[1]

    def _quality(self, route: Route, found: RoutePlan) -> tuple[Quality, tuple[Unmet, ...]]:
        return judged(found.links, found.latency_ns, self.map_for(route), self._me, route.qos)

    def _judge(self, route: Route, found: RoutePlan) -> None:
        """Note what the route is like with these links, and which requirements are not met."""
        requires, unmet = route.qos.requires, tuple[Unmet, ...]()
        if requires.is_trust:
            missing = [name for name in route.destinations if name not in found.latency_ns]
            unmet = tuple(one for name in missing for one in self._unallowed(requires, name))
        if requires.is_quality:
            route.quality, of_quality = self._quality(route, found)
            unmet += of_quality
        route.unmet = unmet

    def _unallowed(self, requires: Requirements, destination: str) -> list[Unmet]:
        """Which requirements leave no path to a destination that there is one to otherwise."""
        if self._map().quickest_path(self._me, destination) is None:
            return []
        asked = requires.trust_names()
        alone = [
            name
            for name in asked
            if self._allowed(requires.without(name), (destination,)).quickest_path(self._me, destination) is not None
        ]
        return [Unmet(destination, name) for name in alone or asked]

    def _next_version(self, route: Route, before: Links, now: Nanos) -> None:
        route.established = False
        route.version += 1
        if route.version > VERSION_MAX:  # a new identity instead of an overflow
            route.id, route.version, before = self._next_id, 1, frozenset()
            self._next_id += 1
        route.description = self._describe(route, before)
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
        return is_urgent or self._unless_just_planned(route, "quicker", now, REVIEW_GAP) is not None

    # Reasons

    def _reason_to_move(self, route: Route, risks: Risks, now: Nanos) -> str | None:
        if not route.version:
            return "first use"
        if route.qos.reservation:
            links = self._reserved_links(route)
            if links is not None:
                return None if links == route.plan.links else "the path of its reservation"
        bearing = False
        if route.qos.requires.is_trust and (cause := self._reason_by_trust(route)):
            return cause
        claims, silent_since = self._table.map.claims, self._trouble_history.silent_since
        for one, other in sorted(link for link in route.plan.links if link not in claims or link in silent_since):
            if (one, other) not in claims:
                return f"link {one}-{other} failed"
            if route.qos.routing is Routing.FLOOD:
                continue
            since = silent_since[one, other]
            bearable_until = since + min(max(route.slack_ns // 2, 0), SILENCE_MAX)
            if now < bearable_until:
                route.review_at = min(route.review_at, bearable_until)
                bearing = True
            elif self._has_clean_path(route):
                return f"link {one}-{other} silent"
        if not route.plan.links.isdisjoint(avoided := self.experience.avoided(route.id)):
            hops = ", ".join(sorted({hop for hop, _ in avoided & route.plan.links}))
            if cause := self._unless_just_planned(route, f"what is sent over {hops} does not arrive", now, REVIEW_GAP):
                return cause
        cause = self._reason_by_latency(route, now)
        if cause is None and route.qos.requires.is_quality:
            cause = self._reason_by_quality(route, now)
        # What falls silent for a moment may only be slow: no trouble yet, as long as the deadline can bear it.
        return cause if cause or bearing else self._reason_by_trouble(route, risks, now)

    def _reason_by_trust(self, route: Route) -> str | None:
        allowed, known = self.map_for(route).claims, self._table.map.claims
        for one, other in sorted(route.plan.links):
            if (one, other) in known and (one, other) not in allowed:
                return f"link {one}-{other} is not allowed any more"
        return None

    def _reason_by_quality(self, route: Route, now: Nanos) -> str | None:
        quality, unmet = self._quality(route, route.plan)
        if unmet == tuple(one for one in route.unmet if not one.is_trust):
            route.quality = quality
            return None
        cause = f"{unmet[0].destination}: {unmet[0]}" if unmet else "requirements are met again"
        return self._unless_just_planned(route, cause, now, TROUBLE_GAP)

    def _reason_by_latency(self, route: Route, now: Nanos) -> str | None:
        current = self._latency_over(route)
        best = self._best_latency(route)
        for destination in route.destinations:
            if (destination in current) != (destination in best):
                return f"{destination} is {'reachable' if destination in best else 'unreachable'}"
            if destination not in best:
                continue
            ns, best_ns = current[destination], best[destination]
            if ns > route.qos.deadline_ns and best_ns < ns:
                return f"{self._slowest_link(route)} slow: {destination} {ns // MS} ms away"
            if self._left_behind(route, destination, ns, best_ns):
                return self._unless_just_planned(route, "a quicker way", now, REVIEW_GAP)
        route.plan = RoutePlan(route.plan.links, current, route.plan.resiliency)
        return None

    @staticmethod
    def _left_behind(route: Route, destination: str, ns: Nanos, best_ns: Nanos) -> bool:
        """Whether there is a quicker path worth moving to. A slow link is no reason while the deadline is met."""
        if route.qos.deadline_ns >= NEVER:
            return best_ns * BETTER[1] < ns * BETTER[0] and best_ns + MS < ns
        improved = best_ns + MS < route.best_ns.get(destination, NEVER)
        return improved and best_ns + max(MS, ns // 20) < ns

    def _reason_by_trouble(self, route: Route, risks: Risks, now: Nanos) -> str | None:
        match route.qos.routing:
            case Routing.ADAPTIVE | Routing.THRIFTY:
                troubled = self._troubled_link(route, risks)
                if troubled and not route.plan.redundant:
                    return troubled
                if troubled or route.plan.redundant:
                    return self._unless_just_planned(route, "trouble changed", now, TROUBLE_GAP)
                return None
            case Routing.MULTIPATH | Routing.FLOOD:
                return self._unless_just_planned(route, "the map changed", now, REVIEW_GAP)
            case Routing.SINGLE:
                return None

    @staticmethod
    def _unless_just_planned(route: Route, cause: str, now: Nanos, gap: Nanos) -> str | None:
        if now >= route.planned_ns + gap:
            return cause
        route.review_at = min(route.review_at, route.planned_ns + gap)
        return None

    def _hardly_better(self, route: Route, found: RoutePlan) -> bool:
        """Whether a set of paths is no reason to leave the present one, which still serves."""
        if route.qos.routing is not Routing.MULTIPATH or found.latency_ns.keys() != route.plan.latency_ns.keys():
            return False
        current = self._latency_over(route)
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

    def _has_clean_path(self, route: Route) -> bool:
        """Whether some destination can be reached in time without suspect links; otherwise moving is of no use."""
        best = self._best_latency(route, suspects=False)
        limit = NEVER if route.qos.routing in (Routing.ADAPTIVE, Routing.THRIFTY) else route.qos.deadline_ns
        return any(name in best and best[name] <= limit for name in route.plan.latency_ns)

    @staticmethod
    def _troubled_link(route: Route, risks: Risks) -> str:
        """What is wrong with the worst link, if there is one in trouble."""
        caution = CAUTION[route.qos.routing]
        worst, where = 0.0, ""
        for one, other in sorted(risks.at_risk(route.plan.links)):
            failing = risks.failing((one, other), route.slack_ns, caution)
            if failing > worst:
                lately = risks.failing_now((one, other), route.slack_ns)
                is_history = lately < failing and risks.is_often_down((one, other))
                worst, where = (
                    failing,
                    f"link {one}-{other} often down" if is_history else f"loss on link {one}-{other}",
                )
        return where

    def _slowest_link(self, route: Route) -> str:
        def latency(link: tuple[str, str]) -> int:
            claim = self._table.map.claims.get(link)
            return claim.latency_us if claim else 0

        one, other = max(sorted(route.plan.links), key=latency)
        return f"link {one}-{other}"

    # Latencies

    def _best_latency(self, route: Route, suspects: bool | None = None) -> Mapping[str, Nanos]:
        """Of every destination that can be reached, by the quickest path; without suspect links where that is
        possible."""
        network_map, label = self.map_for(route), route.qos.label
        if suspects is not None or not network_map.suspects:
            return network_map.latencies(self._me, route.destinations, suspects is not False, label)
        whole, clean = (
            network_map.latencies(self._me, route.destinations, with_them, label) for with_them in (True, False)
        )
        return {**whole, **clean}

    def _latency_over(self, route: Route, links: Links | None = None) -> dict[str, Nanos]:
        """The latency to each destination over the route's own links, or others, by the present map.

        It follows from what the brokers at these links say, and stays the same while they say the same.
        """
        links = route.plan.links if links is None else links
        adverts = self._table.map.adverts_of(name for link in links for name in link)
        if self.experience.extra_us:
            adverts = ()
        elif route.measured[0] is links and route.measured[1] == adverts:
            return route.measured[2]
        reached = _relax(self._me, self._weights(route, forward=True, links=links))
        found = {name: reached[name] for name in route.destinations if name in reached}
        route.measured = links, adverts, found
        return found

    def _ahead(self, route: Route) -> dict[str, Nanos]:
        """From each broker of the route, the latency to the farthest destination it leads to."""
        back = self._weights(route, forward=False)
        ahead: dict[str, Nanos] = {}
        for destination in route.plan.latency_ns:
            for name, ns in _relax(destination, back).items():
                ahead[name] = max(ahead.get(name, 0), ns)
        return ahead

    def _weights(self, route: Route, forward: bool, links: Links | None = None) -> dict[str, list[tuple[str, Nanos]]]:
        weights: dict[str, list[tuple[str, Nanos]]] = {}
        claims = self._map().claims
        for one, other in sorted(route.plan.links if links is None else links):
            claim = claims.get((one, other))
            if claim is not None:
                start, end = (one, other) if forward else (other, one)
                ns = claim.latency_us * US + self._table.map.processing_ns(other, route.qos.label)
                weights.setdefault(start, []).append((end, ns))
        return weights

    def _describe(self, route: Route, before: Links) -> Establish | None:
        """None where no frame could hold it; what is reliable goes without a route then, broker by broker."""
        links = route.plan.links
        reached = sorted(route.plan.latency_ns)
        if len(links | before) > DESCRIBED_MAX:
            before = frozenset()  # it expires at the brokers that carried it, because nobody refreshes it
        brokers = sorted({self._me, *(name for link in links | before for name in link), *reached})
        if len(brokers) > BROKERS_MAX or len(links) > DESCRIBED_MAX:
            return None
        place = {name: at for at, name in enumerate(brokers)}

        def flat(links: Links) -> list[int]:
            return [place[name] for link in sorted(links) for name in link]

        ahead = self._ahead(route)
        described = Establish(
            origin=self._me,
            incarnation=self._incarnation,
            route=route.id,
            version=route.version,
            brokers=brokers,
            kept=flat(links & before),
            added=flat(links - before),
            obsolete=flat(before - links),
            destinations=[place[name] for name in reached],
            ahead_us=[ahead.get(name, 0) // US for name in brokers],
            deadline_us=route.qos.deadline_us,
            latency_us=route.latency_ns // US,
            hops=self._hops(route),
            confined=route.qos.requires.is_trust,
            encrypted=route.qos.requires.encrypted,
        )
        if not route.qos.reservation:
            return described
        return EstablishReserved(**structs.asdict(described), reservation=route.qos.reservation)

    def _hops(self, route: Route) -> int:
        """Links to the destination that is the most links away."""
        steps = {name: [(end, 1) for end, _ in ends] for name, ends in self._weights(route, forward=True).items()}
        reached = _relax(self._me, steps)
        return max((reached.get(name, 1) for name in route.plan.latency_ns), default=1)


def _relax(start: str, weights: dict[str, list[tuple[str, Nanos]]]) -> dict[str, Nanos]:
    """Least latency from `start` to everything reachable; the graphs have only a few links."""
    reached = {start: 0}
    pending = {start}
    while pending:
        broker = min(pending, key=lambda name: (reached[name], name))
        pending.remove(broker)
        for name, ns in weights.get(broker, ()):
            if reached[broker] + ns < reached.get(name, NEVER):
                reached[name] = reached[broker] + ns
                pending.add(name)
    return reached
