"""Branch and bound: the proven optimal placement of a few items.

Items are placed one after the other, largest first. The bound at a node is Lagrangian: give each item a price, let
every broker choose independently the best of the open items at these prices, and add the prices up,

    bound = sum of prices + sum over brokers b of  min over X: cost_b(A_b + X) - price(A_b + X)

where A_b is the set already placed on b and X any subset of the open items. Brokers may choose an item twice or not at
all, which is why it is a bound and not the answer; prices are set at the root, by subgradient steps, to minimise such
conflicts.

The inner minimum costs nothing at a node. With item k as bit k, let best[k][A] be the minimum for a set A of the first
k items; best[n] is the priced cost table, and best[k][A] = min(best[k+1][A], best[k+1][A with item k]), two halves of
one array. All of them together have twice the size of the table. Negative correlations, which can lower the risk of a
broker when it gets another item, need no special treatment: the minimum is over all subsets.

Among identical brokers that are still empty, only the first is tried.
"""

from dataclasses import dataclass

import numpy as np

from overlane.planning.allocation.model import FloatArray, IntArray
from overlane.planning.allocation.placement import RISK_MARGIN, Placement
from overlane.planning.allocation.search import Stop, never
from overlane.planning.allocation.subsets import SubsetTables, subset_tables, sums

PRICE_STEPS = 300
PATIENCE = 8  # steps without success before they are shortened
START_SHARE = 0.8  # of the marginal costs
NODES_PER_LOOK = 1024  # how often to ask whether to stop
# A node must promise to be better by this share of the stake.
LEAST_GAIN = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """The cheapest places found (None when there are none), their cost, and a floor under the cost of all others."""

    places: IntArray | None
    cost: float
    floor: float
    complete: bool


def solve_exactly(task: Placement, start: IntArray, stop: Stop = never, nodes_max: int | None = None) -> Proof:
    """The cheapest placement that keeps every limit; `start` helps when it keeps them too.

    The proof is incomplete when `stop` says so, or after `nodes_max` nodes: then the floor is that of the open nodes.
    """
    order = _branching_order(task)
    ordered = task.part(order, np.arange(task.broker_count))
    tables = subset_tables(ordered)
    costs = [
        loss + fit + np.where(risk < ordered.risk_limit, 0.0, np.inf)
        for loss, risk, fit in zip(tables.loss, tables.risk, tables.topics_fit, strict=True)
    ]
    known = start[order] if task.keeps_limits(start) else None
    branching = _Branching(costs, tables.kind, task.item_count, LEAST_GAIN * task.stake, stop, nodes_max)
    return _in_order(branching.run(known, None), order)


def least_maximum_risk(task: Placement, start: IntArray, stop: Stop = never) -> tuple[IntArray, bool] | None:
    """The places whose highest risk is least, and whether that is proven; None when the topics fit nowhere.

    Asks again and again for any placement whose risks are all below the best so far, until there is none. The mean
    rates serve as prices: brokers that cannot carry the whole rate below that risk are ruled out at once.
    """
    order = _branching_order(task)
    ordered = task.part(order, np.arange(task.broker_count))
    tables = subset_tables(ordered)
    roomy = bool((task.load(start).topics <= task.topics_max).all()) and not task.pairs_together(start)
    best: IntArray | None = start[order] if roomy else None
    while True:
        limit = np.inf if best is None else _highest_risk(tables, best) * (1 - RISK_MARGIN)
        costs = [
            fit + np.where(risk < limit, 0.0, np.inf) for risk, fit in zip(tables.risk, tables.topics_fit, strict=True)
        ]
        branching = _Branching(costs, tables.kind, task.item_count, 0.5, stop)
        found = branching.run(None, ordered.mean / max(float(task.mean.max()), 1e-300))
        if found.places is None:
            return None if best is None else (_restored(best, order), found.complete)
        best = found.places


class _Branching:
    """One depth-first search over cost tables."""

    def __init__(
        self,
        costs: list[FloatArray],
        kind: list[int],
        items: int,
        least_gain: float,
        stop: Stop,
        nodes_max: int | None = None,
    ) -> None:
        self._costs = costs
        self._kind = kind
        self._items = items
        self._least_gain = least_gain
        self._stop = stop
        self._nodes_max = np.inf if nodes_max is None else nodes_max
        self._stopped = False
        self._nodes = 0
        self._best_cost = np.inf
        self._best: list[int] | None = None
        self._open_floor = np.inf

    def run(self, known: IntArray | None, prices: FloatArray | None) -> Proof:
        if known is not None:
            self._best = known.tolist()
            self._best_cost = _cost_of(self._costs, self._kind, known)
        if any(np.isinf(table).all() for table in self._costs):
            return self._proof()
        if prices is None:
            prices = _fair_prices(self._costs, self._kind, self._items, known, self._best_cost)
        self._paid = float(prices.sum())
        self._best_of = [_best_completions(table - sums(prices), self._items) for table in self._costs]
        self._held = [0] * len(self._kind)
        self._places = [0] * self._items
        self._branch(0)
        return self._proof()

    def _proof(self) -> Proof:
        places = None if self._best is None else np.array(self._best, dtype=np.int64)
        floor = min(self._best_cost, self._open_floor)
        return Proof(places, float(self._best_cost), float(floor), not self._stopped)

    def _branch(self, item: int) -> None:
        if item == self._items:
            places = np.array(self._places, dtype=np.int64)
            cost = _cost_of(self._costs, self._kind, places)
            if cost < self._best_cost - self._least_gain:
                self._best_cost, self._best = cost, list(self._places)
            return
        for floor, broker in self._children(item):
            if floor >= self._best_cost - self._least_gain:
                return
            self._nodes += 1
            if self._must_stop():
                self._open_floor = min(self._open_floor, floor)
                return
            self._held[broker] |= 1 << item
            self._places[item] = broker
            self._branch(item + 1)
            self._held[broker] ^= 1 << item

    def _must_stop(self) -> bool:
        look = self._nodes % NODES_PER_LOOK == 0
        self._stopped = self._stopped or self._nodes > self._nodes_max or (look and self._stop())
        return self._stopped

    def _children(self, item: int) -> list[tuple[float, int]]:
        """Brokers for this item that promise something better, with the floor under what follows, lowest first."""
        best = [table[item + 1] for table in self._best_of]
        now: list[float] = [best[kind][held] for kind, held in zip(self._kind, self._held, strict=True)]
        total = self._paid + sum(now)
        if total == np.inf:  # some broker must have this item to keep its limits; two cannot both have it
            return self._only_child(item, now)
        limit, bit = self._best_cost - self._least_gain, 1 << item
        children, empty = [], set()
        for broker, kind in enumerate(self._kind):
            held = self._held[broker]
            if held == 0:
                if kind in empty:
                    continue
                empty.add(kind)
            floor = total - now[broker] + best[kind][held | bit]
            if floor < limit:
                children.append((floor, broker))
        children.sort()
        return children

    def _only_child(self, item: int, now: list[float]) -> list[tuple[float, int]]:
        broker = now.index(np.inf)
        others = sum(floor for index, floor in enumerate(now) if index != broker)
        kind, held = self._kind[broker], self._held[broker] | 1 << item
        floor = self._paid + others + self._best_of[kind][item + 1][held]
        return [(floor, broker)] if floor < np.inf else []


