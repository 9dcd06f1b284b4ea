"""The dissemination subgraph: the union of what each destination gets alone."""

import random
from itertools import pairwise

import pytest
from path_oracle import random_network

from overlane.planning.graph import Dissemination, disseminate
from overlane.planning.network import BrokerNode, Network, both_ways
from overlane.planning.paths import Path, PathSet, multipath
from overlane.planning.problem import BadProblem


def star() -> Network:
    """H in the middle of A, B and C, ten apart; D stands alone."""
    return Network.build([BrokerNode(name, 1) for name in "ABCDH"], [both_ways("H", name, 10) for name in "ABC"])


def test_a_link_that_destinations_share_is_in_the_route_once() -> None:
    network = star()
    assert disseminate(network, 0, [2, 1], 23, n=2, k=4) == Dissemination(
        source=0,
        reached={
            1: PathSet((Path((0, 4, 1), 23),), 1.0, exact=True),
            2: PathSet((Path((0, 4, 2), 23),), 1.0, exact=True),
        },
        unreached=(),
    )
    assert disseminate(network, 0, [2, 1], 23, n=2, k=4).links == [(0, 4), (4, 1), (4, 2)]


def test_destinations_out_of_time_or_out_of_reach_are_named_and_the_others_served() -> None:
    found = disseminate(star(), 0, [1, 3, 4], 22, n=1, k=1)
    assert (list(found.reached), found.unreached, found.links) == ([4], (1, 3), [(0, 4)])


def test_every_destination_gets_what_it_would_get_alone() -> None:
    for seed in range(100):
        network = random_network(seed)
        destinations = list(range(1, len(network)))
        random.Random(seed).shuffle(destinations)
        found = disseminate(network, 0, destinations, None, n=2, k=6)
        links: set[tuple[int, int]] = set()
        for destination in destinations:
            alone = multipath(network, 0, destination, None, n=2, k=6)
            links.update(link for path in alone.paths for link in pairwise(path.brokers))
            if alone.paths:
                assert found.reached[destination] == alone, f"seed {seed}"
                assert found.latency_ns(destination) == min(path.latency_ns for path in alone.paths), f"seed {seed}"
            else:
                assert destination in found.unreached, f"seed {seed}"
        assert found.links == sorted(links), f"seed {seed}"


@pytest.mark.parametrize("destinations", [[], [1, 1], [0, 1]])
def test_no_destination_the_same_twice_and_the_source_itself_are_refused(destinations: list[int]) -> None:
    with pytest.raises(BadProblem, match="destinations"):
        disseminate(star(), 0, destinations, None, n=1, k=1)
