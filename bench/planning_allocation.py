"""Quality and time of allocations, by the number of items and brokers; and the time of the case base.

    python bench/planning_allocation.py [factors] [independent] [samples] [casebase]

Three kinds of load, from fixed seeds, mean rates log-normal: *factors*, where items follow a common factor and a few
factors of their sector; *independent*, where rates are independent; *samples*, where the covariance is estimated from
three samples for each item. Capacities differ by a factor of two and leave a margin of 2.8 deviations, so that
allocations differ. The tables show the loss: the sum of penalty * Pr(V > C), which is the rewards less the utility. The
floor is the lower bound of all allocations. A star marks an allocation that exceeds the risk limit of 0.02. Prints
tables, and writes bench/out/planning_allocation.json and .png.
"""

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

from matplotlib import pyplot as plt
from rich.console import Console
from rich.progress import track
from rich.table import Table

from overlane.planning.allocation import AllocationOutcome, BrokerCapacity, Item, Problem, allocate
from overlane.planning.allocation.model import FloatArray
from overlane.planning.case_base import failure_cases, normal_plan, solve_case
from overlane.planning.problem import NoSolution

OUT = Path(__file__).parent / "out"
KINDS = ("factors", "independent", "samples")
SIZES = ((8, 3), (12, 4), (16, 4), (50, 5), (200, 20), (500, 30), (1000, 50), (2000, 100))
CASEBASE = (200, 20)
SEED = 7
RISK_MAX = 0.02
MARGIN_DEVIATIONS = 2.8
TIME_LIMIT_S = 20.0


@dataclass(frozen=True)
class Row:
    kind: str
    items: int
    brokers: int
    status: str
    utility: float
    bound: float
    gap: float
    loss: float
    floor: float
    round_robin_loss: float
    round_robin_kept: bool
    best_fit_loss: float
    best_fit_kept: bool
    seconds: float


def correlation(kind: str, items: int, chance: np.random.Generator) -> FloatArray:
    if kind == "independent":
        return np.eye(items)
    if kind == "samples":
        return np.asarray(np.corrcoef(chance.normal(size=(items, 3 * items))), dtype=np.float64)
    tide, trends = chance.uniform(0.1, 0.5, (items, 1)), chance.normal(0, 0.2, (items, 4))
    follows = np.hstack([tide, trends])
    matrix: FloatArray = follows @ follows.T
    matrix /= max(1.0, float(np.diag(matrix).max()) * 1.1)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def problem_of(kind: str, items: int, brokers: int, margin_deviations: float = MARGIN_DEVIATIONS) -> Problem:
    chance = np.random.default_rng(SEED + items)
    mean = chance.lognormal(4, 0.6, items)
    deviation = mean * chance.uniform(0.15, 0.5, items)
    covariance = correlation(kind, items, chance) * np.outer(deviation, deviation)
    in_turn = np.arange(items) % brokers
    spread = sum(float(np.sqrt(covariance[np.ix_(in_turn == b, in_turn == b)].sum())) for b in range(brokers))
    capacity = chance.uniform(0.7, 1.4, brokers)
    capacity *= (float(mean.sum()) + margin_deviations * spread) / float(capacity.sum())
    return Problem.of(
        [Item(f"item{index}", float(rate)) for index, rate in enumerate(mean)],
        covariance,
        [BrokerCapacity(f"broker{index}", float(size)) for index, size in enumerate(capacity)],
        RISK_MAX,
    )


def measured(kind: str, items: int, brokers: int) -> Row | None:
    problem = problem_of(kind, items, brokers)
    start = perf_counter()
    try:
        found = allocate(problem, spent=lambda: (perf_counter() - start) / TIME_LIMIT_S)
    except NoSolution:
        return None
    seconds, reward = perf_counter() - start, float(problem.reward.sum())

    def told(outcome: AllocationOutcome) -> tuple[float, bool]:
        return reward - outcome.utility, max(outcome.risk.values()) < RISK_MAX

    return Row(
        kind,
        items,
        brokers,
        found.status,
        found.utility,
        found.bound,
        found.gap,
        reward - found.utility,
        reward - found.bound,
        *told(found.round_robin),
        *told(found.best_fit),
        seconds,
    )


