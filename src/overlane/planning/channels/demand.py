"""Demand: the matrix that all solvers use, with equal rows and equal columns merged.

Two advertisements with the same subscribers differ only in rate. For given members, the best set of channels is the
same for both, so some optimum treats them alike, and they may be merged into one with the sum of their rates. Two nodes
with the same subscriptions are merged likewise into one node that counts twice. After merging, advertisements and nodes
are symmetric: a pair costs rate times node count times the same function of the copies. Advertisements and nodes
without a subscription or without a rate cost nothing by unicast and are omitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from overlane.planning.channels.model import Advertisement, Channel

Bits = npt.NDArray[np.bool_]
Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Demand:
    """Who wants what: one row per kind of advertisement, one column per kind of node."""

    wanted: Bits  # advertisements x nodes
    rate_bps: Weights  # per row, summed over the advertisements folded into it
    node_count: Weights  # per column, how many nodes are folded into it
    unicast_weight: float
    channels: int
    advertisement_names: tuple[tuple[str, ...], ...]
    node_names: tuple[tuple[str, ...], ...]

    @property
    def all_unicast_bps(self) -> float:
        """The cost without any channel: the cost that every channel saves from."""
        return float(self.unicast_weight * (self.rate_bps @ (self.wanted @ self.node_count)))

    @property
    def channels_for_free(self) -> int:
        """With so many channels nothing is wasted: one per kind of advertisement, or one per kind of node."""
        return int(min(self.wanted.shape))


@dataclass(frozen=True, slots=True)
class Layout:
    """A mapping on a demand: `listens[c, n]`, node n is a member of channel c; `carries[c, a]`, a is sent on c."""

    listens: Bits
    carries: Bits


def fold(advertisements: Sequence[Advertisement], channels: int, unicast_weight: float) -> Demand:
    """The demand of these advertisements, equal ones folded, in the order of first appearance."""
    flowing = [ad for ad in advertisements if ad.rate_bps > 0 and ad.subscribers]
    rows: dict[frozenset[str], list[Advertisement]] = {}
    for ad in flowing:
        rows.setdefault(frozenset(ad.subscribers), []).append(ad)
    kinds = list(rows)
    wants: dict[str, list[int]] = {}
    for row, subscribers in enumerate(kinds):
        for node in rows[subscribers][0].subscribers:
            wants.setdefault(node, []).append(row)
    columns: dict[tuple[int, ...], list[str]] = {}
    for node, wanted_rows in wants.items():
        columns.setdefault(tuple(wanted_rows), []).append(node)

    wanted = np.zeros((len(kinds), len(columns)), dtype=np.bool_)
    for column, wanted_rows_of in enumerate(columns):
        wanted[list(wanted_rows_of), column] = True
    return Demand(
        wanted=wanted,
        rate_bps=np.array([sum(ad.rate_bps for ad in rows[kind]) for kind in kinds], dtype=np.float64),
        node_count=np.array([len(nodes) for nodes in columns.values()], dtype=np.float64),
        unicast_weight=unicast_weight,
        channels=min(channels, *wanted.shape),  # more are of no use
        advertisement_names=tuple(tuple(ad.name for ad in rows[kind]) for kind in kinds),
        node_names=tuple(tuple(nodes) for nodes in columns.values()),
    )


def unfold(demand: Demand, layout: Layout) -> tuple[Channel, ...]:
    """The layout in names, channels that bring nothing left out, in the order of their first advertisement."""
    found: list[tuple[list[int], Channel]] = []
    for listens, carries in zip(layout.listens, layout.carries, strict=True):
        if listens.any() and carries.any():
            rows = np.flatnonzero(carries).tolist()
            members = tuple(name for column in np.flatnonzero(listens) for name in demand.node_names[column])
            sent = tuple(name for row in rows for name in demand.advertisement_names[row])
            found.append((rows, Channel(members, sent)))
    return tuple(channel for _, channel in sorted(found, key=lambda each: each[0]))


def empty_layout(demand: Demand) -> Layout:
    """No channel used: everything by unicast."""
    rows, columns = demand.wanted.shape
    return Layout(np.zeros((demand.channels, columns), np.bool_), np.zeros((demand.channels, rows), np.bool_))


def layout_cost_bps(demand: Demand, layout: Layout) -> float:
    """The cost of a layout, as `model.cost_of` has it, from the matrix of copies."""
    copies = layout.carries.T.astype(np.float64) @ layout.listens.astype(np.float64)
    once = demand.wanted & (copies > 0)
    missed = demand.wanted & (copies == 0)
    per_pair = copies - once + demand.unicast_weight * missed
    return float(demand.rate_bps @ (per_pair @ demand.node_count))


def layout_for_free(demand: Demand) -> Layout:
    """A layout without waste, for demands with enough channels: one per kind of advertisement or of node."""
    rows, columns = demand.wanted.shape
    layout = empty_layout(demand)
    if rows <= columns:
        layout.listens[:rows] = demand.wanted
        layout.carries[:rows] = np.eye(rows, dtype=np.bool_)
    else:
        layout.listens[:columns] = np.eye(columns, dtype=np.bool_)
        layout.carries[:columns] = demand.wanted.T
    return layout
