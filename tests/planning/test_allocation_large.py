"""Allocation of many items: the search, and the bound it is measured by."""

import numpy as np
import pytest
from allocation_cases import random_problem
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.planning.allocation import allocate
from overlane.planning.allocation.bound import loss_floor
from overlane.planning.allocation.exact import solve_exactly
from overlane.planning.allocation.greedy import best_fit, pooled, spread
from overlane.planning.allocation.placement import Placement, overload_risk
from overlane.planning.allocation.pricing import Cells, Traits, most_gained
from overlane.planning.allocation.round_robin import round_robin
from overlane.planning.allocation.search import Search
from overlane.planning.allocation.solve import well_placed
from overlane.planning.allocation.subsets import sums
from overlane.planning.allocation.variance_floor import variance_floor
from overlane.planning.problem import NoSolution


@given(st.integers(0, 10_000), st.integers(19, 60), st.integers(2, 6), st.floats(0.3, 0.8))
@examples(12)
def test_a_search_is_never_worse_than_round_robin_or_best_fit(seed: int, items: int, brokers: int, use: float) -> None:
    task = Placement.of(random_problem(seed, items, brokers, use=use, topics=seed % 3 == 0))
    found = well_placed(task, shakes=5)
    for other in (round_robin(task), best_fit(task), spread(task), pooled(task)):
        assert task.cost(found) <= task.cost(other)
        if task.keeps_limits(other):
            assert task.keeps_limits(found)
            assert task.loss(found) <= task.loss(other)


@given(st.integers(0, 10_000), st.integers(2, 30), st.integers(1, 5))
@examples(20)
def test_what_a_search_adds_up_step_by_step_is_what_a_fresh_sum_says(seed: int, items: int, brokers: int) -> None:
    task = Placement.of(random_problem(seed, items, brokers))
    search = Search(task, round_robin(task))
    before = search.total
    search.descend(passes=1)
    fresh = task.load(search.places)
    assert search.total <= before
    assert search.total == pytest.approx(task.cost(search.places), rel=1e-6)
    assert search.load.mean == pytest.approx(fresh.mean, rel=1e-9, abs=1e-9)
    assert search.load.variance == pytest.approx(fresh.variance, rel=1e-6, abs=1e-6 * float(task.variance.sum()))
    assert search.load.shared == pytest.approx(fresh.shared, rel=1e-6, abs=1e-6 * float(task.variance.max()))


@given(st.integers(0, 10_000), st.integers(1, 40))
@examples(30)
def test_no_set_of_items_has_less_variance_than_the_floor(seed: int, items: int) -> None:
    covariance = random_problem(seed, items, 2).covariance
    floor = variance_floor(covariance)
    chosen = np.random.default_rng(seed).random((200, items)) < 0.4
    variance = np.einsum("si,ij,sj->s", chosen, covariance, chosen)
    least = chosen @ floor.own + (chosen @ floor.common) ** 2
    assert (least <= variance + 1e-9 * np.trace(covariance)).all()


@given(st.integers(0, 10_000), st.floats(0.02, 0.5), st.floats(0.0, 0.6))
@examples(30)
def test_no_subset_gains_more_than_the_pricing_says(seed: int, risk_max: float, price: float) -> None:
    problem = random_problem(seed, 9, 3)
    task, floor = Placement.of(problem), variance_floor(problem.covariance)
    traits = Traits(task.mean, task.penalty, floor.own, floor.common)
    prices = np.random.default_rng(seed).uniform(0, 2 * price, 9) * task.mean
    together = float(np.sqrt(floor.own.sum() + np.abs(floor.common).sum() ** 2)) * 1.001 + 1e-9
    cells = Cells.grid(np.array([0.0, risk_max / 4, risk_max]), np.array([0.0, together / 3, together]))
    most = most_gained(traits, prices, cells, task.capacity, np.array([0.0, float(floor.common.sum()) / 2]))
    mean = sums(task.mean)
    masks = (np.arange(512)[:, None] >> np.arange(9)) & 1
    variance = np.maximum(np.einsum("si,ij,sj->s", masks, problem.covariance, masks), 0.0)
    for capacity, bound in zip(task.capacity, most, strict=True):
        risk = overload_risk(mean, variance, np.full_like(mean, capacity))
        gain = np.where(risk < risk_max, sums(prices) - sums(task.penalty) * risk, 0.0)
        assert gain.max() <= bound + 1e-9 * float(prices.sum() + 1)


@pytest.mark.slow
def test_the_floor_is_below_the_optimum() -> None:
    useful = 0
    for seed in range(9):
        risk_max = (0.05, 0.3, 1.0)[seed % 3]
        task = Placement.of(random_problem(seed, 9, 3, use=0.7, risk_max=risk_max))
        proof = solve_exactly(task, spread(task))
        if proof.places is None:
            continue
        floor = loss_floor(task, proof.places)
        assert floor <= task.loss(proof.places) * (1 + 1e-9), f"seed {seed}"
        useful += floor > 0
    assert useful >= 2


def test_the_floor_is_close_when_items_are_alike() -> None:
    problem = random_problem(0, 60, 6, use=0.8)
    task = Placement.of(problem)
    alike = Placement(
        np.full(60, 50.0),
        np.full(60, 50.0),
        np.ones(60),
        np.eye(60) * 225.0,
        np.full(6, 625.0),
        np.full(6, np.inf),
        0.05,
        task.ground,
    )
    places = well_placed(alike, shakes=0)
    assert 0.8 * alike.loss(places) < loss_floor(alike, places) <= alike.loss(places) * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1))
def test_the_bound_is_above_and_the_answer_repeats(seed: int) -> None:
    problem = random_problem(seed, 20, 3, use=0.55, risk_max=0.1)
    try:
        found = allocate(problem)
    except NoSolution:
        pytest.fail(f"seed {seed} has no solution")
    assert found.utility <= found.bound, f"seed {seed}"
    assert found.gap == pytest.approx((found.bound - found.utility) / max(abs(found.bound), abs(found.utility)))
    assert found.utility >= found.round_robin.utility or max(found.round_robin.risk.values()) >= problem.risk_max
    assert found.utility >= found.best_fit.utility or max(found.best_fit.risk.values()) >= problem.risk_max
    assert allocate(problem) == found, f"seed {seed}"


def test_a_problem_too_tight_for_many_items_names_the_least_risk_found() -> None:
    problem = random_problem(3, 30, 4, use=0.9, risk_max=0.001)
    with pytest.raises(
        NoSolution, match=r"every risk below 0\.001; the least found for every broker is 0\.\d+"
    ) as refused:
        allocate(problem, spent=lambda: 0.6)
    highest = refused.value.nearest["highest_risk"]
    assert isinstance(highest, float)
    assert highest < 0.5
