"""Which routing broker carries which topics: placed by a strategy, moved seldom; and how many brokers there are."""

from collections.abc import Callable
from itertools import pairwise
from math import cos, exp, pi

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.coordination.assignment.elasticity import Bounds, Elasticity
from overlane.coordination.assignment.latencies import Latencies
from overlane.coordination.assignment.placement import (
    LOAD_BOUND,
    STRATEGIES,
    Bundle,
    RoutingBroker,
    Strategy,
    Tier,
    least_loaded,
    lowest_latency,
    place,
    place_all,
    strategy_named,
)
from overlane.coordination.assignment.rebalancing import REST, ROUNDS_LARGE, ROUNDS_SMALL, Move, Rebalancer
from overlane.core.bundles import ALL, BUNDLES, NONE, bundle_of, bundles_of
from overlane.core.topics import matches
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.errors import ConfigError

LEVEL = st.sampled_from(["a", "b", "plant", "", "x1"])
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)
FILTER = st.lists(st.one_of(LEVEL, st.just("+")), min_size=1, max_size=4).map("/".join).filter(bool)


def tier_of(
    loads: dict[str, float],
    bundles: dict[int, tuple[str, float]],
    latency_us: dict[tuple[str, str], int] | None = None,
) -> Tier:
    """Brokers with measured loads, and bundles with their brokers and loads."""
    by_edge: dict[str, dict[str, int]] = {}
    for (edge, broker), us in (latency_us or {}).items():
        by_edge.setdefault(edge, {})[broker] = us
    return Tier(
        {name: RoutingBroker(name, load) for name, load in loads.items()},
        {bundle: Bundle(bundle, load) for bundle, (_, load) in bundles.items()},
        {bundle: broker for bundle, (broker, _) in bundles.items()},
        Latencies(by_edge),
    )


# Bundles


@given(topic=TOPIC, topic_filter=st.one_of(FILTER, FILTER.map(lambda one: f"{one}/#"), st.just("#")))
def test_a_filter_concerns_the_bundle_of_every_topic_that_it_matches(topic: str, topic_filter: str) -> None:
    if matches(topic_filter, topic):
        assert bundle_of(topic) in bundles_of(topic_filter)


def test_a_filter_without_wildcards_in_the_first_levels_concerns_one_bundle() -> None:
    assert len(bundles_of("plant/line1/#")) == 1
    assert bundles_of("plant/line1/#") == bundles_of("plant/line1/+/temperature") == bundles_of("plant/line1")
    assert bundles_of("plant/#") == bundles_of("+/line1") == bundles_of("#") == ALL
    assert len(bundles_of("alarms")) == 1


def test_names_of_the_overlay_have_no_bundle() -> None:
    assert bundle_of("$SYS/broker") is None
    assert bundles_of("$SYS/#") == NONE


def test_topics_spread_over_all_bundles() -> None:
    counts = [0] * BUNDLES
    for number in range(20 * BUNDLES):
        found = bundle_of(f"plant/line{number}/temperature")
        assert found is not None
        counts[found] += 1
    assert min(counts) > 3
    assert max(counts) < 50


# Placement


def test_a_bundle_goes_to_the_least_loaded_broker() -> None:
    assert place(Bundle(9), tier_of({"a": 0.5, "b": 0.1, "c": 0.3}, {}), least_loaded) == "b"


def test_what_was_just_placed_counts_before_it_is_measured() -> None:
    bundles = [Bundle(number, 0.1) for number in range(30)]
    placed = place_all(bundles, tier_of({"a": 0.0, "b": 0.0, "c": 0.0}, {}), least_loaded)
    assert sorted(list(placed.values()).count(name) for name in "abc") == [10, 10, 10]


def test_the_same_knowledge_gives_the_same_placement_in_any_order() -> None:
    bundles = [Bundle(number, 0.01 * (number % 7)) for number in range(60)]
    tier = tier_of({"a": 0.1, "b": 0.2, "c": 0.0}, {})
    assert place_all(bundles, tier, least_loaded) == place_all(bundles[::-1], tier, least_loaded)


def test_latency_places_a_bundle_where_its_edges_are_nearest() -> None:
    latency_us = {("e1", "a"): 5_000, ("e2", "a"): 30_000, ("e1", "b"): 15_000, ("e2", "b"): 15_000}
    bundle = Bundle(1, edges=frozenset({"e1", "e2"}))
    assert place(bundle, tier_of({"a": 0.1, "b": 0.1}, {}, latency_us), lowest_latency) == "b"


