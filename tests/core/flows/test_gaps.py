"""Gaps: what of best-effort flows has not come."""

import random

from overlane.core.flows.gaps import FLOWS_MAX, Gaps, SequenceGap


def test_a_parcel_that_others_came_after_is_missing_until_it_comes() -> None:
    gaps = Gaps()
    for sequence in (5, 6, 9):
        gaps.came((1, 1, 1), sequence, "reports/1")
    assert gaps.all() == [SequenceGap(1, "reports/1", 2)]
    gaps.came((1, 1, 1), 7, "reports/1")
    gaps.came((1, 1, 1), 8, "reports/2")
    assert gaps.all() == [SequenceGap(1, "reports/2", 0)]


def test_what_came_before_the_first_that_was_seen_is_no_gap() -> None:
    gaps = Gaps()
    gaps.came((1, 1, 1), 100, "a")
    gaps.came((1, 1, 1), 99, "a")
    assert gaps.all() == [SequenceGap(1, "a", 0)]


def test_flows_are_told_apart_and_their_number_is_bounded() -> None:
    gaps = Gaps()
    for flow in range(FLOWS_MAX + 10):
        gaps.came((1, 1, flow), 1, "a")
        gaps.came((1, 1, flow), 3, "a")
    assert len(gaps.all()) == FLOWS_MAX
    assert all(gap.missing == 1 for gap in gaps.all())


def test_in_whatever_order_parcels_come_those_that_never_do_are_missing() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    luck = random.Random(seed)
    for _ in range(100):
        lost = set(luck.sample(range(2, 50), luck.randrange(20)))
        numbers = [number for number in range(1, 51) if number not in lost]
        middle = numbers[1:]
        luck.shuffle(middle)
        gaps = Gaps()
        for number in [numbers[0], *middle]:
            gaps.came((1, 1, 1), number, "a")
        assert gaps.all() == [SequenceGap(1, "a", len(lost))]
