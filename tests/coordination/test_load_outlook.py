"""A plan expects load: the routing tier grows before it comes, and shrinks no sooner than it went."""

import pytest
from test_leader import World, world

from overlane.coordination.assignment.elasticity import Bounds, Elasticity
from overlane.coordination.assignment.load_outlook import AHEAD_S, GROWTH_MAX, LoadOutlook
from overlane.coordination.records import ReportRecord
from overlane.core.units import SECOND

HOUR_S = 3_600
NIGHT, DAY = 100.0, 250.0
START_S = 10 * HOUR_S
OUTLOOK = LoadOutlook(START_S, (NIGHT, NIGHT, DAY, DAY, NIGHT))
PEAK_S = START_S + 2 * HOUR_S


@pytest.mark.parametrize(
    ("unix_s", "expected"),
    [
        (START_S, 1.0),
        (PEAK_S - AHEAD_S - 1, 1.0),
        (PEAK_S - AHEAD_S, DAY / NIGHT),
        (PEAK_S - 1, DAY / NIGHT),
        (PEAK_S, 1.0),
        (PEAK_S + 2 * HOUR_S - 1, 1.0),
        (START_S - 1, 1.0),
        (START_S + 5 * HOUR_S - 1, 1.0),
        (START_S + 5 * HOUR_S, 1.0),
    ],
)
def test_growth_is_that_of_the_quarter_hour_to_come_and_never_below_one(unix_s: int, expected: float) -> None:
    assert OUTLOOK.growth(unix_s) == expected


def test_a_ratio_without_a_base_is_not_believed() -> None:
    assert LoadOutlook(START_S, (0.0, DAY)).growth(START_S + HOUR_S - 1) == 1.0
    assert LoadOutlook(START_S, (0.001, DAY)).growth(START_S + HOUR_S - 1) == GROWTH_MAX
    assert LoadOutlook(START_S, ()).growth(START_S) == 1.0


def test_expected_load_makes_the_tier_grow_and_keeps_it_from_shrinking() -> None:
    bounds = Bounds(1, 8)
    cases = ((Elasticity(bounds), 2.5), (Elasticity(bounds), 1.0))
    most = [max(of.wanted([0.4, 0.4], second * SECOND, growth) for second in range(32)) for of, growth in cases]
    assert most == [4, 2], "2.0 of 0.6 each"
    cases = ((Elasticity(bounds), 2.5), (Elasticity(bounds), 1.0))
    least = [min(of.wanted([0.2, 0.2], second * SECOND, growth) for second in range(302)) for of, growth in cases]
    assert least == [2, 1]


def wanted_at(found: World, unix_s: int, until_s: int, load: float) -> int:
    """How many routing brokers there are to be, after a load of this much until then; they come at once."""
    found.now = unix_s * SECOND
    while found.now < until_s * SECOND:
        names = [name for name, member in found.members.items() if member.role == "routing"]
        for name in names:
            found.reports[name] = ReportRecord(load=load / len(names))
        found.decide(10 * SECOND)
        assert found.wanted is not None
        for number in range(len(names), found.wanted.routing):
            found.add(f"r{number}", "routing")
    assert found.wanted is not None
    return found.wanted.routing


def test_the_leader_starts_routing_brokers_before_the_peak_of_the_plan() -> None:
    found, unaware = world(routing=2), world(routing=2)
    found.leader.expect(OUTLOOK)
    for one in (found, unaware):
        assert wanted_at(one, START_S, PEAK_S - AHEAD_S, 1.0) == 2
    prepared = wanted_at(found, PEAK_S - AHEAD_S, PEAK_S - 600, 1.0)
    assert prepared >= 5, "for 2.5 at 0.6 each"
    assert wanted_at(unaware, PEAK_S - AHEAD_S, PEAK_S - 600, 1.0) == 2
    found.leader.expect(None)
    assert wanted_at(found, PEAK_S, PEAK_S + 60, 2.5) == prepared
