"""Paths for a deadline: the set of paths that is most likely to deliver in time.

`multipath` does everything: of the k fastest simple paths between two brokers, those within the deadline, and among
these the set of at most n with the highest probability that one path is up. The parts can be used alone: `network` is
the map, `shortest` the order of paths, `resiliency` the value of a set of them.

Everything is a pure function of the map, in integers: the same map gives the same paths in every process on every
machine, whatever the order in which brokers and links were learned.
"""

from overlane.planning.network import BrokerNode, Link, Network, both_ways
from overlane.planning.problem import BadProblem
from overlane.planning.resiliency import PATHS_MAX, WORK_MAX, PathSet, best_set, resiliency
from overlane.planning.shortest import Change, Path, Tree, changes, k_shortest, shortest_tree, still_shortest

__all__ = [
    "PATHS_MAX",
    "SEARCH_MAX",
    "WORK_MAX",
    "BrokerNode",
    "Change",
    "Link",
    "Network",
    "Path",
    "PathSet",
    "Tree",
    "best_set",
    "both_ways",
    "changes",
    "k_shortest",
    "multipath",
    "resiliency",
    "shortest_tree",
    "still_shortest",
]

SEARCH_MAX = 1024
"""Most paths considered between two brokers."""


def multipath(
    network: Network,
    source: int,
    destination: int,
    deadline_ns: int | None,
    n: int,
    k: int,
    work_max: int = WORK_MAX,
) -> PathSet:
    """The best set of at most `n` among the `k` quickest paths within the deadline; no paths when none keeps it."""
    if not n <= k <= SEARCH_MAX:
        raise BadProblem("search", str(k), f"{n} (the number of paths) to {SEARCH_MAX}")
    return best_set(network, k_shortest(network, source, destination, k, deadline_ns), n, work_max)
