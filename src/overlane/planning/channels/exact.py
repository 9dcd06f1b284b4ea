"""Branch and bound: the best layout of a small demand, and the proof that nothing is better.

Folded, advertisements and nodes play the same part, so the search walks along the side with fewer kinds (the *spine*)
and gives each kind in turn its set of channels, as a bit mask. Each kind on the other side (the *ribs*) may then choose
its own set freely; a partial assignment keeps, for every rib and every set, the cost so far.

* The sum over ribs of the least of these is a lower bound on what the assigned part will cost, and at the end of the
  spine it is the cost.
* The unassigned rest of the spine costs at least its own optimum, as if it were alone. The walk therefore starts at
  the end of the spine and solves one longer tail after the other (Russian dolls), each with the bounds of the shorter
  ones; every tail's optimum is by itself a lower bound on the whole.
* Channels are interchangeable: among channels with equal membership so far, a new member joins the first ones.

Partial assignments are extended in batches, deepest first, so that the arithmetic runs on arrays. The limit on the
work counts cells of these arrays, and so cuts the same walk at the same place on any machine.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from overlane.planning.channels.demand import Bits, Demand, Layout, Weights

BATCH_CELLS = 1 << 20
TABLE_CELLS_MAX = 1 << 22

Masks = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Proof:
    """What the walk ended with: a layout better than the one it was given, if any, and a bound on all layouts."""

    better: Layout | None
    bound_bps: float
    complete: bool


@dataclass(slots=True)
class _Partials:
    """Assignments of the first kinds of a tail, many at once."""

    depth: int
    cost: Weights  # partials x ribs x sets
    masks: Masks  # partials x spine
    tied: Masks  # bit c: channels c and c + 1 have had the same members so far
    bound: Weights


def fits(demand: Demand) -> bool:
    """Whether the tables of the search are of reasonable size."""
    sets = 1 << min(demand.channels, 20)
    return demand.wanted.size * sets * sets <= TABLE_CELLS_MAX


def prove(demand: Demand, layout: Layout, cost_bps: float, cells_max: int, stop: Callable[[], bool]) -> Proof:
    """Look for a layout that costs less than `cost_bps`, that of `layout`, until there is none or the limit is met."""
    walk = _Walk(demand, cells_max, stop)
    known = walk.spine_masks(layout)
    masks: Masks | None = None
    for start in reversed(range(walk.spine)):
        found = walk.solve_tail(start, known, cost_bps if start == 0 else None)
        masks = found if start == 0 else None
        if walk.exhausted:
            break
    better = None if masks is None else walk.layout(masks)
    return Proof(better, max(walk.tail_bound), not walk.exhausted)


class _Walk:
    def __init__(self, demand: Demand, cells_max: int, stop: Callable[[], bool]) -> None:
        self._demand = demand
        self._nodes_first = demand.wanted.shape[1] <= demand.wanted.shape[0]
        wanted: Bits = demand.wanted.T if self._nodes_first else demand.wanted
        weight = demand.node_count if self._nodes_first else demand.rate_bps
        rib_weight = demand.rate_bps if self._nodes_first else demand.node_count
        # Heavy kinds first: what they decide is dear, so wrong turns show early.
        self._order = np.argsort(-(weight * (wanted @ rib_weight)), kind="stable")
        self.spine, self._ribs = wanted.shape
        self._sets = 1 << demand.channels
        self._cells_each = self._sets * self._sets * self._ribs  # to extend one partial assignment
        self._price = _prices(wanted[self._order], weight[self._order], rib_weight, demand)
        self._allowed, self._tied_after = _symmetry(demand.channels)
        self._left = cells_max
        self._stop = stop
        self.tail_bound = [0.0] * (self.spine + 1)
        self.exhausted = False
        self._dust = 1e-9 * max(demand.all_unicast_bps, 1e-300)

    def solve_tail(self, start: int, known: Masks, cost_known: float | None) -> Masks | None:
        """Find the optimum of the spine from `start` on, into `tail_bound`; masks if better than what is known."""
        best = self._cost(start, known) if cost_known is None else cost_known
        found: Masks | None = None
        stack = [self._root(start)]
        while stack:
            batch = _first(stack, max(1, BATCH_CELLS // self._cells_each))
            batch = _keep(batch, batch.bound < best - self._dust)
            if not len(batch.bound):
                continue
            self._left -= len(batch.bound) * self._cells_each
            if self._left < 0 or self._stop():
                self.exhausted = True
                stack.append(batch)
                break
            children = self._extend(batch, best)
            if children.depth < self.spine:
                stack.append(children)
            elif len(children.bound):
                last = int(children.bound.argmin())
                best, found = float(children.bound[last]), children.masks[last]
        open_bounds = [float(each.bound.min()) for each in stack if len(each.bound)]
        self.tail_bound[start] = min([best, *open_bounds])
        return found

    def spine_masks(self, layout: Layout) -> Masks:
        """The layout as one mask of channels per kind along the spine."""
        side = layout.listens if self._nodes_first else layout.carries
        bits = 1 << np.arange(self._demand.channels, dtype=np.int64)
        masks: Masks = (bits @ side.astype(np.int64))[self._order]
        return masks

    def layout(self, masks: Masks) -> Layout:
        """The layout with these masks along the spine, every rib at its best."""
        cost = sum(self._price[kind, masks[kind]] for kind in range(self.spine))
        rib_masks = np.asarray(cost).argmin(axis=1)
        spine_masks = np.empty_like(masks)
        spine_masks[self._order] = masks
        bits = np.arange(self._demand.channels)[:, None]
        spine_side = (spine_masks >> bits) & 1 == 1
        rib_side = (rib_masks >> bits) & 1 == 1
        return Layout(spine_side, rib_side) if self._nodes_first else Layout(rib_side, spine_side)

    def _root(self, start: int) -> _Partials:
        all_tied = (1 << max(self._demand.channels - 1, 0)) - 1
        return _Partials(
            depth=start,
            cost=np.zeros((1, self._ribs, self._sets)),
            masks=np.zeros((1, self.spine), dtype=np.int64),
            tied=np.array([all_tied], dtype=np.int64),
            bound=np.array([self.tail_bound[start + 1]]),
        )

    def _extend(self, batch: _Partials, best: float) -> _Partials:
        """All children that may still beat `best`, the most promising last."""
        cost = batch.cost[:, None] + self._price[batch.depth][None]  # partials x masks x ribs x sets
        bound = cost.min(axis=3).sum(axis=2) + self.tail_bound[batch.depth + 1]
        parent, mask = np.nonzero(self._allowed[batch.tied] & (bound < best - self._dust))
        order = np.argsort(-bound[parent, mask], kind="stable")
        parent, mask = parent[order], mask[order]
        masks = batch.masks[parent]
        masks[:, batch.depth] = mask
        return _Partials(
            depth=batch.depth + 1,
            cost=cost[parent, mask],
            masks=masks,
            tied=self._tied_after[batch.tied[parent], mask],
            bound=bound[parent, mask],
        )

    def _cost(self, start: int, masks: Masks) -> float:
        cost = sum(self._price[kind, masks[kind]] for kind in range(start, self.spine))
        return float(np.asarray(cost).min(axis=1).sum())


def _first(stack: list[_Partials], size: int) -> _Partials:
    """The most promising `size` partials of the deepest batch; the rest stays on the stack."""
    top = stack.pop()
    if len(top.bound) <= size:
        return top
    stack.append(_keep(top, np.arange(len(top.bound)) < len(top.bound) - size))
    return _keep(top, np.arange(len(top.bound)) >= len(top.bound) - size)


def _keep(batch: _Partials, which: Bits) -> _Partials:
    return _Partials(batch.depth, batch.cost[which], batch.masks[which], batch.tied[which], batch.bound[which])


def _prices(wanted: Bits, weight: Weights, rib_weight: Weights, demand: Demand) -> Weights:
    """The cost of a pair for every mask of its spine kind and every set of its rib: spine x masks x ribs x sets."""
    sets = np.arange(1 << demand.channels)
    copies = np.bitwise_count(sets[:, None] & sets[None, :]).astype(np.float64)
    if_wanted = np.where(copies == 0, demand.unicast_weight, copies - 1)
    pair = np.where(wanted[:, None, :, None], if_wanted[None, :, None, :], copies[None, :, None, :])
    prices: Weights = pair * (weight[:, None, None, None] * rib_weight[None, None, :, None])
    return prices


def _symmetry(channels: int) -> tuple[Bits, Masks]:
    """Per set of ties and mask: whether tied channels are joined first ones first, and the ties that remain."""
    ties = np.arange(1 << max(channels - 1, 0))[:, None]
    masks = np.arange(1 << channels)[None, :]
    later_without_earlier = (masks >> 1) & ~masks  # bit c: c + 1 is joined, c is not
    differs = masks ^ (masks >> 1)
    return ties & later_without_earlier == 0, (ties & ~differs).astype(np.int64)
