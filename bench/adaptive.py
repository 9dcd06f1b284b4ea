"""Share of messages in time for each routing mode when links become lossy or slow, and its cost.

    python bench/adaptive.py [--quick] [--only abilene,seattle] [--ways single,flood,adaptive] [--seeds 5]

Runs every routing mode through the same faults (bench/_adaptive_scenarios.py): for each seed the same flows and the
same bursts. The simulator judges messages in true time. In addition to the modes as they are, adaptive runs without
prepared redundancy (unprepared) and with more of it (lavish), so that cover by cost is a curve.

    cover   the share of the gap between a single path and flooding: (way - single) / (flood - single).
            Modes that retransmit on each hop can do better than flooding, which does not.
    cost    link transmissions per message, retransmissions included; relative to two paths (multipath) and one
            (single), and in a run of the same flows without faults

Over several seeds, cover and cost are of all their messages together; the spread is the standard deviation of the
seeds.

The target: adaptive covers 99 % at no more than 1.02 x the cost of two paths, and costs far less without faults;
thrifty costs less than 1.3 x a single path and delivers no less. Prints tables, writes bench/out/adaptive.json and
.svg; outcomes are kept (bench/_adaptive_runs.py), so a second run with the same code only shows them. `--misses` shows
why messages were missed (bench/_adaptive_misses.py).
"""

import argparse
import json
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import stdev

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from _adaptive_runs import WAYS, Outcome, Task, run

OUT = Path(__file__).parent / "out"
SECONDS = {"abilene": 30.0, "geant": 30.0, "seattle": 40.0}
"""Of virtual time."""
FLOWS = {"abilene": 5, "geant": 4, "seattle": 5}
"""The large network takes its time."""
CALM_SECONDS = 10.0
FIRST_SEED = 4
"""With those before it the constants of adaptive routing were set."""
COVER_MIN = 0.99
COST_MAX = 1.02
"""Adaptive against two paths."""
QUIET_MAX = 0.75
"""Adaptive against two paths, while all is well: far less."""
THRIFTY_MAX = 1.3
"""Thrifty against one path."""


@dataclass(frozen=True)
class Figure:
    place: str
    way: str
    seeds: int
    in_time: float
    cover: float | None
    cover_spread: float | None
    sent_per_message: float
    to_two: float | None
    to_two_spread: float | None
    to_one: float | None
    quiet_in_time: float | None
    quiet_to_two: float | None
    quiet_to_one: float | None
    route_changes_per_min: float


# Figures


class Runs:
    """The outcomes of one place, by way of routing."""

    def __init__(self, outcomes: list[Outcome], place: str, calm: bool) -> None:
        mine = [one for one in outcomes if one.task.place == place and one.task.calm == calm]
        self.by_way = {way: of for way in WAYS if (of := [one for one in mine if one.task.way == way])}
        self.seeds = sorted({one.task.seed for one in mine})

    def in_time(self, way: str, seed: int | None = None) -> float:
        these = self._of(way, seed)
        return sum(one.in_time for one in these) / sum(one.expected for one in these)

    def cost(self, way: str, seed: int | None = None) -> float:
        these = self._of(way, seed)
        return sum(one.sent for one in these) / sum(one.published for one in these)

    def cover(self, way: str, seed: int | None = None) -> float | None:
        if "flood" not in self.by_way or "single" not in self.by_way:
            return None
        low, high = self.in_time("single", seed), self.in_time("flood", seed)
        return (self.in_time(way, seed) - low) / (high - low) if high > low else None

    def ratio(self, way: str, other: str, seed: int | None = None) -> float | None:
        if way not in self.by_way or other not in self.by_way:
            return None
        return self.cost(way, seed) / self.cost(other, seed)

    def _of(self, way: str, seed: int | None) -> list[Outcome]:
        return [one for one in self.by_way[way] if seed is None or one.task.seed == seed]


