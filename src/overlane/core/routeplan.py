"""A route's plan: which links lead from this broker to a set of destinations, for one QoS class, by the present map.

  single      the quickest path to each destination
  multipath   per destination the most resilient set of paths among the quickest within the deadline (H5)
  flood       every link that can be part of a path within the deadline
  adaptive    the quickest path while all is well, redundancy where links are in trouble (planning/targeted.py)
  thrifty     as adaptive, but it only avoids trouble and leaves the rest to hop-by-hop repair

Suspect links are used only to reach what nothing else reaches in time, but by a flood. An unmeetable
deadline gets the quickest way there
is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from overlane.core.linkstate import LinkStateTable
from overlane.core.messages import LinkClaim
from overlane.core.networkmap import MILLION
from overlane.core.qos import QosClass, Routing
from overlane.core.units import MS, NEVER, US, Nanos
from overlane.core.watch import NOTICE_DELAY
from overlane.planning import flooding, paths, targeted

Links = frozenset[tuple[str, str]]

SEARCH = 16
TARGET = 0.9995
"""Adaptive routes add redundancy until messages arrive in time with this probability."""
LOSS_MIN = 0.01
"""Less loss than this is left to hop-by-hop repair."""
TROUBLE_MIN = 0.0005
SWING_RISK = 0.02
"""How likely a message fails on a link whose latency lately rose by more than the slack, all at once."""
RETRIES_MAX = 3
PROMPT_SLACK: Nanos = 150 * MS
"""With less slack than this, notices of parcels are asked for at once, so that there is time for a repair."""


@dataclass(frozen=True, slots=True)
class Plan:
    links: Links
    latency_ns: dict[str, Nanos]
    """Per destination that can be reached, by its quickest path."""
    resiliency: float = 1.0
    """Of the least resilient destination; multipath alone tells it."""

    @property
    def redundant(self) -> bool:
        """Whether some broker gets more than one copy."""
        return len({end for _, end in self.links}) < len(self.links)


def plan(table: LinkStateTable, me: str, qos: QosClass, destinations: Sequence[str]) -> Plan:
    if qos.routing is Routing.FLOOD:
        return _solve(table, table.map.network(suspects=True, label=qos.label), me, qos, destinations)
    clean, whole = table.map.network(suspects=False, label=qos.label), table.map.network(suspects=True, label=qos.label)
    first = _solve(table, clean, me, qos, destinations)
    late = [
        name
        for name in destinations
        if first.latency_ns.get(name, NEVER) > qos.deadline_ns or name not in first.latency_ns
    ]
    if not late or clean is whole:
        return first
    # A suspect link may only be slow: where nothing else is in time it is the better bet, and both the best.
    plans = [_solve(table, whole, me, qos, late)]
    if len(late) < len(destinations):
        plans.append(_solve(table, clean, me, qos, [name for name in destinations if name not in late]))
    latency_ns = {name: ns for one in plans for name, ns in one.latency_ns.items()}
    if qos.routing in (Routing.ADAPTIVE, Routing.THRIFTY):
        plans.append(first)
    return Plan(frozenset().union(*(one.links for one in plans)), latency_ns, min(one.resiliency for one in plans))


def _solve(table: LinkStateTable, network: paths.Network, me: str, qos: QosClass, destinations: Sequence[str]) -> Plan:
    if me not in network:
        return Plan(frozenset(), {})
    source = network.index(me)
    wanted = [network.index(name) for name in destinations if name in network and name != me]
    deadline = None if qos.deadline_ns >= NEVER else qos.deadline_ns
    resiliency = 1.0
    match qos.routing:
        case Routing.SINGLE:
            found = targeted.spread(network, source, wanted, deadline, {}, 0.0)
            links, latency = found.links, found.latency_ns
        case Routing.MULTIPATH:
            links, latency, resiliency = _multipath(network, source, wanted, deadline, qos.paths)
        case Routing.FLOOD:
            links, latency = flooding.flood(network, source, wanted, deadline)
        case Routing.ADAPTIVE | Routing.THRIFTY:
            target = TARGET if qos.routing is Routing.ADAPTIVE else 0.0
            trouble = _trouble(table, network, _slack(network, source, wanted, qos))
            found = targeted.spread(network, source, wanted, deadline, trouble, target)
            links, latency = found.links, found.latency_ns
    names = network.names
    return Plan(
        frozenset((names[one], names[other]) for one, other in links),
        {names[at]: latency_ns for at, latency_ns in latency.items()},
        resiliency,
    )


def _multipath(
    network: paths.Network, source: int, wanted: Sequence[int], deadline: Nanos | None, n: int
) -> tuple[frozenset[tuple[int, int]], dict[int, Nanos], float]:
    links: set[tuple[int, int]] = set()
    latency: dict[int, Nanos] = {}
    resiliency = 1.0
    tree = paths.shortest_tree(network, source)
    for destination in wanted:
        quickest = tree.path(destination)
        if quickest is None:
            continue
        found = paths.multipath(network, source, destination, deadline, n, max(SEARCH, n))
        resiliency = min(resiliency, found.resiliency)
        chosen = found.paths or (quickest,)
        latency[destination] = chosen[0].latency_ns
        for path in chosen:
            links.update(pairwise(path.brokers))
    return frozenset(links), latency, resiliency


def _slack(network: paths.Network, source: int, wanted: Sequence[int], qos: QosClass) -> Nanos:
    """What the deadline leaves on the quickest path to the farthest destination."""
    latency = paths.shortest_tree(network, source).latency_ns
    return qos.deadline_ns - max((ns for at in wanted if (ns := latency[at]) is not None), default=0)


def _trouble(table: LinkStateTable, network: paths.Network, slack_ns: Nanos) -> dict[tuple[int, int], float]:
    """The links in trouble, and how likely a message fails on each."""
    trouble = {}
    for (one, other), claim in table.map.claims.items():
        if (claim.loss_millionths or claim.swing_us) and (failing := failing_on(claim, slack_ns)):
            trouble[network.index(one), network.index(other)] = failing
    return trouble


def failing_on(claim: LinkClaim, slack_ns: Nanos) -> float:
    """How likely a message fails on a link, given that hops repair what they have time for; 0 if hardly ever."""
    loss = claim.loss_millionths / MILLION
    swings = claim.swing_us * US > max(0, slack_ns)
    if loss < LOSS_MIN:
        return SWING_RISK if swings else 0.0
    retry_ns = 2 * claim.latency_us * US + 4 * claim.jitter_us * US + 5 * MS
    if slack_ns >= PROMPT_SLACK:
        retry_ns += NOTICE_DELAY
    failing = loss
    for _ in range(max(0, min(RETRIES_MAX, slack_ns // retry_ns))):
        failing *= loss
    failing = max(failing, SWING_RISK) if swings else failing
    return failing if failing >= TROUBLE_MIN else 0.0
