"""The tree of a sender: the paths from its broker to those that need its topic, chosen link by link.

A leaf is attached where that gives the least latency from the source, over links that are not to be avoided for it; the
paths of the other leaves stay as they are, because they may have reservations. A tree enters every broker by one link
only, so that a new branch may begin in any broker of the tree, but not cross it.
"""

from collections.abc import Collection, Mapping
from heapq import heappop, heappush

from overlane.reservation.contract import Broker, Link, Topology
from overlane.reservation.rsvp.objects import Tree, TreeNode

Parents = Mapping[Broker, Broker | None]
"""Every broker of a tree with the one before it; None for the source."""


def attached(
    topology: Topology, parents: Parents, leaf: Broker, avoided: Collection[Link]
) -> dict[Broker, Broker | None]:
    """The tree with a leaf more; the same tree if there is no way to it."""
    if leaf in parents:
        return dict(parents)
    starts = {broker: _latency_us(topology, parents, broker, avoided) for broker in parents}
    distance = {broker: latency_us for broker, latency_us in starts.items() if latency_us is not None}
    before: dict[Broker, Broker] = {}
    heap = [(latency_us, 0, broker) for broker, latency_us in distance.items()]
    heap.sort()
    while heap:
        latency_us, hops, broker = heappop(heap)
        if latency_us > distance[broker]:
            continue
        if broker == leaf:
            break
        for neighbour, link_us in sorted(topology.get(broker, {}).items()):
            found = latency_us + link_us
            if neighbour in parents or (broker, neighbour) in avoided:
                continue
            if found < distance.get(neighbour, found + 1):
                distance[neighbour] = found
                before[neighbour] = broker
                heappush(heap, (found, hops + 1, neighbour))
    tree = dict(parents)
    if leaf in before:
        while leaf not in tree:
            tree[leaf] = before[leaf]
            leaf = before[leaf]
    return tree


def _latency_us(topology: Topology, parents: Parents, broker: Broker, avoided: Collection[Link]) -> int | None:
    """From the source to a broker of the tree; None if the way leads over a link that is to be avoided."""
    total = 0
    while (parent := parents[broker]) is not None:
        if (parent, broker) in avoided:
            return None
        total += topology.get(parent, {}).get(broker, 0)
        broker = parent
    return total


def pruned(parents: Parents, leaves: Collection[Broker]) -> dict[Broker, Broker | None]:
    """The tree without what leads to no leaf."""
    tree: dict[Broker, Broker | None] = {broker: None for broker, parent in parents.items() if parent is None}
    for leaf in leaves:
        broker: Broker | None = leaf
        while broker is not None and broker in parents and broker not in tree:
            tree[broker] = parents[broker]
            broker = parents[broker]
    return tree


def below(parents: Parents, link: Link) -> set[Broker]:
    """The brokers of a tree that are reached over a link."""
    if link[1] not in parents or parents[link[1]] != link[0]:
        return set()
    found = {link[1]}
    while more := {broker for broker, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def as_tree(parents: Parents, leaves: Collection[Broker], last: Collection[Broker], attempt: int) -> Tree:
    """The object that describes a tree, sorted so that the same tree has the same bytes."""
    children: dict[Broker | None, list[Broker]] = {}
    for broker, parent in sorted(parents.items()):
        children.setdefault(parent, []).append(broker)
    nodes: list[TreeNode] = []
    pending: list[tuple[Broker, int | None]] = [(root, None) for root in children[None]]
    for broker, place in pending:
        nodes.append(TreeNode(broker, place, broker in leaves, broker in last))
        pending += [(child, len(nodes) - 1) for child in children.get(broker, ())]
    return Tree(tuple(nodes), attempt)


def branch(tree: Tree, child: int) -> Tree:
    """The part of a tree that begins at one of its nodes, given by its place."""
    places = {child: 0}
    nodes = [TreeNode(tree.nodes[child].broker, None, tree.nodes[child].is_leaf, tree.nodes[child].is_last)]
    for place in range(child + 1, len(tree.nodes)):
        one = tree.nodes[place]
        if one.parent in places:
            places[place] = len(nodes)
            nodes.append(TreeNode(one.broker, places[one.parent], one.is_leaf, one.is_last))
    return Tree(tuple(nodes), tree.attempt)
