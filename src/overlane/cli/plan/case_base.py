"""`overlane plan casebase`: precompute policies for all broker states, on all cores."""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Literal

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from overlane.cli.plan.command import AsJson, ProblemFile, run_solver
from overlane.cli.plan.workload import CasebaseProblem, checked, stopwatch
from overlane.planning.case_base import (
    Case,
    CasePolicy,
    NormalPlan,
    failure_cases,
    low_load_cases,
    normal_plan,
    solve_case,
    switchable,
)

# Below this many cases, starting processes takes longer than solving.
CASES_FOR_POOL = 24
SHOWN_MAX = 20


class PolicyAnswer(msgspec.Struct):
    failed: list[str]
    off: list[str]
    status: Literal["kept", "overloaded"]
    primary: dict[str, str]
    mirror: dict[str, str]
    promoted: list[str]
    moved: list[str]
    utility: float
    risk: dict[str, float]
    next_loss: float | None


class CasebaseAnswer(msgspec.Struct):
    states: list[PolicyAnswer]
    overloaded: int
    moved: int
    off_max: int | None


def casebase(problem: ProblemFile, as_json: AsJson = False) -> None:
    """Compute policies for the normal state, all single and double failures, and brokers switched off at low load."""
    run_solver(problem, CasebaseProblem, _solve, _show, as_json)


def _solve(given: CasebaseProblem) -> CasebaseAnswer:
    plan = normal_plan(checked(given), given.primary, stopwatch(given.time_limit_s))
    failures = failure_cases(plan)
    quiet = [] if given.low_load is None else low_load_cases(plan, given.low_load)
    policies = list(_solved(plan, failures + quiet))
    off = switchable(policies[len(failures) :])
    states = policies[: len(failures)] + off
    return CasebaseAnswer(
        [_answer(policy) for policy in states],
        sum(policy.status == "overloaded" for policy in states),
        sum(len(policy.moved) for policy in states),
        None if given.low_load is None else len(off),
    )


def _solved(plan: NormalPlan, cases: list[Case]) -> Iterator[CasePolicy]:
    """The policies in the order of the cases, with a progress bar on standard error."""
    cores = os.cpu_count() or 1
    console = Console(stderr=True)
    shown = {"description": "Policies", "total": len(cases), "console": console, "transient": True}
    if cores == 1 or len(cases) < CASES_FOR_POOL:
        yield from track((solve_case(plan, case) for case in cases), **shown)  # type: ignore[arg-type]
        return
    with ProcessPoolExecutor(cores, initializer=_remember, initargs=(plan,)) as pool:
        yield from track(pool.map(_solve_remembered, cases, chunksize=4), **shown)  # type: ignore[arg-type]


_plan: NormalPlan | None = None


def _remember(plan: NormalPlan) -> None:
    """Once for each process, so that the covariance does not travel with every case."""
    global _plan  # noqa: PLW0603
    _plan = plan


def _solve_remembered(case: Case) -> CasePolicy:
    if _plan is None:
        raise RuntimeError("a worker was given a case before the plan")
    return solve_case(_plan, case)


def _answer(policy: CasePolicy) -> PolicyAnswer:
    return PolicyAnswer(
        policy.failed,
        policy.off,
        policy.status,
        policy.primary,
        policy.mirror,
        policy.promoted,
        policy.moved,
        policy.utility,
        policy.risk,
        policy.next_loss,
    )


def _show(given: CasebaseProblem, found: CasebaseAnswer, console: Console) -> None:
    table = Table(
        "state", "status", "on mirrors", "moved", "utility", "highest risk", title="Case base: tightest states"
    )
    tightest = sorted(found.states, key=lambda state: -max(state.risk.values()))
    for state in tightest[:SHOWN_MAX]:
        what = f"off: {', '.join(state.off)}" if state.off else ", ".join(state.failed) or "normal"
        risk = f"{max(state.risk.values()):.3g}"
        row = (
            escape(what),
            state.status,
            str(len(state.promoted)),
            str(len(state.moved)),
            f"{state.utility:.8g}",
            risk,
        )
        table.add_row(*row)
    console.print(table)
    console.print(
        f"{len(found.states)} states, {found.overloaded} with a risk at or above {given.risk_max:g}; "
        f"{found.moved} items moved in all"
    )
    if found.off_max is not None:
        console.print(f"at {given.low_load:g} of the load, {found.off_max} brokers can be switched off")
