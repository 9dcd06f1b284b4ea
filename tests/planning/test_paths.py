"""Paths: compared with trying everything on hundreds of random maps, and held to what must be true of any map."""

import pathlib
import random
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from path_oracle import (
    best_by_trying,
    every_path,
    random_map,
    random_network,
    renamed,
    resiliency_by_states,
    resiliency_by_subsets,
)

from examples import examples, seeds
from overlane.planning.paths import (
    BrokerNode,
    Link,
    Network,
    Path,
    PathSet,
    best_set,
    both_ways,
    changes,
    k_shortest,
    multipath,
    resiliency,
    shortest_tree,
    still_shortest,
)
from overlane.planning.problem import BadProblem

SEEDS = range(seeds(300))
MS = 1_000_000


def named(network: Network, paths: tuple[Path, ...]) -> list[str]:
    return [" ".join(network.named(path.brokers)) for path in paths]


def diamond(failure: float = 0.1) -> Network:
    """A to D by B in 24 ms, by C in 34 ms; B and C are joined."""
    return Network.build(
        [BrokerNode(name, 1 * MS, failure) for name in "ABCD"],
        [
            both_ways("A", "B", 10 * MS, failure),
            both_ways("B", "D", 11 * MS, failure),
            both_ways("A", "C", 15 * MS, failure),
            both_ways("C", "D", 16 * MS, failure),
            both_ways("B", "C", 1 * MS, failure),
        ],
    )


def test_the_delay_of_a_path_is_its_links_and_the_processing_of_every_broker_on_it() -> None:
    network = diamond()
    assert [(named(network, (path,)), path.latency_ns) for path in k_shortest(network, 0, 3, 9)] == [
        (["A B D"], 24 * MS),
        (["A B C D"], 31 * MS),
        (["A C B D"], 31 * MS),
        (["A C D"], 34 * MS),
    ]


def test_paths_over_the_deadline_are_left_out_and_one_exactly_at_it_is_kept() -> None:
    network = diamond()
    assert [path.latency_ns for path in k_shortest(network, 0, 3, 9, within_ns=31 * MS)] == [24 * MS, 31 * MS, 31 * MS]
    assert len(k_shortest(network, 0, 3, 9, within_ns=31 * MS - 1)) == 1
    assert multipath(network, 0, 3, 24 * MS - 1, n=2, k=9) == PathSet((), 0.0, exact=True)


def test_shared_brokers_and_links_count_once() -> None:
    found = multipath(diamond(), 0, 3, None, n=2, k=9)
    assert named(diamond(), found.paths) == ["A B D", "A C D"]
    # Both ends are shared; each way has a broker and two links of its own.
    assert found.resiliency == pytest.approx(0.9**2 * (1 - (1 - 0.9**3) ** 2), abs=1e-15)
    assert found.exact


def test_when_nothing_fails_the_quickest_path_alone_is_the_best_set() -> None:
    assert named(diamond(), multipath(diamond(0.0), 0, 3, None, n=3, k=9).paths) == ["A B D"]


def test_when_every_path_surely_fails_the_quickest_is_given_and_worth_nothing() -> None:
    found = multipath(diamond(1.0), 0, 3, None, n=3, k=9)
    assert (named(diamond(), found.paths), found.resiliency) == (["A B D"], 0.0)


def test_two_directions_of_a_link_may_differ_in_latency_and_fail_as_one() -> None:
    network = Network.build(
        [BrokerNode(name) for name in "ABCD"],
        [
            both_ways("A", "B", 1),
            both_ways("A", "C", 1),
            both_ways("B", "D", 9),
            both_ways("C", "D", 9),
            Link(("B", "C"), 2, 5, failure=0.5),
        ],
    )
    there, back = Path((0, 1, 2, 3), 12), Path((0, 2, 1, 3), 15)
    assert [there, back] == [path for path in k_shortest(network, 0, 3, 4) if len(path.brokers) == 4]
    assert resiliency([there, back], network) == 0.5


def test_paths_of_equal_latency_come_by_hops_and_then_by_names() -> None:
    names = "ABCDE"
    links = [both_ways(one, other, 0) for one in names for other in names if one < other]
    network = Network.build([BrokerNode(name) for name in names], links)
    found = [named(network, (path,))[0] for path in k_shortest(network, 0, 4, 6)]
    assert found == ["A E", "A B E", "A C E", "A D E", "A B C E", "A B D E"]


def test_the_order_in_which_brokers_and_links_are_learned_changes_nothing() -> None:
    brokers, links = random_map(5)
    assert Network.build(brokers, links) == Network.build(reversed(brokers), reversed(links))


