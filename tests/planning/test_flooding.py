"""Time-constrained flooding: every link that can still be in time, and no other."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from path_oracle import random_network

from examples import examples
from overlane.planning.flooding import flood, latency_to
from overlane.planning.network import HOP_BITS, Network
from overlane.planning.shortest import k_shortest, shortest_tree

SEEDS = st.integers(0, 1 << 32)


def quickest_over(net: Network, source: int, link: tuple[int, int], destination: int) -> int | None:
    """The least delay from source to destination over this link, by relaxing every step again and again."""

    def reach(start: int, at: int) -> dict[int, int]:
        reached = {start: at}
        for _ in range(len(net)):
            for one, steps in enumerate(net.steps):
                for other, cost in steps:
                    if one in reached and reached[one] + (cost >> HOP_BITS) < reached.get(other, 1 << 80):
                        reached[other] = reached[one] + (cost >> HOP_BITS)
        return reached

    before = reach(source, net.processing_ns[source]).get(link[0])
    step = next((cost >> HOP_BITS for other, cost in net.steps[link[0]] if other == link[1]), None)
    if before is None or step is None:
        return None
    return reach(link[1], before + step).get(destination)


@examples(60)
@given(SEEDS, st.one_of(st.none(), st.integers(0, 60)))
def test_exactly_the_links_that_can_be_in_time_are_flooded(seed: int, deadline: int | None) -> None:
    net = random_network(seed, brokers_max=5)
    destinations = list(range(1, len(net)))
    links, latency = flood(net, 0, destinations, deadline)
    least = shortest_tree(net, 0).latency_ns
    assert latency == {at: ns for at in destinations if (ns := least[at]) is not None}
    expected = set()
    for one, steps in enumerate(net.steps):
        for other, _ in steps:
            for destination, quickest in latency.items():
                over = quickest_over(net, 0, (one, other), destination)
                in_time = over is not None and (deadline is None or over <= max(deadline, quickest))
                if in_time and other != 0 and one != destination:
                    expected.add((one, other))
    assert links == expected


@examples(60)
@given(SEEDS, st.integers(0, 60))
def test_every_path_within_the_deadline_is_flooded(seed: int, deadline: int) -> None:
    net = random_network(seed)
    destination = len(net) - 1
    links, _ = flood(net, 0, [destination], deadline)
    for path in k_shortest(net, 0, destination, 200, deadline):
        assert set(pairwise(path.brokers)) <= links


@examples(60)
@given(SEEDS)
def test_a_shorter_deadline_floods_no_other_links(seed: int) -> None:
    net = random_network(seed)
    floods = [flood(net, 0, [len(net) - 1], deadline)[0] for deadline in (0, 5, 20, 10**9, None)]
    assert all(fewer <= more for fewer, more in pairwise(floods))


@examples(60)
@given(SEEDS)
def test_an_unmeetable_deadline_still_floods_the_quickest_path(seed: int) -> None:
    net = random_network(seed)
    destination = len(net) - 1
    path = shortest_tree(net, 0).path(destination)
    links, _ = flood(net, 0, [destination], 0)
    assert set(pairwise(path.brokers) if path else ()) <= links


@examples(60)
@given(SEEDS)
def test_the_latency_to_a_broker_is_what_is_left_of_the_quickest_path(seed: int) -> None:
    net = random_network(seed)
    to_go = latency_to(net, len(net) - 1)
    for source in range(len(net) - 1):
        whole = shortest_tree(net, source).latency_ns[len(net) - 1]
        left = to_go[source]
        assert (None if left is None else left + net.processing_ns[source]) == whole