def measured_casebase(console: Console) -> dict[str, float]:
    """Seconds for all states of a domain whose single and double failures are bearable."""
    problem = problem_of("factors", *CASEBASE, margin_deviations=5.0)
    start, before = perf_counter(), os.times()
    plan = normal_plan(problem, None)
    normal_s = perf_counter() - start
    cases = failure_cases(plan)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        solved = pool.map(partial(solve_case, plan), cases, chunksize=4)
        policies = list(track(solved, "Case base", total=len(cases), console=console, transient=True))
    after = os.times()
    return {
        "items": CASEBASE[0],
        "brokers": CASEBASE[1],
        "states": len(cases),
        "cores": os.cpu_count() or 1,
        "normal_s": normal_s,
        "seconds": perf_counter() - start,
        "processor_s": after.user + after.children_user - before.user - before.children_user,
        "overloaded": sum(policy.status == "overloaded" for policy in policies),
        "moved_per_state": sum(len(policy.moved) for policy in policies) / len(policies),
        "promoted_per_state": sum(len(policy.promoted) for policy in policies) / len(policies),
    }


def show(rows: list[Row], console: Console) -> None:
    table = Table("load", "items", "brokers", "status", "loss", "floor", "round robin", "best fit", "gap", "seconds")
    for row in rows:
        table.add_row(
            row.kind,
            str(row.items),
            str(row.brokers),
            row.status,
            f"{row.loss:.4g}",
            f"{row.floor:.4g}",
            f"{row.round_robin_loss:.4g}{'' if row.round_robin_kept else '*'}",
            f"{row.best_fit_loss:.4g}{'' if row.best_fit_kept else '*'}",
            f"{row.gap:.1e}",
            f"{row.seconds:.1f}",
        )
    console.print(table)


def draw(rows: list[Row], kinds: list[str]) -> None:
    figure, axes = plt.subplots(1, len(kinds) + 1, figsize=(4.5 * (len(kinds) + 1), 4))
    for axis, kind in zip(axes, kinds, strict=False):
        of_kind = [row for row in rows if row.kind == kind]
        items = [row.items for row in of_kind]
        for label, losses in (
            ("best fit", [row.best_fit_loss for row in of_kind]),
            ("round robin", [row.round_robin_loss for row in of_kind]),
            ("allocation", [row.loss for row in of_kind]),
            ("floor", [max(row.floor, 0.0) or np.nan for row in of_kind]),
        ):
            axis.loglog(items, np.array(losses) / [row.utility + row.loss for row in of_kind], marker="o", label=label)
        axis.set(title=kind, xlabel="items", ylabel="loss, share of the rewards")
        axis.legend()
        axes[-1].loglog(items, [row.seconds for row in of_kind], marker="o", label=kind)
    axes[-1].set(title="time", xlabel="items", ylabel="seconds")
    axes[-1].legend()
    figure.tight_layout()
    figure.savefig(OUT / "planning_allocation.png", dpi=120)


def main(chosen: list[str]) -> None:
    console = Console(width=110)
    kinds = [kind for kind in KINDS if not chosen or kind in chosen]
    sizes = [(kind, *size) for kind in kinds for size in SIZES]
    solved = (measured(*size) for size in sizes)
    found = list(track(solved, "Allocations", total=len(sizes), console=console, transient=True))
    rows = [row for row in found if row is not None]
    show(rows, console)
    unsolved = [size for size, row in zip(sizes, found, strict=True) if row is None]
    if unsolved:
        console.print(f"no allocation found within the limit: {unsolved}")
    result: dict[str, object] = {"rows": [asdict(row) for row in rows]}
    if not chosen or "casebase" in chosen:
        result["casebase"] = measured_casebase(console)
        console.print(result["casebase"])
    OUT.mkdir(exist_ok=True)
    (OUT / "planning_allocation.json").write_text(json.dumps(result, indent=2) + "\n")
    if rows:
        draw(rows, kinds)


if __name__ == "__main__":
    main(sys.argv[1:])
