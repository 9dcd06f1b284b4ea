"""The paths of messages to and from this broker, as far as the routes determine them.

A route is a set of links. If it contains a single path from the source to this broker, its messages take that path. If
it contains several, the path of a message is unknown.
"""

from collections.abc import Iterable

from overlane.core.broker import OverlayBroker
from overlane.core.units import Nanos

Path = tuple[str, ...]

PATHS_REMEMBERED = 10_000


class MessagePaths:
    """To one broker, from all others."""

    def __init__(self, core: OverlayBroker) -> None:
        self._core = core
        self._changes = -1
        self._paths: dict[tuple[str, Nanos], Path | None] = {}

    def path(self, origin: str, deadline_ns: Nanos) -> Path | None:
        """By which messages of this origin and deadline come; None where several are possible, or none is known."""
        if self._changes != self._core.route_changes or len(self._paths) >= PATHS_REMEMBERED:
            self._changes = self._core.route_changes
            self._paths.clear()
        key = origin, deadline_ns
        if key not in self._paths:
            self._paths[key] = self._find(origin, deadline_ns)
        return self._paths[key]

    def _find(self, origin: str, deadline_ns: Nanos) -> Path | None:
        routes = [route for route in self._core.inbound_routes() if route.origin == origin]
        of_class = [route for route in routes if route.deadline_ns == deadline_ns]
        found = {only_path(route.links, origin, self._core.name) for route in of_class or routes}
        return found.pop() if len(found) == 1 else None


def only_path(links: Iterable[tuple[str, str]], source: str, destination: str) -> Path | None:
    """Back from the destination, link by link, as long as there is one way to have come; None where there are more."""
    before: dict[str, list[str]] = {}
    for here, there in links:
        before.setdefault(there, []).append(here)
    path = [destination]
    while path[-1] != source:
        came_from = before.get(path[-1], [])
        if len(came_from) != 1 or came_from[0] in path:
            return None
        path.append(came_from[0])
    return tuple(reversed(path))


def shortest_paths(links: Iterable[tuple[str, str]], source: str, destinations: Iterable[str]) -> tuple[Path, ...]:
    """To each destination that the links lead to, the way of fewest hops; of several the first by name."""
    after: dict[str, list[str]] = {}
    for here, there in sorted(links):
        after.setdefault(here, []).append(there)
    reached: dict[str, Path] = {source: (source,)}
    newest = [source]
    while newest:
        further = []
        for here in newest:
            for there in after.get(here, ()):
                if there not in reached:
                    reached[there] = (*reached[here], there)
                    further.append(there)
        newest = further
    return tuple(reached[destination] for destination in destinations if destination in reached)
