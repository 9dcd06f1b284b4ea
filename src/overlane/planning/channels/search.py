"""Local search for large demands: replaces bad channels by better ones, until a number of rounds brings no gain.

Every round removes a few channels, preferably those that save little, and replaces each by the best channel that can be
grown on the pairs that are now open, from seeds: the needs of one node, or of all nodes that still lack one
advertisement. Then all channels are improved until none gains. A round that increased the cost is undone.

The search starts from several layouts (the baselines, and channels chosen one by one, each the best for the pairs that
the earlier ones left open), improves each and continues from the best. So it is never worse than any baseline. All
choices come from one generator with a fixed seed: the same demand has the same answer, unless `stop` ends the search.
"""

from collections.abc import Callable, Iterable

import numpy as np

from overlane.planning.channels.board import Board, Draft
from overlane.planning.channels.demand import Bits, Demand, Layout, empty_layout, layout_cost_bps

SEED = 20020305
SEEDS_PER_CHANNEL = 96  # drafts weighed for one free channel
SETTLED_PER_CHANNEL = 6  # the most promising of them, grown to the end
SWEEPS_MAX = 30


def search(demand: Demand, starts: Iterable[Layout], rounds: int, stop: Callable[[], bool]) -> Layout:
    """The best layout found in at most `rounds` rounds from the best of `starts` and a peeled one."""
    chance = np.random.default_rng(SEED)
    begun = [Board(demand, start) for start in starts]
    begun.append(_peeled(demand, chance, stop))
    for board in begun:
        _sweep(board, stop)
    best = min(begun, key=_cost_bps)
    best_bps = _cost_bps(best)
    for _ in range(rounds):
        if stop() or best_bps <= 0:
            break
        trial = best.copy()
        _shake(trial, chance)
        _sweep(trial, stop)
        trial_bps = _cost_bps(trial)
        if trial_bps <= best_bps:
            best, best_bps = trial, trial_bps
    return best.layout()


def _peeled(demand: Demand, chance: np.random.Generator, stop: Callable[[], bool]) -> Board:
    board = Board(demand, empty_layout(demand))
    for channel in range(demand.channels):
        if stop():
            break
        board.put_on(channel, _grow(board, chance))
    return board


def _shake(board: Board, chance: np.random.Generator) -> None:
    """Take a few channels off and grow others in their place."""
    channels = len(board.listens)
    taken = min(channels, int(chance.integers(1, 4)))
    saves = np.array([board.worth_bps(channel) for channel in range(channels)])
    rank = saves.argsort(kind="stable").argsort(kind="stable")
    odds = 1.0 / (3 + rank)
    chosen = chance.choice(channels, size=taken, replace=False, p=odds / odds.sum())
    for channel in chosen:
        board.take_off(int(channel))
    for channel in chosen:
        board.put_on(int(channel), _grow(board, chance))


def _grow(board: Board, chance: np.random.Generator) -> Draft:
    """The best channel found for what is open now; an empty one if none would save."""
    rows, columns = board.demand.wanted.shape
    best = Draft(np.zeros(columns, np.bool_), np.zeros(rows, np.bool_), 0.0)
    seeds = _seeds(board, chance)
    promise_bps = board.promise_bps(seeds)
    for seed in np.argsort(-promise_bps, kind="stable")[:SETTLED_PER_CHANNEL]:
        grown = board.settle(Draft(seeds[seed], best.carries, 0.0))
        if grown.saves_bps > best.saves_bps:
            best = grown
    return best


def _seeds(board: Board, chance: np.random.Generator) -> Bits:
    """Sets of members to grow a channel from: all that wait for an advertisement, and single nodes."""
    columns = board.demand.wanted.shape[1]
    load_bps = board.open_load_bps()
    waiting = np.flatnonzero(load_bps)
    by_row = min(len(waiting), 2 * SEEDS_PER_CHANNEL // 3)
    by_node = min(columns, SEEDS_PER_CHANNEL // 3)
    nodes = chance.choice(columns, size=by_node, replace=False)
    alone = np.zeros((by_node, columns), np.bool_)
    alone[np.arange(by_node), nodes] = True
    if by_row == 0:
        return alone
    odds = load_bps[waiting] / load_bps[waiting].sum()
    picked = chance.choice(waiting, size=by_row, replace=False, p=odds)
    return np.concatenate([board.open_rows(picked), alone])


def _sweep(board: Board, stop: Callable[[], bool]) -> None:
    """Polish all channels in turn until a whole turn gains nothing."""
    for _ in range(SWEEPS_MAX):
        gained_bps = sum(board.polish(channel) for channel in range(len(board.listens)))
        if gained_bps <= 0 or stop():
            return


def _cost_bps(board: Board) -> float:
    return layout_cost_bps(board.demand, Layout(board.listens, board.carries))
