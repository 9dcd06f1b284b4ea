"""Mirrors: a second broker for every item, such that the failure of any one broker costs least.

The cost of a choice of mirrors is, in this order: the loss of the worst single failure, then that of all failures
together. Ordinary items of one broker run on their mirrors only if that broker fails, so each failure is a separate
placement: its items, on the other brokers with their load. Minimising the loss of each minimises the worst and the
total at once. Few items are placed with proof, many by search.

Critical items connect the failures, since they always load their mirrors. If there are few ways to place them, all are
tried, each with the best mirrors of the others; otherwise they are placed one by one, largest first, where the cost is
minimal, and then alternately: critical ones given the others, the others given them, until the cost no longer falls.

Limits apply as in allocation: topics in every state, risk in the normal one, including copies of critical items. The
risk after a failure is minimised through the loss; it is reported, not limited.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from overlane.planning.allocation.exact import solve_exactly
from overlane.planning.allocation.greedy import spread
from overlane.planning.allocation.model import IntArray, Problem
from overlane.planning.allocation.placement import Placement
from overlane.planning.allocation.search import Search, Stop, never
from overlane.planning.allocation.solve import Spent, Status, best_places, untimed
from overlane.planning.allocation.subsets import fits_tables
from overlane.planning.mirrors.copies import place_with_copies
from overlane.planning.mirrors.states import NOWHERE, FailureStates
from overlane.planning.problem import NoSolution

EXACT_ITEMS_MAX = 12
NODES_MAX = 20_000  # of branch and bound, for one failure
WAYS_MAX = 100  # of placing critical items, to try all
TURNS = 4
SHAKES = 10


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to try: branch and bound up to so many items, and so many shakes beyond."""

    exact_items: int = EXACT_ITEMS_MAX
    shakes: int = SHAKES


@dataclass(frozen=True, slots=True)
class Mirroring:
    """Mirrors for every item, and what becomes of every broker in every single failure."""

    status: Status
    primary: dict[str, str]
    mirror: dict[str, str]
    utility: float  # of the normal state, critical copies counted in
    worst_loss: float
    total_loss: float
    loss: dict[str, float]  # {failed broker: utility lost}
    risk: dict[str, dict[str, float]]  # {failed broker: {broker: Pr}}
    risk_normal: dict[str, float]
    spread: dict[str, dict[str, int]]  # {broker: {broker: how many of its items are mirrored there}}


def allocate_and_mirror(problem: Problem, spent: Spent = untimed, seed: int = 0) -> Mirroring:
    """The best allocation and its mirrors; if critical copies do not fit beside it, one that is made with them."""
    places = best_places(problem, spent, seed)
    try:
        return mirror_items(problem, problem.named(places), lambda: spent() >= 1)
    except NoSolution:
        if not problem.critical.any():
            raise
    return _told_or_nearest(mirrored_with_copies(problem, spent, seed), "feasible")


def mirrored_with_copies(problem: Problem, spent: Spent = untimed, seed: int = 0) -> FailureStates:
    """Primaries and mirrors with the least loss of the normal state, copies of critical items included; if its limits
    cannot be kept, with the lowest maximum risk that was found."""
    primary, kept, _ = place_with_copies(problem, spent, seed)
    alive = np.arange(len(problem.brokers))
    return best_mirrors(problem, primary, alive, kept, Effort(), lambda: spent() >= 1)[0]


def nearest_mirroring(problem: Problem, spent: Spent = untimed, seed: int = 0) -> Mirroring:
    """As `mirrored_with_copies`, whether it keeps the limits or not."""
    return _told(mirrored_with_copies(problem, spent, seed), "feasible")


def mirror_items(problem: Problem, primary: Mapping[str, str], stop: Stop = never) -> Mirroring:
    """The best mirrors for these primaries, or NoSolution with the nearest ones."""
    places = problem.places(dict(primary), "primary")
    if len(problem.brokers) < 2:
        raise NoSolution("a mirror needs a second broker", {"brokers": [broker.name for broker in problem.brokers]})
    alive = np.arange(len(problem.brokers))
    states, proven = best_mirrors(problem, places, alive, np.full(len(places), NOWHERE), Effort(), stop)
    return _told_or_nearest(states, "optimal" if proven else "feasible")


def _told_or_nearest(states: FailureStates, status: Status) -> Mirroring:
    found = _told(states, status)
    if states.strain() > 0:
        nearest = {"primary": found.primary, "mirror": found.mirror, "risk": found.risk_normal}
        raise NoSolution(_missing(states), dict(nearest))
    return found


def best_mirrors(
    problem: Problem, primary: IntArray, alive: IntArray, kept: IntArray, effort: Effort, stop: Stop = never
) -> tuple[FailureStates, bool]:
    """Mirrors for all items that `kept` leaves NOWHERE, and whether they are proven best given those kept."""
    start = FailureStates(problem, primary, alive)
    for item in np.flatnonzero(kept != NOWHERE).tolist():
        start.put(item, int(kept[item]))
    free = [item for item in np.flatnonzero(kept == NOWHERE).tolist() if start.critical[item]]
    ways = (len(alive) - 1) ** len(free) if len(free) < 20 else WAYS_MAX + 1
    if ways <= WAYS_MAX and effort.exact_items > 0:
        return _try_all(start, free, effort, stop)
    return _in_turns(start, free, effort, stop), False


