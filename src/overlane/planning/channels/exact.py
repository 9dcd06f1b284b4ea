"""Branch and bound: the best layout of a small demand, with proof.

The search assigns a set of channels to one kind of the spine after the other. A partial assignment keeps, for every rib
and every set, the cost so far.

* The sum over ribs of the minimum of these is a lower bound of the cost of the assigned part, and at the end of the
  spine it is the cost.
* The unassigned rest of the spine costs at least its own optimum, as if it were alone. The search therefore starts at
  the end of the spine and solves one longer tail after the other (Russian doll search), each with the bounds of the
  shorter ones; the optimum of every tail is by itself a lower bound of the whole.
* Channels are interchangeable: among channels with equal membership so far, a new member joins the first ones.

Partial assignments are extended in batches, deepest first, so that the arithmetic runs on arrays. The limit on the work
counts cells of these arrays, and so ends the same search at the same place on any machine.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from overlane.planning.channels.demand import Bits, Weights
from overlane.planning.channels.spine import Masks, Spine

BATCH_CELLS = 1 << 20


@dataclass(frozen=True, slots=True)
class Proof:
    """What the walk ended with: masks better than those it was given, if any, and a bound on all layouts."""

    better: Masks | None
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


def prove(spine: Spine, known: Masks, cells_max: int, stop: Callable[[], bool]) -> Proof:
    """Look for masks that cost less than the `known` ones, until there are none or the limit is met."""
    walk = _Walk(spine, cells_max, stop)
    better: Masks | None = None
    for start in reversed(range(spine.kinds)):
        found = walk.solve_tail(start, known)
        better = found if start == 0 else None
        if walk.exhausted:
            break
    return Proof(better, max(walk.tail_bound), not walk.exhausted)


class _Walk:
    def __init__(self, spine: Spine, cells_max: int, stop: Callable[[], bool]) -> None:
        self._spine = spine
        self._allowed, self._tied_after = _symmetry(spine.channels)
        self._left = cells_max
        self._stop = stop
        self.tail_bound = [0.0] * (spine.kinds + 1)
        self.exhausted = False

    def solve_tail(self, start: int, known: Masks) -> Masks | None:
        """Find the optimum of the spine from `start` on, into `tail_bound`; masks if better than what is known."""
        best = self._spine.cost(known, start)
        found: Masks | None = None
        stack = [self._root(start)]
        while stack:
            batch = _first(stack, max(1, BATCH_CELLS // self._spine.cells_each))
            batch = _keep(batch, batch.bound < best - self._spine.dust)
            if not len(batch.bound):
                continue
            self._left -= len(batch.bound) * self._spine.cells_each
            if self._left < 0 or self._stop():
                self.exhausted = True
                stack.append(batch)
                break
            children = self._extend(batch, best)
            if children.depth < self._spine.kinds:
                stack.append(children)
            elif len(children.bound):
                last = int(children.bound.argmin())
                best, found = float(children.bound[last]), children.masks[last]
        open_bounds = [float(each.bound.min()) for each in stack if len(each.bound)]
        self.tail_bound[start] = min([best, *open_bounds])
        return found

    def _root(self, start: int) -> _Partials:
        all_tied = (1 << max(self._spine.channels - 1, 0)) - 1
        return _Partials(
            depth=start,
            cost=np.zeros((1, self._spine.ribs, self._spine.sets)),
            masks=np.zeros((1, self._spine.kinds), dtype=np.int64),
            tied=np.array([all_tied], dtype=np.int64),
            bound=np.array([self.tail_bound[start + 1]]),
        )

    def _extend(self, batch: _Partials, best: float) -> _Partials:
        """All children that may still beat `best`, the most promising last."""
        cost = batch.cost[:, None] + self._spine.prices[batch.depth][None]  # partials x masks x ribs x sets
        bound = cost.min(axis=3).sum(axis=2) + self.tail_bound[batch.depth + 1]
        parent, mask = np.nonzero(self._allowed[batch.tied] & (bound < best - self._spine.dust))
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


def _first(stack: list[_Partials], size: int) -> _Partials:
    """The most promising `size` partials of the deepest batch; the rest stays on the stack."""
    top = stack.pop()
    if len(top.bound) <= size:
        return top
    stack.append(_keep(top, np.arange(len(top.bound)) < len(top.bound) - size))
    return _keep(top, np.arange(len(top.bound)) >= len(top.bound) - size)


def _keep(batch: _Partials, which: Bits) -> _Partials:
    return _Partials(batch.depth, batch.cost[which], batch.masks[which], batch.tied[which], batch.bound[which])


def _symmetry(channels: int) -> tuple[Bits, Masks]:
    """Per set of ties and mask: whether tied channels are joined first ones first, and the ties that remain."""
    ties = np.arange(1 << max(channels - 1, 0))[:, None]
    masks = np.arange(1 << channels)[None, :]
    later_without_earlier = (masks >> 1) & ~masks  # bit c: c + 1 is joined, c is not
    differs = masks ^ (masks >> 1)
    return ties & later_without_earlier == 0, (ties & ~differs).astype(np.int64)
