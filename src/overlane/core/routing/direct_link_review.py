"""Direct link review: at an edge, what is sent with deadlines and how it gets there, for direct_links.py to judge.

It is looked at when the map or the routes have changed, when time alone may decide, and at every sweep.
"""

from collections.abc import Callable, Container, Iterable

from overlane.core.events import DirectLinksWanted
from overlane.core.gossip.network_map import NetworkMap
from overlane.core.routing.direct_links import DirectLinks, Traffic
from overlane.core.routing.route import Route
from overlane.core.routing.routes import RoutePlanner
from overlane.core.units import NEVER, US, Nanos


class DirectLinkReview:
    def __init__(self, me: str, planner: RoutePlanner) -> None:
        self._me = me
        self._planner = planner
        self._links = DirectLinks()
        self._seen = (-1, -1, -1)

    def next_deadline(self) -> Nanos:
        return self._links.wake_at

    def review(self, linked: Container[str], now: Nanos, *, is_sweep: bool) -> list[DirectLinksWanted]:
        """`linked`: neighbours with a link that is there in any case."""
        seen = self._planner.version
        if seen == self._seen and not is_sweep and now < self._links.wake_at:
            return []
        self._seen = seen
        before = self._links.wanted()
        traffic = deadline_traffic(self._me, self._planner.routes.values(), self._planner.maps.towards, linked)
        given_up = self._links.review(traffic, now)
        wanted = self._links.wanted()
        return [DirectLinksWanted(wanted, tuple(given_up))] if wanted != before else []


def deadline_traffic(
    me: str, routes: Iterable[Route], map_of: Callable[[Route, str], NetworkMap | None], besides: Container[str]
) -> dict[str, Traffic]:
    """By destination, of what has a deadline: the shortest, and how long the paths there take that it may use."""
    found: dict[str, Traffic] = {}
    for route in routes:
        if route.qos.deadline_ns >= NEVER:
            continue
        for name in route.destinations:
            known = found.get(name)
            if name in besides or (known is not None and known.deadline_ns <= route.qos.deadline_ns):
                continue
            believed = map_of(route, name)
            if believed is None:
                continue
            direct = believed.claims.get((me, name))
            found[name] = Traffic(
                route.qos.deadline_ns,
                believed.over_one_broker_ns(me, name, route.qos.label),
                NEVER if direct is None else direct.latency_us * US,
            )
    return found
