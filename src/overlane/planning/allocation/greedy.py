"""Two ways to place items one by one, largest first: best fit, and spreading.

Best fit packs: an item goes where it leaves the least capacity, among the brokers that keep their limits with it. It
uses few brokers and runs them close to the limit; it is here to be compared with.

Spreading is the start of our own search: an item goes where the load, with its variation counted in, fills the
smallest share of the capacity. Both look at the covariance with what is there already, neither ever takes an item
back.
"""

import numpy as np

from overlane.planning.allocation.model import FloatArray, IntArray
from overlane.planning.allocation.placement import Load, Placement, overload_risk

# Spreading counts a load as its mean plus so many standard deviations: about where good allocations end up.
SPREAD_DEVIATIONS = 3.0


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
