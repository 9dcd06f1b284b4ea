"""Route description: the message that tells the brokers on a route of its present version."""

from collections.abc import Iterable

from msgspec import structs

from overlane.core.routing.route import Route
from overlane.core.routing.selection.route_latency import RouteLatencies
from overlane.core.routing.selection.route_plan import Links
from overlane.core.units import US
from overlane.core.wire.control_messages import Establish, EstablishReserved
from overlane.core.wire.message_fields import BROKERS_MAX

DESCRIBED_MAX = 32_768
"""Links in the description of a route: with as many brokers as there may be, it fits into a frame."""


def describe(me: str, incarnation: int, route: Route, before: Links, latencies: RouteLatencies) -> Establish | None:
    """The description of a route that took the links `before` in its previous version. None where no frame could hold
    it; what is reliable goes without a route then, broker by broker."""
    links = route.plan.links
    reached = set(route.plan.latency_ns)
    if len(links | before) > DESCRIBED_MAX:
        before = frozenset()  # it expires at the brokers that carried it, because nobody refreshes it
    brokers = _in_order(me, links, before, reached)
    if len(brokers) > BROKERS_MAX or len(links) > DESCRIBED_MAX:
        return None
    place = {name: at for at, name in enumerate(brokers)}

    def flat(links: Links) -> list[int]:
        return [end for link in sorted((place[start], place[end]) for start, end in links) for end in link]

    ahead = latencies.ahead(route)
    described = Establish(
        origin=me,
        incarnation=incarnation,
        route=route.id,
        version=route.version,
        brokers=brokers,
        kept=flat(links & before),
        added=flat(links - before),
        obsolete=flat(before - links),
        destinations=sorted(place[name] for name in reached),
        ahead_us=[ahead.get(name, 0) // US for name in brokers],
        deadline_us=route.qos.deadline_us,
        latency_us=route.latency_ns // US,
        hops=latencies.hops(route),
        confined=route.qos.requires.is_trust,
        encrypted=route.qos.requires.encrypted,
        shared=route.qos.is_shared,
    )
    if not route.qos.reservation:
        return described
    return EstablishReserved(**structs.asdict(described), reservation=route.qos.reservation)


def _in_order(me: str, links: Links, before: Links, reached: Iterable[str]) -> list[str]:
    """All brokers of a route, each behind the one that leads to it where that is possible: a path is a row of
    neighbours, which takes few bytes to describe (route_packing.py). What only led to them before comes later, and what
    the source does not lead to is last."""
    onward: dict[str, list[str]] = {}
    for start, end in [*sorted(before - links, reverse=True), *sorted(links, reverse=True)]:
        onward.setdefault(start, []).append(end)
    found: dict[str, None] = {}
    pending = [me]
    while pending:
        broker = pending.pop()
        if broker not in found:
            found[broker] = None
            pending += onward.get(broker, ())
    everyone = {*reached, *(name for link in links | before for name in link)}
    return [*found, *sorted(everyone - found.keys())]