def _best_completions(table: FloatArray, items: int) -> list[memoryview]:
    """best[k] for k from 0 to the number of items; memoryviews index faster than arrays."""
    levels = [table]
    for item in reversed(range(items)):
        above = levels[-1]
        levels.append(np.minimum(above[: 1 << item], above[1 << item :]))
    return [level.data for level in reversed(levels)]


def _fair_prices(
    costs: list[FloatArray], kind: list[int], items: int, known: IntArray | None, known_cost: float
) -> FloatArray:
    """Prices at which the brokers' own choices cover each item about once: subgradient steps on the bound."""
    count = np.bincount(kind, minlength=len(costs))
    scale = max(float(np.where(np.isfinite(table), table, 0.0).max()) for table in costs)
    target = known_cost if np.isfinite(known_cost) else scale
    marginal = np.full(items, scale / items) if known is None else _marginal_costs(costs, kind, known)
    # An item's price moves in proportion to what it costs: dear items would otherwise crawl and cheap ones leap.
    pace = np.maximum(marginal, 1e-3 * max(float(marginal.max()), 1e-300)) ** 2
    prices = START_SHARE * marginal
    best, best_prices, step, failures = 0.0, np.zeros(items), 1.0, 0
    bits = np.arange(items)
    for _ in range(PRICE_STEPS):
        priced = sums(prices)
        bound, surplus = float(prices.sum()), np.ones(items)
        for table, brokers in zip(costs, count.tolist(), strict=True):
            net = table - priced
            mask = int(np.argmin(net))
            bound += brokers * float(net[mask])
            surplus -= brokers * ((mask >> bits) & 1)
        if bound > best + 1e-6 * abs(target):
            best, best_prices, failures = bound, prices, 0
        else:
            failures += 1
            if failures == PATIENCE:
                step, failures, prices = step * 0.6, 0, best_prices if best > 0 else prices
        slope = float(surplus @ (pace * surplus))
        if slope == 0 or step < 1e-2 or target - best <= 1e-9 * abs(target):
            break
        prices = prices + step * max(target - bound, 1e-3 * abs(target)) / slope * pace * surplus
    return best_prices


def _marginal_costs(costs: list[FloatArray], kind: list[int], places: IntArray) -> FloatArray:
    """What each item costs where it is, or would cost at the cheapest other broker, whichever is less."""
    masks = _masks(len(kind), places)
    marginal = np.zeros(len(places))
    for item, place in enumerate(places.tolist()):
        here = costs[kind[place]]
        changes = [here[masks[place]] - here[masks[place] ^ 1 << item]]
        for broker, mask in enumerate(masks):
            if broker != place:
                changes.append(costs[kind[broker]][mask | 1 << item] - costs[kind[broker]][mask])
        marginal[item] = max(min(float(change) for change in changes if np.isfinite(change)), 0.0)
    return marginal


def _masks(brokers: int, places: IntArray) -> list[int]:
    masks = np.zeros(brokers, dtype=np.int64)
    np.add.at(masks, places, 1 << np.arange(len(places)))
    found: list[int] = masks.tolist()
    return found


def _cost_of(costs: list[FloatArray], kind: list[int], places: IntArray) -> float:
    return float(sum(costs[k][mask] for k, mask in zip(kind, _masks(len(kind), places), strict=True)))


def _highest_risk(tables: SubsetTables, places: IntArray) -> float:
    masks = _masks(len(tables.kind), places)
    return max(float(tables.risk[k][mask]) for k, mask in zip(tables.kind, masks, strict=True))


def _branching_order(task: Placement) -> IntArray:
    order: IntArray = np.argsort(-(task.mean + np.sqrt(task.variance)), kind="stable").astype(np.int64)
    return order


def _restored(places: IntArray, order: IntArray) -> IntArray:
    back = np.empty_like(places)
    back[order] = places
    return back


def _in_order(proof: Proof, order: IntArray) -> Proof:
    places = None if proof.places is None else _restored(proof.places, order)
    return Proof(places, proof.cost, proof.floor, proof.complete)
