"""Mirrors: against brute force, and what every failure does to every broker."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from allocation_cases import places_of, plain_risk, random_problem

from overlane.planning.allocation import BrokerCapacity, Item, Problem, allocate
from overlane.planning.allocation.exact import solve_exactly
from overlane.planning.allocation.placement import Placement
from overlane.planning.allocation.search import Search
from overlane.planning.mirrors import Mirroring, allocate_and_mirror, mirror_items, nearest_mirroring
from overlane.planning.mirrors.copies import with_copies
from overlane.planning.problem import BadProblem, NoSolution

Places = tuple[int, ...]


def with_critical(problem: Problem, rng: np.random.Generator, share: float) -> Problem:
    items = tuple(replace(item, critical=bool(rng.random() < share)) for item in problem.items)
    return Problem(items, problem.covariance, problem.brokers, problem.risk_max)


def plain_state(
    problem: Problem, primary: Places, mirror: Places, failed: int | None
) -> tuple[float, dict[str, float]]:
    """What is lost to overload in one state, and every broker's risk, by the formula."""
    loss, risks = 0.0, {}
    every = range(len(primary))
    for broker, each in enumerate(problem.brokers):
        if broker == failed:
            continue
        serves = [i for i in every if primary[i] == broker or (primary[i] == failed and mirror[i] == broker)]
        copies = tuple(i for i in every if problem.items[i].critical and mirror[i] == broker and i not in serves)
        risks[each.name] = plain_risk(problem, serves, broker, copies)
        loss += float(problem.penalty[serves].sum()) * risks[each.name]
    return loss, risks


def plain_losses(problem: Problem, primary: Places, mirror: Places) -> list[float]:
    """What each single failure loses of the primaries' utility."""
    nothing = (-1,) * len(primary)
    before = plain_state(problem, primary, nothing, None)[0]
    return [plain_state(problem, primary, mirror, failed)[0] - before for failed in range(len(problem.brokers))]


def brute_force(problem: Problem, primary: Places) -> tuple[float, float] | None:
    """The least worst loss, and the least total among those that have it."""
    prices = []
    for mirror in product(range(len(problem.brokers)), repeat=len(primary)):
        if any(first == second for first, second in zip(primary, mirror, strict=True)):
            continue
        if max(plain_state(problem, primary, mirror, None)[1].values()) < problem.risk_max:
            losses = plain_losses(problem, primary, mirror)
            prices.append((max(losses), sum(losses)))
    if not prices:
        return None
    worst = min(price[0] for price in prices)
    return worst, min(total for worst_loss, total in prices if worst_loss <= worst + 1e-9 * (1 + abs(worst)))


