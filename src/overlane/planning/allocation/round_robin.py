"""Round robin by reserve ratio: the baseline for comparison.

Items are placed in the given order; each goes to the broker with the largest reserve ratio (C - V) / C, where V is the
mean rate placed there so far; the first of equals wins. Variation, correlation and risk are ignored. A broker without
room for the topics of the item is skipped as long as another has room.
"""

import numpy as np

from overlane.planning.allocation.model import IntArray
from overlane.planning.allocation.placement import Placement


def round_robin(task: Placement) -> IntArray:
    """A place for every item, in the order of the items."""
    mean, topics = task.ground.mean.copy(), task.ground.topics.copy()
    places = np.zeros(task.item_count, dtype=np.int64)
    for item in range(task.item_count):
        reserve = (task.capacity - mean) / task.capacity
        room = topics + task.topics[item] <= task.topics_max
        place = int(np.argmax(np.where(room, reserve, -np.inf) if room.any() else reserve))
        places[item] = place
        mean[place] += task.mean[item]
        topics[place] += task.topics[item]
    return places
