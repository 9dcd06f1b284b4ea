"""Latency budgets: the rule of the Harmony paper, and its variants."""

import pytest

from overlane.core.links.latency_budgets import BudgetTable, LatencyDemand, plan
from overlane.core.units import MS, NEVER


def test_the_nth_class_by_margin_per_hop_gets_the_smallest_margin_plus_n_steps() -> None:
    table: BudgetTable[str] = BudgetTable(step_ns=2 * MS)
    table.put("reports", LatencyDemand(400 * MS, 40 * MS, 3))
    table.put("alarms", LatencyDemand(60 * MS, 30 * MS, 3))
    table.put("video", LatencyDemand(100 * MS, 40 * MS, 2))
    assert {key: table.budget(key) for key in ("alarms", "video", "reports")} == {
        "alarms": 12 * MS,
        "video": 14 * MS,
        "reports": 16 * MS,
    }


def test_budgets_follow_what_is_measured_and_who_is_there() -> None:
    table: BudgetTable[str] = BudgetTable(step_ns=MS)
    table.put("a", LatencyDemand(60 * MS, 30 * MS, 3))
    table.put("b", LatencyDemand(90 * MS, 30 * MS, 3))
    assert (table.budget("a"), table.budget("b")) == (11 * MS, 12 * MS)
    table.put("b", LatencyDemand(90 * MS, 84 * MS, 3))
    assert (table.budget("a"), table.budget("b")) == (4 * MS, 3 * MS)
    table.remove("b")
    assert (table.budget("a"), table.budget("b")) == (11 * MS, NEVER)


@pytest.mark.parametrize("spacing", ["ranked", "margin"])
def test_without_a_deadline_there_is_no_budget_and_it_ranks_nowhere(spacing: str) -> None:
    table: BudgetTable[str] = BudgetTable(spacing=spacing, step_ns=0)
    table.put("open", LatencyDemand(NEVER, 30 * MS, 3))
    table.put("a", LatencyDemand(60 * MS, 30 * MS, 3))
    assert (table.budget("open"), table.budget("a"), table.budget("unknown")) == (NEVER, 10 * MS, NEVER)


def test_a_class_beyond_its_deadline_has_no_margin_and_equals_rank_by_key() -> None:
    table: BudgetTable[str] = BudgetTable(step_ns=MS)
    for key in ("c", "a", "b"):
        table.put(key, LatencyDemand(10 * MS, 30 * MS, 3))
    assert [table.budget(key) for key in "abc"] == [MS, 2 * MS, 3 * MS]


def test_the_proportional_split_gives_a_slow_hop_more_of_the_margin() -> None:
    equal: BudgetTable[str] = BudgetTable("equal", "margin")
    proportional: BudgetTable[str] = BudgetTable("proportional", "margin")
    for table in (equal, proportional):
        table.put("a", LatencyDemand(90 * MS, 30 * MS, 3, here_ns=20 * MS))
    assert (equal.budget("a"), proportional.budget("a")) == (20 * MS, 40 * MS)


def test_an_unknown_split_or_spacing_is_refused() -> None:
    with pytest.raises(ValueError, match="fair"):
        BudgetTable("fair")
    with pytest.raises(ValueError, match="wide"):
        BudgetTable(spacing="wide")


@pytest.mark.parametrize(
    ("due", "now", "hops", "expected"),
    [
        (40, 10, 3, 20),
        (40, 10, 1, 40),
        (40, 50, 3, 40),
        (40, 40, 3, 40),
        (NEVER, 10, 3, NEVER),
    ],
)
def test_a_parcel_plans_to_leave_with_the_later_hops_part_of_its_margin_in_hand(
    due: int, now: int, hops: int, expected: int
) -> None:
    assert plan(due, now, hops) == expected