def test_latency_does_not_heap_everything_onto_one_broker() -> None:
    latency_us = {("e1", "a"): 1_000, ("e1", "b"): 9_000}
    bundles = [Bundle(number, 0.1, edges=frozenset({"e1"})) for number in range(8)]
    placed = place_all(bundles, tier_of({"a": 0.0, "b": 0.0}, {}, latency_us), lowest_latency)
    assert 0 < list(placed.values()).count("b") < 8


@pytest.mark.parametrize("name", STRATEGIES)
@given(
    loads=st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 2), min_size=1),
    shares=st.lists(st.floats(0, 0.5), max_size=20),
)
def test_every_strategy_keeps_to_the_bound_and_places_everything(
    name: str, loads: dict[str, float], shares: list[float]
) -> None:
    bundles = [Bundle(number, share) for number, share in enumerate(shares)]
    tier = tier_of(loads, {})
    placed = place_all(bundles, tier, STRATEGIES[name])
    assert placed.keys() == {bundle.id for bundle in bundles}
    for bundle in sorted(bundles, key=lambda one: (-one.load, one.id)):
        expected = tier.expected_loads()
        assert expected[placed[bundle.id]] <= LOAD_BOUND * sum(expected.values()) / len(expected) + 1e-9
        known = {**tier.bundles, bundle.id: bundle}
        tier = Tier(tier.brokers, known, {**tier.assigned, bundle.id: placed[bundle.id]})


def test_a_broker_that_is_leaving_gets_nothing() -> None:
    brokers = {"a": RoutingBroker("a", 0.0, is_leaving=True), "b": RoutingBroker("b", 0.9)}
    assert place(Bundle(1), Tier(brokers, {}, {}), least_loaded) == "b"
    assert place(Bundle(1), Tier({"a": brokers["a"]}, {}, {}), least_loaded) is None


def failing(_bundle: Bundle, _tier: Tier, _loads: object) -> str:
    raise RuntimeError("no idea")


def inventing(_bundle: Bundle, _tier: Tier, _loads: object) -> str:
    return "nobody"


@pytest.mark.parametrize("strategy", [failing, inventing])
def test_a_strategy_of_the_users_that_fails_leaves_no_bundle_without_a_broker(strategy: Strategy) -> None:
    assert place(Bundle(1), tier_of({"a": 0.4, "b": 0.2}, {}), strategy) == "b"


def test_strategies_are_found_by_name_and_by_module() -> None:
    assert strategy_named("least-loaded") is least_loaded
    assert strategy_named(f"{least_loaded.__module__}:least_loaded") is least_loaded


@pytest.mark.parametrize("name", ["", "random", "no.such:thing", "os:nothing", "os:sep", ":"])
def test_an_unknown_strategy_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match="strategy"):
        strategy_named(name)


# Rebalancing


def rounds(rebalancer: Rebalancer, tier: Tier, count: int, start: Nanos = 0) -> list[list[Move]]:
    return [rebalancer.round(tier, least_loaded, start + number * 10 * SECOND) for number in range(count)]


def test_a_large_gap_moves_bundles_after_two_rounds_and_a_small_one_after_eight() -> None:
    large = tier_of({"a": 0.0, "b": 0.0}, dict.fromkeys(range(12), ("a", 0.05)))
    small = tier_of({"a": 0.0, "b": 0.0}, dict.fromkeys(range(4), ("a", 0.05)))
    assert [bool(moves) for moves in rounds(Rebalancer(), large, ROUNDS_LARGE)] == [False, True]
    found = [bool(moves) for moves in rounds(Rebalancer(), small, ROUNDS_SMALL)]
    assert found == [False] * (ROUNDS_SMALL - 1) + [True]


def test_a_gap_that_comes_and_goes_moves_nothing() -> None:
    uneven = tier_of({"a": 0.8, "b": 0.2}, {1: ("a", 0.1)})
    even = tier_of({"a": 0.5, "b": 0.5}, {1: ("a", 0.1)})
    rebalancer = Rebalancer()
    assert not any(rebalancer.round(tier, least_loaded, 0) for tier in 20 * [uneven, even])