def _try_all(start: FailureStates, free: list[int], effort: Effort, stop: Stop) -> tuple[FailureStates, bool]:
    """Every way to place the free critical items, each with the best mirrors for the others."""
    best: FailureStates | None = None
    proven = True
    choices = [start.alive[start.alive != start.primary[item]].tolist() for item in free]
    for way in product(*choices):
        states = _copy(start)
        for item, place in zip(free, way, strict=True):
            states.put(item, place)
        proven = _place_ordinary(states, effort, stop) and proven
        if best is None or states.price() < best.price():
            best = states
    if best is None:
        raise AssertionError("there is always a way to place no items at all")
    return best, proven


def _in_turns(start: FailureStates, free: list[int], effort: Effort, stop: Stop) -> FailureStates:
    size = start.task.mean + np.sqrt(start.task.variance)
    largest_first = sorted(free, key=lambda item: (-size[item], item))
    for item in largest_first:
        _put_best(start, item)
    ordinary = [item for item in np.flatnonzero(start.mirror == NOWHERE).tolist() if not start.critical[item]]
    best = _copy(start)
    _place_ordinary(best, effort, stop)
    for _ in range(TURNS if free else 0):
        states = _copy(best)
        for item in largest_first:
            states.take(item)
            _put_best(states, item)
        for item in ordinary:
            states.take(item)
        _place_ordinary(states, effort, stop)
        if stop() or not states.price() < best.price():
            break
        best = states
    return best


def _put_best(states: FailureStates, item: int) -> None:
    """The place of least price for one critical item; of equals, the broker with the most room."""

    def price(place: int) -> tuple[float, float, float, float]:
        states.put(item, place)
        filled = float(states.mean[states.normal, place] / states.capacity[place])
        strain, worst, total = states.price()
        states.take(item)
        return strain, worst, total, filled

    states.put(item, min((b for b in states.alive.tolist() if b != states.primary[item]), key=price))


def _place_ordinary(states: FailureStates, effort: Effort, stop: Stop) -> bool:
    """Mirrors for the ordinary items without one, failure by failure; whether all are proven best."""
    proven = True
    for failed, items in _failures_with_free_items(states):
        task, brokers = states.placement(failed, items)
        places, complete = _placed(task, effort, stop)
        proven = proven and complete
        for item, place in zip(items.tolist(), brokers[places].tolist(), strict=True):
            states.put(item, place)
    return proven


def _failures_with_free_items(states: FailureStates) -> Iterator[tuple[int, IntArray]]:
    for failed in states.alive.tolist():
        items = states.free_items(failed)
        if len(items) > 0:
            yield failed, items


def _placed(task: Placement, effort: Effort, stop: Stop) -> tuple[IntArray, bool]:
    search = Search(task, spread(task))
    search.descend(stop=stop)
    if task.item_count <= effort.exact_items and fits_tables(task):
        proof = solve_exactly(task, search.places, stop, NODES_MAX)
        if proof.places is not None:
            return proof.places, proof.complete
        return search.places, False
    search.shake(effort.shakes, 0, stop)
    return search.places, False


def _copy(states: FailureStates) -> FailureStates:
    twin = FailureStates.__new__(FailureStates)
    for name, value in vars(states).items():
        changes = name in {"mirror", "shared", "mean", "variance", "penalty", "topics"}
        setattr(twin, name, value.copy() if changes else value)
    return twin


def _told(states: FailureStates, status: Status) -> Mirroring:
    problem, losses = states.problem, states.losses()
    names = [broker.name for broker in problem.brokers]
    reward = float(problem.reward.sum())
    counts: dict[str, dict[str, int]] = {name: {} for name in names}
    for home, place in zip(states.primary.tolist(), states.mirror.tolist(), strict=True):
        counts[names[home]][names[place]] = counts[names[home]].get(names[place], 0) + 1
    single = losses[states.alive]
    return Mirroring(
        status,
        problem.named(states.primary),
        problem.named(states.mirror),
        reward - states.primary_loss - float(losses[states.normal]),
        float(single.max()),
        float(single.sum()),
        {names[failed]: float(losses[failed]) for failed in states.alive.tolist()},
        {names[failed]: surviving_risk(states, failed) for failed in states.alive.tolist()},
        {names[broker]: float(states.risk(states.normal)[broker]) for broker in states.alive.tolist()},
        {name: dict(sorted(counts[name].items())) for name in names},
    )


def surviving_risk(states: FailureStates, failed: int) -> dict[str, float]:
    """{broker: Pr} of all brokers alive after a failure."""
    risk = states.risk(failed)
    names = [broker.name for broker in states.problem.brokers]
    return {names[broker]: float(risk[broker]) for broker in states.alive.tolist() if broker != failed}


def _missing(states: FailureStates) -> str:
    problem, names = states.problem, [broker.name for broker in states.problem.brokers]
    rows = np.append(states.alive, states.normal)
    crowded = np.argwhere(states.topics[rows] > states.task.topics_max)
    if len(crowded) > 0:
        row, broker = int(rows[crowded[0][0]]), int(crowded[0][1])
        when = "in the normal state" if row == states.normal else f"when {names[row]} fails"
        held, allowed = states.topics[row, broker], states.task.topics_max[broker]
        return f"topics have no room {when}: {names[broker]} would hold {held:g}, it may hold {allowed:g}"
    risk = states.risk(states.normal)
    broker = int(np.argmax(risk))
    copies = " with the copies of critical items" if states.critical.any() else ""
    return f"the risk of {names[broker]}{copies} is {risk[broker]:.4g}, it must be below {problem.risk_max:g}"
