"""Measured rates, and the detector of bottlenecks."""

from random import Random
from statistics import NormalDist

import numpy as np
import pytest

from overlane.items.rates import CALM, EXCEEDED, RAISED, WARM, Bottleneck, LiveRates, exceedance, item_rates


@pytest.mark.parametrize(("mean", "variance"), [(100.0, 400.0), (150.0, 25.0), (10.0, 1.0)])
def test_the_risk_is_the_tail_of_the_normal_distribution(mean: float, variance: float) -> None:
    expected = 1 - NormalDist(mean, variance**0.5).cdf(140.0)
    assert exceedance(mean, variance, 140.0) == pytest.approx(expected, abs=1e-12)


def test_a_rate_above_the_capacity_is_a_bottleneck_after_a_few_samples() -> None:
    detector = Bottleneck(100.0, 0.02)
    assert [detector.observe(120.0) for _ in range(EXCEEDED)] == [False] * (EXCEEDED - 1) + [True]


def test_a_blip_is_none() -> None:
    detector = Bottleneck(100.0, 0.02)
    for _ in range(5 * WARM):
        detector.observe(50.0)
    assert not any(detector.observe(101.0) for _ in range(EXCEEDED - 1))
    assert not detector.observe(50.0)
    assert not detector.is_raised


def test_it_is_raised_by_the_risk_before_the_capacity_is_reached_and_calms_down_late() -> None:
    detector, luck = Bottleneck(100.0, 0.02), Random(1)
    above = 0
    for count in range(10 * WARM):  # noqa: B007
        rate = luck.gauss(80.0, 9.0)
        above += rate > 100.0
        if detector.observe(rate):
            break
    assert detector.is_raised
    assert count >= WARM + RAISED - 1
    assert above < EXCEEDED
    calm = [detector.observe(20.0) for _ in range(400)]
    assert calm.count(True) == 1
    assert calm.index(True) >= CALM


def test_live_rates_find_mean_and_covariance() -> None:
    luck = np.random.default_rng(3)
    truth = np.array([[25.0, 20.0], [20.0, 25.0]])
    rates = LiveRates(["a", "b"])
    errors = []
    for count, (a, b) in enumerate(luck.multivariate_normal([100.0, 50.0], truth, size=3_000)):
        rates.observe({"a": float(a), "b": float(b)})
        if count >= 100:
            errors.append(rates.covariance - truth)
    assert rates.mean["a"] == pytest.approx(100, abs=4)
    assert np.abs(np.mean(errors, axis=0)).max() < 3  # each estimate is of the last minute; together they are right
    assert np.linalg.eigvalsh(rates.covariance).min() > -1e-9


def test_what_is_published_at_two_brokers_at_once_counts_once() -> None:
    reports = {"x": {"plain": 10.0, "critical": 7.0}, "y": {"plain": 5.0, "critical": 6.0}}
    assert item_rates(reports, frozenset({"critical"})) == {"plain": 15.0, "critical": 7.0}
