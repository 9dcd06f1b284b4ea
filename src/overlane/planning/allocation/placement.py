"""Placement: items to be placed on brokers that may already carry a load, and its cost.

Allocation, mirrors and the case base have the same subproblem: some items are free, others are fixed. The fixed ones
are the ground: its totals per broker, and its covariance with each free item. The cost of a placement is the sum over
brokers of

    penalty * Pr(V > C)  +  strain

where strain is zero on a broker within its limits and otherwise exceeds every possible loss, growing with the distance
to the limit, so that a local search restores the limits first and optimises afterwards. A toll is an additional cost of
one item on one broker; the case base uses it to keep items where they are. Twins are two items that must not be on the
same broker: a critical item and its copy.

Totals are additive over items except the variance, for which `shared` holds the covariance of each free item with
everything on each broker: adding item i to broker b changes the variance by 2 * shared[b, i] + covariance[i, i].
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from overlane.planning.allocation.model import FloatArray, IntArray, Problem

# A risk this close below the limit, relatively, counts as at the limit: incremental sums must not decide it.
RISK_MARGIN = 1e-9
# A broker just at its limit strains by this share of its capacity, so that the least strain outweighs every loss.
LEAST_STRAIN = 1e-6
# Twins on one broker cost as much as a broker whose load is this many times its capacity too high.
TOGETHER_STRAIN = 1e3
NO_TWIN = -1
TINY = 1e-300


def overload_risk(mean: FloatArray, variance: FloatArray, capacity: FloatArray) -> FloatArray:
    """Pr(V > C) for normal V; without variance, whether the mean exceeds the capacity."""
    distance = (mean - capacity) / np.sqrt(np.maximum(variance, TINY))
    risk: FloatArray = np.where(variance > 0, ndtr(distance), mean > capacity)
    return risk


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What brokers carry: totals per broker, and the covariance of each free item with it (brokers x items)."""

    mean: FloatArray
    variance: FloatArray
    penalty: FloatArray
    topics: FloatArray
    shared: FloatArray

    def copy(self) -> "Load":
        return Load(self.mean.copy(), self.variance.copy(), self.penalty.copy(), self.topics.copy(), self.shared.copy())


