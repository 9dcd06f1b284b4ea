"""Local search: from a start, descend by moving and swapping items, then perturb and descend again.

The search keeps, for every broker, its totals and the covariance of every item with what is there (`Load.shared`), so
the cost of any change follows from a few numbers: all moves of one item and its swaps with every other item are
evaluated by a few array operations, and an accepted change updates two rows. A descent ends where no move and no swap
helps.

A perturbation mixes the items of three brokers at random, descends among them, and keeps the result only if it is
cheaper. Randomness comes from the seed and the number of rounds is fixed, so the answer depends on the problem alone,
unless `stop` ends the search; at any moment the current placement is the cheapest found.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np

from overlane.planning.allocation.model import FloatArray, IntArray
from overlane.planning.allocation.placement import NO_TWIN, Placement

Stop: TypeAlias = Callable[[], bool]

# A change must win this share of the stake to count, or rounding would keep the search busy for ever.
LEAST_GAIN = 1e-12
SHAKEN_BROKERS = 3
SHAKEN_SHARE = 0.3
SHAKEN_PASSES = 6


def never() -> bool:
    return False


class Search:
    """The places of all items and everything that makes changing them cheap."""

    def __init__(self, task: Placement, places: IntArray) -> None:
        self.task = task
        self.places = places.copy()
        self._least_gain = LEAST_GAIN * task.stake
        self._settle()

    def _settle(self) -> None:
        """Sum everything afresh, so that rounding does not pile up over many changes."""
        task = self.task
        self.load = task.load(self.places)
        load = self.load
        self.cost = task.broker_cost(load.mean, load.variance, load.penalty, load.topics, slice(None))

    @property
    def total(self) -> float:
        total = float(self.cost.sum())
        if self.task.toll is not None:
            total += float(self.task.toll[np.arange(len(self.places)), self.places].sum())
        return total + self.task.together_cost * self.task.pairs_together(self.places)

    def descend(self, items: Iterable[int] | None = None, stop: Stop = never, passes: int = 1000) -> None:
        """Take the best change of each item in turn, until a whole pass finds none or `stop` says so."""
        order = list(range(self.task.item_count)) if items is None else list(items)
        for _ in range(passes):
            changed = False
            for item in order:
                if stop():
                    return
                changed = self._improve(item) or changed
            if not changed:
                return
            self._settle()

    def shake(self, rounds: int, seed: int, stop: Stop = never) -> None:
        """Mix a few brokers' items, descend among them, keep what is cheaper."""
        if self.task.broker_count < 2 or self.task.item_count < 2:
            return
        random = np.random.default_rng(seed)
        for _ in range(rounds):
            if stop():
                break
            brokers = self._pick_brokers(random)
            items = np.flatnonzero(np.isin(self.places, brokers))
            if len(items) == 0:
                continue
            among = np.searchsorted(brokers, self.places[items])
            mixed = random.random(len(items)) < SHAKEN_SHARE
            shaken = np.where(mixed, random.integers(len(brokers), size=len(items)), among)
            part = Search(self.task.part(items, brokers), shaken)
            part.descend(stop=stop, passes=SHAKEN_PASSES)
            if part.total < part.task.cost(among) - self._least_gain:
                for item, place in zip(items.tolist(), brokers[part.places].tolist(), strict=True):
                    self._move(item, place)
        self._settle()

    def _pick_brokers(self, random: np.random.Generator) -> IntArray:
        """One broker by its share of the cost, the others by lot."""
        count = self.task.broker_count
        share = np.minimum(self.cost, self.task.stake) + self.task.stake * 1e-12
        first = int(random.choice(count, p=share / share.sum()))
        others = random.permutation(count)
        chosen = [first, *(int(b) for b in others if b != first)][:SHAKEN_BROKERS]
        return np.array(sorted(chosen), dtype=np.int64)

    def _improve(self, item: int) -> bool:
        """Make the best move or swap of this item, if any helps."""
        move_gain, place = self._best_move(item)
        swap_gain, partner = self._best_swap(item)
        if max(move_gain, swap_gain) <= self._least_gain:
            return False
        if move_gain >= swap_gain:
            self._move(item, place)
        else:
            home = int(self.places[item])
            self._move(item, int(self.places[partner]))
            self._move(partner, home)
        return True

    def _best_move(self, item: int) -> tuple[float, int]:
        task, load, home = self.task, self.load, int(self.places[item])
        with_item = task.broker_cost(
            load.mean + task.mean[item],
            load.variance + 2 * load.shared[:, item] + task.variance[item],
            load.penalty + task.penalty[item],
            load.topics + task.topics[item],
            slice(None),
        )
        change = with_item - self.cost + self._cost_without(item, home) - self.cost[home]
        if task.toll is not None:
            change += task.toll[item] - task.toll[item, home]
        if task.twin is not None and task.twin[item] != NO_TWIN:
            beside = int(self.places[task.twin[item]])
            change[beside] += task.together_cost
            if beside == home:
                change -= task.together_cost
        change[home] = np.inf
        place = int(np.argmin(change))
        return -float(change[place]), place

    def _cost_without(self, item: int, home: int) -> float:
        task, load = self.task, self.load
        left = task.broker_cost(
            load.mean[home : home + 1] - task.mean[item],
            load.variance[home : home + 1] - 2 * load.shared[home, item] + task.variance[item],
            load.penalty[home : home + 1] - task.penalty[item],
            load.topics[home : home + 1] - task.topics[item],
            home,
        )
        return float(left[0])

    def _best_swap(self, item: int) -> tuple[float, int]:
        task, load, places, home = self.task, self.load, self.places, int(self.places[item])
        every = np.arange(task.item_count)
        mean, penalty, topics = (of - of[item] for of in (task.mean, task.penalty, task.topics))
        both = task.variance + task.variance[item] - 2 * task.covariance[item]
        here = task.broker_cost(
            load.mean[home] + mean,
            load.variance[home] + 2 * (load.shared[home] - load.shared[home, item]) + both,
            load.penalty[home] + penalty,
            load.topics[home] + topics,
            home,
        )
        there = task.broker_cost(
            load.mean[places] - mean,
            load.variance[places] + 2 * (load.shared[places, item] - load.shared[places, every]) + both,
            load.penalty[places] - penalty,
            load.topics[places] - topics,
            places,
        )
        change: FloatArray = here - self.cost[home] + there - self.cost[places]
        if task.toll is not None:
            change = change + task.toll[item, places] - task.toll[item, home]
            change += task.toll[:, home] - task.toll[every, places]
        if task.twin is not None:
            change = change + task.together_cost * self._pairs_gained(item, task.twin)
        change[places == home] = np.inf
        partner = int(np.argmin(change))
        return -float(change[partner]), partner

    def _pairs_gained(self, item: int, twin: IntArray) -> IntArray:
        """How many more twins share a broker when the item is swapped with each of the others."""
        places, home, beside = self.places, self.places[item], self.task.twin_places(self.places)
        are_twins = twin == item
        after = ((places == beside[item]) & ~are_twins).astype(np.int64) + ((beside == home) & ~are_twins)
        gained: IntArray = after - (beside == places) - (beside[item] == home)
        return gained

    def _move(self, item: int, place: int) -> None:
        task, load, home = self.task, self.load, int(self.places[item])
        if place == home:
            return
        own = task.variance[item]
        load.variance[home] = max(load.variance[home] - 2 * load.shared[home, item] + own, 0.0)
        load.variance[place] = max(load.variance[place] + 2 * load.shared[place, item] + own, 0.0)
        for totals, of_item in ((load.mean, task.mean), (load.penalty, task.penalty), (load.topics, task.topics)):
            totals[home] -= of_item[item]
            totals[place] += of_item[item]
        load.shared[home] -= task.covariance[item]
        load.shared[place] += task.covariance[item]
        self.places[item] = place
        both = np.array([home, place])
        self.cost[both] = task.broker_cost(
            load.mean[both], load.variance[both], load.penalty[both], load.topics[both], both
        )
