"""The packet switch of a wide area: takes packets from sites and delivers each when it is due.

The destination follows from the port a packet entered by and its destination address. The route is a chain of
directions: out of the site's uplink if that has its own conditions, along the path between the two sites, and into the
other uplink. Without a path, the route is the shortest one over other sites if `detours` are enabled; otherwise the
sender gets ICMP host unreachable, as from a router.

    plug -> [uplink out] -> path, or several -> [uplink in] -> plug

Packets in transit wait in one heap, ordered by due time. Each further direction counts from that exact time, not from
when the heap was checked, so delays do not accumulate.

Pure: packets and the time go in, packets come out. The emulator drives it.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from random import Random

import msgspec

from overlane.core.units import NEVER, Nanos
from overlane.testbed.direction import Carried, Conditions, Direction
from overlane.testbed.nat import Translation
from overlane.testbed.packets import HOST_UNREACHABLE, PROHIBITED, address_bytes, flow_of, is_ipv4, unreachable


class Plug(msgspec.Struct, frozen=True, kw_only=True):
    """Where a site meets the wide area: one of its uplinks. Its own conditions, if any, hold for all traffic of it."""

    site: str
    address: str
    uplink: str = ""
    out: Conditions | None = None
    into: Conditions | None = None


class SwitchConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A whole wide area. A path is one direction, from a site to a site."""

    plugs: tuple[Plug, ...]
    paths: tuple[tuple[str, str, Conditions], ...]
    behind_nat: tuple[str, ...] = ()
    detours: bool = False
    seed: int = 0


class Switch:
    def __init__(self, plan: SwitchConfig) -> None:
        luck = Random(plan.seed)
        self._plugs = plan.plugs
        self._addresses = [address_bytes(plug.address) for plug in plan.plugs]
        self._by_address = {address: number for number, address in enumerate(self._addresses)}
        self._directions = {(one, other): Direction(conditions, luck) for one, other, conditions in plan.paths}
        self._out = [Direction(plug.out, luck) if plug.out else None for plug in plan.plugs]
        self._into = [Direction(plug.into, luck) if plug.into else None for plug in plan.plugs]
        self._translations = {site: Translation() for site in plan.behind_nat}
        self._unplugged: set[int] = set()
        self._ways = self._all_ways(plan.detours)
        self._heap: list[tuple[Nanos, int, int, Sequence[Direction], int, bytes]] = []
        self._number = 0  # keeps the order of packets that are due at the same time
        self.refused = 0

    # Ways

    def _all_ways(self, detours: bool) -> list[dict[bytes, tuple[int, tuple[Direction, ...]]]]:
        """Per plug: the plug that has an address, and the directions to it."""
        between = _shortest(self._directions) if detours else {pair: (pair,) for pair in self._directions}
        ways: list[dict[bytes, tuple[int, tuple[Direction, ...]]]] = [{} for _ in self._plugs]
        for source, plug in enumerate(self._plugs):
            for address, target in self._by_address.items():
                pairs = between.get((plug.site, self._plugs[target].site))
                if pairs is not None:
                    legs = (self._out[source], *(self._directions[pair] for pair in pairs), self._into[target])
                    ways[source][address] = target, tuple(leg for leg in legs if leg is not None)
        return ways

    # Packets

    def enter(self, plug: int, packet: bytes, now: Nanos) -> None:
        """A packet comes out of a site."""
        # What bears the address of another uplink, a provider would not take either (BCP 38).
        if not is_ipv4(packet) or plug in self._unplugged or packet[12:16] != self._addresses[plug]:
            return
        way = self._ways[plug].get(packet[16:20])
        if way is None:
            self._refuse(plug, packet, HOST_UNREACHABLE, now)
            return
        target, directions = way
        if self._translations:
            if (inside := self._translations.get(self._plugs[plug].site)) is not None:
                inside.leaves(flow_of(packet), now)
            outside = self._translations.get(self._plugs[target].site)
            if outside is not None and not outside.let_in(flow_of(packet), now):
                self._refuse(plug, packet, PROHIBITED, now)
                return
        self._travel(now, target, directions, 0, packet)

    def _travel(self, now: Nanos, target: int, directions: Sequence[Direction], leg: int, packet: bytes) -> None:
        arrives_ns = directions[leg].arrival(len(packet), now)
        if arrives_ns is not None:
            self._number += 1
            heappush(self._heap, (arrives_ns, self._number, target, directions, leg + 1, packet))

    def _refuse(self, plug: int, packet: bytes, code: int, now: Nanos) -> None:
        self.refused += 1
        told = unreachable(packet, code)
        if told is not None:
            self._number += 1
            heappush(self._heap, (now, self._number, plug, (), 0, told))

    def next_due(self) -> Nanos:
        return self._heap[0][0] if self._heap else NEVER

    def leave(self, now: Nanos) -> tuple[int, bytes] | None:
        """The next packet that is due, and the plug it goes into; None if there is none yet."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            due_ns, _, target, directions, leg, packet = heappop(heap)
            if leg < len(directions):
                self._travel(due_ns, target, directions, leg, packet)
            elif target not in self._unplugged:
                return target, packet
        return None

    # Changes

    def conditions(self, one: str, other: str) -> Conditions | None:
        direction = self._directions.get((one, other))
        return direction.conditions if direction is not None else None

    def change(self, one: str, other: str, conditions: Conditions) -> None:
        self._directions[one, other].change(conditions)

    def plug(self, number: int, is_in: bool) -> None:
        if is_in:
            self._unplugged.discard(number)
        else:
            self._unplugged.add(number)

    def carried(self) -> list[tuple[str, str, Carried]]:
        return [(one, other, direction.carried()) for (one, other), direction in self._directions.items()]


Pair = tuple[str, str]


def _shortest(directions: Mapping[Pair, Direction]) -> dict[Pair, tuple[Pair, ...]]:
    """Per pair of sites the path between them, or else the paths with the least latency in sum, as they are now."""
    found: dict[Pair, tuple[Pair, ...]] = {}
    for source in sorted({one for one, _ in directions}):
        reached: dict[str, tuple[Pair, ...]] = {}
        heap: list[tuple[Nanos, str, tuple[Pair, ...]]] = [(0, source, ())]
        while heap:
            latency_ns, site, pairs = heappop(heap)
            if site in reached:
                continue
            reached[site] = pairs
            for pair, next_ns in _leaving(directions, site):
                heappush(heap, (latency_ns + next_ns, pair[1], (*pairs, pair)))
        for site, pairs in reached.items():
            if site != source:
                found[source, site] = ((source, site),) if (source, site) in directions else pairs
    return found


def _leaving(directions: Mapping[Pair, Direction], site: str) -> Iterable[tuple[Pair, Nanos]]:
    return [(pair, one.conditions.latency_ns) for pair, one in directions.items() if pair[0] == site]
