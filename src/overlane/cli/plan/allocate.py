"""`overlane plan allocate`: assign items to primary brokers."""

from typing import Literal

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from overlane.cli.plan.command import AsJson, ProblemFile, run_solver
from overlane.cli.plan.workload import AllocateProblem, checked, held_by, names, show_nearest, stopwatch
from overlane.planning.allocation import Allocation, AllocationOutcome
from overlane.planning.allocation import allocate as best_allocation
from overlane.planning.problem import NoSolution


class OutcomeAnswer(msgspec.Struct):
    primary: dict[str, str]
    utility: float
    risk: dict[str, float]


class AllocateAnswer(msgspec.Struct):
    status: Literal["optimal", "feasible"]
    primary: dict[str, str]
    utility: float
    risk: dict[str, float]
    bound: float
    gap: float
    round_robin: OutcomeAnswer
    gain: dict[str, float | None]
    best_fit: OutcomeAnswer


def allocate(problem: ProblemFile, as_json: AsJson = False) -> None:
    """Assign items to brokers with the least expected cost of overload, and compare with round robin."""

    def solve(given: AllocateProblem) -> AllocateAnswer:
        spent = stopwatch(given.time_limit_s)
        try:
            return _answer(best_allocation(checked(given), spent))
        except NoSolution as refused:
            if not as_json:
                show_nearest(refused, Console(stderr=True))
            raise

    run_solver(problem, AllocateProblem, solve, _show, as_json)


def _answer(found: Allocation) -> AllocateAnswer:
    return AllocateAnswer(
        found.status,
        found.primary,
        found.utility,
        found.risk,
        found.bound,
        found.gap,
        _outcome(found.round_robin),
        found.gain,
        _outcome(found.best_fit),
    )


def _outcome(outcome: AllocationOutcome) -> OutcomeAnswer:
    return OutcomeAnswer(outcome.primary, outcome.utility, outcome.risk)


def _show(given: AllocateProblem, found: AllocateAnswer, console: Console) -> None:
    table = Table("broker", "capacity", "mean", "items", "risk", "round robin", "gain", title="Allocation")
    mean = {item.name: item.mean for item in given.items}
    for broker in given.brokers:
        held = held_by(found.primary, broker.name)
        gain = found.gain[broker.name]
        table.add_row(
            escape(broker.name),
            f"{broker.capacity:g}",
            f"{sum(mean[item] for item in held):g}",
            names(held),
            f"{found.risk[broker.name]:.3g}",
            f"{found.round_robin.risk[broker.name]:.3g}",
            "-" if gain is None else f"{gain:.3g}",
        )
    console.print(table)
    known = "proven to be the best" if found.status == "optimal" else f"at most {found.bound:.10g} is possible"
    console.print(f"utility {found.utility:.10g}, {known} (gap {found.gap:.2g})")
    console.print(f"round robin {found.round_robin.utility:.10g}, best fit {found.best_fit.utility:.10g}")
