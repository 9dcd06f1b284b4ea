"""Targeted redundancy: one path while all is well, more only where the trouble is."""

from collections.abc import Mapping
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from path_oracle import random_network

from examples import examples
from overlane.planning.network import BrokerNode, Network, both_ways
from overlane.planning.shortest import shortest_tree
from overlane.planning.targeted import GAIN_MIN, DirectedLink, Spread, probability, spread

TARGET = 0.9995
SEEDS = st.integers(0, 1 << 32)


def network(**latency: int) -> Network:
    """Links as "ab", brokers by their letters."""
    return Network.build(
        [BrokerNode(name) for name in sorted({name for ends in latency for name in ends})],
        [both_ways(ends[0], ends[1], ns) for ends, ns in latency.items()],
    )


def directed(net: Network, *links: str) -> list[DirectedLink]:
    return [(net.index(ends[0]), net.index(ends[1])) for ends in links]


def drawn(net: Network, found: Spread) -> str:
    return " ".join(sorted(net.names[one] + net.names[other] for one, other in found.links))


def troubled(net: Network, draw: st.DataObject) -> dict[DirectedLink, float]:
    links = [(one, other) for one, steps in enumerate(net.steps) for other, _ in steps]
    chosen = draw.draw(st.lists(st.sampled_from(links), max_size=8)) if links else []
    return {link: draw.draw(st.sampled_from([0.01, 0.1, 0.3, 0.5, 0.9, 1.0])) for link in chosen}


@settings(deadline=None)
@given(SEEDS, st.data())
def test_without_trouble_the_links_are_those_of_the_shortest_path_tree(seed: int, data: st.DataObject) -> None:
    net = random_network(seed)
    destinations = data.draw(st.lists(st.integers(1, len(net) - 1), unique=True)) if len(net) > 1 else []
    tree = shortest_tree(net, 0)
    reached = [(at, path) for at in destinations if (path := tree.path(at)) is not None]
    assert spread(net, 0, destinations, None, {}, TARGET) == Spread(
        frozenset(link for _, path in reached for link in pairwise(path.brokers)),
        {at: path.latency_ns for at, path in reached},
        {at: 1.0 for at, _ in reached},
    )


@settings(deadline=None)
@given(SEEDS, st.data(), st.sampled_from([0.0, 0.9, TARGET]))
def test_with_trouble_arrival_is_never_estimated_below_that_of_the_quickest_path_alone(
    seed: int, data: st.DataObject, target: float
) -> None:
    net = random_network(seed)
    trouble = troubled(net, data)
    found = spread(net, 0, range(1, len(net)), None, trouble, target)
    tree = shortest_tree(net, 0)
    for at, arrival in found.arrival.items():
        path = tree.path(at)
        assert path is not None
        alone = probability(net, 0, at, set(pairwise(path.brokers)), trouble)
        assert arrival >= alone - GAIN_MIN
        assert found.latency_ns[at] >= path.latency_ns


@settings(deadline=None)
@given(SEEDS, st.data())
def test_without_a_target_there_is_one_path_to_each_destination_and_trouble_is_avoided(
    seed: int, data: st.DataObject
) -> None:
    net = random_network(seed)
    destination = data.draw(st.integers(1, len(net) - 1))
    trouble = troubled(net, data)
    found = spread(net, 0, [destination], None, trouble, 0.0)
    ends = [end for _, end in found.links]
    assert len(ends) == len(set(ends))
    quickest = shortest_tree(net, 0).path(destination)
    if quickest is not None and not any(link in trouble for link in pairwise(quickest.brokers)):
        assert found.links == frozenset(pairwise(quickest.brokers))


@settings(deadline=None)
@given(SEEDS, st.data(), st.integers(0, 40))
def test_every_link_leads_from_the_source_on_within_the_deadline_if_any_path_is(
    seed: int, data: st.DataObject, deadline: int
) -> None:
    net = random_network(seed)
    destination = data.draw(st.integers(1, len(net) - 1))
    found = spread(net, 0, [destination], deadline, troubled(net, data), TARGET)
    reached = {0, *(end for _, end in found.links)}
    assert all(start in reached for start, _ in found.links)
    quickest = shortest_tree(net, 0).latency_ns[destination]
    assert (destination in found.latency_ns) == (quickest is not None)
    if quickest is not None and destination in found.latency_ns:
        assert found.latency_ns[destination] <= max(deadline, quickest)


FAN = network(ab=10, ac=11, ae=12, bd=10, cd=11, ed=12)


@pytest.mark.parametrize(
    ("trouble", "links"),
    [
        ({}, "ab bd"),
        ({"cd": 0.5}, "ab bd"),
        ({"bd": 0.3}, "ac cd"),
        ({"ab": 0.3, "ac": 0.3, "ae": 0.3}, "ab ac ae bd cd ed"),
        ({"bd": 0.3, "cd": 0.3, "ed": 0.3}, "ab ac ae bd cd ed"),
        ({"bd": 0.01, "cd": 0.01, "ed": 0.01}, "ab ac bd cd"),
        ({"bd": 1.0, "cd": 1.0, "ed": 0.2}, "ae ed"),
    ],
)
def test_the_shape_follows_the_trouble(trouble: Mapping[str, float], links: str) -> None:
    failing = {directed(FAN, ends)[0]: chance for ends, chance in trouble.items()}
    assert drawn(FAN, spread(FAN, FAN.index("a"), [FAN.index("d")], None, failing, TARGET)) == links


def test_redundancy_stays_within_the_deadline() -> None:
    failing = dict.fromkeys(directed(FAN, "bd", "cd", "ed"), 0.3)
    source, destination = FAN.index("a"), FAN.index("d")
    assert drawn(FAN, spread(FAN, source, [destination], 22, failing, TARGET)) == "ab ac bd cd"
    assert drawn(FAN, spread(FAN, source, [destination], 5, failing, TARGET)) == "ab bd"


def test_the_estimate_is_exact_where_copies_are_independent() -> None:
    links = set(directed(FAN, "ab", "bd", "ac", "cd"))
    failing = dict(zip(directed(FAN, "ab", "bd", "ac", "cd"), (0.1, 0.2, 0.3, 0.4), strict=True))
    estimate = probability(FAN, FAN.index("a"), FAN.index("d"), links, failing)
    assert estimate == pytest.approx(1 - (1 - 0.9 * 0.8) * (1 - 0.7 * 0.6))


@examples(40)
@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=6, max_size=6))
def test_on_disjoint_paths_the_estimate_is_that_of_every_case_counted(chances: list[float]) -> None:
    links = directed(FAN, "ab", "bd", "ac", "cd", "ae", "ed")
    exact = 0.0
    for fails in product([True, False], repeat=6):
        weight = 1.0
        for chance, failed in zip(chances, fails, strict=True):
            weight *= chance if failed else 1.0 - chance
        if any(not fails[at] and not fails[at + 1] for at in (0, 2, 4)):
            exact += weight
    failing = dict(zip(links, chances, strict=True))
    assert probability(FAN, FAN.index("a"), FAN.index("d"), set(links), failing) == pytest.approx(exact)


def test_what_the_links_do_not_reach_does_not_arrive() -> None:
    assert probability(FAN, FAN.index("a"), FAN.index("d"), set(directed(FAN, "ab")), {}) == 0.0
