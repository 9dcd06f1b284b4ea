"""One case of the case base: where items run and are mirrored if brokers are missing, with few items moved.

The home of an item is its primary, or its mirror if the primary is missing: clients already have sessions there. Any
other broker is a move. The policy of a case is computed in three steps:

1. Items stay at home, and so do the copies of critical items, on their mirrors; items that have lost both brokers, and
   copies that have lost theirs, are placed where the loss is minimal.
2. If a limit is exceeded, items and copies may move: a search in which every move costs more than any loss and less
   than any exceeded limit restores the limits with few moves.
3. Other mirrors that are still valid are kept; the rest are chosen again for the next failure.

A case that no moves can bring within the limits is overloaded, and its policy says so: starting from home, it makes the
moves that reduce the loss.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from overlane.planning.allocation.greedy import spread
from overlane.planning.allocation.model import IntArray, Problem
from overlane.planning.allocation.placement import Placement
from overlane.planning.allocation.search import Search
from overlane.planning.case_base.cases import Case, NormalPlan, under_load
from overlane.planning.mirrors.copies import with_copies
from overlane.planning.mirrors.solve import Effort, best_mirrors
from overlane.planning.mirrors.states import NOWHERE, FailureStates

CaseStatus: TypeAlias = Literal["kept", "overloaded"]
SHAKES = 20
COPY_TOLL = 0.5  # of moving a copy, compared with an item: publishers go on at the primary meanwhile
BESIDE_TWIN = 10.0  # stakes: no loss is worth it
EFFORT = Effort(exact_items=0, shakes=0)  # a few mirrors at a time: more finds nothing better


@dataclass(frozen=True, slots=True)
class CasePolicy:
    """What to do in one case; `promoted` items run on their mirror of the normal plan, `moved` ones elsewhere."""

    failed: list[str]
    off: list[str]
    status: CaseStatus
    primary: dict[str, str]
    mirror: dict[str, str]  # empty when one broker is left
    promoted: list[str]
    moved: list[str]
    utility: float
    risk: dict[str, float]
    next_loss: float | None  # utility lost by the worst failure that could follow


def solve_case(plan: NormalPlan, case: Case) -> CasePolicy:
    """The policy of one case; it needs nothing but the normal plan, and is the same wherever it runs."""
    problem = under_load(plan.problem, case.load)
    alive = np.array([i for i, broker in enumerate(problem.brokers) if broker.name not in case.missing], dtype=np.int64)
    home = _home(plan, alive)
    critical = np.flatnonzero(problem.critical) if len(alive) > 1 else np.zeros(0, dtype=np.int64)
    task = with_copies(_over(problem, alive), critical)
    copies = plan.mirror[critical]
    copies = np.where(np.isin(copies, alive) & (copies != home[critical]), copies, NOWHERE)
    position = {broker: index for index, broker in enumerate(alive.tolist())}
    at_home = np.array([position.get(place, NOWHERE) for place in [*home.tolist(), *copies.tolist()]], dtype=np.int64)
    places = alive[_few_moves(task, at_home, len(home))]
    primary, copies = places[: len(home)], places[len(home) :]
    states = _mirrored(problem, plan, primary, alive, dict(zip(critical.tolist(), copies.tolist(), strict=True)))
    return _told(plan, case, states, home)


def solve_state(plan: NormalPlan, failed: frozenset[str]) -> CasePolicy:
    """The policy after these brokers have failed."""
    return solve_case(plan, Case(failed=tuple(sorted(failed))))


def switchable(policies: list[CasePolicy]) -> list[CasePolicy]:
    """Low-load policies, fewest brokers off first, up to the first that breaks a limit."""
    kept: list[CasePolicy] = []
    for policy in sorted(policies, key=lambda policy: len(policy.off)):
        if policy.status != "kept":
            break
        kept.append(policy)
    return kept


def _home(plan: NormalPlan, alive: IntArray) -> IntArray:
    is_alive = np.zeros(len(plan.problem.brokers), dtype=np.bool_)
    is_alive[alive] = True
    on_mirror = np.where(is_alive[plan.mirror], plan.mirror, NOWHERE)
    return np.where(is_alive[plan.primary], plan.primary, on_mirror)


def _over(problem: Problem, alive: IntArray) -> Placement:
    """All items on the brokers that are left."""
    return Placement.of(problem).part(np.arange(len(problem.items)), alive)


def _few_moves(task: Placement, home: IntArray, items: int) -> IntArray:
    """Places that keep the limits, if they can be kept, with few away from home. After `items` come the copies."""
    places = home.copy()
    homeless = np.flatnonzero(home == NOWHERE)
    if len(homeless) > 0:
        search = Search(*_homeless_only(task, home, homeless))
        search.descend()
        places[homeless] = search.places
    if task.keeps_limits(places):
        return places
    toll = np.full((task.item_count, task.broker_count), task.stake)
    toll[items:] *= COPY_TOLL
    toll[homeless] = 0.0
    settled = np.flatnonzero(home != NOWHERE)
    toll[settled, home[settled]] = 0.0
    moving = Search(replace(task, toll=toll), places)
    moving.descend()
    moving.shake(SHAKES, 0)
    if task.keeps_limits(moving.places):
        return moving.places
    anything = Search(task.limited(np.inf), places)
    anything.descend()
    return anything.places


def _homeless_only(task: Placement, home: IntArray, homeless: IntArray) -> tuple[Placement, IntArray]:
    """The placement of the homeless items, with all others as its ground; and a start."""
    settled = np.flatnonzero(home != NOWHERE)
    every = np.arange(task.broker_count)
    ground = task.part(settled, every).load(home[settled])
    shared = np.zeros((task.broker_count, len(homeless)))
    np.add.at(shared, home[settled], task.covariance[np.ix_(settled, homeless)])
    toll = np.zeros((len(homeless), task.broker_count))
    beside = task.twin_places(home)[homeless]
    apart = np.flatnonzero(beside != NOWHERE)
    toll[apart, beside[apart]] = BESIDE_TWIN * task.stake
    free = replace(task.part(homeless, every), ground=replace(ground, shared=shared), toll=toll)
    return free, spread(free)


def _mirrored(
    problem: Problem, plan: NormalPlan, primary: IntArray, alive: IntArray, copies: dict[int, int]
) -> FailureStates:
    """`copies`: where those of critical items are."""
    if len(alive) < 2:
        return FailureStates(problem, primary, alive)
    good = np.isin(plan.mirror, alive) & (plan.mirror != primary)
    kept = np.where(good, plan.mirror, NOWHERE)
    kept[list(copies)] = list(copies.values())
    states, _ = best_mirrors(problem, primary, alive, kept, EFFORT)
    return states


def _told(plan: NormalPlan, case: Case, states: FailureStates, home: IntArray) -> CasePolicy:
    problem, primary, alive = states.problem, states.primary, states.alive
    names = [item.name for item in problem.items]
    promoted = (primary == home) & (home != plan.primary)
    losses = states.losses()
    risk = states.risk(states.normal)
    return CasePolicy(
        list(case.failed),
        list(case.off),
        "kept" if states.keeps_limits() else "overloaded",
        problem.named(primary),
        problem.named(states.mirror) if len(alive) > 1 else {},
        [names[item] for item in np.flatnonzero(promoted)],
        [names[item] for item in np.flatnonzero(primary != home)],
        float(problem.reward.sum()) - states.primary_loss - float(losses[states.normal]),
        {problem.brokers[broker].name: float(risk[broker]) for broker in alive.tolist()},
        float(losses[alive].max()) if len(alive) > 1 else None,
    )
