"""Requirement check: whether a route meets what its class requires of its links and brokers, and of its quality."""

from overlane.core.requirements import Unmet
from overlane.core.routing.route import Route
from overlane.core.routing.selection.believed_maps import BelievedMaps
from overlane.core.routing.selection.route_plan import RoutePlan
from overlane.core.routing.selection.route_quality import Quality, judged


class RequirementCheck:
    def __init__(self, me: str, maps: BelievedMaps) -> None:
        self._me = me
        self._maps = maps

    def note(self, route: Route, found: RoutePlan) -> None:
        """Note what the route is like with these links, and which requirements are not met."""
        requires, unmet = route.qos.requires, tuple[Unmet, ...]()
        if requires.is_trust:
            missing = [name for name in route.destinations if name not in found.latency_ns]
            unmet = tuple(one for name in missing for one in self._maps.unmet_on_the_way(requires, name))
        if requires.is_quality:
            route.quality, of_quality = self.quality(route, found)
            unmet += of_quality
        route.unmet = unmet

    def is_met(self, route: Route) -> bool:
        """Whether the present links are allowed, and as good as the class asks for."""
        requires, network_map = route.qos.requires, self._maps.of(route)
        if requires.is_trust and not route.plan.links <= network_map.claims.keys():
            return False
        return not requires.is_quality or not self.quality(route, route.plan)[1]

    def quality(self, route: Route, found: RoutePlan) -> tuple[Quality, tuple[Unmet, ...]]:
        return judged(found.links, found.latency_ns, self._maps.of(route), self._me, route.qos)
