"""Three greedy placements, item by item: best fit, spreading, and pooling.

Best fit: an item goes where it leaves the least capacity, among the brokers that stay within their limits with it. It
uses few brokers and loads them close to the limit; it is a baseline for comparison.

Spreading and pooling are starting points of the local search. Spreading places the largest item first, where the load,
including its variation, fills the smallest share of the capacity. Pooling places items of similar variation together: a
margin grows with the square root of the variance, so two brokers with mixed items need more margin than one with stable
and one with variable items. Items are ordered by their variance relative to their mean, brokers by capacity, and each
broker is filled to the same distance from its capacity, in standard deviations: the largest distance at which
everything still fits.
"""

import numpy as np

from overlane.planning.allocation.model import FloatArray, IntArray
from overlane.planning.allocation.placement import TINY, Load, Placement, overload_risk

# Spreading counts a load as its mean plus so many standard deviations: about where good allocations end up.
SPREAD_DEVIATIONS = 3.0
POOLED_DEVIATIONS = (-2.0, 12.0)
POOLED_TRIALS = 20


def best_fit(task: Placement) -> IntArray:
    """The fullest broker that still keeps its limits; when none does, the one with the largest reserve ratio."""
    load = task.ground.copy()
    places = np.zeros(task.item_count, dtype=np.int64)
    for item in _largest_first(task):
        mean, variance = load.mean + task.mean[item], _variance_with(task, load, item)
        fits = overload_risk(mean, variance, task.capacity) < task.risk_limit
        fits &= load.topics + task.topics[item] <= task.topics_max
        left = task.capacity - mean
        place = int(np.argmin(np.where(fits, left, np.inf)) if fits.any() else np.argmax(left / task.capacity))
        places[item] = place
        _put(task, load, item, place)
    return places


def spread(task: Placement) -> IntArray:
    """The broker least filled once it has the item, among those with room for its topics."""
    load = task.ground.copy()
    places = np.zeros(task.item_count, dtype=np.int64)
    for item in _largest_first(task):
        deviation = np.sqrt(np.maximum(_variance_with(task, load, item), 0.0))
        filled = (load.mean + task.mean[item] + SPREAD_DEVIATIONS * deviation) / task.capacity
        room = load.topics + task.topics[item] <= task.topics_max
        if room.any():
            filled = np.where(room, filled, np.inf)
        if task.toll is not None:
            filled = filled + task.toll[item] * (1e3 / task.stake)
        place = int(np.argmin(filled))
        places[item] = place
        _put(task, load, item, place)
    return places


def pooled(task: Placement) -> IntArray:
    """Restless items on the largest brokers, steady ones on the smallest, all equally far from their capacity."""
    order: list[int] = np.argsort(-task.variance / np.maximum(task.mean, TINY), kind="stable").tolist()
    near, far = POOLED_DEVIATIONS
    places, _ = _filled(task, order, near)
    for _ in range(POOLED_TRIALS):
        middle = (near + far) / 2
        trial, all_fit = _filled(task, order, middle)
        if all_fit:
            places, near = trial, middle
        else:
            far = middle
    return places


def _filled(task: Placement, order: list[int], deviations: float) -> tuple[IntArray, bool]:
    """Brokers filled one after the other to this many deviations from capacity; the last takes what is left."""
    brokers: list[int] = np.argsort(-task.capacity, kind="stable").tolist()
    places = np.zeros(task.item_count, dtype=np.int64)
    shared = np.zeros(task.item_count)
    at, mean, variance, topics = 0, 0.0, 0.0, 0.0
    reach = 0.0
    for item in order:
        grown = variance + 2 * shared[item] + task.variance[item]
        reach = mean + task.mean[item] + deviations * np.sqrt(max(grown, 0.0))
        full = reach > task.capacity[brokers[at]] or topics + task.topics[item] > task.topics_max[brokers[at]]
        if full and topics > 0 and at + 1 < len(brokers):
            at, mean, variance, topics = at + 1, 0.0, 0.0, 0.0
            shared[:] = 0.0
        places[item] = brokers[at]
        variance += 2 * shared[item] + task.variance[item]
        mean += task.mean[item]
        topics += task.topics[item]
        shared += task.covariance[item]
        reach = mean + deviations * np.sqrt(max(variance, 0.0))
    return places, reach <= task.capacity[brokers[at]] and topics <= task.topics_max[brokers[at]]


def _largest_first(task: Placement) -> list[int]:
    """Items by mean and one deviation, falling; equals in the order given."""
    size = task.mean + np.sqrt(task.variance)
    order: list[int] = np.argsort(-size, kind="stable").tolist()
    return order


def _variance_with(task: Placement, load: Load, item: int) -> FloatArray:
    variance: FloatArray = load.variance + 2 * load.shared[:, item] + task.variance[item]
    return variance


def _put(task: Placement, load: Load, item: int, place: int) -> None:
    load.variance[place] += 2 * load.shared[place, item] + task.variance[item]
    load.mean[place] += task.mean[item]
    load.penalty[place] += task.penalty[item]
    load.topics[place] += task.topics[item]
    load.shared[place] += task.covariance[item]
