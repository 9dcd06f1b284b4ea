"""What a link is blamed for, and what the brokers at its ends: to the second, however outages overlap."""

import random
from itertools import pairwise

import pytest

from overlane.pipeline.analysis.outage_attribution import AFTER_S, BEFORE_S, Span, parts_of

SEED = 31


@pytest.mark.parametrize(
    ("outage", "away", "parts"),
    [
        ((100, 160), [], [("down", 100, 160)]),
        ((100, 160), [(300, 400)], [("down", 100, 160)]),
        # The broker goes, the link follows and comes back a little later.
        ((20, 42), [(20, 40)], [("broker", 20, 42)]),
        ((19, 40), [(20, 40)], [("broker", 19, 40)]),
        # The link had failed a minute before its broker did.
        ((100, 200), [(154, 200)], [("down", 100, 154), ("broker", 154, 200)]),
        # It stays away for longer than it takes to come back.
        ((100, 200), [(100, 130)], [("broker", 100, 130), ("down", 130, 200)]),
        ((100, 200), [(120, 140)], [("down", 100, 120), ("broker", 120, 140), ("down", 140, 200)]),
        # Both ends are away, one after the other.
        ((100, 200), [(100, 150), (140, 195)], [("broker", 100, 200)]),
        ((100, 200), [(100, 120), (150, 195)], [("broker", 100, 120), ("down", 120, 150), ("broker", 150, 200)]),
        # It fails again just after its broker is back, and for long.
        ((105, 111), [(50, 103)], [("broker", 105, 111)]),
        ((105, 190), [(50, 103)], [("down", 105, 190)]),
        ((105, 190), [(50, 80)], [("down", 105, 190)]),
    ],
)
def test_an_outage_is_divided_between_link_and_brokers(
    outage: Span, away: list[Span], parts: list[tuple[str, int, int]]
) -> None:
    assert parts_of(outage, away) == parts


def test_parts_follow_each_other_and_blame_the_link_for_every_second_that_is_its_own() -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    for _ in range(2_000):
        start = rng.randrange(200)
        outage = (start, start + rng.randrange(1, 200))
        away = [(at, at + rng.randrange(1, 60)) for at in rng.sample(range(400), rng.randrange(4))]
        parts = parts_of(outage, away)
        assert [parts[0][1], parts[-1][2]] == list(outage)
        assert all(one[2] == two[1] and one[0] != two[0] for one, two in pairwise(parts))
        blamed = {second for state, start_s, end_s in parts if state == "down" for second in range(start_s, end_s)}
        gone = {second for start_s, end_s in away for second in range(start_s, end_s)}
        near = {second for start_s, end_s in away for second in range(start_s - BEFORE_S, end_s + AFTER_S)}
        assert set(range(*outage)) - near <= blamed
        assert not blamed & gone
