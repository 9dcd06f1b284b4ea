"""Duplicate windows: new once, old for ever."""

from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.core.routing.forwarding.duplicate_window import WORD_BITS, WORDS_KEPT, DuplicateFilter, DuplicateWindow

REACH = (WORDS_KEPT - 1) << WORD_BITS
"""Whatever is no further behind the newest than this is remembered exactly."""


@given(st.lists(st.integers(0, REACH)))
def test_within_its_reach_the_window_is_a_set(numbers: list[int]) -> None:
    window, seen = DuplicateWindow(), set[int]()
    for number in numbers:
        assert window.record(number) == (number not in seen)
        seen.add(number)


@examples(30)
@given(st.lists(st.tuples(st.integers(1, 5_000), st.integers(0, REACH)), min_size=50, max_size=300))
def test_a_moving_window_never_takes_an_old_number_for_new_nor_a_recent_new_one_for_old(
    steps: list[tuple[int, int]],
) -> None:
    window, seen, newest = DuplicateWindow(), set[int](), 0
    for forward, behind in steps:
        for number in (newest + forward, max(0, newest + forward - behind), newest + forward):
            record = window.record(number)
            if number in seen:
                assert not record
            elif number >= max(seen, default=0) - REACH:
                assert record
            seen.add(number)
        newest += forward


def test_what_is_older_than_the_window_counts_as_seen() -> None:
    window = DuplicateWindow()
    assert [window.record(word << WORD_BITS) for word in range(WORDS_KEPT + 1)] == [True] * (WORDS_KEPT + 1)
    assert [window.record(number) for number in (1, (1 << WORD_BITS) + 1)] == [False, True]


def test_numbers_far_apart_do_not_fill_the_memory() -> None:
    window = DuplicateWindow()
    assert all(window.record(number << 40) for number in range(10 * WORDS_KEPT))
    assert len(window._words) == WORDS_KEPT


def test_origins_and_lives_are_numbered_apart() -> None:
    duplicates = DuplicateFilter()
    first = [(1, 1, 5), (2, 1, 5), (1, 2, 5)]
    assert [duplicates.record(*name) for name in first + first] == [True, True, True, False, False, False]


def test_a_restarted_broker_numbers_anew_while_parcels_of_its_former_life_are_still_known() -> None:
    duplicates = DuplicateFilter()
    assert [duplicates.record(1, life, 5) for life in (7, 8, 7, 8)] == [True, True, False, False]


def test_of_a_life_long_past_nothing_is_new() -> None:
    duplicates = DuplicateFilter()
    assert [duplicates.record(1, life, 5) for life in (7, 8, 9)] == [True, True, True]
    assert [duplicates.record(1, 7, number) for number in (5, 6)] == [False, False]
    assert [duplicates.record(1, life, 5) for life in (8, 9)] == [False, False]
