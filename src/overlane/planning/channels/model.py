"""Channels: which advertisements are sent together, to which nodes, and the cost.

A channel is one multicast address. Every member node receives everything sent on it. An advertisement may be sent on
several channels or on none, a node may be a member of several or of none. For an advertisement of rate r and a node
that receives it k times:

    wanted, k = 0    it is sent by unicast               r * unicast_weight
    wanted, k >= 1   every copy after the first is waste r * (k - 1)
    not wanted       every copy is waste                 r * k

The cost of a mapping is the sum over all advertisements and nodes: unwanted bits per second, plus the weighted unicast.
Two extremes bound it: everything by unicast costs the whole demand times the weight; as many channels as there are
different subscriber lists cost nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from overlane.planning.problem import BadProblem


@dataclass(frozen=True, slots=True)
class Advertisement:
    """A flow of notifications and the nodes that want it."""

    name: str
    rate_bps: float
    subscribers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Channel:
    """One multicast address: who listens, and what is sent."""

    members: tuple[str, ...]
    advertisements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a mapping costs, and the wanted (advertisement, node) pairs that no channel brings."""

    waste_bps: float
    unicast_bps: float  # charged: rate times weight
    unicast: tuple[tuple[str, str], ...]

    @property
    def total_bps(self) -> float:
        return self.waste_bps + self.unicast_bps


def check(advertisements: Sequence[Advertisement], channels: int, unicast_weight: float) -> None:
    """Refuse what contradicts itself: names given twice, rates and weights that are negative or not finite."""
    if channels < 0:
        raise BadProblem("channels", str(channels), "0 or more")
    _not_negative("unicast_weight", unicast_weight)
    first_with: dict[str, int] = {}
    for index, advertisement in enumerate(advertisements):
        where = f"advertisements[{index}]"
        _not_negative(f"{where}.rate_bps", advertisement.rate_bps)
        if advertisement.name in first_with:
            earlier = f"advertisements[{first_with[advertisement.name]}]"
            raise BadProblem(f"{where}.name", f"{advertisement.name!r} again", f"a name other than that of {earlier}")
        first_with[advertisement.name] = index
        seen: set[str] = set()
        for place, node in enumerate(advertisement.subscribers):
            if node in seen:
                raise BadProblem(f"{where}.subscribers[{place}]", f"{node!r} again", "every node once")
            seen.add(node)


def cost_of(advertisements: Sequence[Advertisement], channels: Sequence[Channel], unicast_weight: float) -> Cost:
    """The cost of a mapping, counted pair by pair as the module's head says: slow, plain, and the judge of the rest."""
    waste_bps: list[float] = []
    unicast_bps: list[float] = []
    unicast: list[tuple[str, str]] = []
    for advertisement in advertisements:
        copies: dict[str, int] = {}
        for channel in channels:
            if advertisement.name in channel.advertisements:
                for node in channel.members:
                    copies[node] = copies.get(node, 0) + 1
        asked_for = 0
        for node in advertisement.subscribers:
            if node in copies:
                asked_for += 1
            else:
                unicast.append((advertisement.name, node))
                unicast_bps.append(advertisement.rate_bps * unicast_weight)
        waste_bps.append(advertisement.rate_bps * (sum(copies.values()) - asked_for))
    return Cost(math.fsum(waste_bps), math.fsum(unicast_bps), tuple(unicast))


def _not_negative(field_name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise BadProblem(field_name, f"{value:g}", "a finite number, 0 or more")
