"""A lower bound of the loss of every feasible allocation, for any number of items.

As in branch and bound, every item has a price and every broker takes the items that are best for it at these prices.
For any prices,

    loss  >=  sum of all prices  -  sum over brokers of the most each can gain

holds for every allocation that places each item on one broker, so any prices give a valid bound, and better prices
raise it. The maximum gain of a broker is computed by `pricing`, based on `variance_floor`.

Prices start from the marginal losses of a good allocation and follow the subgradient: the price of an item that too
many brokers want rises, that of an item that none wants falls. For faster convergence, similar items share their change
in price, brokers of similar capacity count as equal, and cells are coarse; the final bound is one exact evaluation.

Topic limits are ignored, and items can be divided: the bound may be too low, never too high. It is as good as the
variance floor: close if items have variance of their own, poor if the covariance is singular.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from overlane.planning.allocation.model import FloatArray, IntArray
from overlane.planning.allocation.placement import TINY, Placement
from overlane.planning.allocation.pricing import Cells, Traits, choice, gains, grouped_sums, most_gained
from overlane.planning.allocation.search import Stop, never
from overlane.planning.allocation.variance_floor import variance_floor

CLIMBS = 150
START_SHARE = 0.8  # of the marginal losses; full prices draw too many brokers to the same items
GROUPS_MAX = 256
CAPACITY_SAMPLES = 5
TANGENT_SHARES = np.array([0.5, 0.65, 0.8, 0.95, 1.1, 1.3, 1.6])
# Neighbouring edges of the cells while prices climb, and at first when the floor is told.
CLIMB_RATIO = 1.3
FINAL_RATIO = 1.5
RISK_REACH = 10.0  # times more and less risk than the allocation has
PATIENCE = 8  # climbs without success before the step is shortened


@dataclass(frozen=True, slots=True, eq=False)
class _Market:
    """Where prices are looked for: items, brokers by capacity, the cells and tangents to look at."""

    traits: Traits
    capacities: FloatArray
    brokers: FloatArray  # of each capacity
    cells: Cells
    tangents: FloatArray

    def floor_and_demand(self, prices: FloatArray) -> tuple[float, FloatArray]:
        """The floor at these prices on these cells, and how much of each item is wanted in all."""
        gain, tangent = gains(self.traits, prices, self.cells, self.capacities, self.tangents)
        demand = np.zeros(len(prices))
        floor = float(prices.sum())
        for position, capacity in enumerate(self.capacities.tolist()):
            cell = int(np.argmax(gain[:, position]))
            if gain[cell, position] <= 0:
                continue
            floor -= float(self.brokers[position] * gain[cell, position])
            at = self.cells.at(np.array([cell]))
            wanted = choice(self.traits, prices, at, capacity, float(self.tangents[tangent[cell, position]]))
            demand += self.brokers[position] * wanted
        return floor, demand


def loss_floor(task: Placement, places: IntArray, climbed: Stop = never, stop: Stop = never) -> float:
    """A number no feasible allocation's loss is below; `places` is a good allocation, to start the prices from.

    `climbed` ends the climbing of prices early, `stop` the splitting of cells.
    """
    floor = variance_floor(task.covariance)
    traits = Traits(task.mean, task.penalty, floor.own, floor.common)
    start = _Start.of(task, traits, places)
    if start is None:
        return 0.0
    prices = _climb(task, traits, start, start.cells(task.risk_max, CLIMB_RATIO).sharpened(), climbed)
    capacities, brokers = np.unique(task.capacity, return_counts=True)
    most = most_gained(traits, prices, start.cells(task.risk_max, FINAL_RATIO), capacities, start.tangents, stop)
    if task.risk_max > 0.5:  # beyond even odds only the penalty limits what a broker takes
        most = np.maximum(most, np.maximum(prices - 0.5 * traits.penalty, 0.0).sum())
    found = float(prices.sum() - brokers @ most)
    rounding = 1e-9 * float(np.abs(prices).sum())
    return max(found - rounding, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Start:
    """Prices, risks and deviations derived from a good allocation."""

    prices: FloatArray
    marginal: FloatArray  # loss by a broker's mean, penalty, own and common variance
    target: float
    risk: float
    deviations: tuple[float, float, float]  # of any broker: least, most; of all items together
    tangents: FloatArray

    @staticmethod
    def of(task: Placement, traits: Traits, places: IntArray) -> "_Start | None":
        count = task.broker_count
        load = task.load(places)
        used = np.bincount(places, minlength=count) > 0
        own = grouped_sums(traits.own, places, count)[used]
        common = grouped_sums(traits.common, places, count)[used]
        variance = own + common**2
        penalty, spare = load.penalty[used], (task.capacity - load.mean)[used]
        if (variance <= 0).any() or (spare <= 0).any():
            return None
        deviation = np.sqrt(variance)
        margin = spare / deviation
        density, risk = np.exp(-(margin**2) / 2) / np.sqrt(2 * np.pi), ndtr(-margin)
        target = float(penalty @ risk)
        if target <= 1e-12 * task.stake:
            return None
        # The loss's derivatives by the broker's mean, penalty, own and common variance, over all brokers alike.
        marginal = [
            float(np.mean(part))
            for part in (
                penalty * density / deviation,
                risk,
                penalty * density * margin / (2 * variance),
                penalty * density * margin * common / variance,
            )
        ]
        traits_of_items = np.stack([traits.mean, traits.penalty, traits.own, traits.common])
        tangents = np.unique(TANGENT_SHARES * float(common.mean())) if np.any(common != 0) else np.zeros(1)
        together = float(np.sqrt(traits.own.sum() + np.abs(traits.common).sum() ** 2))
        deviations = (float(deviation.min()), float(deviation.max()), together)
        weights = np.array(marginal)
        return _Start(weights @ traits_of_items, weights, target, float(risk.mean()), deviations, tangents)

    def cells(self, risk_max: float, ratio: float) -> Cells:
        """A grid around what the allocation shows, reaching to every risk and deviation there can be."""
        top = min(risk_max, 0.5)
        reach = int(np.ceil(np.log(RISK_REACH) / np.log(ratio)))
        risks = np.minimum(self.risk * ratio ** np.arange(-reach, reach + 1), top)
        least, most, together = self.deviations
        steps = int(np.ceil(np.log(4 * most / least) / np.log(ratio))) + 1
        deviations = np.minimum(least / 2 * ratio ** np.arange(steps), together * 1.001)
        return Cells.grid(
            np.unique(np.concatenate([[0.0], risks, [top]])),
            np.unique(np.concatenate([[0.0], deviations, [together * 1.001]])),
        )


def _climb(task: Placement, traits: Traits, start: _Start, cells: Cells, stop: Stop) -> FloatArray:
    """Better prices: those of the start, plus for each group of similar items a change in proportion to the mean."""
    group, groups = _similar_items(traits, start.marginal)
    few = traits.grouped(group, groups)
    base = grouped_sums(start.prices, group, groups)
    capacities, brokers = _similar_brokers(task.capacity)
    market = _Market(
        few, capacities, brokers, cells, start.tangents[1::2] if len(start.tangents) > 1 else start.tangents
    )
    base = START_SHARE * base
    size = np.maximum(few.mean, 1e-12 * float(few.mean.max()))
    change = np.zeros(groups)
    best, best_change, step, failures = -np.inf, change, 1.0, 0
    for _ in range(CLIMBS):
        if stop():
            break
        floor, demand = market.floor_and_demand(base + change)
        if floor > best + 1e-6 * start.target:
            best, best_change, failures = floor, change, 0
        else:
            failures += 1
            if failures == PATIENCE:
                change, step, failures = best_change, step * 0.6, 0
                if step < 0.01:
                    break
                continue
        surplus = 1.0 - demand
        direction = size**2 * surplus
        slope = float(direction @ surplus)
        if slope <= 0:
            break
        change = change + step * max(start.target - floor, 1e-3 * start.target) * direction / slope
    share = np.divide(best_change, size)
    prices: FloatArray = START_SHARE * start.prices + share[group] * traits.mean
    return prices


def _similar_items(traits: Traits, marginal: FloatArray) -> tuple[IntArray, int]:
    """Groups of items whose price for their mean is alike: halved again and again where prices differ most."""
    count = len(traits.mean)
    if count <= GROUPS_MAX:
        return np.arange(count), count
    size = np.maximum(traits.mean, TINY)
    per_mean = np.stack([traits.penalty, traits.own, traits.common]) * marginal[1:, None] / size
    groups = [np.arange(count)]
    while len(groups) < GROUPS_MAX:
        spans = [float(np.ptp(per_mean[:, group], axis=1).max()) * len(group) for group in groups]
        widest = groups.pop(int(np.argmax(spans)))
        axis = int(np.argmax(np.ptp(per_mean[:, widest], axis=1)))
        order = widest[np.argsort(per_mean[axis, widest], kind="stable")]
        groups += [order[: len(order) // 2], order[len(order) // 2 :]]
        if len(order) < 2:
            break
    group_of = np.empty(count, dtype=np.int64)
    groups = [group for group in groups if len(group) > 0]
    for number, group in enumerate(groups):
        group_of[group] = number
    return group_of, len(groups)


def _similar_brokers(capacity: FloatArray) -> tuple[FloatArray, FloatArray]:
    """At most a few capacities that stand for all, with how many brokers each stands for."""
    distinct, counts = np.unique(capacity, return_counts=True)
    if len(distinct) <= CAPACITY_SAMPLES:
        return distinct, counts.astype(np.float64)
    parts = np.array_split(np.sort(capacity), CAPACITY_SAMPLES)
    return np.array([part.mean() for part in parts]), np.array([float(len(part)) for part in parts])
