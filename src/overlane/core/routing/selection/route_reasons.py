"""Route reasons: why a route should be computed anew, in words for people.

A link of it failed, or is silent for longer than its deadline allows; its deadline can no longer be met; a destination
comes or goes; a link is not allowed any more, or the quality that its class asks for is missing; trouble began or
ended; or there is a clearly quicker path.
"""

from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.qos import Routing
from overlane.core.routing.route import Route
from overlane.core.routing.selection.believed_maps import BelievedMaps
from overlane.core.routing.selection.link_risks import CAUTION, Risks
from overlane.core.routing.selection.requirement_check import RequirementCheck
from overlane.core.routing.selection.route_latency import RouteLatencies
from overlane.core.routing.selection.route_plan import RoutePlan
from overlane.core.routing.selection.trouble_history import TroubleHistory
from overlane.core.units import MS, NEVER, SECOND, Nanos

BETTER = 4, 5
"""A route is left for a quicker one when that takes at most this part of its time."""
REVIEW_GAP: Nanos = 1 * SECOND
"""A route that is merely not the best is reconsidered no more often than this."""
TROUBLE_GAP: Nanos = 200 * MS
SILENCE_MAX: Nanos = 1 * SECOND


class RouteReasons:
    def __init__(
        self,
        table: LinkStateTable,
        maps: BelievedMaps,
        latencies: RouteLatencies,
        requirements: RequirementCheck,
        history: TroubleHistory,
    ) -> None:
        self._table = table
        self._maps = maps
        self._latencies = latencies
        self._requirements = requirements
        self._history = history

    def to_move(self, route: Route, risks: Risks, now: Nanos) -> str | None:
        """None if it stays. What can wait sets when the route is reviewed again."""
        bearing = False
        if route.qos.requires.is_trust and (cause := self._by_trust(route)):
            return cause
        claims, silent_since = self._table.map.claims, self._history.silent_since
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
                return f"no answer in time over link {one}-{other}"
        if not route.plan.links.isdisjoint(avoided := self._maps.experience.avoided(route.id)):
            hops = ", ".join(sorted({hop for hop, _ in avoided & route.plan.links}))
            if cause := unless_just_planned(route, f"what is sent over {hops} does not arrive", now, REVIEW_GAP):
                return cause
        cause = self._by_latency(route, now)
        if cause is None and route.qos.requires.is_quality:
            cause = self._by_quality(route, now)
        # What falls silent for a moment may only be slow: no trouble yet, as long as the deadline can bear it.
        return cause if cause or bearing else self._by_trouble(route, risks, now)

    def _by_trust(self, route: Route) -> str | None:
        allowed, known = self._maps.of(route).claims, self._table.map.claims
        for one, other in sorted(route.plan.links):
            if (one, other) in known and (one, other) not in allowed:
                return f"link {one}-{other} is not allowed any more"
        return None

    def _by_quality(self, route: Route, now: Nanos) -> str | None:
        quality, unmet = self._requirements.quality(route, route.plan)
        if unmet == tuple(one for one in route.unmet if not one.is_trust):
            route.quality = quality
            return None
        cause = f"{unmet[0].destination}: {unmet[0]}" if unmet else "requirements are met again"
        return unless_just_planned(route, cause, now, TROUBLE_GAP)

    def _by_latency(self, route: Route, now: Nanos) -> str | None:
        current = self._latencies.over(route)
        best = self._latencies.best(route)
        for destination in route.destinations:
            if (destination in current) != (destination in best):
                return f"{destination} is {'reachable' if destination in best else 'unreachable'}"
            if destination not in best:
                continue
            ns, best_ns = current[destination], best[destination]
            if ns > route.qos.deadline_ns and best_ns < ns:
                return f"{self._slowest_link(route)} slow: {destination} {ns // MS} ms away"
            if self._left_behind(route, destination, ns, best_ns):
                return unless_just_planned(route, "a quicker way", now, REVIEW_GAP)
        route.plan = RoutePlan(route.plan.links, current, route.plan.resiliency)
        return None

    @staticmethod
    def _left_behind(route: Route, destination: str, ns: Nanos, best_ns: Nanos) -> bool:
        """Whether there is a quicker path worth moving to. A slow link is no reason while the deadline is met."""
        if route.qos.deadline_ns >= NEVER:
            return best_ns * BETTER[1] < ns * BETTER[0] and best_ns + MS < ns
        improved = best_ns + MS < route.best_ns.get(destination, NEVER)
        return improved and best_ns + max(MS, ns // 20) < ns

    def _by_trouble(self, route: Route, risks: Risks, now: Nanos) -> str | None:
        match route.qos.routing:
            case Routing.ADAPTIVE | Routing.THRIFTY:
                troubled = self._troubled_link(route, risks)
                if troubled and not route.plan.redundant:
                    return troubled
                if troubled or route.plan.redundant:
                    return unless_just_planned(route, "trouble changed", now, TROUBLE_GAP)
                return None
            case Routing.MULTIPATH | Routing.FLOOD:
                return unless_just_planned(route, "the map changed", now, REVIEW_GAP)
            case Routing.SINGLE:
                return None

    def _has_clean_path(self, route: Route) -> bool:
        """Whether some destination can be reached in time without suspect links; otherwise moving is of no use."""
        best = self._latencies.best(route, suspects=False)
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


def unless_just_planned(route: Route, cause: str, now: Nanos, gap: Nanos) -> str | None:
    """The cause, or none if the route was planned so lately that it is reviewed later."""
    if now >= route.planned_ns + gap:
        return cause
    route.review_at = min(route.review_at, route.planned_ns + gap)
    return None
