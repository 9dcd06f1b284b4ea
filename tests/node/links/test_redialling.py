"""Where and when a neighbour that cannot be reached is tried again."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from overlane.core.units import MS, Nanos
from overlane.network.schema import Endpoint
from overlane.node.links.dialling.redialling import PAUSE_MAX, PAUSE_MIN, STEADY, Redialling

ONE, OTHER, THIRD = (Endpoint(f"10.0.0.{number}", 7001) for number in (1, 2, 3))


def tries(seed: int, count: int, addresses: int = 1) -> list[Nanos]:
    """When one neighbour of many tries, from the moment when all of them were lost."""
    redialling = Redialling(Random(seed))
    moments: list[Nanos] = [0]
    for _ in range(count):
        redialling.next([ONE] * addresses)
        moments.append(moments[-1] + redialling.pause_ns(addresses))
    return moments[1:]


def test_addresses_take_turns() -> None:
    redialling = Redialling(Random(1))
    assert [redialling.next((ONE, OTHER, THIRD)) for _ in range(7)] == [ONE, OTHER, THIRD, ONE, OTHER, THIRD, ONE]


def test_pauses_double_up_to_a_bound_and_each_is_drawn_from_its_upper_half() -> None:
    for seed in range(100):
        bound = PAUSE_MIN
        for before, after in pairwise([0, *tries(seed, 12)]):
            assert bound // 2 <= after - before <= bound, f"seed {seed}"
            bound = min(PAUSE_MAX, 2 * bound)


def test_all_addresses_are_tried_before_the_pause_grows() -> None:
    pauses = [after - before for before, after in pairwise([0, *tries(1, 6, addresses=3)])]
    assert max(pauses[:3]) <= PAUSE_MIN < min(pauses[3:]) * 2
    assert max(pauses[3:]) <= 2 * PAUSE_MIN


@pytest.mark.parametrize("attempt", [0, 1, 4, 8])
def test_a_hundred_neighbours_of_a_restarted_broker_come_back_spread_over_the_pause(attempt: int) -> None:
    """Each tenth of the time over which they may come has some of them, and none has more than three in ten."""
    moments = [tries(seed, attempt + 1)[attempt] for seed in range(100)]
    first, last = min(moments), max(moments)
    pauses = [min(PAUSE_MAX, PAUSE_MIN << number) for number in range(attempt + 1)]
    assert last - first >= sum(pauses) / 2 * 0.5
    tenths = Counter(min(9, (moment - first) * 10 // (last - first)) for moment in moments)
    assert max(tenths.values()) <= 30
    if attempt == 0:
        assert len(tenths) == 10


@pytest.mark.parametrize(("lasted_ns", "is_short"), [(STEADY + 1, True), (200 * MS, False)])
def test_a_connection_that_has_lasted_makes_the_next_pause_short_again(lasted_ns: Nanos, is_short: bool) -> None:
    redialling = Redialling(Random(1))
    for _ in range(10):
        redialling.next((ONE,))
        redialling.pause_ns(1)
    redialling.lasted(lasted_ns)
    redialling.next((ONE,))
    assert (redialling.pause_ns(1) <= PAUSE_MIN) == is_short
