"""Demands: what the routes that pass here ask of this broker.

They are those of the newest version of every route, and are found out anew when one has changed: the latency budget
that a route's messages have here (H8), and how long what a neighbour sends can be left unread.
"""

from overlane.core.budgets import BudgetTable, Demand
from overlane.core.signalling import RouteTable
from overlane.core.units import NEVER, US, Nanos

SLACK_PART = 4
"""What is urgent may lose this part of the time it has to spare before a broker that does not read."""


class Demands:
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
            self._budgets.put(key, Demand(deadline_ns, latency_ns, described.hops))
            if deadline_ns < NEVER:
                bearable_ns = max(0, deadline_ns - latency_ns) // SLACK_PART
                for upstream in entry.upstream:
                    self._patience[upstream] = min(self._patience.get(upstream, NEVER), bearable_ns)
