"""Route plan: which links lead from this broker to a set of destinations, for one QoS class, on the present map.

  single      the quickest path to each destination
  multipath   per destination the most resilient set of paths among the quickest within the deadline (H5)
  flood       every link that can be part of a path within the deadline
  adaptive    the quickest path while there is no trouble; redundancy where links are in trouble (planning/targeted.py),
              were so lately, or may get into it too quickly for a repair
  thrifty     as adaptive, but it leaves to repair what repair can mend, prepares nothing, and sends a second copy only
              while a link of the path is in trouble that can be neither avoided nor repaired

Single and multipath routes use suspect links only for destinations that nothing else reaches in time. If a deadline
cannot be met, the quickest path is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.gossip.network_map import NetworkMap
from overlane.core.qos import QosClass, Routing
from overlane.core.routing.selection.link_risks import CAUTION, Risks
from overlane.core.units import NEVER, Nanos
from overlane.planning import flooding, paths, targeted
from overlane.planning.network import HOP_BITS

Links = frozenset[tuple[str, str]]

SEARCH = 16


@dataclass(frozen=True, slots=True)
class RoutePlan:
    links: Links
    latency_ns: dict[str, Nanos]
    """Per destination that can be reached, by its quickest path."""
    resiliency: float = 1.0
    """Of the least resilient destination; only for multipath."""

    @property
    def redundant(self) -> bool:
        """Whether some broker gets more than one copy."""
        return len({end for _, end in self.links}) < len(self.links)


def plan(
    table: LinkStateTable,
    me: str,
    qos: QosClass,
    destinations: Sequence[str],
    risks: Risks | None = None,
    current: Links = frozenset(),
    believed: NetworkMap | None = None,
) -> RoutePlan:
    """`risks`: of the links of the present map, if more is known than it tells. `believed`: the map, if this source
    knows better.

    The `current` links are kept in trouble while they are as good as any: what moves with every news of it ends up
    where the next trouble is.
    """
    network_map = believed or table.map
    whole = network_map.network(suspects=True, label=qos.label)
    if qos.routing not in (Routing.SINGLE, Routing.MULTIPATH):
        # These weigh suspicion themselves, or do not care.
        return _solve(table, whole, me, qos, destinations, risks, current)
    clean = network_map.network(suspects=False, label=qos.label)
    first = _solve(table, clean, me, qos, destinations)
    late = [name for name in destinations if first.latency_ns.get(name, NEVER) > qos.deadline_ns]
    late += [name for name in destinations if name not in first.latency_ns and name not in late]
    if not late or clean is whole:
        return first
    # A suspect link may only be slow: where nothing else is in time, it is the better bet.
    in_time = [name for name in destinations if name not in late]
    first, second = _solve(table, clean, me, qos, in_time), _solve(table, whole, me, qos, late)
    return RoutePlan(
        first.links | second.links, first.latency_ns | second.latency_ns, min(first.resiliency, second.resiliency)
    )


def _solve(
    table: LinkStateTable,
    network: paths.Network,
    me: str,
    qos: QosClass,
    destinations: Sequence[str],
    risks: Risks | None = None,
    current: Links = frozenset(),
) -> RoutePlan:
    if me not in network:
        return RoutePlan(frozenset(), {})
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
            links, latency = _targeted(network, source, wanted, qos, risks or Risks(table.map), current)
    names = network.names
    return RoutePlan(
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


def _targeted(
    network: paths.Network,
    source: int,
    wanted: Sequence[int],
    qos: QosClass,
    risks: Risks,
    current: Links,
) -> tuple[frozenset[tuple[int, int]], dict[int, Nanos]]:
    """Destination by destination: what time there is for repair on a link depends on where it is to lead."""
    caution, names = CAUTION[qos.routing], network.names
    deadline = None if qos.deadline_ns >= NEVER else qos.deadline_ns
    links: set[tuple[int, int]] = set()
    latency: dict[int, Nanos] = {}
    kept = {(network.index(one), network.index(other)) for one, other in current if risks.knows((one, other))}
    keep = len(kept) == len(current) > 0
    tree = paths.shortest_tree(network, source)
    for destination in wanted:
        quickest = tree.path(destination)
        if quickest is None:
            continue
        own = quick = frozenset(pairwise(quickest.brokers))
        latency[destination] = quickest.latency_ns
        slack_ns = qos.deadline_ns - quickest.latency_ns
        if any(risks.failing((names[one], names[other]), slack_ns, caution) for one, other in own):
            trouble: dict[tuple[int, int], float] = {}
            stricken: set[int] = set()
            doubtful = risks.at_risk(risks.links)
            for (one, other), through_ns in _through(network, tree, destination).items():
                link, left_ns = (names[one], names[other]), qos.deadline_ns - through_ns
                failing = risks.failing(link, left_ns, caution) if link in doubtful else 0.0
                if failing:
                    stricken.update((one, other))
                if (one, other) not in own:
                    failing = max(failing, risks.missing(link, left_ns))
                if failing:
                    trouble[one, other] = failing
            loses = any(risks.loses((names[one], names[other]), slack_ns) for one, other in own)
            target = caution.target if loses else caution.target_silent
            gain_min = caution.gain_min if loses else caution.gain_silent
            shared = dict.fromkeys(stricken, caution.shared) if caution.shared else {}
            found = targeted.spread(network, source, [destination], deadline, trouble, target, gain_min, shared)
            own, latency[destination] = found.links, found.latency_ns[destination]
            if (
                caution.standing > 1
                and not loses
                and any(risks.swings((names[a], names[b]), slack_ns) for a, b in quick)
            ):
                # Nothing tells one link from another, so the paths that have least in common are the best guess.
                standing, latency_ns, _ = _multipath(network, source, [destination], deadline, caution.standing)
                if not any(risks.failing_now((names[one], names[other]), slack_ns) for one, other in standing):
                    own, latency[destination] = standing, latency_ns[destination]
            if keep:
                wanted_arrival, arrival = (
                    targeted.probability(network, source, destination, set(used), trouble, shared)
                    for used in (own, kept)
                )
                keep = arrival > 0 and arrival >= wanted_arrival - gain_min
        else:
            keep = keep and own <= kept
        links |= own
    return frozenset(kept if keep and len(kept) <= len(links) else links), latency


def _through(network: paths.Network, tree: paths.Tree, destination: int) -> dict[tuple[int, int], Nanos]:
    """The latency of the quickest way to the destination over each link."""
    to_go = flooding.latency_to(network, destination)
    found = {}
    for start, steps in enumerate(network.steps):
        begun = tree.latency_ns[start]
        for end, cost in steps:
            rest = to_go[end]
            if begun is not None and rest is not None:
                found[start, end] = begun + (cost >> HOP_BITS) + rest
    return found
