"""Local search along the spine: for demands small enough for its tables, finer than replacing whole channels.

One step gives one kind of the spine the best of all its sets of channels, with the best response of every rib: the
exact optimum over that kind and all ribs together. Steps are repeated until none gains. Then a few kinds get random
sets and the steps start again; a result that costs no more is kept. The generator has a fixed seed, and the limit
counts cells of work: the same demand has the same answer.
"""

from collections.abc import Callable

import numpy as np

from overlane.planning.channels.spine import Masks, Spine

SEED = 20020305
KICKED_MAX = 4
KICKS_PER_KIND = 20


def refine(spine: Spine, masks: Masks, cells_max: int, stop: Callable[[], bool]) -> Masks:
    """Masks that cost no more than the given ones, after about `cells_max` cells of work."""
    chance = np.random.default_rng(SEED)
    best, left = _descend(spine, masks, cells_max)
    best_cost = spine.cost(best)
    for _ in range(KICKS_PER_KIND * spine.kinds):
        if left <= 0 or best_cost <= spine.dust or stop():
            break
        trial = best.copy()
        kicked = chance.choice(
            spine.kinds, size=min(spine.kinds, int(chance.integers(1, KICKED_MAX + 1))), replace=False
        )
        trial[kicked] = chance.integers(0, spine.sets, size=len(kicked))
        trial, left = _descend(spine, trial, left)
        trial_cost = spine.cost(trial)
        if trial_cost <= best_cost:
            best, best_cost = trial, trial_cost
    return best


def _descend(spine: Spine, masks: Masks, left: int) -> tuple[Masks, int]:
    """Step from kind to kind until a whole round gains nothing; the masks, and the work that is left."""
    masks = masks.copy()
    costs = spine.rib_costs(masks)
    fruitless, kind = 0, 0
    while fruitless < spine.kinds and left > 0:
        others = costs - spine.prices[kind, masks[kind]]
        weighed = (others + spine.prices[kind]).min(axis=2).sum(axis=1)  # per mask
        left -= spine.cells_each
        chosen = int(weighed.argmin())
        if weighed[chosen] < weighed[masks[kind]] - spine.dust:
            masks[kind] = chosen
            costs = others + spine.prices[kind, chosen]
            fruitless = 0
        else:
            fruitless += 1
        kind = (kind + 1) % spine.kinds
    return masks, left
