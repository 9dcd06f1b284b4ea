"""Critical items together with their copies: both load their brokers in the normal state, and never the same one.

A copy is an item of its own here, with the rate of its item, which it follows exactly, and no penalty: it costs only
what it does to others. Item and copy are twins, which may not share a broker. So primaries and the mirrors of critical
items are one placement, solved as any other; the mirrors of other items load nothing until a broker fails, and come
after it.
"""

from dataclasses import replace

import numpy as np

from overlane.planning.allocation.exact import solve_exactly
from overlane.planning.allocation.model import IntArray, Problem
from overlane.planning.allocation.placement import NO_TWIN, Placement
from overlane.planning.allocation.search import Stop
from overlane.planning.allocation.solve import FEW_SHAKES, SEARCH_SHARE, SHAKES, Spent, tightened, well_placed
from overlane.planning.allocation.subsets import fits_tables
from overlane.planning.mirrors.states import NOWHERE

NODES_MAX = 20_000  # of branch and bound


def with_copies(task: Placement, critical: IntArray) -> Placement:
    """The items of a task, and after them the copies of those at the positions `critical`. Tolls are left out."""
    count, rows = task.item_count, np.append(np.arange(task.item_count), critical)
    copies = count + np.arange(len(critical))
    twin = np.full(len(rows), NO_TWIN, dtype=np.int64)
    twin[critical], twin[copies] = copies, critical
    return replace(
        task,
        mean=task.mean[rows],
        penalty=np.append(task.penalty, np.zeros(len(critical))),
        topics=task.topics[rows],
        covariance=task.covariance[np.ix_(rows, rows)],
        ground=replace(task.ground, shared=task.ground.shared[:, rows]),
        toll=None,
        twin=twin,
    )


def place_with_copies(problem: Problem, spent: Spent, seed: int) -> tuple[IntArray, IntArray, bool]:
    """Primaries, mirrors of critical items (others are NOWHERE), and whether every limit of the normal state is kept.
    Where that was not found, the highest risk is as low as was found."""
    critical = np.flatnonzero(problem.critical)
    task = with_copies(Placement.of(problem), critical)
    places = _well_placed(task, spent, seed)
    is_kept = task.keeps_limits(places)
    if not is_kept:
        places = tightened(task, places, lambda: spent() >= 1, FEW_SHAKES)
    count = len(problem.items)
    mirror = np.full(count, NOWHERE, dtype=np.int64)
    mirror[critical] = places[count:]
    return places[:count], mirror, is_kept


def _well_placed(task: Placement, spent: Spent, seed: int) -> IntArray:
    stop: Stop = lambda: spent() >= SEARCH_SHARE  # noqa: E731
    is_small = fits_tables(task)
    start = well_placed(task, seed, FEW_SHAKES if is_small else SHAKES, stop)
    if is_small:
        proof = solve_exactly(task, start, lambda: spent() >= 1, NODES_MAX)
        if proof.places is not None:
            return proof.places
    return start
