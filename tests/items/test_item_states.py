"""The case base, state by state: agents follow it, and its risks are those that a simulation counts."""

import pytest

from overlane.items.plans import failure_states, solve
from overlane.sim.items.states import policies_followed

SAMPLES = 40_000


@pytest.mark.usefixtures("bench_folder")
def test_agents_follow_every_state_of_a_case_base_whose_risks_are_those_of_a_simulation() -> None:
    from _item_rates import Carried, differences, drawn_plan, drawn_rates

    plan = drawn_plan(5, 20, 3, margin=1.5)
    states = [frozenset[str](), *failure_states(plan)]
    solved = [solve(plan, missing) for missing in states]
    for state in solved[1:]:
        plan = plan.with_state(state)
    rates = drawn_rates(plan, SAMPLES, 4)
    risks = 0
    for state, policy in zip(solved, policies_followed(plan, states), strict=True):
        assert policy is not None, f"nobody follows the policy for the loss of {state.missing}"
        assert dict(policy.places) == state.places
        assert policy.risk == pytest.approx(state.risk)
        for deviation, _ in differences(Carried(plan, policy.places), state.risk, rates):
            risks += 1
            assert deviation < 5
    assert risks == 5 + 5 * 4 + 10 * 3


@pytest.mark.usefixtures("bench_folder")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_plan_keeps_the_risk_where_round_robin_overloads_a_broker(seed: int) -> None:
    from _item_rates import Carried, drawn_rates, placed_in_turn, station_plan

    plan = station_plan(4, 6, seed, 1.45, 100.0)
    placed, in_turn = Carried(plan, plan.places), Carried(plan, placed_in_turn(plan))
    assert max(placed.predicted().values()) < plan.risk_max
    assert max(in_turn.predicted().values()) > 2 * plan.risk_max
    rates = drawn_rates(plan, SAMPLES, seed)
    for carried in (placed, in_turn):
        counted = carried.counted(rates)
        for broker, predicted in carried.predicted().items():
            assert counted[broker] == pytest.approx(predicted, abs=5 * (0.25 / SAMPLES) ** 0.5)
