"""Allocate: the best placement of all items, a bound of its quality, and a comparison with baselines.

A few items are solved by branch and bound, with proof. For many, the search descends from several starts and perturbs
the best, and a lower bound of the loss limits the distance from the optimum. The starts include round robin and best
fit, and no step makes an allocation worse, so the answer is never worse than either if those are within the limits.

The caller provides the time, as the share of the time limit that is used. Without a limit the answer depends on the
problem and the seed alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from overlane.planning.allocation.bound import loss_floor
from overlane.planning.allocation.exact import least_maximum_risk, solve_exactly
from overlane.planning.allocation.greedy import best_fit, pooled, spread
from overlane.planning.allocation.model import FloatArray, IntArray, Problem
from overlane.planning.allocation.placement import Placement
from overlane.planning.allocation.round_robin import round_robin
from overlane.planning.allocation.search import Search, Stop, never
from overlane.planning.allocation.subsets import fits_tables
from overlane.planning.problem import NoSolution

Spent: TypeAlias = Callable[[], float]
Status: TypeAlias = Literal["optimal", "feasible"]

SHAKES = 200
FEW_SHAKES = 15  # before branch and bound, which wants a good start but finds the rest itself
ITEMS_UNSHAKEN_MAX = 10  # so few that branch and bound is quicker than shaking
# Shares of the time limit after which the search and the climbing of prices end.
SEARCH_SHARE = 0.35
CLIMB_SHARE = 0.85
# A gap below this is rounding: the answer is optimal.
NO_GAP = 1e-12
TIGHTENINGS = 12


@dataclass(frozen=True, slots=True)
class AllocationOutcome:
    """Where items are, and what comes of it."""

    primary: dict[str, str]
    utility: float
    risk: dict[str, float]


@dataclass(frozen=True, slots=True)
class Allocation:
    """An allocation that keeps every limit; no allocation has a utility above `bound`."""

    status: Status
    primary: dict[str, str]
    utility: float
    risk: dict[str, float]
    bound: float
    gap: float  # (bound - utility) / the larger of the two, without sign
    round_robin: AllocationOutcome
    gain: dict[str, float | None]  # (round robin's risk - risk) / round robin's risk
    best_fit: AllocationOutcome


def untimed() -> float:
    return 0.0


def allocate(problem: Problem, spent: Spent = untimed, seed: int = 0) -> Allocation:
    """The best allocation found, or NoSolution with the nearest one."""
    task = Placement.of(problem)
    if fits_tables(task):
        places, floor = _few_items(problem, task, spent, seed)
    else:
        places, floor = _many_items(problem, task, spent, seed)
    reward, loss = float(problem.reward.sum()), task.loss(places)
    utility, bound = reward - loss, reward - min(floor, loss)
    gap = 0.0 if bound == utility else (bound - utility) / max(abs(bound), abs(utility))
    risk, turn = task.risk(places), round_robin(task)
    return Allocation(
        "optimal" if gap <= NO_GAP else "feasible",
        problem.named(places),
        utility,
        problem.by_broker(risk),
        bound,
        gap,
        outcome(problem, task, turn),
        _gain(problem, risk, task.risk(turn)),
        outcome(problem, task, best_fit(task)),
    )


def best_places(problem: Problem, spent: Spent = untimed, seed: int = 0) -> IntArray:
    """The places of the best allocation, without a bound for many items; or NoSolution with the nearest one."""
    task = Placement.of(problem)
    if fits_tables(task):
        return _few_items(problem, task, spent, seed)[0]
    return _found_places(problem, task, spent, seed)


def outcome(problem: Problem, task: Placement, places: IntArray) -> AllocationOutcome:
    utility = float(problem.reward.sum()) - task.loss(places)
    return AllocationOutcome(problem.named(places), utility, problem.by_broker(task.risk(places)))


def well_placed(task: Placement, seed: int = 0, shakes: int = SHAKES, stop: Stop = never) -> IntArray:
    """The cheapest places a search finds, from the better of several starts; they may break limits if it must."""
    starts = sorted((start(task) for start in (pooled, spread, best_fit, round_robin)), key=task.cost)
    searches = [Search(task, start) for start in starts[:2]]
    for search in searches:  # one pass shows which start leads further down
        search.descend(stop=stop, passes=1)
    best = min(searches, key=lambda search: search.total)
    best.descend(stop=stop)
    best.shake(shakes, seed, stop)
    return min((best.places, starts[0]), key=task.cost)


def _few_items(problem: Problem, task: Placement, spent: Spent, seed: int) -> tuple[IntArray, float]:
    shakes = FEW_SHAKES if task.item_count > ITEMS_UNSHAKEN_MAX else 0
    start = well_placed(task, seed, shakes, lambda: spent() >= SEARCH_SHARE)
    proof = solve_exactly(task, start, lambda: spent() >= 1)
    if proof.places is None:
        raise _nothing(problem, task, start, lambda: spent() >= 1)
    return proof.places, task.loss(proof.places) if proof.complete else proof.floor


def _many_items(problem: Problem, task: Placement, spent: Spent, seed: int) -> tuple[IntArray, float]:
    places = _found_places(problem, task, spent, seed)
    return places, loss_floor(task, places, lambda: spent() >= CLIMB_SHARE, lambda: spent() >= 1)


def _found_places(problem: Problem, task: Placement, spent: Spent, seed: int) -> IntArray:
    places = well_placed(task, seed, SHAKES, lambda: spent() >= SEARCH_SHARE)
    if not task.keeps_limits(places):
        raise _nothing(problem, task, places, lambda: spent() >= 1)
    return places


def _gain(problem: Problem, risk: FloatArray, turn: FloatArray) -> dict[str, float | None]:
    """The paper's equation 5; undefined where only the round robin is without risk."""
    gain: dict[str, float | None] = {}
    for broker, ours, theirs in zip(problem.brokers, risk.tolist(), turn.tolist(), strict=True):
        gain[broker.name] = (theirs - ours) / theirs if theirs > 0 else (0.0 if ours == 0 else None)
    return gain


