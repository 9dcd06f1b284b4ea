"""Which path of a link is used: tables of what is measured, and many seeds."""

from dataclasses import dataclass, replace
from random import Random

import pytest

from overlane.core.links.path_choice import (
    BETTER_FOR,
    HOLD_MAX,
    HOLD_MIN,
    LOSSY,
    STREAM_AFTER,
    STREAM_BACK,
    PathChoice,
    PathSample,
)
from overlane.core.units import MS, SECOND, Nanos

FIBRE = PathSample(1, is_open=True, rtt_ns=60 * MS)
RADIO = PathSample(2, is_open=True, rtt_ns=80 * MS)
SATELLITE = PathSample(3, is_open=True, rtt_ns=500 * MS)


def silent(sample: PathSample) -> PathSample:
    return replace(sample, is_silent=True)


def gone(sample: PathSample) -> PathSample:
    return replace(sample, is_gone=True)


def closed(sample: PathSample) -> PathSample:
    return replace(sample, is_open=False)


def lossy(sample: PathSample) -> PathSample:
    return replace(sample, loss_millionths=LOSSY)


def settled(*samples: PathSample) -> PathChoice:
    choice = PathChoice()
    choice.judge(samples, 0)
    return choice


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], (None, None)),
        ([closed(FIBRE), closed(RADIO)], (None, None)),
        ([FIBRE], (1, None)),
        ([RADIO, FIBRE], (1, None)),
        ([silent(FIBRE), RADIO], (2, None)),
        ([gone(FIBRE), RADIO], (2, None)),
        ([lossy(FIBRE), RADIO], (2, None)),  # a clean one that is not much slower
        ([lossy(FIBRE), SATELLITE], (1, 3)),  # much slower: copies
        ([lossy(FIBRE), lossy(RADIO)], (1, 2)),
    ],
)
def test_the_first_choice_is_the_fastest_that_works(
    samples: list[PathSample], expected: tuple[int | None, int | None]
) -> None:
    choice = settled(*samples)
    assert (choice.in_use, choice.copies) == expected


def test_a_silent_path_is_left_at_once_and_gets_copies_until_it_is_given_up() -> None:
    choice = settled(FIBRE, RADIO)
    assert choice.judge([silent(FIBRE), RADIO], 1)
    assert (choice.in_use, choice.copies) == (2, 1)
    assert not choice.judge([silent(FIBRE), RADIO], 100 * MS)
    assert (choice.in_use, choice.copies) == (2, 1)
    choice.judge([closed(FIBRE), RADIO], SECOND)
    assert (choice.in_use, choice.copies) == (2, None)


def test_a_path_that_is_gone_gets_no_copies() -> None:
    choice = settled(FIBRE, RADIO)
    choice.judge([gone(FIBRE), RADIO], 1)
    assert (choice.in_use, choice.copies) == (2, None)


def test_where_no_path_works_the_last_one_stays() -> None:
    choice = settled(FIBRE, RADIO)
    choice.judge([FIBRE, closed(RADIO)], 1)
    choice.judge([silent(FIBRE), closed(RADIO)], 2)
    assert choice.in_use == 1
    choice.judge([closed(FIBRE), closed(RADIO)], 3)
    assert choice.in_use == 1


def first_return(choice: PathChoice, now: Nanos) -> Nanos:
    """How long a path that works again is not used."""
    since = now
    while choice.in_use != 1:
        now += 10 * MS
        choice.judge([FIBRE, RADIO], now)
    return now - since


def test_a_path_that_has_failed_is_used_again_after_a_hold_time_that_doubles_with_each_relapse() -> None:
    choice, now, waited = settled(FIBRE, RADIO), 0, []
    for _ in range(8):
        now += SECOND
        choice.judge([silent(FIBRE), RADIO], now)
        now += SECOND
        waited.append(first_return(choice, now))
        now += waited[-1]
    expected = [min(HOLD_MAX, HOLD_MIN << turn) + BETTER_FOR for turn in range(8)]
    assert [abs(one - other) <= 20 * MS for one, other in zip(waited, expected, strict=True)] == [True] * 8


