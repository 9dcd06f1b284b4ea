"""The spine: a small demand as tables, one kind of node or advertisement after the other.

After merging, advertisements and nodes are symmetric. The side with fewer kinds is the spine: each of its kinds has a
set of channels, as a bit mask. Each kind on the other side, the ribs, may choose its own set freely, and for given
masks along the spine the best choice is a minimum per rib. So a layout is one mask per kind of the spine, and its cost
a sum over ribs of a minimum over sets, of a sum over the spine of table entries.
"""

import numpy as np
import numpy.typing as npt

from overlane.planning.channels.demand import Bits, Demand, Layout, Weights

TABLE_CELLS_MAX = 1 << 23

Masks = npt.NDArray[np.int64]


def fits(demand: Demand) -> bool:
    """Whether the tables of a spine are of reasonable size."""
    sets = 1 << min(demand.channels, 20)
    return demand.wanted.size * sets * sets <= TABLE_CELLS_MAX


class Spine:
    """The tables of a demand, and the way between layouts and masks."""

    def __init__(self, demand: Demand) -> None:
        self._nodes_first = demand.wanted.shape[1] <= demand.wanted.shape[0]
        wanted: Bits = demand.wanted.T if self._nodes_first else demand.wanted
        weight = demand.node_count if self._nodes_first else demand.rate_bps
        rib_weight = demand.rate_bps if self._nodes_first else demand.node_count
        # Heavy kinds first: what they decide is dear, so wrong turns show early.
        self._order = np.argsort(-(weight * (wanted @ rib_weight)), kind="stable")
        self.channels = demand.channels
        self.kinds, self.ribs = wanted.shape
        self.sets = 1 << demand.channels
        self.prices = _prices(wanted[self._order], weight[self._order], rib_weight, demand)
        self.cells_each = self.sets * self.sets * self.ribs  # to weigh all masks of one kind
        self.dust = 1e-9 * max(demand.all_unicast_bps, 1e-300)  # differences below this are rounding

    def masks(self, layout: Layout) -> Masks:
        """The layout as one mask of channels per kind along the spine."""
        side = layout.listens if self._nodes_first else layout.carries
        bits = 1 << np.arange(self.channels, dtype=np.int64)
        masks: Masks = (bits @ side.astype(np.int64))[self._order]
        return masks

    def layout(self, masks: Masks) -> Layout:
        """The layout with these masks along the spine, every rib at its best."""
        rib_masks = self.rib_costs(masks).argmin(axis=1)
        spine_masks = np.empty_like(masks)
        spine_masks[self._order] = masks
        bits = np.arange(self.channels)[:, None]
        spine_side = (spine_masks >> bits) & 1 == 1
        rib_side = (rib_masks >> bits) & 1 == 1
        return Layout(spine_side, rib_side) if self._nodes_first else Layout(rib_side, spine_side)

    def rib_costs(self, masks: Masks, start: int = 0) -> Weights:
        """Per rib and set, the cost of the spine from `start` on."""
        costs: Weights = self.prices[np.arange(start, self.kinds), masks[start:]].sum(axis=0)
        return costs

    def cost(self, masks: Masks, start: int = 0) -> float:
        """The cost of the spine from `start` on, every rib at its best."""
        return float(self.rib_costs(masks, start).min(axis=1).sum())


def _prices(wanted: Bits, weight: Weights, rib_weight: Weights, demand: Demand) -> Weights:
    """The cost of a pair for every mask of its spine kind and every set of its rib: spine x masks x ribs x sets."""
    sets = np.arange(1 << demand.channels)
    copies = np.bitwise_count(sets[:, None] & sets[None, :]).astype(np.float64)
    if_wanted = np.where(copies == 0, demand.unicast_weight, copies - 1)
    pair = np.where(wanted[:, None, :, None], if_wanted[None, :, None, :], copies[None, :, None, :])
    prices: Weights = pair * (weight[:, None, None, None] * rib_weight[None, None, :, None])
    return prices
