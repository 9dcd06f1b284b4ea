"""A wide area played on one machine."""

from itertools import pairwise
from random import Random

from overlane.core.units import MS, SECOND
from overlane.node.links.emulation import Emulation, LinkConditions


def link(seed: int = 1, **conditions: object) -> Emulation:
    return Emulation(LinkConditions(**conditions), Random(seed))  # type: ignore[arg-type]


def test_bytes_arrive_after_the_latency() -> None:
    assert link(latency_ns=14 * MS).arrival(1000, 5 * MS) == 19 * MS


def test_bytes_leave_one_after_the_other_at_the_rate() -> None:
    slow = link(latency_ns=10 * MS, rate_bps=8_000_000)  # a byte a microsecond
    assert [slow.arrival(1000, 0) for _ in range(3)] == [11 * MS, 12 * MS, 13 * MS]
    assert (slow.backlog_ns(0), slow.backlog_ns(2 * MS), slow.backlog_ns(9 * MS)) == (3 * MS, 1 * MS, 0)


def test_a_link_without_a_rate_has_no_backlog() -> None:
    fast = link(latency_ns=10 * MS)
    fast.arrival(1 << 20, 0)
    assert fast.backlog_ns(0) == 0


def test_jitter_delays_but_never_reorders() -> None:
    jittery = link(latency_ns=10 * MS, jitter_ns=3 * MS)
    arrivals = [jittery.arrival(100, at * MS // 10) for at in range(500)]
    assert all(one <= other for one, other in pairwise(arrivals))
    delays = [arrival - at * MS // 10 for at, arrival in enumerate(arrivals)]
    assert min(delays) >= 10 * MS
    assert max(delays) > 13 * MS


def test_loss_delays_as_often_as_it_strikes_and_what_is_behind_it_too() -> None:
    lossy = link(latency_ns=10 * MS, loss=0.1)
    delays = [lossy.arrival(100, at * SECOND) - at * SECOND for at in range(1_000)]
    struck = sum(delay > 10 * MS for delay in delays)
    assert set(delays) == {10 * MS, 30 * MS}
    assert 70 <= struck <= 130


def test_conditions_can_change_while_bytes_are_under_way() -> None:
    changing = link(latency_ns=80 * MS)
    assert changing.arrival(100, 0) == 80 * MS
    changing.conditions = LinkConditions(latency_ns=10 * MS)
    assert changing.arrival(100, 1 * MS) == 80 * MS  # behind the one before, as on one connection
    assert changing.arrival(100, 75 * MS) == 85 * MS


def test_datagrams_arrive_each_for_itself_or_not_at_all() -> None:
    lossy = link(latency_ns=10 * MS, jitter_ns=3 * MS, loss=0.1)
    arrivals = [lossy.datagram(100, at * MS // 10) for at in range(1_000)]
    came = [arrival for arrival in arrivals if arrival is not None]
    assert 70 <= arrivals.count(None) <= 130
    assert any(one > other for one, other in pairwise(came))
    assert min(came) >= 10 * MS


def test_datagrams_share_the_rate_with_the_connection_but_do_not_wait_for_its_losses() -> None:
    slow = link(latency_ns=10 * MS, rate_bps=8_000_000)  # a byte a microsecond
    assert [slow.arrival(1000, 0), slow.datagram(1000, 0), slow.arrival(1000, 0)] == [11 * MS, 12 * MS, 13 * MS]
    assert slow.backlog_ns(0) == 3 * MS


def test_a_cut_link_passes_no_datagram() -> None:
    assert link(latency_ns=10 * MS, is_cut=True).datagram(100, 0) is None