def test_at_most_a_tenth_moves_at_once_and_what_has_moved_rests() -> None:
    assigned = dict.fromkeys(range(100), ("a", 0.01))
    rebalancer = Rebalancer()
    first = rounds(rebalancer, tier_of({"a": 0, "b": 0}, assigned), 2)[1]
    assert len(first) == 10
    back = dict.fromkeys(range(100), ("a", 0.01))  # as if nothing had become of it
    again = rounds(rebalancer, tier_of({"a": 0, "b": 0}, back), 2, 20 * SECOND)[1]
    assert not {move.bundle for move in first} & {move.bundle for move in again}
    later = rounds(rebalancer, tier_of({"a": 0, "b": 0}, back), 2, 20 * SECOND + 2 * REST)[1]
    assert {move.bundle for move in later} & {move.bundle for move in first}


def test_one_heavy_bundle_does_not_change_places_for_ever() -> None:
    assigned = {1: "a"}
    rebalancer = Rebalancer()
    for number in range(200):
        tier = tier_of({"a": 0, "b": 0}, {1: (assigned[1], 0.9)})
        assert rebalancer.round(tier, least_loaded, number * 60 * SECOND) == []


def test_bundles_of_a_broker_that_leaves_go_whatever_the_gap() -> None:
    brokers = {"a": RoutingBroker("a", 0.1, is_leaving=True), "b": RoutingBroker("b", 0.6)}
    tier = Tier(brokers, {1: Bundle(1, 0.1)}, {1: "a"})
    assert Rebalancer().round(tier, least_loaded, 0) == [Move(1, "a", "b", "its broker is leaving")]


@given(
    shares=st.lists(st.floats(0.001, 0.2), min_size=1, max_size=40),
    homes=st.lists(st.sampled_from("abc"), min_size=40, max_size=40),
)
def test_moves_come_to_an_end_and_never_widen_the_gap(shares: list[float], homes: list[str]) -> None:
    assigned = {number: homes[number] for number in range(len(shares))}
    rebalancer = Rebalancer()
    quiet = 0
    for number in range(400):
        tier = tier_of(
            dict.fromkeys("abc", 0.0), {bundle: (assigned[bundle], shares[bundle]) for bundle in sorted(assigned)}
        )
        loads = tier.expected_loads()
        moves = rebalancer.round(tier, least_loaded, number * 10 * SECOND)
        for move in moves:
            assigned[move.bundle] = move.target
            loads[move.source] -= shares[move.bundle]
            loads[move.target] += shares[move.bundle]
        before = tier.expected_loads()
        assert max(loads.values()) - min(loads.values()) <= max(before.values()) - min(before.values()) + 1e-9
        quiet = 0 if moves else quiet + 1
    assert quiet > 100


# Elasticity


def day(load_at: Callable[[float], float], low: int = 2, high: int = 8, start: int = 0) -> list[tuple[int, float]]:
    """A day in steps of ten seconds: how many brokers there are, and the load of each."""
    elasticity = Elasticity(Bounds(low, high))
    count = start or low
    found = []
    for step in range(24 * 360):
        each = load_at(step / 360) / count
        found.append((count, each))
        count = elasticity.wanted([each] * count, step * 10 * SECOND)
    return found


def test_a_day_with_a_tenfold_peak_is_followed_without_overload_or_oscillation() -> None:
    seen = day(lambda hour: 0.5 + 2.25 * (1 - cos(2 * pi * hour / 24)))
    counts = [count for count, _ in seen]
    changes = [after - before for before, after in pairwise(counts) if after != before]
    assert max(each for _, each in seen) < 0.85
    assert max(counts) >= 6
    assert counts[-1] <= 3
    turns = sum(1 for before, after in pairwise(changes) if (before > 0) != (after > 0))
    assert turns == 1  # up once, down once


