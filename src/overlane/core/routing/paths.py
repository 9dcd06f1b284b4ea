"""The paths in a route: a route is a set of links, people think in paths."""

from collections import deque
from collections.abc import Iterable

PATHS_MAX = 64
"""A flooded route of a large overlay has too many paths to show."""

STEPS_MAX = 10_000


def paths_in(
    links: Iterable[tuple[str, str]], source: str, destination: str, paths_max: int = PATHS_MAX
) -> list[tuple[str, ...]]:
    """The ways from source to destination over these links that visit no broker twice, those of fewer hops first."""
    next_hops: dict[str, list[str]] = {}
    for here, there in sorted(links):
        next_hops.setdefault(here, []).append(there)
    found: list[tuple[str, ...]] = []
    reached: deque[tuple[str, ...]] = deque([(source,)])
    steps = 0
    while reached and len(found) < paths_max and steps < STEPS_MAX:
        steps += 1
        path = reached.popleft()
        if path[-1] == destination:
            found.append(path)
        else:
            reached += [(*path, hop) for hop in next_hops.get(path[-1], ()) if hop not in path]
    return found
