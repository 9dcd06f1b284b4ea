"""Channel review: which routes messages share where their number is limited, from what was sent lately.

Every `REVIEW_EVERY` the rates of all kinds (a class and a set of destinations) are measured. A class that has more sets
of several destinations than routes is a mapping problem (`planning.channels`), which a driver has solved; it may take
seconds. It is posed again when the present mapping has become clearly worse than it was when the problem was last
solved: rates are others, or there are new sets. A mapping that is hardly better is not taken, since messages that
change routes wait for those before them.

Each broker does this for its own routes. Nobody else uses them, so there is nothing to agree upon.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from overlane.core.config import Destinations, RouteDemand, RouteKind
from overlane.core.events import SetChannels
from overlane.core.qos import QosClass
from overlane.core.units import SECOND, Nanos
from overlane.planning.channels import Advertisement, Channel, cost_of

REVIEW_EVERY: Nanos = 10 * SECOND
WORSE = 0.05
"""Of what all messages would cost one by one: by so much more than after the last solution, it is solved again."""
UNICAST_WEIGHT = 2.0
"""A copy that is sent apart takes the whole way from here, an unsolicited one mostly the last link."""
BETTER = 0.9
"""A mapping is taken if it costs no more than so much of the present one."""

Ways = Mapping[RouteKind, tuple[Destinations, ...]]


@dataclass(frozen=True, slots=True)
class MappingProblem:
    """The sets of destinations of a class, as advertisements named by their place."""

    qos: QosClass
    sets: tuple[Destinations, ...]
    advertisements: tuple[Advertisement, ...]
    channels: int


@dataclass(slots=True)
class ChannelReview:
    routes_max: int
    _sent: dict[RouteKind, int] = field(default_factory=dict)
    _looked_ns: Nanos = 0
    _shares: dict[QosClass, float] = field(default_factory=dict)
    """What the mapping of a class cost after its last solution, of what it would cost without channels."""
    _ways: dict[RouteKind, tuple[Destinations, ...]] = field(default_factory=dict)
    costs_bps: dict[QosClass, tuple[float, float]] = field(default_factory=dict)
    """Of the mapping that was found last: bits per second that nobody has asked for, and those sent one by one."""

    def look(self, demand: Sequence[RouteDemand], ways: Ways, now: Nanos) -> list[MappingProblem]:
        """What is to be solved. `ways`: the routes that each kind takes now."""
        elapsed_s = (now - self._looked_ns) / SECOND
        sent = {(one.qos, one.destinations): one.sent_bytes for one in demand}
        rates_bps = {kind: max(0, sent[kind] - self._sent.get(kind, 0)) * 8 / elapsed_s for kind in sent}
        is_first = not self._looked_ns
        self._sent, self._looked_ns = sent, now
        if is_first:
            return []
        classes = {qos for qos, _ in sent}
        problems = [self._problem(qos, rates_bps) for qos in sorted(classes)]
        return [one for one in problems if one is not None and self._is_due(one, ways)]

    def _problem(self, qos: QosClass, rates_bps: Mapping[RouteKind, float]) -> MappingProblem | None:
        """None if there are enough routes."""
        sets = tuple(
            sorted(kind[1] for kind, rate_bps in rates_bps.items() if kind[0] == qos and rate_bps and len(kind[1]) > 1)
        )
        if len(sets) <= self.routes_max:
            return None
        advertisements = tuple(Advertisement(str(place), rates_bps[qos, one], one) for place, one in enumerate(sets))
        return MappingProblem(qos, sets, advertisements, self.routes_max)

    def _is_due(self, problem: MappingProblem, ways: Ways) -> bool:
        share = cost_share(problem, ways)
        return share > self._shares.get(problem.qos, -1.0) + WORSE

    def solved(self, problem: MappingProblem, channels: Sequence[Channel], ways: Ways) -> SetChannels | None:
        """The mapping of this class from now on, with those of others; None if it is hardly better than the present."""
        found = {
            (problem.qos, wanted): _ways(str(place), wanted, channels) for place, wanted in enumerate(problem.sets)
        }
        before, after = cost_share(problem, ways), cost_share(problem, found)
        is_better = after <= BETTER * before
        self._shares[problem.qos] = after if is_better else before
        if not is_better:
            return None
        cost = cost_of(problem.advertisements, channels, unicast_weight=1.0)
        self.costs_bps[problem.qos] = cost.waste_bps, cost.unicast_bps
        self._ways = {kind: one for kind, one in self._ways.items() if kind[0] != problem.qos} | found
        return SetChannels(dict(self._ways))


def cost_share(problem: MappingProblem, ways: Ways) -> float:
    """What a mapping costs, of what it would cost to send everything to each broker apart."""
    cost_bps = everything_bps = 0.0
    for wanted, advertisement in zip(problem.sets, problem.advertisements, strict=True):
        everything_bps += advertisement.rate_bps * UNICAST_WEIGHT * len(wanted)
        taken = ways.get((problem.qos, wanted), tuple((name,) for name in wanted))
        shared = [name for way in taken if len(way) > 1 for name in way]
        apart = sum(len(way) == 1 for way in taken)
        wasted = len(shared) - len(set(shared) & set(wanted))
        cost_bps += advertisement.rate_bps * (wasted + UNICAST_WEIGHT * apart)
    return cost_bps / everything_bps if everything_bps else 0.0


def _ways(name: str, wanted: Destinations, channels: Sequence[Channel]) -> tuple[Destinations, ...]:
    """The channels of an advertisement, and those who have asked and are members of none."""
    taken = sorted({tuple(sorted(one.members)) for one in channels if name in one.advertisements})
    reached = {member for members in taken for member in members}
    return (*taken, *((one,) for one in wanted if one not in reached))
