"""The board: a layout that is improved one channel at a time.

With all other channels fixed, a channel saves, for every pair (a, n) it joins, rate * count * (1 + w) if the pair is
*open* (wanted, and on no other channel), less rate * count for the bits themselves. So for given members the best
advertisements are exactly those that save on their own, and for given advertisements the best members likewise: the two
half-steps alternate, neither increases the cost, and if neither changes anything, the channel is at a local optimum.

The board counts the copies of every pair: removing or adding a channel changes only its own pairs.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from overlane.planning.channels.demand import Bits, Demand, Layout, Weights

HALF_STEPS_MAX = 60


@dataclass(frozen=True, slots=True)
class Draft:
    """A channel not yet on the board, and what it would save there."""

    listens: Bits
    carries: Bits
    saves_bps: float


class Board:
    """A layout and its copies; `saved_bps` against everything by unicast."""

    def __init__(self, demand: Demand, layout: Layout) -> None:
        self.demand = demand
        self.listens = layout.listens.copy()
        self.carries = layout.carries.copy()
        self._copies = (layout.carries.T.astype(np.int32) @ layout.listens.astype(np.int32)).astype(np.int16)
        self._open = demand.wanted & (self._copies == 0)
        self._gain = 1 + demand.unicast_weight
        # What is too small to be more than rounding: a gain below it does not count.
        self._dust = 1e-12 * float(demand.rate_bps.sum() * demand.node_count.sum())

    def layout(self) -> Layout:
        return Layout(self.listens.copy(), self.carries.copy())

    def copy(self) -> "Board":
        twin = object.__new__(Board)
        twin.demand, twin._gain, twin._dust = self.demand, self._gain, self._dust
        twin.listens, twin.carries = self.listens.copy(), self.carries.copy()
        twin._copies, twin._open = self._copies.copy(), self._open.copy()
        return twin

    def take_off(self, channel: int) -> Draft:
        """Empty a channel; what it was, and what it saved given all others."""
        listens, carries = self.listens[channel].copy(), self.carries[channel].copy()
        self._add(carries, listens, -1)
        self.listens[channel] = False
        self.carries[channel] = False
        return Draft(listens, carries, self._saves(listens, carries))

    def put_on(self, channel: int, draft: Draft) -> None:
        """Fill an empty channel."""
        self.listens[channel] = draft.listens
        self.carries[channel] = draft.carries
        self._add(draft.carries, draft.listens, +1)

    def worth_bps(self, channel: int) -> float:
        """What would be lost if this channel were taken off for good."""
        draft = self.take_off(channel)
        self.put_on(channel, draft)
        return draft.saves_bps

    def polish(self, channel: int) -> float:
        """Bring one channel to its local optimum, the others fixed; what that saves."""
        before = self.take_off(channel)
        after = self.settle(before)
        self.put_on(channel, after)
        return after.saves_bps - before.saves_bps

    def settle(self, draft: Draft) -> Draft:
        """Alternate the half-steps from a draft until neither side gains; never worse than the draft."""
        best = draft
        listens = draft.listens
        for _ in range(HALF_STEPS_MAX):
            carries = self._advertisements_for(listens)
            listens = self._members_for(carries)
            saves_bps = self._saves(listens, carries)
            if saves_bps <= best.saves_bps + self._dust:
                break
            best = Draft(listens, carries, saves_bps)
        return best

    def open_rows(self, rows: npt.NDArray[np.intp]) -> Bits:
        """The nodes still waiting for each of these advertisements."""
        picked: Bits = self._open[rows]
        return picked

    def open_load_bps(self) -> Weights:
        """Per advertisement, what no channel brings yet."""
        load: Weights = self.demand.rate_bps * (self._open @ self.demand.node_count)
        return load

    def promise_bps(self, members: Bits) -> Weights:
        """For each row of members, what a new channel for them would save before settling."""
        count = members * self.demand.node_count  # drafts x nodes
        saved = self._gain * (self._open.astype(np.float32) @ count.T.astype(np.float32)) - count.sum(axis=1)
        promised: Weights = self.demand.rate_bps @ np.maximum(saved, 0.0)
        return promised

    def _advertisements_for(self, listens: Bits) -> Bits:
        members = np.flatnonzero(listens)
        count = self.demand.node_count[members]
        saving: Bits = self._gain * (self._open[:, members] @ count) > count.sum() * (1 + 1e-12)
        return saving

    def _members_for(self, carries: Bits) -> Bits:
        sent = np.flatnonzero(carries)
        rate_bps = self.demand.rate_bps[sent]
        saving: Bits = self._gain * (rate_bps @ self._open[sent]) > rate_bps.sum() * (1 + 1e-12)
        return saving

    def _saves(self, listens: Bits, carries: Bits) -> float:
        sent, members = np.flatnonzero(carries), np.flatnonzero(listens)
        rate_bps, count = self.demand.rate_bps[sent], self.demand.node_count[members]
        met = rate_bps @ (self._open[np.ix_(sent, members)] @ count)
        return float(self._gain * met - rate_bps.sum() * count.sum())

    def _add(self, carries: Bits, listens: Bits, step: int) -> None:
        where = np.ix_(np.flatnonzero(carries), np.flatnonzero(listens))
        self._copies[where] += step
        self._open[where] = self.demand.wanted[where] & (self._copies[where] == 0)