@dataclass(frozen=True, eq=False)
class Placement:
    """Free items, brokers and the ground; a place is a broker's position."""

    mean: FloatArray
    penalty: FloatArray
    topics: FloatArray
    covariance: FloatArray
    capacity: FloatArray
    topics_max: FloatArray
    risk_max: float  # infinite when risk is only paid for, not limited
    ground: Load
    toll: FloatArray | None = None  # items x brokers
    twin: IntArray | None = None  # of each item the position of its twin, or NO_TWIN

    @staticmethod
    def of(problem: Problem) -> "Placement":
        """All items free, on brokers that carry nothing."""
        brokers, items = len(problem.brokers), len(problem.items)
        nothing = np.zeros(brokers)
        ground = Load(nothing, nothing, nothing, nothing, np.zeros((brokers, items)))
        return Placement(
            problem.mean,
            problem.penalty,
            problem.topics,
            problem.covariance,
            problem.capacity,
            problem.topics_max,
            problem.risk_max,
            ground,
        )

    @property
    def item_count(self) -> int:
        return len(self.mean)

    @property
    def broker_count(self) -> int:
        return len(self.capacity)

    @cached_property
    def variance(self) -> FloatArray:
        return np.diag(self.covariance).copy()

    @cached_property
    def stake(self) -> float:
        """The most that can be lost: the scale by which costs are compared."""
        toll = 0.0 if self.toll is None else float(self.toll.max(axis=1).sum())
        stake = float(self.penalty.sum() + self.ground.penalty.sum()) + toll
        return stake if stake > 0 else 1.0

    @cached_property
    def risk_limit(self) -> float:
        return self.risk_max * (1 - RISK_MARGIN)

    @cached_property
    def margin_deviations(self) -> float:
        """How many standard deviations must lie between mean and capacity."""
        return -float(ndtri(min(max(self.risk_limit, TINY), 1 - 1e-16)))

    @cached_property
    def together_cost(self) -> float:
        """Of twins on one broker: more than any other exceeded limit."""
        return self.stake * (10 / LEAST_STRAIN) * TOGETHER_STRAIN

    def twin_places(self, places: IntArray) -> IntArray:
        """Of each item the place of its twin, or NO_TWIN."""
        if self.twin is None:
            return np.full(self.item_count, NO_TWIN, dtype=np.int64)
        found: IntArray = np.where(self.twin != NO_TWIN, places[self.twin], NO_TWIN)
        return found

    def pairs_together(self, places: IntArray) -> int:
        """How many pairs of twins share a broker."""
        return 0 if self.twin is None else int((self.twin_places(places) == places).sum()) // 2

    def limited(self, risk_max: float) -> "Placement":
        """The same placement under another risk limit."""
        return replace(self, risk_max=risk_max)

    def part(self, items: IntArray, brokers: IntArray) -> "Placement":
        """Only these items and brokers; all other items must be on other brokers."""
        ground, twin = self.ground, None
        if self.twin is not None:
            position = np.full(self.item_count + 1, NO_TWIN, dtype=np.int64)  # the last one is that of NO_TWIN
            position[items] = np.arange(len(items))
            twin = position[self.twin[items]]
        shared = ground.shared[np.ix_(brokers, items)]
        return Placement(
            self.mean[items],
            self.penalty[items],
            self.topics[items],
            self.covariance[np.ix_(items, items)],
            self.capacity[brokers],
            self.topics_max[brokers],
            self.risk_max,
            Load(
                ground.mean[brokers], ground.variance[brokers], ground.penalty[brokers], ground.topics[brokers], shared
            ),
            None if self.toll is None else self.toll[np.ix_(items, brokers)],
            twin,
        )

    def load(self, places: IntArray) -> Load:
        """The ground and the items at their places, summed afresh."""
        ground, count = self.ground, self.broker_count
        order = np.argsort(places, kind="stable")
        used, first = np.unique(places[order], return_index=True)
        added = np.zeros((count, self.item_count))
        if len(used) > 0:
            added[used] = np.add.reduceat(self.covariance[order], first, axis=0)
        # (g + x)' S (g + x): the ground's variance, twice the ground with the items, the items among themselves.
        shared = ground.shared + added
        with_others = (shared + ground.shared)[places, np.arange(self.item_count)]
        variance = ground.variance + np.bincount(places, weights=with_others, minlength=count)
        return Load(
            ground.mean + np.bincount(places, weights=self.mean, minlength=count),
            np.maximum(variance, 0.0),
            ground.penalty + np.bincount(places, weights=self.penalty, minlength=count),
            ground.topics + np.bincount(places, weights=self.topics, minlength=count),
            shared,
        )

    def risk(self, places: IntArray) -> FloatArray:
        load = self.load(places)
        return overload_risk(load.mean, load.variance, self.capacity)

    def loss(self, places: IntArray) -> float:
        """The sum of penalty * Pr(V > C), the ground's included."""
        load = self.load(places)
        return float(load.penalty @ overload_risk(load.mean, load.variance, self.capacity))

    def cost(self, places: IntArray) -> float:
        load = self.load(places)
        total = float(self.broker_cost(load.mean, load.variance, load.penalty, load.topics, slice(None)).sum())
        if self.toll is not None:
            total += float(self.toll[np.arange(self.item_count), places].sum())
        return total + self.together_cost * self.pairs_together(places)

    def keeps_limits(self, places: IntArray) -> bool:
        load = self.load(places)
        risk = overload_risk(load.mean, load.variance, self.capacity)
        is_within = bool((risk < self.risk_limit).all() and (load.topics <= self.topics_max).all())
        return is_within and not self.pairs_together(places)

    def broker_cost(
        self,
        mean: FloatArray,
        variance: FloatArray,
        penalty: FloatArray,
        topics: FloatArray,
        brokers: IntArray | slice | int,
    ) -> FloatArray:
        """Loss and strain of brokers under these totals; arrays run along `brokers`, or all belong to the one given."""
        capacity = self.capacity[brokers]
        risk = overload_risk(mean, variance, capacity)
        cost: FloatArray = penalty * risk
        broken = risk >= self.risk_limit
        excess = topics - self.topics_max[brokers]
        if broken.any() or np.any(excess > 0):
            reach = mean + self.margin_deviations * np.sqrt(np.maximum(variance, 0.0))
            over = np.maximum(reach / capacity - 1, 0.0) + LEAST_STRAIN
            cost = cost + self.stake * (10 / LEAST_STRAIN) * (broken * over + np.maximum(excess, 0.0))
        return cost
