"""Random small networks, and what the path solvers must say about them, worked out by trying everything.

Nothing here shares a line with the solvers: paths are enumerated, probabilities are fractions summed over every state
of every element, sets are compared one with another.
"""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise, product

from overlane.planning.paths import BrokerNode, Link, Network, Path

MANY = random.Random(1)
FAILURES = [
    [0.1],
    [0.0, 0.1],
    [0.25, 0.5],
    [0.0, 0.05, 1.0],
    [MANY.random() for _ in range(40)],
    [MANY.uniform(0.001, 0.02) for _ in range(40)],
]


def random_map(seed: int, brokers_max: int = 7) -> tuple[list[BrokerNode], list[Link]]:
    """A map of a few brokers: from a tree to a full mesh, from all alike to all different, some links one way only."""
    rng = random.Random(seed)
    count = rng.choice([2, *range(4, brokers_max + 1), brokers_max])
    names = [f"b{at}" for at in range(count)]
    density = rng.choice([0.4, 0.7, 0.9, 1.0])
    latency_max = rng.choice([0, 1, 2, 10, 10**9])
    failures = rng.choice(FAILURES)
    one_way = rng.choice([0.0, 0.0, 0.2])

    def latency_ns() -> int | None:
        return None if rng.random() < one_way else rng.randint(0, latency_max)

    brokers = [BrokerNode(name, rng.randint(0, latency_max), rng.choice(failures)) for name in names]
    links = [
        Link((one, other), latency_ns(), latency_ns(), rng.choice(failures))
        for one, other in combinations(names, 2)
        if rng.random() < density
    ]
    rng.shuffle(brokers)
    rng.shuffle(links)
    return brokers, links


def random_network(seed: int, brokers_max: int = 7) -> Network:
    return Network.build(*random_map(seed, brokers_max))


def renamed(brokers: list[BrokerNode], links: list[Link], new: dict[str, str]) -> Network:
    """The same map under other names."""
    return Network.build(
        [replace(broker, name=new[broker.name]) for broker in brokers],
        [replace(link, ends=(new[link.ends[0]], new[link.ends[1]])) for link in links],
    )


def order(path: Path) -> tuple[int, int, tuple[int, ...]]:
    return path.latency_ns, len(path.brokers), path.brokers


def every_path(network: Network, source: int, destination: int) -> list[Path]:
    """All simple paths, in their order."""
    found = []
    trails: list[tuple[int, ...]] = [(source,)]
    while trails:
        trail = trails.pop()
        if trail[-1] == destination:
            found.append(Path(trail, network.latency_ns(trail)))
            continue
        trails.extend((*trail, neighbour) for neighbour, _ in network.steps[trail[-1]] if neighbour not in trail)
    return sorted(found, key=order)


def elements(path: Path) -> frozenset[frozenset[int]]:
    """Brokers as sets of one, links as sets of two."""
    brokers = [frozenset([broker]) for broker in path.brokers]
    return frozenset([*brokers, *(frozenset(ends) for ends in pairwise(path.brokers))])


def failure(network: Network, element: frozenset[int]) -> Fraction:
    ends = sorted(element)
    return Fraction(network.broker_failure[ends[0]] if len(ends) == 1 else network.link_failure[ends[0], ends[1]])


def resiliency_by_states(paths: list[Path], network: Network) -> Fraction:
    """The exact probability that a path is up, over all states of all elements that may be either."""
    needs = [elements(path) for path in paths]
    chance = {element: failure(network, element) for need in needs for element in need}
    doubtful = sorted((element for element, down in chance.items() if 0 < down < 1), key=sorted)
    sure = {element for element, down in chance.items() if down == 0}
    total = Fraction(0)
    for state in product([True, False], repeat=len(doubtful)):
        up = sure | {element for element, alive in zip(doubtful, state, strict=True) if alive}
        if any(need <= up for need in needs):
            weight = Fraction(1)
            for element, alive in zip(doubtful, state, strict=True):
                weight *= 1 - chance[element] if alive else chance[element]
            total += weight
    return total


def resiliency_by_subsets(paths: list[Path], network: Network) -> Fraction:
    """The same by the paper's sum over all subsets of the paths, in fractions."""
    total = Fraction(0)
    for size in range(1, len(paths) + 1):
        for subset in combinations(paths, size):
            up = Fraction(1)
            for element in frozenset[frozenset[int]]().union(*map(elements, subset)):
                up *= 1 - failure(network, element)
            total += (-1) ** (size + 1) * up
    return total


def best_by_trying(network: Network, candidates: list[Path], n: int) -> tuple[Path, ...]:
    """The best set of 1 to n candidates: resiliency, total latency, count, order of paths."""

    def worth(chosen: tuple[Path, ...]) -> tuple[Fraction, int, int, list[tuple[int, int, tuple[int, ...]]]]:
        return (
            -resiliency_by_subsets(list(chosen), network),
            sum(path.latency_ns for path in chosen),
            len(chosen),
            [order(path) for path in chosen],
        )

    sets = [chosen for size in range(1, n + 1) for chosen in combinations(candidates, size)]
    return min(sets, key=worth)