def test_a_search_cut_short_says_so_and_still_gives_a_set() -> None:
    rng = random.Random(7)
    names = [f"b{at:02}" for at in range(12)]
    network = Network.build(
        [BrokerNode(name, 0, rng.uniform(0.1, 0.2)) for name in names],
        [both_ways(one, other, rng.randrange(1000), 0.2) for one in names for other in names if one < other],
    )
    whole, short = (multipath(network, 0, 11, None, n=4, k=32, work_max=work) for work in (10**6, 100))
    assert (whole.exact, short.exact) == (True, False)
    assert 0 < short.resiliency <= whole.resiliency


def test_every_shortest_tree_agrees_with_trying_everything() -> None:
    for seed in SEEDS:
        network = random_network(seed)
        tree = shortest_tree(network, 0)
        for destination in range(1, len(network)):
            expected = next(iter(every_path(network, 0, destination)), None)
            assert tree.path(destination) == expected, f"seed {seed}, destination {destination}"
        assert tree.path(0) == Path((0,), network.processing_ns[0]), f"seed {seed}"


def test_a_tree_that_is_kept_after_changes_is_the_one_that_would_be_found() -> None:
    kept = 0
    for seed in SEEDS:
        brokers, links = random_map(seed)
        rng = random.Random(seed)
        before = Network.build(brokers, links)
        for _ in range(4):
            more = [replace(one, forth_ns=rng.choice((None, one.forth_ns, 1, 5, 9, 10**9))) for one in links]
            after = Network.build(
                brokers, [rng.choice((one, one, other)) for one, other in zip(links, more, strict=True)]
            )
            changed, tree = changes(before, after), shortest_tree(before, 0)
            assert changed is not None
            if still_shortest(tree, changed):
                kept += bool(changed)
                assert shortest_tree(after, 0) == tree, f"seed {seed}"
    assert kept > len(SEEDS) // 6


