"""Route quality: loss and resiliency of routes whose class requires them, and routes that meet these requirements.

A route is planned for its deadline first (route_plan.py). If that plan, or the present route, has the required loss and
resiliency, it is used. Otherwise paths are chosen for both (`planning/constrained.py`): one path if the class uses a
single path, otherwise as many as allowed. Flooding already uses every link that can be in time: it is checked, and
nothing is added.

Links advertise their measured loss and their failure probability; both ends count. Violations are reported per
destination.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from overlane.core.gossip.network_map import MILLION, NetworkMap
from overlane.core.qos import QosClass, Routing
from overlane.core.requirements import LOSS_MAX, RESILIENCY_MIN, Requirements, Unmet
from overlane.core.routing.paths import paths_in
from overlane.core.routing.selection.route_plan import Links, RoutePlan
from overlane.core.units import NEVER, Nanos
from overlane.planning import constrained
from overlane.planning.constrained import Chosen, Wanted
from overlane.planning.paths import Network, Path

PATHS_JUDGED = 10
"""Of a route with many paths, the quickest: its loss is no greater, and its resiliency no less, than is said."""

Quality = Mapping[str, tuple[float, float]]
"""Loss and resiliency, by destination."""


def improved(found: RoutePlan, current: Links, network_map: NetworkMap, me: str, qos: QosClass) -> RoutePlan:
    """The plan, or another one that is nearer to what the class asks for."""
    if qos.routing is Routing.FLOOD or me not in (network := _network(network_map, qos)):
        return found
    losses, wanted = _losses(network_map, network), _wanted(qos)
    links: set[tuple[str, str]] = set()
    latency_ns = dict(found.latency_ns)
    if not current <= network_map.claims.keys():
        current = frozenset()
    for destination in sorted(found.latency_ns):
        chosen = None
        for known in (found.links, current):
            held = _judge(network, losses, _paths(network, known, me, destination), qos.deadline_ns)
            if (
                held.paths
                and held.misses(wanted)[0] == 0
                and held.paths[0].latency_ns <= max(qos.deadline_ns, found.latency_ns[destination])
            ):
                chosen = held
                break
        if chosen is None:
            copies = 1 if qos.routing is Routing.SINGLE else max(2, qos.paths)
            ends = network.index(me), network.index(destination)
            chosen = constrained.choose(network, losses, *ends, wanted, copies)
        latency_ns[destination] = min(path.latency_ns for path in chosen.paths)
        links.update(link for path in chosen.paths for link in pairwise(network.named(path.brokers)))
    return replace(found, links=frozenset(links), latency_ns=latency_ns)


def judged(
    links: Links, destinations: Iterable[str], network_map: NetworkMap, me: str, qos: QosClass
) -> tuple[Quality, tuple[Unmet, ...]]:
    """Loss and resiliency over these links, and what of them is not as the class asks for."""
    network = _network(network_map, qos)
    if me not in network:
        return {}, ()
    losses, wanted = _losses(network_map, network), _wanted(qos)
    quality: dict[str, tuple[float, float]] = {}
    unmet: list[Unmet] = []
    for destination in sorted(destinations):
        held = _judge(network, losses, _paths(network, links, me, destination), qos.deadline_ns)
        if held.paths:
            quality[destination] = round(held.loss, 6), round(held.resiliency, 6)
            unmet += _unmet(destination, held, wanted, qos.requires)
    return quality, tuple(unmet)


def _unmet(destination: str, held: Chosen, wanted: Wanted, requires: Requirements) -> Iterable[Unmet]:
    if replace(held, resiliency=1.0).misses(wanted)[0]:
        yield Unmet(destination, LOSS_MAX, requires.loss_max, round(held.loss, 6))
    if replace(held, loss=0.0).misses(wanted)[0]:
        yield Unmet(destination, RESILIENCY_MIN, requires.resiliency_min, round(held.resiliency, 6))


def _wanted(qos: QosClass) -> Wanted:
    deadline_ns = None if qos.deadline_ns >= NEVER else qos.deadline_ns
    return Wanted(deadline_ns, qos.requires.loss_max, qos.requires.resiliency_min)


def _network(network_map: NetworkMap, qos: QosClass) -> Network:
    return network_map.network(suspects=True, label=qos.label)


def _losses(network_map: NetworkMap, network: Network) -> dict[tuple[int, int], float]:
    return {
        (network.index(one), network.index(other)): claim.loss_millionths / MILLION
        for (one, other), claim in network_map.claims.items()
        if claim.loss_millionths
    }


def _paths(network: Network, links: Links, me: str, destination: str) -> list[Path]:
    found = []
    known = {(start, end) for start, steps in enumerate(network.steps) for end, _ in steps}
    for names in paths_in(links, me, destination):
        brokers = tuple(map(network.index, names)) if all(name in network for name in names) else ()
        if brokers and known.issuperset(pairwise(brokers)):
            found.append(Path(brokers, network.latency_ns(brokers)))
    return found


def _judge(
    network: Network, losses: Mapping[tuple[int, int], float], paths: Sequence[Path], deadline_ns: Nanos
) -> Chosen:
    """Paths that are late do not count beside others that are not."""
    in_time = [path for path in paths if path.latency_ns <= deadline_ns]
    return constrained.evaluate(network, losses, in_time or paths)
