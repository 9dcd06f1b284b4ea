"""Cost and computing time of channel plans, by the size of the demand.

    python bench/planning_channels.py

Three kinds of demand, from fixed seeds, rates log-normal: *interests*, where advertisements are for one or two of many
groups of nodes, most of the group and a few others; *popularity*, where few advertisements are wanted by many and nodes
differ in their number of subscriptions, without other structure; *uniform*, where every node wants every advertisement
with the same probability. Each plan is compared with the IndiQoS strategy, k-means clustering, everything by unicast,
and its own lower bound. Prints a table, and writes bench/out/planning_channels.json and .png.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import matplotlib as mpl
import numpy as np
import numpy.typing as npt

mpl.use("Agg")

from matplotlib import pyplot as plt
from rich.console import Console
from rich.progress import track
from rich.table import Table

from overlane.planning.channels import Advertisement, plan_channels

OUT = Path(__file__).parent / "out"
KINDS = ("interests", "popularity", "uniform")
SIZES = ((7, 6, 2), (12, 10, 3), (50, 30, 6), (200, 100, 16), (500, 250, 24), (1000, 500, 32))
SEED = 1


@dataclass(frozen=True)
class Row:
    kind: str
    advertisements: int
    nodes: int
    channels: int
    status: str
    cost_bps: float
    bound_bps: float
    greedy_bps: float
    clustering_bps: float
    all_unicast_bps: float
    seconds: float


def wanted_by(kind: str, advertisements: int, nodes: int, chance: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Who wants what: advertisements x nodes, every advertisement wanted by someone."""
    shape = (advertisements, nodes)
    if kind == "uniform":
        wanted = chance.random(shape) < max(0.05, 2 / nodes)
    elif kind == "popularity":
        popularity = chance.permutation(np.minimum(0.6, 2 / np.arange(1, advertisements + 1) ** 0.6))
        wanted = chance.random(shape) < np.outer(popularity, chance.uniform(0.1, 1, nodes))
    else:
        groups = max(3, 2 * round(advertisements**0.5))
        group_has = chance.random((groups, nodes)) < max(0.04, 2 / nodes)
        wanted = np.array(
            [
                group_has[chance.choice(groups, int(chance.integers(1, 3)), replace=False)].any(0)
                for _ in range(shape[0])
            ]
        )
        wanted = (wanted & (chance.random(shape) < 0.85)) | (chance.random(shape) < 0.005)
    wanted[np.arange(advertisements), chance.integers(0, nodes, advertisements)] = True
    return wanted


def measure(kind: str, advertisements: int, nodes: int, channels: int) -> Row:
    chance = np.random.default_rng(SEED)
    wanted = wanted_by(kind, advertisements, nodes, chance)
    rate_bps = np.ceil(chance.lognormal(6, 1, advertisements))
    demand = [
        Advertisement(f"ad{row}", float(rate_bps[row]), tuple(f"node{column}" for column in np.flatnonzero(wants)))
        for row, wants in enumerate(wanted)
    ]
    begin = perf_counter()
    plan = plan_channels(demand, channels)
    seconds = perf_counter() - begin
    return Row(
        kind=kind,
        advertisements=advertisements,
        nodes=nodes,
        channels=channels,
        status=plan.status,
        cost_bps=plan.cost.total_bps,
        bound_bps=plan.bound_bps,
        greedy_bps=plan.greedy_bps,
        clustering_bps=plan.clustering_bps,
        all_unicast_bps=plan.all_unicast_bps,
        seconds=seconds,
    )


def show(rows: list[Row], console: Console) -> None:
    table = Table(title="Channel plans: cost as a share of everything by unicast")
    for heading in ("demand", "size", "status", "plan", "bound", "IndiQoS", "k-means", "gap", "seconds"):
        table.add_column(heading, justify="left" if heading in ("demand", "size", "status") else "right")
    for row in rows:
        whole = row.all_unicast_bps
        gap = (row.cost_bps - row.bound_bps) / row.cost_bps if row.cost_bps else 0.0
        shares = (row.cost_bps, row.bound_bps, row.greedy_bps, row.clustering_bps)
        table.add_row(
            row.kind,
            f"{row.advertisements} x {row.nodes} x {row.channels}",
            row.status,
            *(f"{each / whole:.4f}" for each in shares),
            f"{gap:.1%}",
            f"{row.seconds:.2f}",
        )
    console.print(table)


def draw(rows: list[Row], path: Path) -> None:
    figure, (quality, duration) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    big = [row for row in rows if row.advertisements == SIZES[-1][0]]
    bars = {
        "IndiQoS": [row.greedy_bps / row.all_unicast_bps for row in big],
        "k-means": [row.clustering_bps / row.all_unicast_bps for row in big],
        "plan": [row.cost_bps / row.all_unicast_bps for row in big],
        "lower bound": [row.bound_bps / row.all_unicast_bps for row in big],
    }
    for place, (label, shares) in enumerate(bars.items()):
        quality.bar(np.arange(len(big)) + 0.2 * place, shares, width=0.19, label=label)
    quality.set_xticks(np.arange(len(big)) + 0.3, [row.kind for row in big])
    quality.set_ylabel("cost / everything by unicast")
    quality.set_title(f"{SIZES[-1][0]} advertisements, {SIZES[-1][1]} nodes, {SIZES[-1][2]} channels")
    quality.legend(loc="lower right")
    for kind in KINDS:
        of_kind = [row for row in rows if row.kind == kind]
        duration.plot([row.advertisements for row in of_kind], [row.seconds for row in of_kind], "o-", label=kind)
    duration.set(xscale="log", yscale="log", xlabel="advertisements", ylabel="seconds", title="Time to plan")
    duration.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    OUT.mkdir(exist_ok=True)
    tasks = [(kind, *size) for kind in KINDS for size in SIZES]
    rows = [measure(*task) for task in track(tasks, description="planning")]
    show(rows, Console())
    (OUT / "planning_channels.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))
    draw(rows, OUT / "planning_channels.png")


if __name__ == "__main__":
    main()
