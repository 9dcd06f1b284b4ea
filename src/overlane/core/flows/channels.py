"""Channels: the routes that messages take where the number of routes is limited.

In a class that shares routes (`QosClass.is_shared`) messages to one broker take a route to it. Those to several have a
route of their own, as long as there are no more than `routes_max` of these in the class. Others are sent to each broker
apart, until a plan comes (`turn.channel_review`). The plan tells for each set of destinations which channels its
messages take: routes to several brokers, some of which may not have asked for them, and drop them; and which brokers
get them apart. The flow stays as it is: order, acknowledgements and retransmission concern those who have asked.

Classes with a reservation, a history, trust or destinations of their own, names that begin with `$`, and brokers with
rules for what may leave them share no routes: nobody may get of these what is not for him.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from overlane.core.config import BrokerConfig, Destinations, RouteDemand, RouteKind
from overlane.core.flows.outflow import FlowName, Outflow
from overlane.core.qos import QosClass
from overlane.core.routing.route import Route
from overlane.core.routing.routes import RoutePlanner
from overlane.core.routing.signalling.route_establishment import RouteTable


@dataclass(slots=True)
class Channels:
    identity: int
    planner: RoutePlanner
    routes: RouteTable
    flows: Mapping[FlowName, Outflow]
    routes_max: int = 0
    """0: routes are not shared."""
    planned: Mapping[RouteKind, tuple[Destinations, ...]] = field(default_factory=dict)
    """The channels of each kind, and the brokers that get it apart."""
    _own: dict[QosClass, set[Destinations]] = field(default_factory=dict)
    """Sets of destinations that have a route of their own since the plan."""
    _unused: frozenset[RouteKind] = frozenset()
    """Routes that no flow took when this was last looked at."""

    def configure(self, config: BrokerConfig) -> None:
        routes_max = config.routes_max if config.federation.leave is None else 0
        if routes_max != self.routes_max:
            self.routes_max, self.planned, self._own = routes_max, {}, {}

    def class_of(self, topic: str, qos: QosClass) -> QosClass:
        """The class in which messages of a topic are sent."""
        if not self.routes_max or qos.history or qos.reservation or qos.requires.is_trust or topic.startswith("$"):
            return qos
        return replace(qos, is_shared=True)

    def set_plan(self, plan: Mapping[RouteKind, tuple[Destinations, ...]]) -> None:
        """ValueError if somebody who has asked is left out, or it has too many channels: then nothing changes."""
        in_use: dict[QosClass, set[Destinations]] = {}
        for (qos, destinations), ways in plan.items():
            if not set(destinations) <= {name for way in ways for name in way}:
                raise ValueError(f"a plan that leaves out some of {', '.join(destinations)}")
            in_use.setdefault(qos, set()).update(way for way in ways if len(way) > 1)
        most = max(map(len, in_use.values()), default=0)
        if most > self.routes_max:
            raise ValueError(f"a plan with {most} channels where {self.routes_max} are allowed")
        self.planned, self._own = plan, {}

    def ways(self, qos: QosClass, destinations: Destinations) -> tuple[Destinations, ...]:
        """The destinations of each route that messages of a kind take."""
        if len(destinations) == 1:
            return (destinations,)
        if (planned := self.planned.get((qos, destinations))) is not None:
            return planned
        own = self._own.setdefault(qos, set())
        if destinations not in own:
            channels = {way for kind, ways in self.planned.items() if kind[0] == qos for way in ways if len(way) > 1}
            if destinations not in channels and len(channels | own) >= self.routes_max:
                return tuple((name,) for name in destinations)
            own.add(destinations)
        return (destinations,)

    def ways_of(self, flow: Outflow) -> tuple[Destinations, ...]:
        return self.ways(flow.qos, flow.destinations) if flow.qos.is_shared else (flow.destinations,)

    def routes_of(self, flow: Outflow) -> tuple[Route, ...]:
        return tuple(self.planner.route(flow.qos, way) for way in self.ways_of(flow))

    def next_hops(self, flow: Outflow) -> Iterable[str]:
        """Where parcels of the flow go first."""
        if flow.qos.is_shared:
            found = (self.routes.entry(self.identity, one.id, one.version) for one in self.routes_of(flow))
            return {hop for entry in found if entry is not None for hop in entry.next_hops}
        route = flow.route or self.planner.route(flow.qos, flow.destinations)
        entry = self.routes.entry(self.identity, route.id, route.version)
        return () if entry is None else entry.next_hops

    def flows_on(self, route: Route) -> list[Outflow]:
        return [
            flow
            for flow in self.flows.values()
            if flow.qos == route.qos and route.destinations in self.ways(flow.qos, flow.destinations)
        ]

    def planned_routes(self) -> Mapping[RouteKind, tuple[Destinations, ...]]:
        """The routes of each kind that is in use."""
        return {(one.qos, one.destinations): self.ways(one.qos, one.destinations) for one in self.demand()}

    def demand(self) -> list[RouteDemand]:
        found: dict[RouteKind, int] = {}
        for flow in self.flows.values():
            if flow.qos.is_shared:
                kind = flow.qos, flow.destinations
                found[kind] = found.get(kind, 0) + flow.sent_bytes
        return [RouteDemand(*kind, sent_bytes) for kind, sent_bytes in found.items()]

    def forget(self, flow: Outflow) -> bool:
        """A kind is not in use any more: the place of its route is free for another one. False if it shared none."""
        self._own.get(flow.qos, set()).discard(flow.destinations)
        return flow.qos.is_shared

    def idle_routes(self) -> Iterable[RouteKind]:
        """Routes that no flow has taken since the last look, so that nothing is on its way over them."""
        if not self.routes_max and not self._unused:
            return ()
        taken = {
            (flow.qos, way)
            for flow in self.flows.values()
            if flow.qos.is_shared
            for way in self.ways(flow.qos, flow.destinations)
        }
        unused = frozenset(kind for kind in self.planner.routes if kind[0].is_shared) - taken
        idle, self._unused = unused & self._unused, unused
        return sorted(idle)
