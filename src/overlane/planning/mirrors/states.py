"""The load of every broker in the normal state and after each single failure, given primaries and mirrors.

The items of a failed broker run on their mirrors. A critical item is always published to its mirror, so it loads the
mirror in the normal state too; its reward and penalty count once, where it is served: at its primary, and at its mirror
if the primary has failed. A mirror on the failed broker carries nothing, and the item stays at its primary.

The tables have a row for each failure and a last one for the normal state, and a column for each broker. Placing one
mirror changes one row for an ordinary item and one column for a critical one, so that trying all brokers for an item is
one operation on a table.
"""

import numpy as np

from overlane.planning.allocation.model import FloatArray, IntArray, Problem
from overlane.planning.allocation.placement import LEAST_STRAIN, Load, Placement, overload_risk

NOWHERE = -1
# Worst losses closer than this share of all penalties are the same, so that the total can decide between them.
SAME_LOSS = 1e-10


class FailureStates:
    """Loads in all states; a mirror that is not placed yet is NOWHERE and loads nothing."""

    def __init__(self, problem: Problem, primary: IntArray, alive: IntArray) -> None:
        self.problem = problem
        self.primary = primary
        self.alive = alive
        self.task = Placement.of(problem)
        self.mirror: IntArray = np.full(len(primary), NOWHERE, dtype=np.int64)
        self.critical = problem.critical
        self.capacity = self.task.capacity
        load = self.task.load(primary)
        self.primary_loss = float(load.penalty @ overload_risk(load.mean, load.variance, self.capacity))
        self.shared = load.shared  # of the normal state, copies of critical items included
        rows = len(self.capacity) + 1
        self.mean, self.variance, self.penalty, self.topics = (
            np.tile(totals, (rows, 1)) for totals in (load.mean, load.variance, load.penalty, load.topics)
        )
        for failed in alive.tolist():
            for table in (self.mean, self.variance, self.penalty, self.topics):
                table[failed, failed] = 0.0

    @property
    def normal(self) -> int:
        """The row of the normal state."""
        return len(self.capacity)

    def put(self, item: int, place: int) -> None:
        """Give an item without mirror this one."""
        self._change(item, place, 1.0)
        self.mirror[item] = place

    def take(self, item: int) -> None:
        """Take an item's mirror away."""
        place = int(self.mirror[item])
        self.mirror[item] = NOWHERE
        self._change(item, place, -1.0)

    def _change(self, item: int, place: int, sign: float) -> None:
        home, rows = int(self.primary[item]), self._loaded_rows(item, place)
        shared = self.shared_with(item, place)[rows] if sign > 0 else self._shared_without(item, place)[rows]
        self.variance[rows, place] += sign * (2 * shared + self.task.variance[item])
        self.mean[rows, place] += sign * self.task.mean[item]
        self.topics[rows, place] += sign * self.task.topics[item]
        self.penalty[home, place] += sign * self.task.penalty[item]
        if self.critical[item]:
            self.shared[place] += sign * self.task.covariance[item]

    def _loaded_rows(self, item: int, place: int) -> IntArray:
        if not self.critical[item]:
            return np.array([self.primary[item]], dtype=np.int64)
        return np.array([row for row in [*self.alive.tolist(), self.normal] if row != place], dtype=np.int64)

    def shared_with(self, item: int, place: int) -> FloatArray:
        """The covariance of an item with what this broker carries, in every state."""
        shared: FloatArray = self._moved_with(item)[:, place] + self.shared[place, item]
        return shared

    def _shared_without(self, item: int, place: int) -> FloatArray:
        """The same while the item itself is among what the broker carries, without it."""
        own = self.task.variance[item] if self.critical[item] else 0.0
        return self.shared_with(item, place) - own

    def _moved_with(self, item: int) -> FloatArray:
        """The covariance with ordinary items that run on their mirrors, by state and broker."""
        table = np.zeros(self.mean.shape)
        moved = np.flatnonzero(~self.critical & (self.mirror != NOWHERE))
        np.add.at(table, (self.primary[moved], self.mirror[moved]), self.task.covariance[item, moved])
        return table

    def losses(self) -> FloatArray:
        """What each state loses of the primaries' utility; rows of brokers that are not alive lose nothing."""
        losses = (self.penalty * self._risk()).sum(axis=1) - self.primary_loss
        return self._only_alive(losses)

    def _only_alive(self, losses: FloatArray) -> FloatArray:
        kept = np.zeros(len(losses))
        rows = np.append(self.alive, self.normal)
        kept[rows] = losses[rows]
        return kept

    def _risk(self) -> FloatArray:
        return overload_risk(self.mean, self.variance, np.broadcast_to(self.capacity, self.mean.shape))

    def risk(self, row: int) -> FloatArray:
        return overload_risk(self.mean[row], self.variance[row], self.capacity)

    def strain(self) -> float:
        """How far limits are broken: topics in any state, risk in the normal one; zero when all are kept."""
        rows = np.append(self.alive, self.normal)
        excess = np.maximum(self.topics[rows] - self.task.topics_max, 0.0).sum()
        broken = self.risk(self.normal) >= self.task.risk_limit
        reach = self.mean[-1] + self.task.margin_deviations * np.sqrt(np.maximum(self.variance[-1], 0.0))
        over = np.maximum(reach / self.capacity - 1, 0.0) + LEAST_STRAIN
        return float(excess + (broken * over).sum())

    def keeps_limits(self) -> bool:
        """Whether the normal state keeps every limit, whatever failures may bring."""
        topics_fit = (self.topics[self.normal] <= self.task.topics_max)[self.alive].all()
        return bool(topics_fit and (self.risk(self.normal) < self.task.risk_limit)[self.alive].all())

    def price(self) -> tuple[float, float, float]:
        """What is to be least, in this order: strain, the worst failure's loss, the loss of all failures together."""
        losses = self.losses()[self.alive]
        grain = self.task.stake * SAME_LOSS
        return self.strain(), round(float(losses.max()) / grain) * grain, float(losses.sum())

    def free_items(self, failed: int) -> IntArray:
        """Ordinary items of this broker that have no mirror yet."""
        free = (self.primary == failed) & ~self.critical & (self.mirror == NOWHERE)
        return np.flatnonzero(free)

    def placement(self, failed: int, items: IntArray) -> tuple[Placement, IntArray]:
        """The question where these items run when their broker fails, and the brokers it is about."""
        task, brokers = self.task, self.alive[self.alive != failed]
        shared = self.shared[np.ix_(brokers, items)].copy()
        position = {broker: index for index, broker in enumerate(brokers.tolist())}
        for other in np.flatnonzero((self.primary == failed) & ~self.critical & (self.mirror != NOWHERE)).tolist():
            shared[position[int(self.mirror[other])]] += task.covariance[other, items]
        mean, variance, penalty, topics = (
            table[failed, brokers] for table in (self.mean, self.variance, self.penalty, self.topics)
        )
        return Placement(
            task.mean[items],
            task.penalty[items],
            task.topics[items],
            task.covariance[np.ix_(items, items)],
            task.capacity[brokers],
            task.topics_max[brokers],
            np.inf,
            Load(mean, variance, penalty, topics, shared),
        ), brokers
