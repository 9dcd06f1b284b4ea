"""The IndiQoS strategy (section 4): assign the channels to the heaviest advertisements, then add the others.

First, the advertisements with the most traffic, rate times subscribers, get a channel each, with exactly their
subscribers as members. Then every other advertisement joins the one channel with the best overlap, if that saves
anything compared with unicast. Members are never changed afterwards: this makes it fast, but less than optimal.
"""

import numpy as np

from overlane.planning.channels.demand import Demand, Layout, empty_layout


def greedy(demand: Demand) -> Layout:
    """The mapping that the strategy finds."""
    layout = empty_layout(demand)
    load_bps = demand.rate_bps * (demand.wanted @ demand.node_count)
    heaviest = np.argsort(-load_bps, kind="stable")
    founders, others = heaviest[: demand.channels], heaviest[demand.channels :]
    for channel, founder in enumerate(founders):
        layout.listens[channel] = demand.wanted[founder]
        layout.carries[channel, founder] = True
    if founders.size and others.size:
        members = layout.listens.astype(np.float64) * demand.node_count  # channels x nodes
        overlap = demand.wanted[others] @ members.T
        saved = (1 + demand.unicast_weight) * overlap - members.sum(axis=1)
        best = saved.argmax(axis=1)
        joins = saved[np.arange(others.size), best] > 0
        layout.carries[best[joins], others[joins]] = True
    return layout
