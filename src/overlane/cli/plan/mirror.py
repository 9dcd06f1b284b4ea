"""`overlane plan mirror`: assign a mirror broker to each item."""

from typing import Literal

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from overlane.cli.plan.command import AsJson, ProblemFile, run_solver
from overlane.cli.plan.workload import MirrorProblem, checked, stopwatch
from overlane.planning.mirrors import allocate_and_mirror, mirror_items


class MirrorAnswer(msgspec.Struct):
    status: Literal["optimal", "feasible"]
    primary: dict[str, str]
    mirror: dict[str, str]
    utility: float
    worst_loss: float
    total_loss: float
    loss: dict[str, float]
    risk: dict[str, dict[str, float]]
    risk_normal: dict[str, float]
    spread: dict[str, dict[str, int]]


def mirror(problem: ProblemFile, as_json: AsJson = False) -> None:
    """Assign each item a mirror on another broker, so that any single failure costs least."""
    run_solver(problem, MirrorProblem, _solve, _show, as_json)


def _solve(given: MirrorProblem) -> MirrorAnswer:
    problem, spent = checked(given), stopwatch(given.time_limit_s)
    if given.primary is None:
        found = allocate_and_mirror(problem, spent)
    else:
        found = mirror_items(problem, given.primary, lambda: spent() >= 1)
    return MirrorAnswer(
        found.status,
        found.primary,
        found.mirror,
        found.utility,
        found.worst_loss,
        found.total_loss,
        found.loss,
        found.risk,
        found.risk_normal,
        found.spread,
    )


def _show(given: MirrorProblem, found: MirrorAnswer, console: Console) -> None:
    table = Table("when it fails", "utility lost", "highest risk", "on", "its items run on", title="Mirrors")
    for broker in given.brokers:
        risk = found.risk[broker.name]
        most = max(risk, key=lambda name: risk[name])
        spread = ", ".join(f"{place} {count}" for place, count in found.spread[broker.name].items())
        table.add_row(
            escape(broker.name),
            f"{found.loss[broker.name]:.4g}",
            f"{risk[most]:.3g}",
            escape(most),
            escape(spread) or "-",
        )
    console.print(table)
    how = "proven least" if found.status == "optimal" else "the least found"
    console.print(f"worst loss {found.worst_loss:.6g}, all failures together {found.total_loss:.6g}: {how}")
    console.print(f"normal state: utility {found.utility:.10g}, highest risk {max(found.risk_normal.values()):.3g}")