def figures(outcomes: list[Outcome]) -> list[Figure]:
    found = []
    for place in SECONDS:
        rough, quiet = Runs(outcomes, place, calm=False), Runs(outcomes, place, calm=True)
        for way, of in rough.by_way.items():
            minutes = sum(one.task.seconds for one in of) / 60
            found.append(
                Figure(
                    place=place,
                    way=way,
                    seeds=len(of),
                    in_time=rough.in_time(way),
                    cover=rough.cover(way),
                    cover_spread=_spread([rough.cover(way, seed) for seed in rough.seeds]),
                    sent_per_message=rough.cost(way),
                    to_two=rough.ratio(way, "multipath"),
                    to_two_spread=_spread([rough.ratio(way, "multipath", seed) for seed in rough.seeds]),
                    to_one=rough.ratio(way, "single"),
                    quiet_in_time=quiet.in_time(way) if way in quiet.by_way else None,
                    quiet_to_two=quiet.ratio(way, "multipath"),
                    quiet_to_one=quiet.ratio(way, "single"),
                    route_changes_per_min=sum(one.route_changes for one in of) / minutes,
                )
            )
    return found


def _spread(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return stdev(known) if len(known) > 1 else None


def verdicts(found: list[Figure]) -> list[tuple[str, bool]]:
    """Each part of the aim, and whether it holds."""
    said = []
    for figure in found:
        here = f"{figure.place}: {figure.way}"
        if figure.way == "adaptive":
            if figure.cover is not None:
                text = f"{here} covers {figure.cover:.1%} of the gap, at least {COVER_MIN:.0%} wanted"
                said.append((text, figure.cover >= COVER_MIN))
            if figure.to_two is not None:
                text = f"{here} costs {figure.to_two:.3f} x two paths, at most {COST_MAX} wanted"
                said.append((text, figure.to_two <= COST_MAX))
            if figure.quiet_to_two is not None:
                text = (
                    f"{here} costs {figure.quiet_to_two:.3f} x two paths while all is well, at most {QUIET_MAX} wanted"
                )
                said.append((text, figure.quiet_to_two <= QUIET_MAX))
        if figure.way == "thrifty":
            if figure.cover is not None:
                said.append((f"{here} covers {figure.cover:.1%} of the gap, at least none wanted", figure.cover >= 0))
            if figure.to_one is not None:
                text = f"{here} costs {figure.to_one:.3f} x one path, less than {THRIFTY_MAX} wanted"
                said.append((text, figure.to_one < THRIFTY_MAX))
    return said


# Showing


def show(found: list[Figure], console: Console) -> None:
    table = Table(title="In trouble, and while all is well (quiet)", box=None, padding=(0, 0, 0, 1))
    headings = ("", "way", "in time", "cover", "±", "sent/msg", "/two", "±", "/one", "quiet/two", "/one", "moves/min")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("", "way") else "right", no_wrap=True)
    last = ""
    for figure in found:
        if figure.place != last and last:
            table.add_section()
        table.add_row(
            figure.place if figure.place != last else "",
            figure.way,
            f"{figure.in_time:.3%}",
            _said(figure.cover, "{:.1%}"),
            _said(figure.cover_spread, "{:.1%}"),
            f"{figure.sent_per_message:.3f}",
            _said(figure.to_two, "{:.3f}"),
            _said(figure.to_two_spread, "{:.3f}"),
            _said(figure.to_one, "{:.3f}"),
            _said(figure.quiet_to_two, "{:.3f}"),
            _said(figure.quiet_to_one, "{:.3f}"),
            f"{figure.route_changes_per_min:.0f}",
        )
        last = figure.place
    console.print(table)
    for text, holds in verdicts(found):
        console.print(f"[green]holds[/]   {text}" if holds else f"[red]misses[/]  {text}", highlight=False)


