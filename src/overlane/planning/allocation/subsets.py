"""Every subset of a few items: its totals and its cost on each broker.

A subset is a bit mask in which item k is bit k, and a table holds one number for each mask. Tables are built by
doubling: once all masks of the first k items are known, those with item k added are the same plus that item. Brokers
with equal capacity, limits, ground and tolls share a table, so ten equal brokers cost as much as one.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from overlane.planning.allocation.model import FloatArray
from overlane.planning.allocation.placement import Placement, overload_risk

# Masks times different brokers: beyond it, building the tables takes longer than a user waits for an exact answer.
CELLS_MAX = 1 << 21
ITEMS_MAX = 17


@dataclass(frozen=True, slots=True, eq=False)
class SubsetTables:
    """For each kind of broker and each mask: loss with tolls, risk, and whether the topics fit."""

    loss: list[FloatArray]
    risk: list[FloatArray]
    topics_fit: list[FloatArray]  # 0 where they fit and no twins are among them, infinite where not
    kind: list[int]  # of each broker


def fits_tables(task: Placement) -> bool:
    """Whether the task is small enough to tabulate every subset."""
    return task.item_count <= ITEMS_MAX and len(set(_looks(task))) << task.item_count <= CELLS_MAX


def sums(of_items: FloatArray, start: float = 0.0) -> FloatArray:
    """The sum over each mask's items, plus `start`."""
    table = np.empty(1 << len(of_items))
    table[0] = start
    for item, value in enumerate(of_items.tolist()):
        table[1 << item : 2 << item] = table[: 1 << item] + value
    return table


def subset_tables(task: Placement) -> SubsetTables:
    """Tables for every kind of broker of the task."""
    looks = _looks(task)
    kinds = {look: kind for kind, look in enumerate(dict.fromkeys(looks))}
    tables = SubsetTables([], [], [], [kinds[look] for look in looks])
    are_apart = _apart(task)
    for look in kinds:
        broker = looks.index(look)
        mean = sums(task.mean, float(task.ground.mean[broker]))
        risk = overload_risk(mean, _variances(task, broker), np.full_like(mean, task.capacity[broker]))
        loss = sums(task.penalty, float(task.ground.penalty[broker])) * risk
        if task.toll is not None:
            loss += sums(task.toll[:, broker])
        topics = sums(task.topics, float(task.ground.topics[broker]))
        tables.loss.append(loss)
        tables.risk.append(risk)
        tables.topics_fit.append(np.where((topics <= task.topics_max[broker]) & are_apart, 0.0, np.inf))
    return tables


def _apart(task: Placement) -> npt.NDArray[np.bool_]:
    """Of each mask, whether it has no twins."""
    masks = np.arange(1 << task.item_count)
    are_apart = np.ones(len(masks), dtype=np.bool_)
    for item, twin in enumerate([] if task.twin is None else task.twin.tolist()):
        if twin > item:
            are_apart &= (masks >> item & masks >> twin & 1) == 0
    return are_apart


def _variances(task: Placement, broker: int) -> FloatArray:
    table = np.empty(1 << task.item_count)
    table[0] = task.ground.variance[broker]
    for item in range(task.item_count):
        shared = sums(task.covariance[item, :item], float(task.ground.shared[broker, item]))
        table[1 << item : 2 << item] = table[: 1 << item] + 2 * shared + task.variance[item]
    variances: FloatArray = np.maximum(table, 0.0)
    return variances


def _looks(task: Placement) -> list[bytes]:
    """Equal bytes for brokers that are alike to every subset."""
    ground = task.ground
    columns = [task.capacity, task.topics_max, ground.mean, ground.variance, ground.penalty, ground.topics]
    toll = np.zeros((task.broker_count, 0)) if task.toll is None else task.toll.T
    traits = np.column_stack([*columns, ground.shared, toll])
    return [row.tobytes() for row in traits]
