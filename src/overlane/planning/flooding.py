"""Time-constrained flooding: every link that can be part of a path within the deadline, and no other.

No choice of links delivers more in time than this one; it is the reference for redundancy.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from overlane.planning.network import HOP_BITS, Network
from overlane.planning.shortest import shortest_tree

DirectedLink = tuple[int, int]


def flood(
    network: Network, source: int, destinations: Sequence[int], deadline_ns: int | None
) -> tuple[frozenset[DirectedLink], dict[int, int]]:
    """The links, and the least latency per destination that can be reached."""
    from_source = shortest_tree(network, source).latency_ns
    latency_ns = {at: ns for at in destinations if (ns := from_source[at]) is not None}
    links: set[DirectedLink] = set()
    for destination, least_ns in latency_ns.items():
        limit = None if deadline_ns is None else max(deadline_ns, least_ns)
        to_go = latency_to(network, destination)
        for start, steps in enumerate(network.steps):
            begun = from_source[start]
            if begun is None or start == destination:
                continue
            for end, cost in steps:
                rest = to_go[end]
                if end == source or rest is None:
                    continue
                if limit is None or begun + (cost >> HOP_BITS) + rest <= limit:
                    links.add((start, end))
    return frozenset(links), latency_ns


def latency_to(network: Network, destination: int) -> list[int | None]:
    """The least latency from every broker to one, its own processing included; None where nothing leads there."""
    to_go: list[int | None] = [None] * len(network)
    to_go[destination] = 0
    queue = [(0, destination)]
    while queue:
        ns, broker = heappop(queue)
        if ns != to_go[broker]:
            continue
        for neighbour, cost in network.steps_back[broker]:
            reached = ns + (cost >> HOP_BITS)
            known = to_go[neighbour]
            if known is None or reached < known:
                to_go[neighbour] = reached
                heappush(queue, (reached, neighbour))
    return to_go
