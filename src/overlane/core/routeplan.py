"""A route's plan: which links lead from this broker to a set of destinations, for one QoS class, by the present map.

  single      the quickest path to each destination
  multipath   per destination the most resilient set of paths among the quickest within the deadline (H5)
  flood       every link that can be part of a path within the deadline
  adaptive    the quickest path while all is well, redundancy where links are in trouble (planning/targeted.py)
  thrifty     as adaptive, but it only avoids trouble and leaves the rest to hop-by-hop repair

Single and multipath routes use suspect links only for what nothing else reaches in time. An unmeetable deadline gets
the quickest way there is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from overlane.core.linkhealth import TROUBLE_LOSS
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
TARGET_MILD = 0.99
"""The same where trouble is only to be expected."""
LOSS_MIN = 0.01
"""Less loss than this is left to hop-by-hop repair."""
TROUBLE_MIN = 0.0005
BURST_LOSS = 0.25
SUSPECT_RISK = 0.7
UNREPAIRED_RISK = 0.02
"""How likely a message fails where trouble may begin at once and leaves no time for a repair: on a link whose latency
lately rose by more than the slack, and on one too slow to be sent over again while the map is unsettled."""
RETRIES_MAX = 6
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


def plan(table: LinkStateTable, me: str, qos: QosClass, destinations: Sequence[str], unsettled: bool = False) -> Plan:
    """`unsettled`: there was trouble somewhere on the map lately, and more may come anywhere."""
    whole = table.map.network(suspects=True, label=qos.label)
    if qos.routing not in (Routing.SINGLE, Routing.MULTIPATH):
        # These weigh suspicion themselves, or do not care.
        return _solve(table, whole, me, qos, destinations, unsettled and qos.routing is Routing.ADAPTIVE)
    clean = table.map.network(suspects=False, label=qos.label)
    first = _solve(table, clean, me, qos, destinations)
    late = [name for name in destinations if first.latency_ns.get(name, NEVER) > qos.deadline_ns]
    late += [name for name in destinations if name not in first.latency_ns and name not in late]
    if not late or clean is whole:
        return first
    # A suspect link may only be slow: where nothing else is in time, it is the better bet.
    in_time = [name for name in destinations if name not in late]
    first, second = _solve(table, clean, me, qos, in_time), _solve(table, whole, me, qos, late)
    return Plan(
        first.links | second.links, first.latency_ns | second.latency_ns, min(first.resiliency, second.resiliency)
    )


def _solve(
    table: LinkStateTable,
    network: paths.Network,
    me: str,
    qos: QosClass,
    destinations: Sequence[str],
    unsettled: bool = False,
) -> Plan:
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
            trouble = _trouble(table, network, _slack(network, source, wanted, qos), unsettled)
            mild = UNREPAIRED_RISK, TARGET_MILD
            found = targeted.spread(network, source, wanted, deadline, trouble, target, mild)
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


def _trouble(
    table: LinkStateTable, network: paths.Network, slack_ns: Nanos, unsettled: bool
) -> dict[tuple[int, int], float]:
    """The links in trouble, and how likely a message fails on each."""
    trouble = {}
    for ends, claim in table.map.claims.items():
        failing = failing_on(claim, slack_ns, unsettled)
        if ends in table.map.suspects:
            failing = max(failing, SUSPECT_RISK)
        if failing:
            trouble[network.index(ends[0]), network.index(ends[1])] = failing
    return trouble


def failing_on(claim: LinkClaim, slack_ns: Nanos, unsettled: bool = False) -> float:
    """How likely a message fails on a link, given that hops repair what they have time for; 0 if hardly ever."""
    retry_ns = 2 * claim.latency_us * US + 4 * claim.jitter_us * US + 5 * MS
    if slack_ns >= PROMPT_SLACK:
        retry_ns += NOTICE_DELAY
    retries = max(0, min(RETRIES_MAX, slack_ns // (2 * retry_ns)))
    failing = 0.0
    loss = claim.loss_millionths / MILLION
    if loss >= LOSS_MIN:
        # Loss is noticed while it grows: what is in trouble now is taken for no better than a bad burst.
        failing = loss = max(loss, BURST_LOSS) if claim.loss_millionths >= TROUBLE_LOSS else loss
        for _ in range(retries):
            failing *= loss
    if claim.swing_us * US > max(0, slack_ns) or (unsettled and slack_ns < retry_ns):
        failing = max(failing, UNREPAIRED_RISK)
    return failing if failing >= TROUBLE_MIN else 0.0
