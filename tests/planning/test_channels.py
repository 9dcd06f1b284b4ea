"""Channels on small demands: the paper's tables, every mapping tried, and what must hold whatever the demand."""

import pytest
from channel_oracle import SET_1_BPS, SET_2_BPS, least_cost_bps, paper, random_demand
from hypothesis import given
from hypothesis import strategies as st

from examples import examples, seeds
from overlane.planning.channels import Advertisement, Channel, ChannelPlan, cost_of, plan_channels
from overlane.planning.channels.demand import fold, layout_cost_bps
from overlane.planning.channels.exact import prove
from overlane.planning.channels.greedy import greedy
from overlane.planning.channels.refine import refine
from overlane.planning.channels.spectral import spectral_bound_bps
from overlane.planning.channels.spine import Spine
from overlane.planning.problem import BadProblem

SOLUTION_1 = (Channel(tuple("ADE"), tuple("acdeg")), Channel(tuple("BCF"), tuple("bdf")))
SOLUTION_2 = (Channel(tuple("AE"), tuple("acdeg")), Channel(tuple("BCDF"), tuple("bdefg")))


def consistent(plan: ChannelPlan, advertisements: list[Advertisement], channels: int, weight: float) -> bool:
    """Whether the plan keeps to its limits and costs what it says."""
    recounted = cost_of(advertisements, plan.channels, weight)
    return (
        len(plan.channels) <= channels
        and recounted == plan.cost
        and plan.bound_bps <= plan.cost.total_bps
        and (plan.status == "optimal") == (plan.bound_bps == plan.cost.total_bps)
        and plan.cost.total_bps <= min(plan.greedy_bps, plan.clustering_bps) * (1 + 1e-12)
    )


@pytest.mark.parametrize(
    ("rates_bps", "solution", "cost_bps"),
    [
        (SET_1_BPS, SOLUTION_1, 2220),  # the paper prints 2020
        (SET_2_BPS, SOLUTION_1, 1290),
        (SET_1_BPS, SOLUTION_2, 7500),
        (SET_2_BPS, SOLUTION_2, 845),
    ],
)
def test_the_mappings_of_the_paper_cost_what_its_tables_add_up_to(
    rates_bps: dict[str, int], solution: tuple[Channel, ...], cost_bps: float
) -> None:
    assert cost_of(paper(rates_bps), solution, 1.0).total_bps == cost_bps


def test_what_the_second_mapping_does_not_bring_comes_by_unicast() -> None:
    cost = cost_of(paper(SET_1_BPS), SOLUTION_2, 1.0)
    assert (cost.waste_bps, cost.unicast_bps, cost.unicast) == (6700, 800, (("a", "D"),))


@pytest.mark.parametrize(("rates_bps", "cost_bps"), [(SET_1_BPS, 1040), (SET_2_BPS, 355)])
def test_the_optimum_of_the_papers_demand_is_found_and_proven(rates_bps: dict[str, int], cost_bps: float) -> None:
    plan = plan_channels(paper(rates_bps), 2)
    assert (plan.cost.total_bps, plan.bound_bps, plan.status) == (cost_bps, cost_bps, "optimal")
    assert least_cost_bps(paper(rates_bps), 2, 1.0) == cost_bps


@pytest.mark.parametrize("block", range(8))
def test_the_optimum_is_that_of_trying_every_mapping(block: int) -> None:
    for seed in range(block * 50, block * 50 + seeds(50)):
        advertisements = random_demand(seed)
        channels = seed % 3 if seed % 10 else 3
        if channels == 3:
            advertisements = random_demand(seed, nodes_max=3)
        weight = (1.0, 0.4, 2.5, 1.0)[seed % 4]
        plan = plan_channels(advertisements, channels, weight)
        expected_bps = least_cost_bps(advertisements, channels, weight)
        assert plan.cost.total_bps == pytest.approx(expected_bps, abs=1e-9), f"seed {seed}"
        assert plan.status == "optimal", f"seed {seed}"
        assert consistent(plan, advertisements, channels, weight), f"seed {seed}"


def test_the_proof_finds_the_optimum_without_the_search() -> None:
    for seed in range(seeds(60)):
        advertisements = random_demand(seed)
        demand = fold(advertisements, 2, 1.0)
        if demand.channels < min(2, demand.channels_for_free) or demand.channels == demand.channels_for_free:
            continue
        spine = Spine(demand)
        start = spine.masks(greedy(demand))
        proof = prove(spine, start, 10**9, lambda: False)
        assert proof.complete, f"seed {seed}"
        found_bps = layout_cost_bps(demand, spine.layout(start if proof.better is None else proof.better))
        assert found_bps == pytest.approx(least_cost_bps(advertisements, 2, 1.0), abs=1e-9), f"seed {seed}"
        assert proof.bound_bps == pytest.approx(found_bps, abs=1e-9), f"seed {seed}"


