"""Route latency: how long a route takes to its destinations by the present map, and what the best possible is."""

from collections.abc import Mapping

from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.routing.route import Route
from overlane.core.routing.selection.believed_maps import BelievedMaps
from overlane.core.routing.selection.route_plan import Links
from overlane.core.units import NEVER, US, Nanos


class RouteLatencies:
    def __init__(self, me: str, table: LinkStateTable, maps: BelievedMaps) -> None:
        self._me = me
        self._table = table
        self._maps = maps

    def best(self, route: Route, suspects: bool | None = None) -> Mapping[str, Nanos]:
        """Of every destination that can be reached, by the quickest path; without suspect links where that is
        possible."""
        network_map, label = self._maps.of(route), route.qos.label
        if suspects is not None or not network_map.suspects:
            return network_map.latencies(self._me, route.destinations, suspects is not False, label)
        whole, clean = (
            network_map.latencies(self._me, route.destinations, with_them, label) for with_them in (True, False)
        )
        return {**whole, **clean}

    def over(self, route: Route, links: Links | None = None) -> dict[str, Nanos]:
        """The latency to each destination over the route's own links, or others, by the present map.

        It follows from what the brokers at these links say, and stays the same while they say the same.
        """
        links = route.plan.links if links is None else links
        adverts = self._table.map.adverts_of(name for link in links for name in link)
        if self._maps.experience.extra_us:
            adverts = ()
        elif route.measured[0] is links and route.measured[1] == adverts:
            return route.measured[2]
        reached = _relax(self._me, self._weights(route, forward=True, links=links))
        found = {name: reached[name] for name in route.destinations if name in reached}
        route.measured = links, adverts, found
        return found

    def ahead(self, route: Route) -> dict[str, Nanos]:
        """From each broker of the route, the latency to the farthest destination it leads to."""
        back = self._weights(route, forward=False)
        ahead: dict[str, Nanos] = {}
        for destination in route.plan.latency_ns:
            for name, ns in _relax(destination, back).items():
                ahead[name] = max(ahead.get(name, 0), ns)
        return ahead

    def hops(self, route: Route) -> int:
        """Links to the destination that is the most links away."""
        steps = {name: [(end, 1) for end, _ in ends] for name, ends in self._weights(route, forward=True).items()}
        reached = _relax(self._me, steps)
        return max((reached.get(name, 1) for name in route.plan.latency_ns), default=1)

    def _weights(self, route: Route, forward: bool, links: Links | None = None) -> dict[str, list[tuple[str, Nanos]]]:
        weights: dict[str, list[tuple[str, Nanos]]] = {}
        claims = self._maps.whole().claims
        for one, other in sorted(route.plan.links if links is None else links):
            claim = claims.get((one, other))
            if claim is not None:
                start, end = (one, other) if forward else (other, one)
                ns = claim.latency_us * US + self._table.map.processing_ns(other, route.qos.label)
                weights.setdefault(start, []).append((end, ns))
        return weights


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
