"""Targeted redundancy: extra links only where there is trouble.

While no link on the fastest path is in trouble, that path is the answer. If links are in trouble (each has a measured
probability that a message on it does not arrive in time), paths are added one by one, each time the one with the
largest gain per additional link, until the message is likely enough to arrive or nothing helps any more. For trouble
around a destination this spreads the last hops over its neighbours, around the source the first hops; for trouble in
between it adds a second path: the shape follows from the measurements.

The probability that a message arrives over a set of links is estimated broker by broker, from the source outward: it
reaches a broker unless it fails on every link into it. Copies are assumed to be independent, which is a small error if
paths are short, and the estimate is used only for comparison.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from overlane.planning.network import HOP_BITS, Network
from overlane.planning.shortest import Path, k_shortest, shortest_tree

DirectedLink = tuple[int, int]

NO_BROKERS: Mapping[int, float] = {}

GAIN_MIN = 0.0005
"""A path is not worth its links if it adds less than this for each to the probability of arrival."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Links to use, the quickest path's latency and the estimated probability of arrival per destination."""

    links: frozenset[DirectedLink]
    latency_ns: dict[int, int]
    arrival: dict[int, float]


def spread(
    network: Network,
    source: int,
    destinations: Sequence[int],
    deadline_ns: int | None,
    trouble: Mapping[DirectedLink, float],
    target: float,
    gain_min: float = GAIN_MIN,
    brokers: Mapping[int, float] = NO_BROKERS,
    search: int = 12,
) -> Spread:
    """Links from the source to every destination that can be reached, with redundancy where `trouble` asks for it.

    `trouble` is the probability, per directed link, that a message on it fails to come through in time; links that are
    not in it are well. With a `target` of 0 no redundancy is added, but trouble is still avoided where that costs
    nothing. A destination no
    path reaches within the deadline gets its quickest path.
    """
    tree = shortest_tree(network, source)
    links: set[DirectedLink] = set()
    latency_ns: dict[int, int] = {}
    arrival: dict[int, float] = {}
    for destination in destinations:
        quickest = tree.path(destination)
        if quickest is None:
            continue
        chosen, latency_ns[destination] = [quickest], quickest.latency_ns
        if any(link in trouble for link in pairwise(quickest.brokers)):
            candidates = _candidates(network, source, quickest, search, deadline_ns)
            chosen = _choose(network, source, destination, candidates, trouble, target, gain_min, brokers)
            latency_ns[destination] = min(path.latency_ns for path in chosen)
        own = {link for path in chosen for link in pairwise(path.brokers)}
        arrival[destination] = probability(network, source, destination, own, trouble, brokers)
        links |= own
    return Spread(frozenset(links), latency_ns, arrival)


def probability(
    network: Network,
    source: int,
    destination: int,
    links: set[DirectedLink],
    trouble: Mapping[DirectedLink, float],
    brokers: Mapping[int, float] = NO_BROKERS,
) -> float:
    """How likely a message arrives over these links."""
    costs = {source: 0}
    order = [source]
    into: dict[int, list[int]] = {}
    away: dict[int, list[int]] = {}
    for start, end in sorted(links):
        into.setdefault(end, []).append(start)
        away.setdefault(start, []).append(end)
    # Brokers by their distance over these links alone; every copy moves outward.
    pending = {source}
    while pending:
        broker = min(pending, key=lambda one: (costs[one], one))
        pending.remove(broker)
        if broker not in (source, destination):
            order.append(broker)
        for neighbour in away.get(broker, ()):
            reached = costs[broker] + _cost(network, broker, neighbour)
            if neighbour not in costs or (neighbour in pending and reached < costs[neighbour]):
                costs[neighbour] = reached
                pending.add(neighbour)
    arrives = {source: 1.0}
    # The destination last: a copy that comes later on another way still comes.
    for broker in (*order[1:], *((destination,) if destination in costs else ())):
        missed = 1.0
        for before in into[broker]:
            if before in arrives:
                missed *= 1.0 - arrives[before] * (1.0 - trouble.get((before, broker), 0.0))
        arrives[broker] = (1.0 - missed) * (1.0 - (brokers.get(broker, 0.0) if broker != destination else 0.0))
    return arrives.get(destination, 0.0)


def _candidates(network: Network, source: int, quickest: Path, search: int, deadline_ns: int | None) -> list[Path]:
    """The quickest paths, and for each link of the quickest the quickest path without it.

    Where many links are alike the quickest paths are variations of each other and may all share one link.
    """
    destination = quickest.brokers[-1]
    found = k_shortest(network, source, destination, search, deadline_ns) or [quickest]
    links = set(pairwise(quickest.brokers))
    for avoided in (*({link} for link in sorted(links)), links):
        path = shortest_tree(_without(network, avoided), source).path(destination)
        if path is not None and path not in found and (deadline_ns is None or path.latency_ns <= deadline_ns):
            found.append(path)
    return sorted(found, key=lambda path: (path.latency_ns, len(path.brokers), path.brokers))


def _without(network: Network, links: set[DirectedLink]) -> Network:
    steps = list(network.steps)
    for start, end in links:
        steps[start] = tuple(step for step in steps[start] if step[0] != end)
    return replace(network, steps=tuple(steps))


def _choose(
    network: Network,
    source: int,
    destination: int,
    candidates: list[Path],
    trouble: Mapping[DirectedLink, float],
    target: float,
    gain_min: float,
    brokers: Mapping[int, float],
) -> list[Path]:
    edges = [frozenset(pairwise(path.brokers)) for path in candidates]

    def arrival(links: set[DirectedLink]) -> float:
        return probability(network, source, destination, links, trouble, brokers)

    # The quickest of those that are as good as the best, to within a hair.
    alone = [arrival(set(own)) for own in edges]
    first = next(at for at, value in enumerate(alone) if value >= max(alone) - gain_min)
    chosen, links, reached = [first], set(edges[first]), alone[first]
    while reached < target:
        best: tuple[float, int, float] | None = None
        for at, own in enumerate(edges):
            more = len(own - links)
            if at in chosen or not more:
                continue
            gained = arrival(links | own)
            worth = (gained - reached) / more
            if worth > gain_min and (best is None or worth > best[0]):
                best = worth, at, gained
        if best is None:
            break
        _, at, reached = best
        chosen.append(at)
        links |= edges[at]
    return [candidates[at] for at in sorted(chosen)]


def _cost(network: Network, start: int, end: int) -> int:
    return next(cost for neighbour, cost in network.steps[start] if neighbour == end) >> HOP_BITS