def test_refining_never_costs_more_and_stays_above_the_optimum() -> None:
    for seed in range(seeds(60)):
        advertisements = random_demand(seed, advertisements_max=8, nodes_max=5)
        demand = fold(advertisements, 2, 1.0)
        if demand.channels == 0:
            continue
        spine = Spine(demand)
        start = spine.masks(greedy(demand))
        refined = refine(spine, start, 10**5, lambda: False)
        assert spine.cost(refined) == pytest.approx(layout_cost_bps(demand, spine.layout(refined))), f"seed {seed}"
        assert spine.cost(refined) <= spine.cost(start) + 1e-9, f"seed {seed}"
        assert spine.cost(refined) >= least_cost_bps(advertisements, 2, 1.0) - 1e-9, f"seed {seed}"


def test_a_proof_cut_short_still_bounds_the_optimum() -> None:
    for seed in range(seeds(40)):
        advertisements = random_demand(seed, advertisements_max=8, nodes_max=5)
        demand = fold(advertisements, 2, 1.0)
        spine = Spine(demand)
        start = spine.masks(greedy(demand))
        for cells in (100, 1_000, 10_000):
            proof = prove(spine, start, cells, lambda: False)
            assert proof.bound_bps <= least_cost_bps(advertisements, 2, 1.0) + 1e-9, f"seed {seed}, {cells} cells"


def test_the_spectral_bound_never_passes_the_optimum() -> None:
    for seed in range(seeds(100)):
        weight = (1.0, 0.3, 3.0)[seed % 3]
        advertisements = random_demand(seed)
        demand = fold(advertisements, 1 + seed % 2, weight)
        bound_bps = spectral_bound_bps(demand, greedy(demand), lambda: False)
        assert 0 <= bound_bps <= least_cost_bps(advertisements, 1 + seed % 2, weight) + 1e-6, f"seed {seed}"


nodes = st.lists(st.sampled_from("ABCDEF"), unique=True).map(tuple)
rates_bps = st.integers(0, 1000).map(float)
demands = st.lists(st.tuples(rates_bps, nodes), max_size=6).map(
    lambda rows: [Advertisement(f"ad{row}", rate, who) for row, (rate, who) in enumerate(rows)]
)
weights = st.sampled_from([0.0, 0.5, 1.0, 2.0])
a_few = examples(40)


@a_few
@given(demands, st.integers(0, 3), weights, st.randoms(use_true_random=False))
def test_names_and_order_change_nothing(
    advertisements: list[Advertisement], channels: int, weight: float, chance: object
) -> None:
    letters = list("ABCDEF")
    chance.shuffle(letters)  # type: ignore[attr-defined]
    other = dict(zip("ABCDEF", letters, strict=True))
    renamed = [
        Advertisement(f"{each.name}!", each.rate_bps, tuple(sorted(other[node] for node in each.subscribers)))
        for each in advertisements
    ]
    chance.shuffle(renamed)  # type: ignore[attr-defined]
    one, two = (plan_channels(each, channels, weight) for each in (advertisements, renamed))
    assert one.cost.total_bps == pytest.approx(two.cost.total_bps)
    assert one.status == two.status


@a_few
@given(demands, st.integers(0, 3), weights, st.sampled_from([0.125, 3.0, 1e6]))
def test_scaling_all_rates_scales_the_cost(
    advertisements: list[Advertisement], channels: int, weight: float, factor: float
) -> None:
    scaled = [Advertisement(each.name, factor * each.rate_bps, each.subscribers) for each in advertisements]
    one, two = plan_channels(advertisements, channels, weight), plan_channels(scaled, channels, weight)
    assert two.cost.total_bps == pytest.approx(factor * one.cost.total_bps)


@a_few
@given(demands, st.integers(0, 3), weights)
def test_one_more_channel_never_costs_more_and_bounds_hold(
    advertisements: list[Advertisement], channels: int, weight: float
) -> None:
    fewer = plan_channels(advertisements, channels, weight)
    more = plan_channels(advertisements, channels + 1, weight)
    assert more.cost.total_bps <= fewer.cost.total_bps + 1e-9
    assert consistent(fewer, advertisements, channels, weight)
    assert consistent(more, advertisements, channels + 1, weight)


@given(demands, weights)
def test_as_many_channels_as_different_lists_cost_nothing(advertisements: list[Advertisement], weight: float) -> None:
    lists = {frozenset(each.subscribers) for each in advertisements}
    plan = plan_channels(advertisements, len(lists), weight)
    assert (plan.cost.total_bps, plan.status) == (0, "optimal")


@pytest.mark.parametrize(
    ("advertisements", "channels", "weight", "field"),
    [
        ([Advertisement("a", -1, ("A",))], 1, 1.0, "advertisements[0].rate_bps"),
        ([Advertisement("a", float("inf"), ("A",))], 1, 1.0, "advertisements[0].rate_bps"),
        ([Advertisement("a", 1, ("A",)), Advertisement("a", 1, ("B",))], 1, 1.0, "advertisements[1].name"),
        ([Advertisement("a", 1, ("A", "B", "A"))], 1, 1.0, "advertisements[0].subscribers[2]"),
        ([], -1, 1.0, "channels"),
        ([], 1, -0.5, "unicast_weight"),
    ],
)
def test_a_bad_demand_is_refused_with_its_field(
    advertisements: list[Advertisement], channels: int, weight: float, field: str
) -> None:
    with pytest.raises(BadProblem) as refused:
        plan_channels(advertisements, channels, weight)
    assert refused.value.field_name == field
