"""Paths that meet several requirements at once: deadline, loss and resiliency.

Loss is the probability that no copy of a message comes through the links, resiliency the probability that at least one
path is up. Links and brokers on several paths count once (`resiliency.py`).

Sets of paths are tried by their size, since each path costs a copy: the smallest set that meets everything wins, among
those of one size the one with the least total latency. If no set does, the nearest is the one that misses the fewest
requirements, then the one that misses them by the least probability in sum, then the smallest and quickest.

Candidates are the `search` quickest simple paths within the deadline. Where there are no more of these, and no more
sets than SETS_MAX, the answer is exact. Where no path keeps the deadline, the quickest alone is the candidate.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import comb, prod

from overlane.planning.network import Network
from overlane.planning.resiliency import PATHS_MAX, resiliency
from overlane.planning.shortest import Path, k_shortest, shortest_tree

SEARCH = 64
SETS_MAX = 4096
"""Sets of one size that are compared."""
_HAIR = 1e-12
"""What sums of floats may differ by."""

DirectedLink = tuple[int, int]
Losses = Mapping[DirectedLink, float]
"""Of directed links; those that are not in it lose nothing."""
Element = tuple[int, int]
"""A broker as (b, b), a link as it is directed."""


@dataclass(frozen=True, slots=True)
class Wanted:
    deadline_ns: int | None = None
    loss_max: float = 1.0
    resiliency_min: float = 0.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """Paths, quickest first, and their worth together; `exact` if no better set exists."""

    paths: tuple[Path, ...]
    loss: float
    resiliency: float
    exact: bool = True

    def misses(self, wanted: Wanted) -> tuple[int, float]:
        """How many requirements are not met, and by which probability in sum."""
        loss, resilience = self.loss - wanted.loss_max, wanted.resiliency_min - self.resiliency
        missed = [one for one in (loss, resilience) if one > _HAIR]
        return len(missed), sum(missed)


def choose(network: Network, losses: Losses, source: int, destination: int, wanted: Wanted, n: int) -> Chosen:
    """The best set of at most `n` paths; none if no path leads there. A path that misses the deadline is the last
    resort, as the answer shows by its latency."""
    candidates = k_shortest(network, source, destination, SEARCH + 1, wanted.deadline_ns)
    exact = len(candidates) <= SEARCH
    candidates = candidates[:SEARCH]
    if not candidates:
        quickest = shortest_tree(network, source).path(destination)
        candidates = [] if quickest is None else [quickest]
    if not candidates:
        return Chosen((), 1.0, 0.0)
    worth = _Worth(network, losses, candidates)
    nearest: tuple[tuple[int, float, int, int], tuple[int, ...]] | None = None
    for size in range(1, min(n, PATHS_MAX, len(candidates)) + 1):
        among = _most(len(candidates), size)
        exact &= among == len(candidates)
        for chosen in combinations(range(among), size):
            count, amount = worth.of(chosen).misses(wanted)
            key = count, amount, size, sum(candidates[at].latency_ns for at in chosen)
            if nearest is None or _less(key, nearest[0]):
                nearest = key, chosen
        if nearest is not None and not nearest[0][0]:
            break
    assert nearest is not None
    return replace(worth.of(nearest[1]), exact=exact)


def evaluate(network: Network, losses: Losses, paths: Iterable[Path]) -> Chosen:
    """What paths are worth together. Of more than PATHS_MAX, the quickest count."""
    ordered = sorted(paths, key=lambda path: (path.latency_ns, len(path.brokers), path.brokers))[:PATHS_MAX]
    if not ordered:
        return Chosen((), 1.0, 0.0)
    used = [link for path in ordered for link in pairwise(path.brokers)]
    failure: dict[tuple[int, int], float] = {}
    for start, end in used:
        ends = min(start, end), max(start, end)
        failure[ends] = max(failure.get(ends, 0.0), losses.get((start, end), 0.0))
    lossy = replace(network, broker_failure=(0.0,) * len(network), link_failure=failure)
    return Chosen(tuple(ordered), 1.0 - resiliency(ordered, lossy), resiliency(ordered, network))


def _most(candidates: int, size: int) -> int:
    """Of how many candidates there are no more than SETS_MAX sets."""
    while candidates > size and comb(candidates, size) > SETS_MAX:
        candidates -= 1
    return candidates


def _less(one: tuple[int, float, int, int], other: tuple[int, float, int, int]) -> bool:
    if abs(one[1] - other[1]) <= _HAIR:
        one = one[0], other[1], *one[2:]
    return one < other


class _Worth:
    """Of sets of candidates, which have many elements in common: floats, since there are many sets to compare."""

    def __init__(self, network: Network, losses: Losses, candidates: Sequence[Path]) -> None:
        self._candidates = candidates
        self._passes = [{link: 1.0 - losses.get(link, 0.0) for link in pairwise(path.brokers)} for path in candidates]
        self._up = [_ups(network, path) for path in candidates]
        self._known: dict[tuple[int, ...], Chosen] = {}

    def of(self, chosen: tuple[int, ...]) -> Chosen:
        found = self._known.get(chosen)
        if found is None:
            passes, up = (_union([parts[at] for at in chosen]) for parts in (self._passes, self._up))
            paths = tuple(self._candidates[at] for at in chosen)
            found = self._known[chosen] = Chosen(paths, 1.0 - passes, up)
        return found


def _ups(network: Network, path: Path) -> dict[Element, float]:
    ups = {(broker, broker): 1.0 - network.broker_failure[broker] for broker in path.brokers}
    for one, other in pairwise(path.brokers):
        ends = min(one, other), max(one, other)
        ups[ends] = 1.0 - network.link_failure[ends]
    return ups


def _union(parts: Sequence[Mapping[Element, float]]) -> float:
    """The probability that all elements of at least one part work, by inclusion and exclusion."""
    total = 0.0
    for size in range(1, len(parts) + 1):
        sign = 1 if size % 2 else -1
        for some in combinations(parts, size):
            merged: dict[Element, float] = {}
            for one in some:
                merged.update(one)
            total += sign * prod(merged.values())
    return total
