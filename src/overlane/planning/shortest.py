"""Shortest paths: the tree from one broker, and the k fastest simple paths between two.

All paths have one total order: latency, then hops, then the names along the path. Every function here returns the first
in that order, never "one of the best", so that equal maps give equal routes everywhere.

The k shortest paths follow Yen and Lawler. All simple paths are split into disjoint families, each given by a prefix
and the brokers that must not come next; a family is entered into a queue by its best path. Taking a path out of the
queue splits the rest of its family along that path. Two things make this fast:

- One Dijkstra search backward from the destination gives the unobstructed distance of every broker. The bound of a
  family is then computed from the neighbours of one broker, and if the path it suggests does not cross the prefix,
  the bound is the answer.
- Only if it does, the true best path is searched, guided by the same distances (A*), and only when the family
  reaches the head of the queue: most families never do.

With a deadline, families whose bound exceeds it are never entered.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from overlane.planning.network import HOP_BITS, Network
from overlane.planning.problem import BadProblem

_FAR = 1 << 120  # above the cost of any path: BROKERS_MAX steps of LATENCY_NS_MAX
_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Path:
    """A way through the network: the indices of its brokers, both ends included, and its whole delay."""

    brokers: tuple[int, ...]
    latency_ns: int


@dataclass(frozen=True, slots=True)
class Tree:
    """The shortest paths from one broker to all: latency and last broker before each, None where nothing leads."""

    source: int
    latency_ns: list[int | None]
    previous: list[int | None]

    def path(self, destination: int) -> Path | None:
        """The shortest path to a broker, None when it cannot be reached."""
        latency_ns = self.latency_ns[destination]
        if latency_ns is None:
            return None
        brokers = [destination]
        while (before := self.previous[brokers[-1]]) is not None:
            brokers.append(before)
        return Path(tuple(reversed(brokers)), latency_ns)


def shortest_tree(network: Network, source: int) -> Tree:
    """The first path in the order of paths from `source` to every broker (Dijkstra)."""
    costs = [_FAR] * len(network)
    previous = [_NOWHERE] * len(network)
    costs[source] = network.processing_ns[source] << HOP_BITS
    queue = [(costs[source], source)]
    steps = network.steps
    while queue:
        cost, broker = heappop(queue)
        if cost > costs[broker]:
            continue
        for neighbour, step in steps[broker]:
            reached = cost + step
            if reached < costs[neighbour]:
                costs[neighbour] = reached
                previous[neighbour] = broker
                heappush(queue, (reached, neighbour))
            elif reached == costs[neighbour] and _trace(previous, broker) < _trace(previous, previous[neighbour]):
                previous[neighbour] = broker
    return Tree(
        source,
        [None if cost == _FAR else cost >> HOP_BITS for cost in costs],
        [None if before == _NOWHERE else before for before in previous],
    )


Change = tuple[int, int, int | None]
"""A link from one broker to another, and what it takes now; None if it is gone, or takes something else."""


def changes(before: Network, after: Network) -> list[Change] | None:
    """How the links of two networks differ; None if their brokers do."""
    if before.names != after.names or before.processing_ns != after.processing_ns:
        return None
    return [
        (start, end, cost if (end, cost) in new else None)
        for start, (old, new) in enumerate(zip(before.steps, after.steps, strict=True))
        if old != new
        for end, cost in set(old) ^ set(new)
    ]


def still_shortest(tree: Tree, changed: list[Change]) -> bool:
    """Whether a tree certainly is the shortest one after these changes, too.

    It is unless a link of the tree has changed, or another one is now quick enough to matter.
    """
    for start, end, cost in changed:
        begun, known = tree.latency_ns[start], tree.latency_ns[end]
        if tree.previous[end] == start:
            return False
        if cost is not None and begun is not None and (known is None or begun + (cost >> HOP_BITS) <= known):
            return False
    return True


def _trace(previous: list[int], broker: int) -> list[int]:
    brokers = []
    while broker != _NOWHERE:
        brokers.append(broker)
        broker = previous[broker]
    return brokers[::-1]


def k_shortest(network: Network, source: int, destination: int, k: int, within_ns: int | None = None) -> list[Path]:
    """The first `k` simple paths in the order of paths, fewer if there are no more, none slower than `within_ns`."""
    if source == destination:
        raise BadProblem("destination", repr(network.names[destination]), "a broker other than the source")
    search = _Search(network, source, destination, within_ns)
    paths: list[Path] = []
    while len(paths) < k and (path := search.next()) is not None:
        paths.append(path)
    return paths


class _Family(NamedTuple):
    """Simple paths that begin with `path[:fixed]` and do not go on to `banned`; compared in the order of the queue.

    `cost` bounds them all from below. When `found`, it is the cost of the best one, which is `path`; otherwise `path`
    is only the prefix. A mere bound comes before a path of the same cost, which it may still undercut in names.
    """

    cost: int
    found: bool
    path: tuple[int, ...]
    fixed: int
    prefix_cost: int
    banned: tuple[int, ...]


class _Search:
    """Yields the simple paths between two brokers one by one, in the order of paths."""

    def __init__(self, network: Network, source: int, destination: int, within_ns: int | None) -> None:
        self._steps = network.steps
        self._destination = destination
        self._to_go, self._toward = _guide(network, destination)
        self._ceiling = _FAR - 1 if within_ns is None else min(_FAR, within_ns + 1 << HOP_BITS) - 1
        self._queue: list[_Family] = []
        self._enter((source,), network.processing_ns[source] << HOP_BITS, ())

    def next(self) -> Path | None:
        while self._queue:
            family = heappop(self._queue)
            if family.found:
                self._split(family)
                return Path(family.path, family.cost >> HOP_BITS)
            if (best := self._best(family)) is not None:
                heappush(self._queue, best)
        return None

    def _split(self, family: _Family) -> None:
        """Enter the family without its best path: by where another path first leaves it."""
        path, cost, banned = family.path, family.prefix_cost, family.banned
        for at in range(family.fixed - 1, len(path) - 1):
            following = path[at + 1]
            self._enter(path[: at + 1], cost, (*banned, following))
            cost += next(step for neighbour, step in self._steps[path[at]] if neighbour == following)
            banned = ()

    def _enter(self, prefix: tuple[int, ...], prefix_cost: int, banned: tuple[int, ...]) -> None:
        """Enter a family by the bound that the unhindered distances give, or by its best path when they suffice."""
        to_go = self._to_go
        bound, first = self._ceiling - prefix_cost + 1, _NOWHERE
        for neighbour, step in self._steps[prefix[-1]]:
            # Ascending neighbours and a strict comparison: the earliest name among equals.
            if step + to_go[neighbour] < bound and neighbour not in banned and neighbour not in prefix:
                bound, first = step + to_go[neighbour], neighbour
        if first == _NOWHERE:
            return
        tail = [first]
        while tail[-1] != self._destination and tail[-1] not in prefix:
            tail.append(self._toward[tail[-1]])
        found = tail[-1] == self._destination
        path = (*prefix, *tail) if found else prefix
        heappush(self._queue, _Family(prefix_cost + bound, found, path, len(prefix), prefix_cost, banned))

    def _best(self, family: _Family) -> _Family | None:
        """The family with its best path, by a search from the end of its prefix (A*); None when it has none.

        Entries of equal cost come out in the order of their names. Paths of equal cost to one broker have equally
        many hops, so the first to reach a broker is also the first in the order of paths.
        """
        prefix, to_go, steps, ceiling = family.path, self._to_go, self._steps, self._ceiling
        open_steps = tuple(step for step in steps[prefix[-1]] if step[0] not in family.banned)
        queue: list[tuple[int, tuple[int, ...]]] = [(family.cost, prefix)]
        done = set(prefix[:-1])
        while queue:
            estimate, path = heappop(queue)
            broker = path[-1]
            if broker in done:
                continue
            if broker == self._destination:
                return family._replace(cost=estimate, found=True, path=path)
            done.add(broker)
            reached = estimate - to_go[broker] if len(path) > len(prefix) else family.prefix_cost
            for neighbour, step in open_steps if len(path) == len(prefix) else steps[broker]:
                if neighbour not in done:
                    total = reached + step + to_go[neighbour]
                    if total <= ceiling:
                        heappush(queue, (total, (*path, neighbour)))
        return None


def _guide(network: Network, destination: int) -> tuple[list[int], list[int]]:
    """From every broker: the cost to the destination, and the next broker there on the first path in the order."""
    to_go = [_FAR] * len(network)
    toward = [_NOWHERE] * len(network)
    to_go[destination] = 0
    queue = [(0, destination)]
    steps_back = network.steps_back
    while queue:
        cost, broker = heappop(queue)
        if cost > to_go[broker]:
            continue
        for neighbour, step in steps_back[broker]:
            reached = cost + step
            if reached < to_go[neighbour]:
                to_go[neighbour] = reached
                toward[neighbour] = broker
                heappush(queue, (reached, neighbour))
            elif reached == to_go[neighbour] and broker < toward[neighbour]:
                toward[neighbour] = broker
    return to_go, toward
