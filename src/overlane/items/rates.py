"""Measured rates: what an agent reports, and when a broker is a bottleneck.

Bottleneck   of one broker: the rate V of its messages against its capacity C. It is one when Pr(V > C), with mean
             and variance of the last minute and V taken as normal, has not been below the bound of the plan for
             RAISED samples in a row; or V itself was above C for EXCEEDED. That is before queues are full: they
             fill only while V is above what the broker can really do. It is none any more after CALM samples below
             half of the bound: between the two nothing changes, so that it does not swing.
LiveRates    of all items of a domain, as the master has them: mean and covariance with exponential forgetting. They
             replace the plan's where there is no plan.
"""

from collections.abc import Mapping, Sequence
from math import erfc, sqrt

import numpy as np
import numpy.typing as npt

RAISED = 5
EXCEEDED = 3
CALM = 30
HALF_LIFE = 30
"""In samples, of which there is one a second."""
WARM = 20
"""So many samples tell something."""


def exceedance(mean: float, variance: float, capacity: float) -> float:
    """Pr(V > C) of a normal V."""
    if variance <= 0:
        return 1.0 if mean > capacity else 0.0
    return 0.5 * erfc((capacity - mean) / sqrt(2 * variance))


class Bottleneck:
    def __init__(self, capacity: float, risk_max: float) -> None:
        self.capacity = capacity
        self.risk_max = risk_max
        self.is_raised = False
        self._mean = 0.0
        self._variance = 0.0
        self._samples = 0
        self._bad = self._over = self._good = 0

    @property
    def risk(self) -> float:
        return exceedance(self._mean, self._variance, self.capacity)

    def observe(self, rate: float) -> bool:
        """One sample; whether it has become, or ceased to be, a bottleneck."""
        self._samples += 1
        weight = max(1.0 / self._samples, 1 - 0.5 ** (1 / HALF_LIFE))
        step = rate - self._mean
        self._mean += weight * step
        self._variance = (1 - weight) * (self._variance + weight * step * step)
        is_bad = self._samples >= WARM and self.risk >= self.risk_max
        self._bad = self._bad + 1 if is_bad else 0
        self._over = self._over + 1 if rate > self.capacity else 0
        is_good = self._samples >= WARM and self.risk < self.risk_max / 2 and not self._over
        self._good = self._good + 1 if is_good else 0
        before = self.is_raised
        if self._bad >= RAISED or self._over >= EXCEEDED:
            self.is_raised = True
        elif self._good >= CALM:
            self.is_raised = False
        return self.is_raised != before

    def forget(self) -> None:
        """The broker carries other items from now on: what was measured says nothing of them."""
        self._samples = 0
        self._mean = self._variance = 0.0
        self._bad = self._over = self._good = 0
        self.is_raised = False


class LiveRates:
    def __init__(self, items: Sequence[str]) -> None:
        self.items = tuple(items)
        self.samples = 0
        self._mean = np.zeros(len(self.items))
        self._covariance = np.zeros((len(self.items), len(self.items)))

    @property
    def is_warm(self) -> bool:
        return self.samples >= WARM

    @property
    def mean(self) -> dict[str, float]:
        return dict(zip(self.items, np.maximum(self._mean, 0.0).tolist(), strict=True))

    @property
    def covariance(self) -> npt.NDArray[np.float64]:
        """Symmetric and positive semidefinite, as every average of outer products is."""
        return (self._covariance + self._covariance.T) / 2

    def observe(self, rates: Mapping[str, float]) -> None:
        """One sample of all items."""
        sample = np.array([rates.get(item, 0.0) for item in self.items])
        self.samples += 1
        weight = max(1.0 / self.samples, 1 - 0.5 ** (1 / HALF_LIFE))
        step = sample - self._mean
        self._mean = self._mean + weight * step
        self._covariance = (1 - weight) * (self._covariance + weight * np.outer(step, step))


def item_rates(reports: Mapping[str, Mapping[str, float]], critical: frozenset[str]) -> dict[str, float]:
    """The rate of each item in the domain, by what brokers report that was published there. Critical items are
    published at two brokers at once: there the greater figure counts."""
    rates: dict[str, float] = {}
    for reported in reports.values():
        for item, rate in reported.items():
            known = rates.get(item, 0.0)
            rates[item] = max(known, rate) if item in critical else known + rate
    return rates
