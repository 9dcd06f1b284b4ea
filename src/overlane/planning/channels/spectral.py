"""A true lower bound for demands of any size, from a matrix norm.

Let a pair of rate r and node count m get k copies. For any price z with -1 <= z <= w if the pair is wanted (w the
unicast weight), -1 <= z if not, its cost is at least r m z (1 - k) or -r m z k: by k = 0, k = 1, k >= 2 in turn. Summed
over all pairs, with Z the matrix of r m z and x, y the zero-one vectors of what a channel carries and who listens,

    cost >= sum over wanted pairs of Z  -  sum over channels of x' Z y.

No channel can take more than the best one, and the best one is bounded by a norm: write Z = E - a b' with positive
vectors a, b, and s for the largest singular value of E with its rows divided by sqrt(a) and its columns by sqrt(b).
As x and y are zero-one, x' Z y <= s u - u^2 with u^2 = (a'x)(b'y), which is at most s^2 / 4. So, for all z, a and b,

    cost >= sum over wanted pairs of Z  -  channels * s^2 / 4.

How good it is depends on them. b is the node counts; a is the rates, scaled down where a layout already found shows
that a channel saves far more than the least useful one does: a channel's worth at the margin is the right price for
all. E is then found by alternating directions: one step moves it towards the greatest sum inside its box, the other
cuts its singular values to a common height. Any E in the box gives a true bound, so it is measured after every few
steps and the best is kept.
"""

from collections.abc import Callable

import numpy as np

from overlane.planning.channels.board import Board
from overlane.planning.channels.demand import Demand, Layout, Weights

STEPS_MAX = 60
STEPS_BETWEEN_LOOKS = 5
SHARE_MAX = (0.6, 0.35)  # of the rates, the most that a takes: tried in turn, the better one counts
ROUNDING = 1e-9  # the norm is raised by this share, so that the bound stays one in floating point


def spectral_bound_bps(demand: Demand, layout: Layout, stop: Callable[[], bool]) -> float:
    """A lower bound on the cost of every layout; `layout`, a good one, only helps to find a high bound."""
    if demand.unicast_weight == 0 or demand.wanted.size == 0:
        return 0.0
    if demand.channels == 0:
        return demand.all_unicast_bps
    price = _price_share(demand, layout)
    found_bps = [0.0]
    for share_max in SHARE_MAX:
        share = np.minimum(share_max, demand.unicast_weight * price)
        found_bps.append(_ascend(demand, share, stop))
    return max(found_bps)


def _price_share(demand: Demand, layout: Layout) -> Weights:
    """Per advertisement, the least useful channel's savings over those of its own channel, at most 1."""
    board = Board(demand, layout)
    saves_bps = np.array([board.worth_bps(channel) for channel in range(demand.channels)])
    margin_bps = float(saves_bps.min())
    own_bps = demand.unicast_weight * demand.rate_bps * (demand.wanted @ demand.node_count)
    worth_bps = np.maximum(own_bps, (layout.carries * saves_bps[:, None]).max(axis=0))
    if margin_bps <= 0:
        return np.ones_like(worth_bps)
    share: Weights = np.minimum(1.0, margin_bps / worth_bps)
    return share


def _ascend(demand: Demand, share: Weights, stop: Callable[[], bool]) -> float:
    """The best bound on the way, with a = share * rate, b = node count; E is kept with its rows and columns scaled."""
    height = np.sqrt(np.outer(demand.rate_bps, demand.node_count))
    root = np.sqrt(share)[:, None]
    least = (share[:, None] - 1) * height / root
    most = np.where(demand.wanted, demand.unicast_weight + share[:, None], share[:, None]) * height / root
    slope = np.where(demand.wanted, height * root, 0.0)
    offset_bps = float((slope * slope).sum())

    matrix = np.where(demand.wanted, most, 0.0)
    debt = np.zeros_like(matrix)
    best_bps = -np.inf
    for step in range(STEPS_MAX):
        even = _flatten(matrix + debt, demand.channels)
        debt += matrix - even
        matrix = np.clip(even - debt + slope, least, most)
        if step % STEPS_BETWEEN_LOOKS == STEPS_BETWEEN_LOOKS - 1:
            norm_squared = float(np.linalg.eigvalsh(_gram(matrix))[-1]) * (1 + ROUNDING)
            best_bps = max(best_bps, float((slope * matrix).sum()) - offset_bps - demand.channels / 4 * norm_squared)
            if stop():
                break
    return float(best_bps)


def _flatten(matrix: Weights, channels: int) -> Weights:
    """The matrix nearest to this one when a greatest singular value of s costs channels * s^2 / 4."""
    squares, vectors = np.linalg.eigh(_gram(matrix))
    values = np.sqrt(np.maximum(squares[::-1], 0.0))
    vectors = vectors[:, ::-1]
    # With the k greatest cut to height h, the slope of the price meets that of the distance: channels/2 h = sum(s - h).
    heights = np.cumsum(values) / (channels / 2 + np.arange(1, len(values) + 1))
    cut = int(np.flatnonzero(heights >= np.append(values[1:], 0.0))[0]) + 1
    if values[0] <= 0:
        return matrix
    loss = 1 - heights[cut - 1] / values[:cut]
    away = (vectors[:, :cut] * loss) @ vectors[:, :cut].T
    tall = matrix.shape[0] >= matrix.shape[1]
    flat: Weights = matrix - (matrix @ away if tall else away @ matrix)
    return flat


def _gram(matrix: Weights) -> Weights:
    """The smaller of the two products of the matrix with itself: its eigenvalues are the squared singular values."""
    return matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
