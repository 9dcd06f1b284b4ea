"""Computing time and resiliency of the best paths, by the size of the network.

    python bench/planning_paths.py

Networks are random geometric graphs: brokers at random positions, joined to their nearest, about eight links each,
latency by distance, failures from 0.1 to 3 percent. Geant is added from examples/networks/geant.toml. Every figure is
over the same random pairs of brokers. Three sets are compared: the best one, the same number of fastest paths, and the
fastest path alone. Prints a table, and writes bench/out/planning_paths.json and .png.
"""

import json
import math
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import mean, median
from time import perf_counter_ns

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from rich.console import Console
from rich.progress import track
from rich.table import Table

from overlane.planning.paths import BrokerNode, Link, Network, both_ways, k_shortest, multipath, resiliency

OUT = Path(__file__).parent / "out"
GEANT = Path(__file__).parents[1] / "examples" / "networks" / "geant.toml"
SIZES = (10, 25, 50, 100, 200, 400)
SETTINGS = ((1, 1), (2, 8), (2, 16), (2, 32), (3, 16), (3, 32), (4, 32))
PAIRS = 12
SPAN_NS = 40_000_000
UNIT_NS = {"ms": 1_000_000, "us": 1_000, "ns": 1}


@dataclass(frozen=True)
class Figure:
    network: str
    brokers: int
    links: int
    n: int
    k: int
    median_ms: float
    worst_ms: float
    search_ms: float
    """Of it, for the k quickest paths."""
    best: float
    quickest_n: float
    quickest: float
    exact: int
    pairs: int


def geometric(size: int, rng: Random) -> Network:
    places = [(rng.random(), rng.random()) for _ in range(size)]
    reach = math.sqrt(8 / (math.pi * size))
    pairs = set()
    for one, place in enumerate(places):
        near = sorted((math.dist(place, other), number) for number, other in enumerate(places) if number != one)
        pairs |= {
            (min(one, other), max(one, other))
            for rank, (distance, other) in enumerate(near)
            if rank < 2 or distance < reach
        }
    brokers = [
        BrokerNode(f"b{number:03}", rng.randrange(1_000_000), rng.uniform(0.001, 0.02)) for number in range(size)
    ]
    return Network.build(
        brokers,
        [
            both_ways(
                brokers[one].name,
                brokers[other].name,
                int(SPAN_NS * math.dist(places[one], places[other])),
                rng.uniform(0.001, 0.03),
            )
            for one, other in sorted(pairs)
        ],
    )


def geant(rng: Random) -> Network:
    described = tomllib.loads(GEANT.read_text())

    def link(ends: list[str], latency: str) -> Link:
        unit = latency.lstrip("0123456789.")
        latency_ns = round(float(latency.removesuffix(unit)) * UNIT_NS[unit])
        return both_ways(ends[0], ends[1], latency_ns, rng.uniform(0.001, 0.03))

    return Network.build(
        [BrokerNode(name, 200_000, rng.uniform(0.001, 0.02)) for name in described["brokers"]],
        [link(entry["ends"], entry["latency"]) for entry in described["links"]],
    )


def measure(name: str, network: Network, n: int, k: int) -> Figure:
    rng = Random(f"{name} pairs")
    took_ms, search_ms = list[float](), list[float]()
    best, quickest_n, quickest = list[float](), list[float](), list[float]()
    exact = 0
    while len(best) < PAIRS:
        source, destination = rng.sample(range(len(network)), 2)
        start = perf_counter_ns()
        paths = k_shortest(network, source, destination, k)
        searched = perf_counter_ns()
        if not paths:
            continue
        found = multipath(network, source, destination, None, n, k)
        took_ms.append((perf_counter_ns() - searched) / 1e6)
        search_ms.append((searched - start) / 1e6)
        best.append(found.resiliency)
        quickest_n.append(resiliency(paths[:n], network))
        quickest.append(resiliency(paths[:1], network))
        exact += found.exact
    return Figure(
        network=name,
        brokers=len(network),
        links=len(network.link_failure),
        n=n,
        k=k,
        median_ms=median(took_ms),
        worst_ms=max(took_ms),
        search_ms=median(search_ms),
        best=mean(best),
        quickest_n=mean(quickest_n),
        quickest=mean(quickest),
        exact=exact,
        pairs=PAIRS,
    )


def show(figures: list[Figure], console: Console) -> None:
    table = Table(
        title="Milliseconds: median, worst, of it for the k paths; mean resiliency", box=None, padding=(0, 0, 0, 1)
    )
    headings = ("network", "links", "n of k", "median", "worst", "paths", "best n", "quick n", "quick 1", "exact")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "network" else "right", no_wrap=True)
    last = figures[0].network
    for figure in figures:
        if figure.network != last:
            table.add_section()
            last = figure.network
        table.add_row(
            figure.network,
            str(figure.links),
            f"{figure.n} of {figure.k}",
            f"{figure.median_ms:.2f}",
            f"{figure.worst_ms:.2f}",
            f"{figure.search_ms:.2f}",
            f"{figure.best:.4f}",
            f"{figure.quickest_n:.4f}",
            f"{figure.quickest:.4f}",
            f"{figure.exact}/{figure.pairs}",
        )
    console.print(table)


def draw(figures: list[Figure]) -> None:
    picture, (time, worth) = plt.subplots(1, 2, figsize=(11, 4.2))
    grown = [figure for figure in figures if figure.network != "geant"]
    for n, k in SETTINGS:
        line = [figure for figure in grown if (figure.n, figure.k) == (n, k)]
        time.plot([f.brokers for f in line], [f.median_ms for f in line], marker="o", label=f"n={n}, k={k}")
    time.set(xscale="log", yscale="log", xlabel="brokers", ylabel="median time, ms", title="Time", ylim=(None, 1_000))
    line = [figure for figure in grown if (figure.n, figure.k) == (2, 32)]
    for label, values in (
        ("best 2 of 32", [f.best for f in line]),
        ("2 quickest", [f.quickest_n for f in line]),
        ("quickest", [f.quickest for f in line]),
    ):
        worth.plot([f.brokers for f in line], values, marker="o", label=label)
    worth.set(xscale="log", xlabel="brokers", ylabel="mean resiliency", title="Resiliency")
    for axes, columns in ((time, 3), (worth, 1)):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small", loc="upper right", ncols=columns)
    picture.tight_layout()
    picture.savefig(OUT / "planning_paths.png", dpi=130)


def main() -> None:
    console = Console()
    networks = {f"random {size}": geometric(size, Random(size)) for size in SIZES}
    if GEANT.exists():
        networks["geant"] = geant(Random(1))
    cases = [(name, network, n, k) for name, network in networks.items() for n, k in SETTINGS]
    figures = [measure(*case) for case in track(cases, "measuring", console=console, transient=True)]
    OUT.mkdir(exist_ok=True)
    (OUT / "planning_paths.json").write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    show(figures, console)
    draw(figures)
    console.print("wrote bench/out/planning_paths.json and .png")


if __name__ == "__main__":
    main()
