"""Upper bound of routing with redundant paths, if the changes of every link of the Seattle record were known.

For each flow and slice, all sets of at most three of the fastest paths are evaluated by how often one of their paths
would have stayed in time, had the latencies of the slice changed as they did from each slice of the whole record to the
next, less a price for each link. No planner can know as much: the record by which it is judged is part of its input.
With the price per link as parameter, cover by links is a curve; routes with the same links and less knowledge are below
it.
"""

from itertools import combinations, pairwise

import numpy as np

from _adaptive_scenarios import EXAMPLES, Latencies
from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.units import Nanos
from overlane.planning import paths

PRICES = 0.02, 0.01, 0.007, 0.005, 0.004, 0.003, 0.002, 0.001
"""Per link, in probability of being in time."""
SEARCH = 10
TOGETHER_MAX = 3

Weighed = list[tuple[int, float, bool]]
"""Of each set of paths: how many links it has, how often it would be in time, and whether it was."""


def growth() -> Latencies:
    """By how much each latency grows from each slice of the record to the next."""
    with np.load(EXAMPLES / "data" / "seattle-rtt-12.npz") as data:
        rtt = data["rtt"].astype(np.float64)
    one_way: Latencies = rtt + rtt.transpose(0, 2, 1)
    grown: Latencies = one_way[1:] / np.maximum(one_way[:-1], 1e-9)
    return grown


def weigh(
    table: LinkStateTable, ends: tuple[str, str], limit: Nanos, before: Latencies, after: Latencies, grown: Latencies
) -> Weighed:
    """All sets of paths that could stand between these ends."""
    network = table.map.network(suspects=True)
    place = {name: at for at, name in enumerate(sorted(network.names))}
    found = paths.k_shortest(network, network.index(ends[0]), network.index(ends[1]), SEARCH)
    ways = [[(place[one], place[other]) for one, other in pairwise(network.named(path.brokers))] for path in found]
    would = np.array([sum(before[link] * grown[:, *link] for link in way) <= limit for way in ways])
    was = np.array([sum(after[link] for link in way) <= limit for way in ways])
    weighed: Weighed = []
    for count in range(1, TOGETHER_MAX + 1):
        for some in map(list, combinations(range(len(ways)), count)):
            links = len({link for at in some for link in ways[at]})
            weighed.append((links, float(would[some].any(axis=0).mean()), bool(was[some].any())))
    return weighed


def best(weighed: Weighed, price: float) -> tuple[int, bool]:
    """The set that is worth most at this price: its links, and whether it was in time."""
    links, _, was = max(weighed, key=lambda one: one[1] - price * one[0])
    return links, was