def test_a_path_that_is_only_better_takes_over_after_some_time_and_similar_ones_do_not_alternate() -> None:
    choice = settled(RADIO)
    assert not choice.judge([FIBRE, RADIO], 0)
    assert not choice.judge([FIBRE, RADIO], BETTER_FOR - 1)
    assert choice.judge([FIBRE, RADIO], BETTER_FOR)
    luck = Random(1)
    for turn in range(1_000):
        noisy = [replace(one, rtt_ns=luck.randint(58 * MS, 62 * MS)) for one in (FIBRE, RADIO)]
        assert not choice.judge(noisy, BETTER_FOR + turn * 100 * MS)


@pytest.mark.parametrize(
    ("fibre", "after_ns", "expected"),
    [
        (FIBRE, 0, None),
        (gone(FIBRE), 0, 2),
        (silent(FIBRE), 0, None),
        (silent(FIBRE), STREAM_AFTER, 2),
        (closed(FIBRE), STREAM_AFTER, 2),
    ],
)
def test_the_connection_leaves_a_path_that_is_dead_if_another_one_works(
    fibre: PathSample, after_ns: Nanos, expected: int | None
) -> None:
    choice = settled(FIBRE, RADIO)
    choice.judge([fibre, RADIO], SECOND)
    choice.judge([fibre, RADIO], SECOND + after_ns)
    assert choice.stream_path(1, SECOND + after_ns) == expected


def test_the_connection_stays_on_a_path_that_has_never_carried_datagrams() -> None:
    choice = settled(closed(FIBRE), RADIO)
    assert choice.stream_path(1, 10 * SECOND) is None


def test_the_connection_stays_where_no_other_path_works() -> None:
    choice = settled(FIBRE, RADIO)
    choice.judge([gone(FIBRE), silent(RADIO)], SECOND)
    assert choice.stream_path(1, 10 * SECOND) is None


def test_the_connection_follows_the_path_in_use_when_that_has_lasted() -> None:
    choice = settled(FIBRE, RADIO)
    assert choice.stream_path(2, STREAM_BACK - 1) is None
    assert choice.stream_path(2, STREAM_BACK) == 1
    assert choice.stream_path(None, 0) == 1  # it has none


def test_the_round_trip_of_the_next_best_path_is_known() -> None:
    assert settled(FIBRE, RADIO, SATELLITE).standby_ns == RADIO.rtt_ns
    assert settled(FIBRE, silent(RADIO)).standby_ns == 0


@dataclass
class Drawn:
    """A path as it really is, in a run with a seed."""

    number: int
    rtt_ns: Nanos
    works: bool = True

    def sample(self) -> PathSample:
        return PathSample(self.number, is_open=True, is_silent=not self.works, rtt_ns=self.rtt_ns)


@pytest.mark.parametrize("seed", range(50))
def test_whatever_fails_a_path_that_works_is_in_use_and_in_the_end_the_fastest(seed: int) -> None:
    print("seed", seed)
    luck, choice, now, changes = Random(seed), PathChoice(), 0, 0
    paths = [Drawn(number, luck.randint(5, 500) * MS) for number in range(1, luck.randint(2, 5))]
    for _ in range(400):
        now += luck.randint(1, 500) * MS
        if luck.random() < 0.2:
            path = luck.choice(paths)
            path.works = not path.works
        changes += choice.judge([path.sample() for path in paths], now)
        if any(path.works for path in paths):
            assert choice.in_use in [path.number for path in paths if path.works]
            assert choice.copies != choice.in_use
    for path in paths:
        path.works = True
    for _ in range(2 * (HOLD_MAX + BETTER_FOR) // SECOND):
        now += SECOND
        choice.judge([path.sample() for path in paths], now)
    fastest = min(path.rtt_ns for path in paths)
    (used,) = [path for path in paths if path.number == choice.in_use]
    assert used.rtt_ns - fastest < max(2 * MS, used.rtt_ns >> 3)