def test_k_shortest_agrees_with_trying_everything_for_every_k_and_deadline() -> None:
    for seed in SEEDS:
        network = random_network(seed)
        everything = every_path(network, 0, len(network) - 1)
        rng = random.Random(seed)
        for k in {1, 2, rng.randint(1, 20), len(everything) + 1}:
            assert k_shortest(network, 0, len(network) - 1, k) == everything[:k], f"seed {seed}, k {k}"
        for path in everything[:: max(1, len(everything) // 4)]:
            for deadline_ns in (path.latency_ns - 1, path.latency_ns):
                expected = [path for path in everything if path.latency_ns <= deadline_ns]
                found = k_shortest(network, 0, len(network) - 1, len(everything), deadline_ns)
                assert found == expected, f"seed {seed}, deadline {deadline_ns}"


def test_resiliency_agrees_with_the_sum_over_every_state() -> None:
    for seed in SEEDS:
        network = random_network(seed, brokers_max=5)
        rng = random.Random(seed)
        everything = every_path(network, 0, len(network) - 1)
        paths = rng.sample(everything, min(len(everything), rng.randint(0, 3)))
        if sum(map(len, (path.brokers for path in paths))) > 9:
            paths = paths[:1]
        expected = float(resiliency_by_states(paths, network))
        assert resiliency(paths, network) == pytest.approx(expected, abs=1e-15), f"seed {seed}"


def test_the_best_set_agrees_with_trying_every_set() -> None:
    for seed in SEEDS:
        network = random_network(seed, brokers_max=6)
        rng = random.Random(seed)
        n, k = rng.choice([1, 2, 2, 2, 3, 3, 4]), rng.randint(4, 8)
        candidates = every_path(network, 0, len(network) - 1)[:k]
        if not candidates:
            continue
        expected = best_by_trying(network, candidates, n)
        found = multipath(network, 0, len(network) - 1, None, n, k)
        assert found.paths == expected, f"seed {seed}, n {n}, k {k}"
        worth = float(resiliency_by_subsets(list(expected), network))
        assert found.resiliency == pytest.approx(worth, abs=1e-15), f"seed {seed}, n {n}, k {k}"
        assert found.exact, f"seed {seed}"


any_seed = st.integers(0, 2**32)


@examples(60)
@given(any_seed)
def test_adding_a_path_never_lowers_resiliency(seed: int) -> None:
    network = random_network(seed)
    paths = k_shortest(network, 0, len(network) - 1, 6)
    random.Random(seed).shuffle(paths)
    worth = [resiliency(paths[:count], network) for count in range(len(paths) + 1)]
    assert all(before <= after for before, after in pairwise(worth)), f"seed {seed}: {worth}"
    best = [best_set(network, paths, n).resiliency for n in (1, 2, 3)]
    assert best == sorted(best), f"seed {seed}: {best}"


@examples(60)
@given(any_seed)
def test_other_names_give_the_same_paths_under_other_names(seed: int) -> None:
    brokers, links = random_map(seed)
    rng = random.Random(seed)
    # Latencies without ties: where paths tie, the names decide, and may.
    brokers = [BrokerNode(broker.name, rng.randrange(10**12), broker.failure) for broker in brokers]
    links = [Link(link.ends, rng.randrange(10**12), rng.randrange(10**12), link.failure) for link in links]
    old = [broker.name for broker in brokers]
    new = dict(zip(old, rng.sample(old, len(old)), strict=True))
    one, other = Network.build(brokers, links), renamed(brokers, links, new)
    ends = one.named((0, len(one) - 1))
    found = multipath(one, 0, len(one) - 1, None, 2, 8)
    again = multipath(other, other.index(new[ends[0]]), other.index(new[ends[1]]), None, 2, 8)
    assert [[new[name] for name in one.named(path.brokers)] for path in found.paths] == [
        other.named(path.brokers) for path in again.paths
    ], f"seed {seed}"
    assert (found.resiliency, found.exact) == (again.resiliency, again.exact), f"seed {seed}"


@examples(60)
@given(any_seed, st.integers(2, 10**6))
def test_scaling_all_latencies_scales_the_paths_and_changes_nothing_else(seed: int, factor: int) -> None:
    brokers, links = random_map(seed)

    def scaled(latency_ns: int | None) -> int | None:
        return None if latency_ns is None else latency_ns * factor

    network = Network.build(brokers, links)
    larger = Network.build(
        [BrokerNode(broker.name, broker.processing_ns * factor, broker.failure) for broker in brokers],
        [Link(link.ends, scaled(link.forth_ns), scaled(link.back_ns), link.failure) for link in links],
    )
    found = multipath(network, 0, len(network) - 1, None, 2, 8)
    expected = tuple(Path(path.brokers, path.latency_ns * factor) for path in found.paths)
    assert multipath(larger, 0, len(network) - 1, None, 2, 8) == PathSet(expected, found.resiliency, found.exact), seed


def test_the_answer_does_not_depend_on_the_seed_of_hashing() -> None:
    script = (
        "from path_oracle import random_network\n"
        "from overlane.planning.paths import multipath\n"
        "for seed in range(30):\n"
        "    network = random_network(seed)\n"
        "    print(multipath(network, 0, len(network) - 1, None, 2, 8))\n"
    )
    here = str(pathlib.Path(__file__).parent)
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": here},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1
    assert answers != {b""}


BROKERS = [BrokerNode("A"), BrokerNode("B")]


@pytest.mark.parametrize(
    ("brokers", "links", "field_name"),
    [
        ([*BROKERS, BrokerNode("A")], [], "brokers"),
        ([BrokerNode("A", processing_ns=-1)], [], "brokers.A.processing_ns"),
        ([BrokerNode("A", failure=1.5)], [], "brokers.A.failure"),
        ([BrokerNode("A", failure=float("nan"))], [], "brokers.A.failure"),
        (BROKERS, [both_ways("A", "C", 1)], "links[0].ends"),
        (BROKERS, [both_ways("A", "A", 1)], "links[0].ends"),
        (BROKERS, [both_ways("A", "B", 1), both_ways("B", "A", 1)], "links[1].ends"),
        (BROKERS, [both_ways("A", "B", -1)], "links[0].latency_ns"),
        (BROKERS, [both_ways("A", "B", 1, failure=-0.1)], "links[0].failure"),
    ],
)
def test_a_map_that_contradicts_itself_is_refused_by_the_field(
    brokers: list[BrokerNode], links: list[Link], field_name: str
) -> None:
    with pytest.raises(BadProblem) as refused:
        Network.build(brokers, links)
    assert refused.value.field_name == field_name


@pytest.mark.parametrize(("n", "k", "field_name"), [(0, 4, "paths"), (11, 16, "paths"), (3, 2, "search")])
def test_a_set_of_no_or_too_many_paths_is_refused(n: int, k: int, field_name: str) -> None:
    with pytest.raises(BadProblem) as refused:
        multipath(diamond(), 0, 3, None, n, k)
    assert refused.value.field_name == field_name


def test_a_path_from_a_broker_to_itself_is_refused() -> None:
    with pytest.raises(BadProblem, match="destination"):
        multipath(diamond(), 0, 0, None, 1, 1)
