"""What the channel tests compare with: the demand of the IndiQoS tables, random demands, and every mapping tried."""

from itertools import combinations_with_replacement

import numpy as np

from overlane.planning.channels import Advertisement

# Table 2 of the paper: who wants what, and two sets of rates.
SUBSCRIBERS = {"a": "ADE", "b": "BC", "c": "AE", "d": "BCEF", "e": "DE", "f": "BCF", "g": "DE"}
SET_1_BPS = {"a": 800, "b": 80, "c": 500, "d": 20, "e": 600, "f": 100, "g": 1000}
SET_2_BPS = {"a": 20, "b": 30, "c": 1000, "d": 50, "e": 60, "f": 25, "g": 100}


def paper(rates_bps: dict[str, int]) -> list[Advertisement]:
    return [Advertisement(name, rates_bps[name], tuple(SUBSCRIBERS[name])) for name in SUBSCRIBERS]


def random_demand(seed: int, advertisements_max: int = 6, nodes_max: int = 5) -> list[Advertisement]:
    """A small demand; some advertisements are alike, some have no subscriber, some no rate."""
    chance = np.random.default_rng(seed)
    nodes = int(chance.integers(1, nodes_max + 1))
    density = chance.uniform(0.2, 0.9)
    return [
        Advertisement(
            f"ad{row}",
            float(chance.choice([0, 1, 10, 25, 100, 330], p=[0.05, 0.15, 0.2, 0.2, 0.2, 0.2])),
            tuple(f"node{column}" for column in range(nodes) if chance.random() < density),
        )
        for row in range(int(chance.integers(1, advertisements_max + 1)))
    ]


def crowd(seed: int, advertisements: int, nodes: int, groups: int) -> list[Advertisement]:
    """A large demand with structure: every advertisement is for a group or two, not all come, some others do."""
    chance = np.random.default_rng(seed)
    group_has = chance.random((groups, nodes)) < 0.05
    rates_bps = np.ceil(chance.lognormal(6, 1, advertisements))
    found = []
    for row in range(advertisements):
        aimed_at = chance.choice(groups, size=int(chance.integers(1, 3)), replace=False)
        wants = group_has[aimed_at].any(axis=0) & (chance.random(nodes) < 0.85) | (chance.random(nodes) < 0.005)
        names = tuple(f"node{column}" for column in np.flatnonzero(wants))
        found.append(Advertisement(f"ad{row}", float(rates_bps[row]), names))
    return found


def least_cost_bps(advertisements: list[Advertisement], channels: int, unicast_weight: float) -> float:
    """The optimum, by trying every membership of every channel and, for each advertisement, every set of channels."""
    nodes = sorted({node for each in advertisements for node in each.subscribers})
    best = sum(each.rate_bps * len(each.subscribers) for each in advertisements) * unicast_weight
    for members in combinations_with_replacement(range(1 << len(nodes)), channels):
        total = 0.0
        for each in advertisements:
            wanted = sum(1 << nodes.index(node) for node in each.subscribers)
            total += each.rate_bps * _least_for_one(wanted, members, unicast_weight)
            if total >= best:
                break
        best = min(best, total)
    return best


def _least_for_one(wanted: int, members: tuple[int, ...], unicast_weight: float) -> float:
    least = wanted.bit_count() * unicast_weight
    for chosen in range(1, 1 << len(members)):
        sent, reached = 0, 0
        for channel, who in enumerate(members):
            if chosen >> channel & 1:
                sent += who.bit_count()
                reached |= who
        met = (reached & wanted).bit_count()
        least = min(least, sent - met + (wanted.bit_count() - met) * unicast_weight)
    return least