class Day:
    """A tier whose bundles differ, and whose brokers come 20 s after they are wanted and leave when drained."""

    STARTS: Nanos = 20 * SECOND
    DEADLINE_SERVICES = 60
    """The part of a deadline that may be spent at a broker, in times that it takes for a message."""

    def __init__(self, bundles: int = 64) -> None:
        weights = [1 / (1 + number) ** 0.5 for number in range(bundles)]
        self.shares = [weight / sum(weights) for weight in weights]
        self.leaving: dict[str, bool] = {"r1": False, "r2": False}
        self.coming: list[tuple[Nanos, str]] = []
        self.assigned = {number: f"r{1 + number % 2}" for number in range(bundles)}
        self.elasticity, self.rebalancer = Elasticity(Bounds(2, 9)), Rebalancer()
        self.late = self.sent = self.load_max = 0.0
        self.counts: list[int] = []
        self.moves = 0

    def step(self, total: float, now: Nanos) -> None:
        loads = dict.fromkeys(self.leaving, 0.0)
        for bundle, broker in self.assigned.items():
            loads[broker] += total * self.shares[bundle]
        self._count(loads)
        for due, name in [one for one in self.coming if one[0] <= now]:
            self.coming.remove((due, name))
            self.leaving[name], loads[name] = False, 0.0
        self._scale([load for name, load in loads.items() if not self.leaving[name]], now)
        brokers = {name: RoutingBroker(name, loads[name], self.leaving[name]) for name in loads}
        tier = Tier(brokers, {one: Bundle(one, total * share) for one, share in enumerate(self.shares)}, self.assigned)
        for move in self.rebalancer.round(tier, least_loaded, now):
            self.assigned[move.bundle] = move.target
            self.moves += 1
        used = set(self.assigned.values())
        self.leaving = {name: leaves for name, leaves in self.leaving.items() if not leaves or name in used}

    def _count(self, loads: dict[str, float]) -> None:
        """A broker as a queue with one server and arrivals at random: how many wait for longer than they may."""
        for load in loads.values():
            self.sent += load
            self.late += load * exp(-max(0.0, 1 - load) * self.DEADLINE_SERVICES)
            self.load_max = max(self.load_max, load)
        self.counts.append(sum(not leaves for leaves in self.leaving.values()))

    def _scale(self, loads: list[float], now: Nanos) -> None:
        wanted, there = self.elasticity.wanted(loads, now), len(loads) + len(self.coming)
        names = [f"r{number}" for number in range(1, 20) if f"r{number}" not in self.leaving]
        for name in names[: max(0, wanted - there)]:
            self.coming.append((now + self.STARTS, name))
        staying = [name for name, leaves in self.leaving.items() if not leaves]
        for name in sorted(staying)[wanted:] if not self.coming else ():
            self.leaving[name] = True


def test_a_day_with_a_tenfold_peak_keeps_messages_in_time_though_bundles_differ_and_brokers_come_late() -> None:
    day = Day()
    for step in range(24 * 360):
        day.step(0.5 + 2.25 * (1 - cos(2 * pi * step / 8640)), step * 10 * SECOND)
    changes = [after - before for before, after in pairwise(day.counts) if after != before]
    turns = sum((before > 0) != (after > 0) for before, after in pairwise(changes))
    assert (turns, day.counts[0]) == (1, 2), day.counts[::360]
    assert max(day.counts) >= 6, day.counts[::360]
    assert day.counts[-1] <= 3, day.counts[::360]
    assert day.load_max < 0.85
    assert 1 - day.late / day.sent > 0.9999, (day.late, day.sent)
    assert day.moves < 5 * len(day.shares), day.moves


def test_a_load_that_jumps_around_the_limits_changes_nothing() -> None:
    seen = day(lambda hour: 4 * (0.72 if round(hour * 360) % 2 else 0.66), low=4)
    assert {count for count, _ in seen} == {4}


def test_there_are_never_fewer_or_more_than_allowed() -> None:
    assert {count for count, _ in day(lambda _: 0.0, 3, 5)} == {3}
    assert max(count for count, _ in day(lambda _: 50.0, 3, 5)) == 5
    assert Elasticity(Bounds(3, 5)).wanted([0.1], 0) == 3


def test_one_fewer_must_survive_the_failure_of_another() -> None:
    assert {count for count, _ in day(lambda _: 0.95, low=1, start=3)} == {3}  # two would have 0.475, one of them 0.95
    assert day(lambda _: 0.85, low=1, start=3)[-1][0] == 2


def test_the_limits_of_the_file_decide_when_it_grows_and_shrinks_and_when_it_is_looked_at_again() -> None:
    elasticity = Elasticity(Bounds(1, 9, grow_above=0.3, grow_after=SECOND, shrink_below=0.2, shrink_after=2 * SECOND))
    assert (elasticity.wanted([0.35, 0.35], 0), elasticity.next_deadline()) == (2, SECOND)
    assert elasticity.wanted([0.35, 0.35], SECOND) == 3  # as many as keep the mean below 6/7 of 0.3
    assert (elasticity.wanted([0.1, 0.05, 0.0], 2 * SECOND), elasticity.next_deadline()) == (3, 4 * SECOND)
    assert elasticity.wanted([0.1, 0.05, 0.0], 4 * SECOND) == 2
    assert (elasticity.wanted([0.25, 0.25], 5 * SECOND), elasticity.next_deadline()) == (2, NEVER)
