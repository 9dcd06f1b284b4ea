"""The paths in a route: a route is a set of links, people think in paths."""

from collections.abc import Iterable

PATHS_MAX = 64
"""A flooded route of a large overlay has more paths than anybody could look at."""

STEPS_MAX = 10_000


def paths_in(links: Iterable[tuple[str, str]], source: str, destination: str) -> list[tuple[str, ...]]:
    """The ways from source to destination over these links that visit no broker twice, those of fewer hops first."""
    next_hops: dict[str, list[str]] = {}
    for here, there in sorted(links):
        next_hops.setdefault(here, []).append(there)
    found: list[tuple[str, ...]] = []
    reached: list[tuple[str, ...]] = [(source,)]
    steps = 0
    while reached and len(found) < PATHS_MAX and steps < STEPS_MAX:
        longer: list[tuple[str, ...]] = []
        for path in reached:
            steps += 1
            if path[-1] == destination:
                found.append(path)
            else:
                longer += [(*path, hop) for hop in next_hops.get(path[-1], ()) if hop not in path]
        reached = longer
    return found[:PATHS_MAX]
