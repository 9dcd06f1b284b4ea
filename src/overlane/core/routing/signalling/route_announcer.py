"""Route announcer: installs this broker's routes in the brokers that carry them, and keeps them installed.

A route that is used for the first time, or has changed, is described to the brokers on its links. The description is
repeated until all of them have acknowledged it. From then on the route is refreshed periodically (route_refresh.py), so
that it survives restarts and unused routes expire. A route that is no longer used is torn down. Changes of the map that
come close together are handled together (`REVIEW_EVERY`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec import structs

from overlane.core.events import DeadlineUnmeetable, Effect, RequirementChanged, RouteChanged, RouteEstablished
from overlane.core.qos import QosClass
from overlane.core.routing.route import Route
from overlane.core.routing.routes import RoutePlanner
from overlane.core.routing.signalling.route_establishment import AGAIN_AFTER, REFRESH_EVERY, RouteTable
from overlane.core.routing.signalling.route_messages import Outbox
from overlane.core.routing.signalling.route_refresh import refreshes, take_refresh
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire.control_messages import Establish, Teardown

REVIEW_EVERY: Nanos = 10 * MS
LATENCIES = 3
AGAIN_MAX: Nanos = 5 * SECOND
"""The acknowledgement of a route comes from its leaves: it is not overdue before so many times its latency, up to this.
"""


@dataclass(slots=True)
class RouteAnnouncer:
    me: str
    incarnation: int
    planner: RoutePlanner
    routes: RouteTable
    effects: list[Effect] = field(default_factory=list)
    outbox: Outbox = field(default_factory=list)
    _reviewed_ns: Nanos = -NEVER
    _refreshes: int = 0

    def open(self, route: Route, now: Nanos) -> None:
        """Somebody has something to send on a route that there was no need for until now."""
        self.planner.plan(route, "first use", now)
        self._moved(route, now)

    def review_at(self) -> Nanos:
        when = 0 if self.planner.is_news() else self.planner.wake_at
        return max(when, self._reviewed_ns + REVIEW_EVERY)

    def review(self, now: Nanos) -> Iterator[Route]:
        """The map may have changed: returns each route that changed, after its brokers have been informed."""
        self._reviewed_ns = now
        for route in self.planner.review(now):
            self._moved(route, now)
            yield route
        for route in self.planner.routes.values():
            if route.unmet is not route.told:
                self._report(route)
        for route in self.planner.take_renewed():
            if route.description is not None:
                self._describe(route, route.description, now)

    def established(self, route_id: int, version: int) -> None:
        """All brokers of a route have answered; nothing happens if it is not that one any more."""
        for route in self.planner.routes.values():
            if route.id == route_id and route.version == version:
                route.established = True
                self.effects.append(RouteEstablished(route_id, version))
                return

    def refresh(self, now: Nanos) -> None:
        """Repeat what was not acknowledged; refresh what is due, together with what soon will be."""
        described = [route for route in self.planner.routes.values() if route.description is not None]
        for route in described:
            if route.established or route.description is None:
                continue
            if now - route.described_ns >= max(AGAIN_AFTER, min(AGAIN_MAX, LATENCIES * route.latency_ns)):
                route.description = structs.replace(route.description, refresh=route.description.refresh + 1)
                self._describe(route, route.description, now)
        kept = [route for route in described if route.established]
        if any(now - route.described_ns >= REFRESH_EVERY for route in kept):
            due = [route for route in kept if now - route.described_ns >= REFRESH_EVERY // 2]
            self._refreshes += 1
            for route in due:
                route.described_ns = now
            versions = {route.id: route.version for route in due}
            for message in refreshes(self.me, self.incarnation, self._refreshes, versions):
                self.outbox += take_refresh(self.routes, None, message, now)

    def take_down(self, qos: QosClass, destinations: tuple[str, ...]) -> None:
        """A new one is made when it is needed again."""
        route = self.planner.routes.get((qos, destinations))
        if route is not None:
            self.planner.drop(route)
            self.outbox += self.routes.tear_down(None, Teardown(self.me, self.incarnation, route.id))

    def _moved(self, route: Route, now: Nanos) -> None:
        description = route.description
        if description is None:
            return
        self._describe(route, description, now)
        links = tuple(sorted(route.plan.links))
        self.effects.append(
            RouteChanged(route.id, route.version, route.qos, route.destinations, links, route.cause, route.latency_ns)
        )
        for destination, latency_ns in sorted(route.plan.latency_ns.items()):
            if latency_ns > route.qos.deadline_ns:
                self.effects.append(DeadlineUnmeetable(route.qos, destination, latency_ns))
        self._report(route)

    def _report(self, route: Route) -> None:
        """Requirements that were met before and are not, and the other way round. A value that is merely another one is
        no news."""
        before, after = ({one[:2]: one for one in unmet} for unmet in (route.told, route.unmet))
        self.effects += [RequirementChanged(route.qos, one) for key, one in sorted(after.items()) if key not in before]
        met = [one for key, one in sorted(before.items()) if key not in after]
        self.effects += [RequirementChanged(route.qos, one, is_met=True) for one in met]
        route.told = route.unmet

    def _describe(self, route: Route, description: Establish, now: Nanos) -> None:
        route.described_ns = now
        outbox, established = self.routes.establish(None, description, now)
        route.established |= established
        self.outbox += outbox
