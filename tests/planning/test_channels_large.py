"""Channels on large demands: better than both baselines, under a bound that means something, the same every time."""

import numpy as np
import pytest
from channel_oracle import crowd

from overlane.planning.channels import Advertisement, cost_of, plan_channels
from overlane.planning.channels.board import Board, Draft
from overlane.planning.channels.clustering import clustering
from overlane.planning.channels.demand import Bits, empty_layout, fold, layout_cost_bps
from overlane.planning.channels.greedy import greedy
from overlane.planning.channels.search import search


def never() -> bool:
    return False


@pytest.mark.slow
def test_a_thousand_advertisements_on_32_channels_beat_both_baselines_with_a_bound() -> None:
    advertisements = crowd(seed=1, advertisements=1000, nodes=500, groups=60)
    plan = plan_channels(advertisements, 32)
    assert plan.cost.total_bps < 0.8 * min(plan.greedy_bps, plan.clustering_bps)
    assert 0.85 * plan.cost.total_bps < plan.bound_bps <= plan.cost.total_bps
    assert cost_of(advertisements, plan.channels, 1.0) == plan.cost


@pytest.mark.parametrize("seed", range(6))
def test_structured_demands_beat_both_baselines(seed: int) -> None:
    advertisements = crowd(seed, advertisements=150, nodes=60, groups=16)
    demand = fold(advertisements, 8, 1.0)
    by_greedy, by_clustering = greedy(demand), clustering(demand)
    found = search(demand, [by_greedy, by_clustering], 20, never)
    baseline_bps = min(layout_cost_bps(demand, by_greedy), layout_cost_bps(demand, by_clustering))
    assert layout_cost_bps(demand, found) < baseline_bps, f"seed {seed}"


@pytest.mark.slow
def test_the_same_demand_has_the_same_answer_under_other_names() -> None:
    advertisements = crowd(3, advertisements=40, nodes=25, groups=12)
    renamed = [
        Advertisement(f"x{each.name}", each.rate_bps, tuple(f"y{node}" for node in each.subscribers))
        for each in advertisements
    ]
    one, again, other = (plan_channels(each, 9) for each in (advertisements, advertisements, renamed))
    assert one == again
    assert (one.cost.total_bps, one.bound_bps) == (other.cost.total_bps, other.bound_bps)


def test_a_search_stopped_at_once_still_answers() -> None:
    advertisements = crowd(4, advertisements=80, nodes=40, groups=10)
    plan = plan_channels(advertisements, 9, stop=lambda: True)
    assert plan.cost.total_bps <= min(plan.greedy_bps, plan.clustering_bps)
    assert 0 <= plan.bound_bps <= plan.cost.total_bps


def test_the_board_knows_its_savings_through_any_changes() -> None:
    for seed in range(20):
        chance = np.random.default_rng(seed)
        demand = fold(crowd(seed, advertisements=30, nodes=20, groups=8), 4, float(chance.choice([0.5, 1.0, 2.0])))
        board = Board(demand, empty_layout(demand))
        rows, columns = demand.wanted.shape
        for channel in range(demand.channels):
            listens: Bits = np.asarray(chance.random(columns) < 0.4)
            carries: Bits = np.asarray(chance.random(rows) < 0.4)
            board.put_on(channel, Draft(listens, carries, 0.0))
        for channel in [*range(demand.channels), 0]:
            before_bps = layout_cost_bps(demand, board.layout())
            gained_bps = board.polish(channel)
            after_bps = layout_cost_bps(demand, board.layout())
            assert gained_bps >= 0, f"seed {seed}"
            assert before_bps - after_bps == pytest.approx(gained_bps), f"seed {seed}"
