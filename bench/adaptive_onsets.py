"""Redundant paths of each routing mode when link latencies change, by measured latencies, without simulation.

    python bench/adaptive_onsets.py [--seeds 20] [--first-seed 24]

A message that is sent before a change is known arrives in time only if a path of the present route is in time after the
change. So the planner gets every slice of the Seattle replay (bench/_adaptive_scenarios.py) and the links that became
slower in the slices before it, and its routes are evaluated by the next slice.

    in time   changes after which the present route was still in time
    cover     share of those that flooding survives and one path does not
    links     of the route, relative to one path and to two

`always` assumes that every link became much slower recently: the behaviour after enough changes were seen. `informed`
is the best at a price per link, if it were known how often every link becomes slower and by how much
(bench/_adaptive_bound.py). Also shown is how often the latency of a link rises by half, by whether it did in the minute
before: whether history predicts it.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from _adaptive_bound import PRICES, best, growth, weigh
from _adaptive_misses import Change, changes
from _adaptive_runs import WAYS, in_force
from _adaptive_scenarios import SLICE_NS, Latencies, scenario
from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.links.link_health import SWING_REMEMBERED
from overlane.core.qos import QosClass
from overlane.core.routing.selection.route_plan import plan
from overlane.core.units import SECOND, US, Nanos
from overlane.core.wire.control_messages import Advert, LinkClaim

OUT = Path(__file__).parent / "out"
FLOWS, RATE_HZ, SECONDS = 5, 100.0, 40
FIRST_SEED = 24
"""With those before it ways to choose the paths that stand were compared."""
ALWAYS = ", always"
INFORMED = "informed, {:g} per link"
FAR_US = 10_000_000
RISK_MILLIONTHS = 1_000
"""How likely links fail, the same for all."""
RISE = 1.5

Swings = npt.NDArray[np.int64]


@dataclass
class Tally:
    """Over all flows and changes."""

    changes: int = 0
    in_time: int = 0
    links: int = 0


@dataclass(frozen=True)
class Figure:
    way: str
    in_time: float
    cover: float
    to_one: float
    to_two: float


def told(latencies: Latencies, swings_us: Swings, names: list[str]) -> LinkStateTable:
    """The map that these latencies, and what rose lately, make."""
    table = LinkStateTable(names[0])
    for at, name in enumerate(names):
        claims = [
            LinkClaim(names[to], int(latency_ns) // US, 500, 0, RISK_MILLIONTHS, 0, int(swings_us[at, to]))
            for to, latency_ns in enumerate(latencies[at])
            if latency_ns
        ]
        table.accept(Advert(name, 1, 1, claims, {}, 0), 0)
    return table


def maps(found: list[Change], names: list[str]) -> Iterator[tuple[Change, LinkStateTable, LinkStateTable]]:
    """Each change, the map before it, and the same if every link had risen far."""
    swings_us: Swings = np.zeros((len(names), len(names)), dtype=np.int64)
    for change in found[1:]:
        yield change, told(change.before, swings_us, names), told(change.before, np.full_like(swings_us, FAR_US), names)
        swings_us = np.maximum(swings_us, ((change.after - change.before) // US).astype(np.int64))


def route(table: LinkStateTable, ends: tuple[str, str], way: str, deadline_ns: Nanos) -> set[tuple[str, str]]:
    """The links that a source would use."""
    with in_force(WAYS[way]) as routing:
        return set(plan(table, ends[0], QosClass(deadline_ns, routing=routing), [ends[1]]).links)


def is_in_time(
    links: set[tuple[str, str]], ends: tuple[int, int], after: Latencies, names: list[str], limit: Nanos
) -> bool:
    own = np.zeros_like(after)
    place = {name: at for at, name in enumerate(names)}
    for one, other in links:
        own[place[one], place[other]] = after[place[one], place[other]]
    distances: Latencies = dijkstra(csr_array(own), directed=True)
    return bool(distances[ends] <= limit)


def measure(seeds: range) -> dict[str, Tally]:
    ways = [*WAYS, *(way + ALWAYS for way in ("adaptive", "adaptive lavish"))]
    tallies = {way: Tally() for way in ways}
    informed = {INFORMED.format(price): Tally() for price in PRICES}
    grown = growth()
    for seed in seeds:
        setting = scenario("seattle", seed, FLOWS, RATE_HZ, SECONDS * SECOND)
        names = [broker.name for broker in setting.calm.brokers]
        place = {name: at for at, name in enumerate(names)}
        for change, known, feared in maps(changes(setting, place), names):
            for topic, publisher, subscriber in zip(
                setting.calm.topics, setting.calm.publishers, setting.calm.subscribers, strict=True
            ):
                ends, limit = (publisher.broker, subscriber.broker), topic.deadline_ns or 0
                for way, tally in tallies.items():
                    links = route(feared if way.endswith(ALWAYS) else known, ends, way.removesuffix(ALWAYS), limit)
                    tally.changes += 1
                    tally.links += len(links)
                    tally.in_time += is_in_time(links, (place[ends[0]], place[ends[1]]), change.after, names, limit)
                weighed = weigh(known, ends, limit, change.before, change.after, grown)
                for price, tally in zip(PRICES, informed.values(), strict=True):
                    count, was = best(weighed, price)
                    tally.changes += 1
                    tally.links += count
                    tally.in_time += was
    return tallies | informed


def figures(tallies: dict[str, Tally]) -> list[Figure]:
    one, two, flood = tallies["single"], tallies["multipath"], tallies["flood"]
    return [
        Figure(
            way,
            of.in_time / of.changes,
            (of.in_time - one.in_time) / (flood.in_time - one.in_time),
            of.links / one.links,
            of.links / two.links,
        )
        for way, of in tallies.items()
    ]


def foretold(seeds: range) -> tuple[float, float]:
    """How often a link rises by half from one slice to the next: if it did in the minute before, and if not."""
    rises, chances = np.zeros(2), np.zeros(2)
    for seed in seeds:
        setting = scenario("seattle", seed, FLOWS, RATE_HZ, 10 * SWING_REMEMBERED)
        place = {broker.name: at for at, broker in enumerate(setting.calm.brokers)}
        found = changes(setting, place)
        by_time = {change.at_ns: change.after for change in found}
        before, last = found[0].after, np.full_like(found[0].after, -np.inf)
        is_link = np.triu(before > 0)
        for at in range(SLICE_NS, found[-1].at_ns + 1, SLICE_NS):
            after = by_time.get(at, before)
            rose = after > RISE * before
            lately = at - last <= SWING_REMEMBERED
            for index, group in enumerate((lately, ~lately)):
                chances[index] += np.count_nonzero(is_link & group)
                rises[index] += np.count_nonzero(is_link & group & rose)
            last[rose] = at
            before = after
    return float(rises[0] / chances[0]), float(rises[1] / chances[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    found = figures(measure(seeds))
    lately, else_ = foretold(seeds[:1])
    console = Console(width=100)
    table = Table(title="Routes that stand when latencies change", box=None)
    for heading in ("way", "in time", "cover", "links/one", "links/two"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    for one in found:
        table.add_row(one.way, f"{one.in_time:.2%}", f"{one.cover:.1%}", f"{one.to_one:.2f}", f"{one.to_two:.2f}")
    console.print(table)
    console.print(
        f"a link rises by half in {lately:.1%} of slices if it did in the minute before, in {else_:.1%} if it did not"
    )
    OUT.mkdir(exist_ok=True)
    said = {"figures": [asdict(one) for one in found], "rises": {"lately": lately, "else": else_}}
    (OUT / "adaptive_onsets.json").write_text(json.dumps(said, indent=1))
    console.print("wrote bench/out/adaptive_onsets.json")


if __name__ == "__main__":
    main()
