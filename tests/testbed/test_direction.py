"""One direction of a path: when and whether a packet gets through."""

from random import Random

import pytest

from overlane.core.units import MS, SECOND, Nanos
from overlane.testbed.direction import Carried, Conditions, Direction

SEED = 7


def direction(**conditions: float) -> Direction:
    return Direction(Conditions(**conditions), Random(SEED))  # type: ignore[arg-type]


def test_a_packet_takes_the_latency_whatever_its_size() -> None:
    path = direction(latency_ns=20 * MS)
    assert [path.arrival(size, 5 * MS) for size in (40, 1_500)] == [25 * MS, 25 * MS]


def test_packets_leave_one_after_the_other_at_the_rate() -> None:
    path = direction(latency_ns=10 * MS, rate_bps=8_000_000)  # a byte a microsecond
    assert [path.arrival(1_000, 0) for _ in range(3)] == [11 * MS, 12 * MS, 13 * MS]
    assert path.arrival(1_000, 50 * MS) == 61 * MS


def test_what_the_queue_cannot_hold_is_dropped_at_its_tail_and_room_comes_back_at_the_rate() -> None:
    path = direction(rate_bps=8_000_000, queue_bytes=3_000)
    assert [path.arrival(1_000, 0) for _ in range(5)] == [1 * MS, 2 * MS, 3 * MS, None, None]
    assert path.arrival(1_000, 1 * MS) == 4 * MS
    assert path.arrival(1_000, 1 * MS) is None
    assert path.carried() == Carried(packets=4, bytes=4_000, overflowed=3)


def test_a_packet_larger_than_the_queue_still_leaves_when_nothing_waits() -> None:
    assert direction(rate_bps=8_000_000, queue_bytes=100).arrival(1_000, 0) == 1 * MS


@pytest.mark.parametrize("loss", [0.01, 0.3])
def test_packets_are_lost_as_often_as_said(loss: float) -> None:
    path = direction(loss=loss)
    count = 20_000
    lost = sum(path.arrival(100, 0) is None for _ in range(count))
    assert abs(lost - count * loss) < 5 * (count * loss * (1 - loss)) ** 0.5, f"seed {SEED}"
    assert path.carried() == Carried(packets=count - lost, bytes=100 * (count - lost), lost=lost)


def test_a_cut_path_passes_nothing_until_it_is_as_before() -> None:
    path = direction(latency_ns=1 * MS)
    whole = path.conditions
    path.change(Conditions(latency_ns=1 * MS, is_cut=True))
    assert path.arrival(100, 0) is None
    path.change(whole)
    assert path.arrival(100, 0) == 1 * MS
    assert path.carried() == Carried(packets=1, bytes=100, cut=1)


@pytest.mark.parametrize("interval_ns", [10_000, 1 * MS, 50 * MS])
def test_jitter_stays_within_its_bounds_keeps_order_and_leaves_the_mean_alone(interval_ns: Nanos) -> None:
    path = direction(latency_ns=20 * MS, jitter_ns=5 * MS)
    count = max(4_000, 20 * SECOND // interval_ns)
    sent = [number * interval_ns for number in range(min(count, 400_000))]
    arrivals = [path.arrival(100, at_ns) or 0 for at_ns in sent]
    assert arrivals == sorted(arrivals)
    latencies = [arrived - at_ns for arrived, at_ns in zip(arrivals, sent, strict=True)]
    assert min(latencies) >= 15 * MS
    assert max(latencies) <= 25 * MS
    assert max(latencies) - min(latencies) > 8 * MS
    assert abs(sum(latencies) / len(latencies) - 20 * MS) < 1 * MS, f"seed {SEED}"


def test_jitter_greater_than_the_latency_never_lets_a_packet_arrive_before_it_was_sent() -> None:
    path = direction(latency_ns=1 * MS, jitter_ns=10 * MS)
    assert all((path.arrival(100, at * MS) or 0) >= at * MS for at in range(1_000))
