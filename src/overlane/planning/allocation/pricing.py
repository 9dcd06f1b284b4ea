"""The maximum gain of a broker if every item has a price: the inner problem of the bound of the loss.

A broker of capacity C that takes the items S is paid price(S) and loses penalty(S) * Pr(V > C). Subsets of thousands of
items cannot be enumerated, so its gain is bounded cell by cell. In a cell the risk is between q and r, and the
deviation of V, or rather its floor sqrt(own(S) + common(S)^2), between v and w. Then

- it loses at least q on every unit of penalty;
- with z the deviations that belong to r:   mean(S) + z * deviation(S) <= C;
- a square root lies above its chord:   sqrt(x) >= (x + v * w) / (v + w)   for x between v^2 and w^2;
- a square lies above each tangent:   common(S)^2 >= 2 * t * common(S) - t^2   for any t.

Together this is one knapsack with a weight for each item, solved as if items could be divided:

    maximise   sum of price_i - q * penalty_i
    subject to sum of mean_i + z * (own_i + 2 * t * common_i) / (v + w)  <=  C - z * (v * w - t^2) / (v + w)

The gain of a broker is at most the maximum over all cells; a cell may take the minimum over several t. Outside its cell
a chord is above the root, so omitting the borders of the cell as constraints does not weaken the bound. Decisive cells
are split until they are small.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from overlane.planning.allocation.model import FloatArray, IntArray
from overlane.planning.allocation.placement import TINY
from overlane.planning.allocation.search import Stop, never

SPLIT_ROUNDS = 12
SPLIT_CELLS = 3  # of each capacity and round
# Cells priced at once: bounds the memory of a batch, not its result.
NUMBERS_PER_BATCH = 4_000_000


def grouped_sums(of_items: FloatArray, group: IntArray, groups: int) -> FloatArray:
    """The sum over the items of each group."""
    return np.bincount(group, weights=of_items, minlength=groups).astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Traits:
    """The sums that a broker's gain is made of, one number for each item."""

    mean: FloatArray
    penalty: FloatArray
    own: FloatArray
    common: FloatArray

    def grouped(self, group: IntArray, groups: int) -> "Traits":
        """One item in place of each group."""
        return Traits(*(grouped_sums(of, group, groups) for of in (self.mean, self.penalty, self.own, self.common)))


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Ranges of risk and deviation, one cell for each position."""

    risk_low: FloatArray
    risk_high: FloatArray
    deviation_low: FloatArray
    deviation_high: FloatArray

    def __len__(self) -> int:
        return len(self.risk_low)

    @staticmethod
    def grid(risks: FloatArray, deviations: FloatArray) -> "Cells":
        """All pairs of neighbouring edges; both arrays rise."""
        low_risk, low_deviation = np.meshgrid(risks[:-1], deviations[:-1], indexing="ij")
        high_risk, high_deviation = np.meshgrid(risks[1:], deviations[1:], indexing="ij")
        return Cells(low_risk.ravel(), high_risk.ravel(), low_deviation.ravel(), high_deviation.ravel())

    def sharpened(self) -> "Cells":
        """Cells of a single risk, in the middle of each: no longer a bound, but close to the truth on a coarse grid."""
        middle = (self.risk_low + self.risk_high) / 2
        return Cells(middle, middle, self.deviation_low, self.deviation_high)

    def at(self, positions: IntArray | slice) -> "Cells":
        return Cells(
            self.risk_low[positions],
            self.risk_high[positions],
            self.deviation_low[positions],
            self.deviation_high[positions],
        )

    def quartered(self) -> "Cells":
        """Every cell cut in the middle, both ways."""
        risk, deviation = (self.risk_low + self.risk_high) / 2, (self.deviation_low + self.deviation_high) / 2
        quarters = [
            (risk_low, risk_high, deviation_low, deviation_high)
            for risk_low, risk_high in ((self.risk_low, risk), (risk, self.risk_high))
            for deviation_low, deviation_high in ((self.deviation_low, deviation), (deviation, self.deviation_high))
        ]
        return Cells(*(np.concatenate(edges) for edges in zip(*quarters, strict=True)))

    def joined(self, other: "Cells") -> "Cells":
        return Cells(
            np.concatenate([self.risk_low, other.risk_low]),
            np.concatenate([self.risk_high, other.risk_high]),
            np.concatenate([self.deviation_low, other.deviation_low]),
            np.concatenate([self.deviation_high, other.deviation_high]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Knapsacks:
    """For every cell: what an item brings and weighs (cells x items), and what is lost of the capacity."""

    worth: FloatArray
    weight: FloatArray
    taken: FloatArray


def _knapsacks(traits: Traits, prices: FloatArray, cells: Cells, tangent: float) -> _Knapsacks:
    margin = -ndtri(cells.risk_high)
    slope = margin / (cells.deviation_low + cells.deviation_high)
    worth = np.maximum(prices - cells.risk_low[:, None] * traits.penalty, 0.0)
    weight = traits.mean + slope[:, None] * (traits.own + 2 * tangent * traits.common)
    taken = slope * (cells.deviation_low * cells.deviation_high - tangent**2)
    return _Knapsacks(worth, weight, taken)


def _filling_order(worth: FloatArray, weight: FloatArray) -> IntArray:
    """Items by worth for their weight, falling; those that weigh nothing or less come first."""
    free = weight <= 0
    order: IntArray = np.argsort(np.where(free, -np.inf, -worth / np.where(free, 1.0, weight)), axis=-1)
    return order


def gains(
    traits: Traits, prices: FloatArray, cells: Cells, capacities: FloatArray, tangents: FloatArray
) -> tuple[FloatArray, IntArray]:
    """The most a broker of each capacity gains in each cell (cells x capacities), and the tangent that showed it."""
    batch = max(NUMBERS_PER_BATCH // len(traits.mean), 1)
    parts = [
        _gains_of_batch(traits, prices, cells.at(slice(start, start + batch)), capacities, tangents)
        for start in range(0, len(cells), batch)
    ]
    return np.concatenate([gain for gain, _ in parts]), np.concatenate([tangent for _, tangent in parts])


def _gains_of_batch(
    traits: Traits, prices: FloatArray, cells: Cells, capacities: FloatArray, tangents: FloatArray
) -> tuple[FloatArray, IntArray]:
    least = np.full((len(cells), len(capacities)), np.inf)
    tightest = np.zeros(least.shape, dtype=np.int64)
    for position, tangent in enumerate(tangents.tolist()):
        sacks = _knapsacks(traits, prices, cells, tangent)
        order = _filling_order(sacks.worth, sacks.weight)
        # Items of negative weight make room: counting them as weightless, the room they make is given for free.
        room = capacities[None, :] - sacks.taken[:, None] - np.minimum(sacks.weight, 0.0).sum(axis=1)[:, None]
        gain = _filled_up(
            np.take_along_axis(sacks.worth, order, 1), np.maximum(np.take_along_axis(sacks.weight, order, 1), 0.0), room
        )
        better = gain < least
        least = np.where(better, gain, least)
        tightest[better] = position
    return least, tightest


def _filled_up(worth: FloatArray, weight: FloatArray, room: FloatArray) -> FloatArray:
    """The worth of items taken in this order until the room is full, the last in part (cells x rooms)."""
    cells, items = worth.shape
    row = np.arange(cells)[:, None]
    filled = np.hstack([np.zeros((cells, 1)), np.cumsum(weight, axis=1)])
    gained = np.hstack([np.zeros((cells, 1)), np.cumsum(worth, axis=1)])
    # One search for all cells: each row takes its own stretch of a common scale.
    scale = np.maximum(filled[:, -1:], TINY)
    keys = (filled[:, 1:] / scale + 2 * row).ravel()
    whole = np.searchsorted(keys, (np.clip(room / scale, 0.0, 1.0) + 2 * row).ravel()).reshape(room.shape) - items * row
    whole = np.clip(whole, 0, items)
    following = np.minimum(whole, items - 1)
    share = (room - filled[row, whole]) / np.maximum(weight[row, following], TINY)
    rest = np.where(whole < items, np.clip(share, 0.0, 1.0) * worth[row, following], 0.0)
    gain: FloatArray = np.where(room < 0, -np.inf, gained[row, whole] + rest)
    return gain


def choice(traits: Traits, prices: FloatArray, cell: Cells, capacity: float, tangent: float) -> FloatArray:
    """How much of each item a broker of this capacity takes in one cell."""
    sacks = _knapsacks(traits, prices, cell, tangent)
    worth, weight = sacks.worth[0], sacks.weight[0]
    order = _filling_order(worth, weight)
    weight = np.maximum(weight, 0.0)[order]
    room = capacity - float(sacks.taken[0]) - float(np.minimum(sacks.weight[0], 0.0).sum())
    before = np.cumsum(weight) - weight
    taken = np.zeros(len(worth))
    taken[order] = np.clip((room - before) / np.maximum(weight, TINY), 0.0, 1.0)
    taken[worth <= 0] = 0.0
    return taken


def most_gained(
    traits: Traits, prices: FloatArray, cells: Cells, capacities: FloatArray, tangents: FloatArray, stop: Stop = never
) -> FloatArray:
    """The most a broker of each capacity can gain over all cells, splitting those that decide until told to stop."""
    gain, _ = gains(traits, prices, cells, capacities, tangents)
    for _ in range(SPLIT_ROUNDS):
        if stop():
            break
        deciding = np.unique(np.argsort(-gain, axis=0, kind="stable")[:SPLIT_CELLS])
        quarters = cells.at(deciding).quartered()
        finer, _ = gains(traits, prices, quarters, capacities, tangents)
        rest = np.setdiff1d(np.arange(len(cells)), deciding)
        cells, gain = cells.at(rest).joined(quarters), np.concatenate([gain[rest], finer])
    most: FloatArray = np.maximum(gain.max(axis=0), 0.0)
    return most