def _said(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def show_misses(outcomes: list[Outcome], console: Console) -> None:
    table = Table(title="Missed, by reason", box=None, padding=(0, 0, 0, 1))
    for heading in ("", "way", "no way", "onset", "later", "of"):
        table.add_column(heading, justify="left" if heading in ("", "way") else "right", no_wrap=True)
    for place in dict.fromkeys(one.task.place for one in outcomes):
        name = place
        for way, of in Runs(outcomes, place, calm=False).by_way.items():
            counts = sum((Counter(one.misses) for one in of), Counter[str]())
            reasons = (str(counts[reason]) for reason in ("no way", "onset", "later"))
            table.add_row(name, way, *reasons, str(sum(one.expected for one in of)))
            name = ""
        table.add_section()
    console.print(table)


def draw(found: list[Figure], path: Path) -> None:
    """Cover against cost: the ways as they are, and the curve of adaptive over its targets."""
    mpl.rcParams["svg.hashsalt"] = "adaptive"
    places = list(dict.fromkeys(figure.place for figure in found))
    picture, plots = plt.subplots(1, len(places), figsize=(3.6 * len(places), 3.4), squeeze=False)
    for axes, place in zip(plots[0], places, strict=True):
        here = [one for one in found if one.place == place and one.cover is not None and one.to_two is not None]
        curve = [one for one in here if WAYS[one.way].routing == "adaptive"]
        axes.plot([one.to_two for one in curve], [one.cover for one in curve], "-", color="C2", linewidth=0.8)
        for figure in here:
            colour = {"single": "C0", "multipath": "C1", "thrifty": "C3", "flood": "C4"}.get(figure.way, "C2")
            axes.errorbar(
                figure.to_two,
                figure.cover,
                xerr=figure.to_two_spread,
                yerr=figure.cover_spread,
                fmt="o",
                markersize=5 if figure.way in ("adaptive", "thrifty") else 3,
                color=colour,
                linewidth=0.6,
            )
            name = figure.way.removeprefix("adaptive ")
            axes.annotate(name, (figure.to_two, figure.cover), xytext=(3, -8), textcoords="offset points", fontsize=6)
        axes.axvline(COST_MAX, color="grey", linewidth=0.5)
        axes.axhline(COVER_MIN, color="grey", linewidth=0.5)
        axes.set(xscale="log", xlabel="transmissions, two paths = 1", title=place)
        ticks = [0.25, 0.5, 1.0, 2.0, 4.0]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    plots[0][0].set_ylabel("covered of the gap between one path and flooding")
    picture.tight_layout()
    picture.savefig(path, metadata={"Date": None})
    plt.close(picture)


# Running


def tasks(options: argparse.Namespace) -> list[Task]:
    places = options.only.split(",") if options.only else SECONDS
    ways = options.ways.split(",") if options.ways else WAYS
    found = []
    for place in places:
        seconds = options.seconds or SECONDS[place]
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for way in ways:
                rough = Task(place, seed, way, False, options.flows or FLOWS[place], options.rate, seconds)
                found.append(rough)
                if seed == options.first_seed and not WAYS[way].caution:
                    found.append(replace(rough, calm=True, seconds=CALM_SECONDS))
    # The curve last: the rest is worth looking at without it.
    return sorted(found, key=lambda task: (bool(WAYS[task.way].caution), task.seed, task.calm))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one seed, 5 flows, 30 s: coarse, a handful of messages")
    parser.add_argument("--only", help=f"of {', '.join(SECONDS)}")
    parser.add_argument("--ways", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--flows", type=int)
    parser.add_argument("--rate", type=float, default=100.0, help="messages a second and flow")
    parser.add_argument("--seconds", type=float, help="of virtual time")
    parser.add_argument("--misses", action="store_true", help="show why messages were missed")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.seeds = options.seeds or (1 if options.quick else 5)
    options.flows = options.flows or (5 if options.quick else None)
    options.seconds = options.seconds or (30.0 if options.quick else None)
    return options


def main() -> None:
    options = parse()
    console = Console(width=130)
    work = tasks(options)
    outcomes = list[Outcome]()
    with (
        ProcessPoolExecutor(max_workers=options.workers) as pool,
        Progress(console=console, transient=True) as progress,
    ):
        bar = progress.add_task("simulating", total=len(work))
        for done in as_completed([pool.submit(run, task) for task in work]):
            outcomes.append(done.result())
            progress.advance(bar)
    outcomes.sort(key=lambda one: (one.task.place, one.task.seed, list(WAYS).index(one.task.way)))
    found = figures(outcomes)
    OUT.mkdir(exist_ok=True)
    said = [{"aim": text, "holds": holds} for text, holds in verdicts(found)]
    runs = [asdict(one) for one in outcomes]
    (OUT / "adaptive.json").write_text(
        json.dumps({"figures": [asdict(one) for one in found], "aims": said, "runs": runs}, indent=1)
    )
    show(found, console)
    if options.misses:
        show_misses(outcomes, console)
    draw(found, OUT / "adaptive.svg")
    console.print("wrote bench/out/adaptive.json and .svg")


if __name__ == "__main__":
    main()
