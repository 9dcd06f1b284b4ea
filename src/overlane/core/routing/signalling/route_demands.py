"""Route demands: what the routes through this broker require of it.

They follow from the newest version of every route, and are computed anew when one has changed: the latency budget of a
route's messages at this broker (H8), and for how long a neighbour may be left unread.
"""

from overlane.core.links.latency_budgets import BudgetTable, LatencyDemand
from overlane.core.routing.signalling.route_establishment import RouteTable
from overlane.core.units import NEVER, US, Nanos

SLACK_PART = 4
"""What is urgent may lose this part of the time it has to spare before a broker that does not read."""


class RouteDemands:
    def __init__(self, routes: RouteTable) -> None:
        self._routes = routes
        self._changes = -1
        """Of the routes, when they were last looked at."""
        self._budgets: BudgetTable[tuple[int, int]] = BudgetTable()
        self._patience: dict[str, Nanos] = {}

    def budget(self, route: tuple[int, int]) -> Nanos:
        """The latency budget of a route's messages here."""
        if self._changes != self._routes.changes:
            self._look()
        return self._budgets.budget(route)

    def patience_ns(self, peer: str) -> Nanos:
        """How long what comes from a neighbour can be left unread, for the sake of the most urgent of it."""
        if self._changes != self._routes.changes:
            self._look()
        return self._patience.get(peer, NEVER)

    def _look(self) -> None:
        self._changes = self._routes.changes
        self._budgets, self._patience = BudgetTable(), {}
        for key, entry in self._routes.newest():
            described = entry.message
            deadline_ns, latency_ns = described.deadline_us * US or NEVER, described.latency_us * US
            self._budgets.put(key, LatencyDemand(deadline_ns, latency_ns, described.hops))
            if deadline_ns < NEVER:
                bearable_ns = max(0, deadline_ns - latency_ns) // SLACK_PART
                for upstream in entry.upstream:
                    self._patience[upstream] = min(self._patience.get(upstream, NEVER), bearable_ns)
