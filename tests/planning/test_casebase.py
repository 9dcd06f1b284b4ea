"""The case base: every state has a policy that keeps limits where it can, with few items moved."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from allocation_cases import random_problem

from overlane.planning.allocation import BrokerCapacity, Item, Problem
from overlane.planning.case_base import (
    Case,
    CasePolicy,
    NormalPlan,
    failure_cases,
    low_load_cases,
    normal_plan,
    solve_case,
    solve_state,
    switchable,
)
from overlane.planning.problem import BadProblem


def small_plan() -> NormalPlan:
    return normal_plan(random_problem(11, 14, 5, use=0.4, risk_max=0.05), None)


def check_policy(plan: NormalPlan, policy: CasePolicy) -> None:
    missing = {*policy.failed, *policy.off}
    alive = {broker.name for broker in plan.problem.brokers} - missing
    assert set(policy.primary.values()) | set(policy.mirror.values()) <= alive
    assert set(policy.primary) == {item.name for item in plan.problem.items}
    assert all(policy.mirror[item] != place for item, place in policy.primary.items())
    assert (policy.status == "kept") == (max(policy.risk.values()) < plan.problem.risk_max)
    normal, mirror = plan.problem.named(plan.primary), plan.problem.named(plan.mirror)
    for item, place in policy.primary.items():
        home = normal[item] if normal[item] in alive else mirror[item]
        assert (item in policy.moved) == (place != home)
        assert (item in policy.promoted) == (place == home != normal[item])


def test_there_is_a_case_for_the_normal_state_and_every_single_and_double_failure() -> None:
    plan = small_plan()
    cases = failure_cases(plan)
    assert len(cases) == len(set(cases)) == 1 + 5 + 10
    for case in cases:
        check_policy(plan, solve_case(plan, case))


def test_the_normal_state_moves_nothing_and_keeps_its_mirrors() -> None:
    plan = small_plan()
    policy = solve_case(plan, Case())
    assert (policy.status, policy.moved, policy.promoted) == ("kept", [], [])
    assert policy.primary == plan.problem.named(plan.primary)
    assert policy.mirror == plan.problem.named(plan.mirror)


def test_after_a_failure_that_leaves_room_items_run_on_their_mirrors_and_nothing_else_moves() -> None:
    items = [Item(f"i{n}", 10.0) for n in range(8)]
    plan = normal_plan(Problem.of(items, np.eye(8), [BrokerCapacity(name, 100.0) for name in "abcd"]), None)
    for broker in "abcd":
        policy = solve_state(plan, frozenset(broker))
        lost = [items[n].name for n in np.flatnonzero(plan.primary == "abcd".index(broker))]
        assert (policy.status, policy.moved, policy.promoted) == ("kept", [], lost)


def test_items_move_only_as_far_as_the_limit_demands() -> None:
    # When a fails, both its items run on b; b then holds more than it may, and c has room for exactly one of them.
    items = [Item("big", 30.0), Item("small", 20.0), Item("own", 40.0), Item("other", 60.0)]
    brokers = [BrokerCapacity("a", 100.0), BrokerCapacity("b", 80.0), BrokerCapacity("c", 100.0)]
    problem = Problem.of(items, np.eye(4) * 0.01, brokers)
    plan = NormalPlan(problem, np.array([0, 0, 1, 2]), np.array([1, 1, 2, 1]))
    policy = solve_state(plan, frozenset("a"))
    assert policy.status == "kept"
    assert len(policy.moved) == 1


def test_a_broker_that_copies_overload_is_relieved() -> None:
    # a carries one item and the copies of two critical ones: its primaries alone would be no reason to move anything.
    items = [Item("own", 50.0), Item("x", 30.0, critical=True), Item("y", 30.0, critical=True), Item("other", 10.0)]
    problem = Problem.of(items, np.eye(4) * 0.01, [BrokerCapacity(name, 100.0) for name in "abc"])
    plan = NormalPlan(problem, np.array([0, 1, 1, 2]), np.array([1, 0, 0, 0]))
    policy = solve_case(plan, Case())
    assert policy.status == "kept"
    assert policy.moved == [], "moving one copy is enough"
    assert sorted((policy.mirror["x"], policy.mirror["y"])) == ["a", "c"]


@pytest.mark.parametrize("seed", range(6))
def test_copies_of_critical_items_are_never_with_their_items(seed: int) -> None:
    problem = random_problem(seed, 10, 4, use=0.45, risk_max=0.1)
    marked = tuple(replace(item, critical=number % 3 == 0) for number, item in enumerate(problem.items))
    plan = normal_plan(Problem(marked, problem.covariance, problem.brokers, 1.0), None)
    tight = NormalPlan(replace(plan.problem, risk_max=0.1), plan.primary, plan.mirror)
    for case in failure_cases(tight):
        check_policy(tight, solve_case(tight, case))


def test_a_state_without_enough_capacity_says_so() -> None:
    items = [Item(f"i{n}", 30.0) for n in range(4)]
    plan = normal_plan(Problem.of(items, np.eye(4), [BrokerCapacity(name, 100.0) for name in "ab"]), None)
    policy = solve_state(plan, frozenset("a"))
    assert (policy.status, policy.mirror, policy.next_loss) == ("overloaded", {}, None)
    assert set(policy.primary.values()) == {"b"}


def test_brokers_are_switched_off_at_low_load_until_a_limit_breaks() -> None:
    items = [Item(f"i{n}", 30.0) for n in range(10)]
    problem = Problem.of(items, np.eye(10) * 9, [BrokerCapacity(f"b{n}", 100.0) for n in range(5)])
    plan = normal_plan(problem, None)
    cases = low_load_cases(plan, 0.5)
    assert [len(case.off) for case in cases] == [1, 2, 3]
    policies = [solve_case(plan, case) for case in cases]
    assert [policy.status for policy in policies] == ["kept", "kept", "kept"]
    tight = [solve_case(plan, case) for case in low_load_cases(plan, 0.9)]
    assert [len(policy.off) for policy in switchable(tight)] == [1]
    for policy in policies:
        assert sum(policy.risk.values()) < 1e-6


@pytest.mark.parametrize("load", [0.0, -1.0, 1.5])
def test_a_low_load_that_is_none_is_refused(load: float) -> None:
    with pytest.raises(BadProblem, match="low_load"):
        low_load_cases(small_plan(), load)


def test_a_policy_is_the_same_wherever_and_in_whatever_order_it_is_made() -> None:
    plan = small_plan()
    there = pickle.loads(pickle.dumps(plan))
    cases = failure_cases(plan)[:8]
    here = [solve_case(plan, case) for case in cases]
    assert [solve_case(there, case) for case in reversed(cases)] == here[::-1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_every_state_of_random_problems_has_a_sound_policy(seed: int) -> None:
    plan = normal_plan(random_problem(seed, 12, 4, use=0.35, risk_max=0.3), None)
    for case in failure_cases(plan) + low_load_cases(plan, 0.5):
        if case.load == 1.0:
            check_policy(plan, solve_case(plan, case))