@pytest.mark.parametrize("block", range(4))
def test_mirrors_are_as_good_as_by_brute_force(block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        rng = np.random.default_rng(seed)
        items, brokers = int(rng.integers(1, 6)), int(rng.integers(2, 4))
        problem = with_critical(random_problem(seed, items, brokers, use=0.4, risk_max=0.3), rng, 0.3)
        primary = tuple(rng.integers(0, brokers, items).tolist())
        best = brute_force(problem, primary)
        if best is None:
            with pytest.raises(NoSolution, match="it must be below"):
                mirror_items(problem, problem.named(np.array(primary)))
            continue
        found = mirror_items(problem, problem.named(np.array(primary)))
        assert found.status == "optimal", f"seed {seed}"
        assert found.worst_loss == pytest.approx(best[0], rel=1e-7, abs=1e-7), f"seed {seed}"
        assert found.total_loss == pytest.approx(best[1], rel=1e-7, abs=1e-7), f"seed {seed}"
        check_told(problem, primary, found, seed)


def check_told(problem: Problem, primary: Places, found: Mirroring, seed: int) -> None:
    """Everything told about the mirrors is what the formula says."""
    mirror = places_of(problem, found.mirror)
    names = [broker.name for broker in problem.brokers]
    losses = plain_losses(problem, primary, mirror)
    assert list(found.loss.values()) == pytest.approx(losses, rel=1e-6, abs=1e-7), f"seed {seed}"
    for failed, name in enumerate(names):
        risks = plain_state(problem, primary, mirror, failed)[1]
        assert found.risk[name] == pytest.approx(risks, rel=1e-6, abs=1e-12), f"seed {seed}"
        kept = [names[m] for p, m in zip(primary, mirror, strict=True) if p == failed]
        assert found.spread[name] == {place: kept.count(place) for place in sorted(set(kept))}, f"seed {seed}"
    normal, risks = plain_state(problem, primary, mirror, None)
    assert found.risk_normal == pytest.approx(risks, rel=1e-6, abs=1e-12), f"seed {seed}"
    assert found.utility == pytest.approx(float(problem.reward.sum()) - normal, rel=1e-9), f"seed {seed}"


@pytest.mark.parametrize("seed", range(3))
def test_many_critical_items_are_better_placed_than_at_random(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = with_critical(random_problem(seed, 24, 5, use=0.35, risk_max=0.5), rng, 0.5)
    primary = tuple((index % 5) for index in range(24))
    found = mirror_items(problem, problem.named(np.array(primary)))
    check_told(problem, primary, found, seed)
    for _ in range(50):
        shift = rng.integers(1, 5, 24)
        other = tuple(((np.array(primary) + shift) % 5).tolist())
        assert found.worst_loss <= max(plain_losses(problem, primary, other)) + 1e-9, f"seed {seed}"


def test_a_brokers_mirrors_spread_over_the_others() -> None:
    items = [Item(f"i{n}", 10.0) for n in range(6)]
    problem = Problem.of(items, np.eye(6) * 4, [BrokerCapacity(name, 100.0) for name in "abcd"])
    found = mirror_items(problem, {item.name: "a" for item in items})
    assert found.spread["a"] == {"b": 2, "c": 2, "d": 2}


def test_a_mirror_needs_a_second_broker() -> None:
    problem = Problem.of([Item("i", 1.0)], [[1.0]], [BrokerCapacity("a", 10.0)])
    with pytest.raises(NoSolution, match="second broker"):
        mirror_items(problem, {"i": "a"})


def test_topics_must_have_room_after_a_failure() -> None:
    items = [Item("i", 1.0, topics=3), Item("j", 1.0, topics=3)]
    problem = Problem.of(items, np.eye(2), [BrokerCapacity("a", 10.0, 5), BrokerCapacity("b", 10.0, 5)])
    with pytest.raises(NoSolution, match="topics have no room when a fails: b would hold 6, it may hold 5"):
        mirror_items(problem, {"i": "a", "j": "b"})


def test_primaries_chosen_for_critical_items_leave_room_for_their_copies() -> None:
    rng = np.random.default_rng(77)
    problem = with_critical(random_problem(77, 10, 5, use=0.5, risk_max=0.02), rng, 0.35)
    alone = allocate(problem).primary
    with pytest.raises(NoSolution, match="with the copies of critical items"):
        mirror_items(problem, alone)
    assert max(allocate_and_mirror(problem).risk_normal.values()) < 0.02


def with_some_critical(seed: int, use: float, risk_max: float) -> Problem:
    """Four items on three brokers, the first two of them critical."""
    problem = random_problem(seed, 4, 3, use=use, risk_max=risk_max)
    items = tuple(replace(item, critical=number < 2) for number, item in enumerate(problem.items))
    return Problem(items, problem.covariance, problem.brokers, problem.risk_max)


def least_by_brute_force(problem: Problem) -> float | None:
    """The least loss of the normal state over all ways to place items and the mirrors of critical ones."""
    losses = []
    for primary in product(range(3), repeat=4):
        for first, second in product(range(3), repeat=2):
            if first != primary[0] and second != primary[1]:
                loss, risks = plain_state(problem, primary, (first, second, -1, -1), None)
                if max(risks.values()) < problem.risk_max:
                    losses.append(loss)
    return min(losses, default=None)


@pytest.mark.parametrize("seed", range(12))
def test_items_and_their_copies_are_placed_as_well_as_by_brute_force(seed: int) -> None:
    problem = with_some_critical(seed, 0.3, 0.3)
    best = least_by_brute_force(problem)
    task = with_copies(Placement.of(problem), np.array([0, 1]))
    proof = solve_exactly(task, np.zeros(6, dtype=np.int64))
    if best is None:
        assert proof.places is None
        return
    assert proof.places is not None
    assert task.keeps_limits(proof.places)
    assert not task.pairs_together(proof.places)
    assert task.loss(proof.places) == pytest.approx(best, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_a_search_separates_twins_and_counts_what_it_changes(seed: int) -> None:
    problem = with_some_critical(seed, 0.5, 0.2)
    task = with_copies(Placement.of(problem), np.array([0, 1]))
    search = Search(task, np.zeros(6, dtype=np.int64))
    search.descend()
    assert not task.pairs_together(search.places)
    search.shake(10, seed)
    assert not task.pairs_together(search.places)
    assert search.total == pytest.approx(task.cost(search.places), rel=1e-9)


def test_copies_fit_where_primaries_that_ignore_them_leave_no_room() -> None:
    rng = np.random.default_rng(5)
    found = 0
    for seed in range(16):
        problem = with_critical(random_problem(seed, 8, 4, use=0.55, risk_max=0.02), rng, 0.4)
        try:
            mirror_items(problem, allocate(problem).primary)
        except NoSolution:
            near = nearest_mirroring(problem)
            assert all(near.mirror[item] != place for item, place in near.primary.items())
            risks = plain_state(problem, places_of(problem, near.primary), places_of(problem, near.mirror), None)[1]
            assert near.risk_normal == pytest.approx(risks, rel=1e-6, abs=1e-12)
            if max(risks.values()) < problem.risk_max:
                found += 1
                assert max(allocate_and_mirror(problem).risk_normal.values()) < problem.risk_max
    assert found


def test_an_unknown_primary_is_refused_by_name() -> None:
    problem = Problem.of([Item("i", 1.0)], [[1.0]], [BrokerCapacity("a", 10.0), BrokerCapacity("b", 10.0)])
    with pytest.raises(BadProblem, match=r"primary\.i"):
        mirror_items(problem, {"i": "c"})
