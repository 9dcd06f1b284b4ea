"""Reserved trees: the paths that messages of reserved flows take, from this broker to those that have asked.

They are chosen by who makes the reservations, and told here. A flow has a number; the class of a message names it
(`QosClass.reservation`). Its route is the part of the tree that leads to the destinations of the message. Where the
tree does not lead there, or a link of it is down, the route is planned like every other until there is another tree.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from overlane.core.qos import QosClass

Links = frozenset[tuple[str, str]]


class ReservedTrees:
    def __init__(self, me: str) -> None:
        self._me = me
        self._before: dict[int, Mapping[str, str]] = {}
        """By flow, the broker before each of its tree."""
        self._leaves: dict[int, frozenset[str]] = {}
        self.changes = 0

    def set(self, flow: int, links: Iterable[tuple[str, str]], leaves: Collection[str]) -> bool:
        """The tree of a flow from now on; without leaves there is none. Whether it is another one."""
        before = {end: start for start, end in links}
        known = self._before.get(flow, {}), self._leaves.get(flow, frozenset())
        if known == (before, frozenset(leaves)):
            return False
        self.changes += 1
        if leaves:
            self._before[flow], self._leaves[flow] = before, frozenset(leaves)
        else:
            self._before.pop(flow, None)
            self._leaves.pop(flow, None)
        return True

    def leaves(self, flow: int) -> frozenset[str]:
        return self._leaves.get(flow, frozenset())

    def part_for(self, qos: QosClass, destinations: tuple[str, ...]) -> tuple[QosClass, tuple[str, ...]]:
        """Of the destinations of a message, those that its class is for; and the class to send it in."""
        leaves = self.leaves(abs(qos.reservation))
        if qos.reservation > 0:
            return qos, tuple(name for name in destinations if name in leaves)
        return replace(qos, reservation=0), tuple(name for name in destinations if name not in leaves)

    def links(self, flow: int, destinations: Iterable[str], up: Collection[tuple[str, str]]) -> Links | None:
        """The part of a tree that leads to these destinations; None if it does not, or not over links that are up."""
        before = self._before.get(flow)
        if before is None:
            return None
        found: set[tuple[str, str]] = set()
        for name in destinations:
            while name != self._me:
                previous = before.get(name)
                if previous is None or (previous, name) not in up:
                    return None
                if (previous, name) in found:
                    break
                found.add((previous, name))
                name = previous
        return frozenset(found)