def _nothing(problem: Problem, task: Placement, places: IntArray, stop: Stop) -> NoSolution:
    """What is missing, and the allocation that comes nearest."""
    nearest = _least_risk(task, places, stop)
    if nearest is None:
        return _topics_missing(problem, places, stop)
    places, proven = nearest
    highest = float(task.risk(places).max())
    how = "the least that every broker can be kept to is" if proven else "the least found for every broker is"
    missing = f"no allocation has every risk below {problem.risk_max:g}; {how} {highest:.4g}"
    return NoSolution(missing, _told(problem, task, places) | {"proven": proven})


def _topics_missing(problem: Problem, places: IntArray, stop: Stop) -> NoSolution:
    roomy = Placement.of(
        Problem(
            problem.items,
            problem.covariance,
            tuple(type(broker)(broker.name, broker.capacity) for broker in problem.brokers),
            problem.risk_max,
        )
    )
    nearest = _least_risk(roomy, places, stop)
    places = places if nearest is None else nearest[0]
    wanted, room = problem.topics.sum(), problem.topics_max.sum()
    missing = f"the topics do not fit: {wanted:g} topics in {len(problem.items)} items, brokers allow {room:g} in all"
    if room >= wanted:
        missing += ", but not in these bundles"
    held = roomy.load(places).topics
    return NoSolution(missing, _told(problem, roomy, places) | {"topics": problem.by_broker(held)})


def _told(problem: Problem, task: Placement, places: IntArray) -> dict[str, object]:
    found = outcome(problem, task, places)
    highest = max(found.risk.values())
    return {"primary": found.primary, "utility": found.utility, "risk": found.risk, "highest_risk": highest}


def _least_risk(task: Placement, places: IntArray, stop: Stop) -> tuple[IntArray, bool] | None:
    """Places whose highest risk is least, and whether that is proven; None when topics cannot be made to fit."""
    if fits_tables(task):
        return least_maximum_risk(task, places, stop)
    if (task.load(places).topics > task.topics_max).any():
        return None
    return tightened(task, places, stop), False


def tightened(task: Placement, places: IntArray, stop: Stop, shakes: int = 0) -> IntArray:
    """Places with a lower maximum risk, as long as a search finds them; topics must fit."""
    for _ in range(TIGHTENINGS):
        highest = float(task.risk(places).max())
        search = Search(task.limited(highest * 0.9), places)
        search.descend(stop=stop)
        search.shake(shakes, 0, stop)
        found = search.places
        is_worse = float(task.risk(found).max()) >= highest or task.pairs_together(found) > 0
        if stop() or is_worse or (task.load(found).topics > task.topics_max).any():
            break
        places = found
    return places
