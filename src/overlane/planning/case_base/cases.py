"""The cases of a case base: which brokers are missing, and under which load.

The plan of the normal state comes first. Every other case depends only on that plan, so cases can be solved in any
order, on any machine. There is a case for every single and every double failure that leaves a broker; and, for a low
load given as a share of the normal one, a case for each number of brokers switched off, the least loaded first, because
those have the least to hand over, as long as two are left to mirror each other.
"""

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from overlane.planning.allocation.model import IntArray, Problem
from overlane.planning.allocation.solve import Spent, untimed
from overlane.planning.mirrors.solve import allocate_and_mirror, mirror_items
from overlane.planning.problem import BadProblem


@dataclass(frozen=True, slots=True)
class Case:
    """Brokers that have failed, or that are switched off under a low load."""

    failed: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    load: float = 1.0  # share of the normal load

    @property
    def missing(self) -> frozenset[str]:
        return frozenset(self.failed) | frozenset(self.off)


@dataclass(frozen=True, eq=False)
class NormalPlan:
    """The problem and its plan for the normal state, by broker positions: all that a case needs to know."""

    problem: Problem
    primary: IntArray
    mirror: IntArray


def normal_plan(problem: Problem, primary: dict[str, str] | None, spent: Spent = untimed, seed: int = 0) -> NormalPlan:
    """Primaries, unless given, and their mirrors; or NoSolution."""
    if primary is None:
        found = allocate_and_mirror(problem, spent, seed)
    else:
        found = mirror_items(problem, primary, lambda: spent() >= 1)
    return NormalPlan(problem, problem.places(found.primary, "primary"), problem.places(found.mirror, "mirror"))


def failure_cases(plan: NormalPlan) -> list[Case]:
    """The normal state, every single failure, and every double failure that leaves a broker."""
    names = [broker.name for broker in plan.problem.brokers]
    sizes = [size for size in (0, 1, 2) if size < len(names)]
    return [Case(failed=failed) for size in sizes for failed in combinations(names, size)]


def low_load_cases(plan: NormalPlan, load: float) -> list[Case]:
    """All brokers under the low load, then one more switched off in each case."""
    if not 0 < load <= 1:
        raise BadProblem("low_load", str(load), "above 0 and at most 1")
    problem = plan.problem
    mean = np.bincount(plan.primary, weights=problem.mean, minlength=len(problem.brokers))
    least_first = [problem.brokers[position].name for position in np.argsort(mean, kind="stable").tolist()]
    return [Case(off=tuple(least_first[:count]), load=load) for count in range(1, len(least_first) - 1)]


def under_load(problem: Problem, load: float) -> Problem:
    """All rates multiplied: means by the factor, covariances by its square; rewards and penalties given stay."""
    if load == 1.0:
        return problem
    items = tuple(replace(item, mean=item.mean * load) for item in problem.items)
    return Problem(items, problem.covariance * load**2, problem.brokers, problem.risk_max)
