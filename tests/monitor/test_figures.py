"""Figures: from counts that grow, and begin anew, to what became of messages lately and altogether."""

from overlane.monitor.figures import (
    RECENT_S,
    CounterIncrease,
    DeliveryCounters,
    HistogramIncrease,
    RateSmoother,
    percentile_ms,
)
from overlane.monitor.overlay_state import Figures


def test_percentiles_are_by_nearest_rank() -> None:
    ages_us = {10_000: 98, 20_000: 1, 50_000: 1}
    assert [percentile_ms(ages_us, percent) for percent in (50, 99, 100)] == [10.0, 20.0, 50.0]
    assert percentile_ms({}, 50) is None


def test_counts_go_on_when_a_broker_begins_a_new_life() -> None:
    growth = CounterIncrease()
    assert [growth.of(("a",), life, count) for life, count in [(1, 5), (1, 8), (2, 3), (2, 3)]] == [5, 3, 3, 0]


def test_ages_go_on_when_a_broker_begins_a_new_life() -> None:
    ages = HistogramIncrease()
    assert ages.of(("a",), 1, [(10, 2)]) == {10: 2}
    assert ages.of(("a",), 1, [(10, 3), (20, 1)]) == {10: 1, 20: 1}
    assert ages.of(("a",), 2, [(10, 1)]) == {10: 1}


def test_lately_forgets_what_is_long_ago_and_total_does_not() -> None:
    ledger = DeliveryCounters()
    ledger.sample(0.0)
    ledger.totals.delivered, ledger.totals.in_time = 10, 5
    ledger.totals.ages_us[90_000] = 10
    ledger.sample(1.0)
    assert (ledger.lately().delivered, ledger.lately().in_time, ledger.in_time_lately()) == (10, 5, 0.5)
    ledger.sample(2.0)
    ledger.totals.delivered, ledger.totals.in_time = 14, 9
    ledger.totals.ages_us[10_000] = 4
    ledger.sample(RECENT_S + 2.5)
    assert ledger.lately() == Figures(delivered=4, in_time=4, p50_ms=10.0, p99_ms=10.0, max_ms=10.0)
    assert ledger.total() == Figures(delivered=14, in_time=9, p50_ms=90.0, p99_ms=90.0, max_ms=90.0)


def test_what_is_missing_for_a_moment_is_not_lost() -> None:
    ledger = DeliveryCounters()
    for at_s, missing in [(0.0, 0), (1.0, 2), (2.0, 0), (3.0, 1), (4.0, 1)]:
        ledger.totals.missing = missing
        ledger.sample(at_s)
        assert ledger.total().lost == 0
    for at_s in (5.0, 6.0, 7.0):
        ledger.sample(at_s)
    assert (ledger.total().lost, ledger.lately().lost) == (1, 1)
    ledger.sample(30.0)
    assert (ledger.total().lost, ledger.lately().lost) == (1, 0)


def test_the_rate_is_of_the_last_seconds() -> None:
    ledger = DeliveryCounters()
    assert ledger.rate_hz() == 0.0
    for second in range(10):
        ledger.totals.published = 100 * second
        ledger.sample(float(second))
    assert ledger.rate_hz() == 100.0


def test_a_rate_is_smooth_and_survives_a_count_that_begins_anew() -> None:
    rates = RateSmoother()
    assert rates.of(("a", "b"), 1000, 0.0) == 0.0
    for second in range(1, 30):
        rate = rates.of(("a", "b"), 1000 + 500 * second, float(second))
    assert rate == 500.0
    assert 0 < rates.of(("a", "b"), 100, 30.0) < 500
