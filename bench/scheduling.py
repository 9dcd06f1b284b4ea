"""Share of messages in time by the order of the link queues: three hops, from light load to twice the capacity.

    python bench/scheduling.py [--loads 0.8,1.2] [--seeds 1,2,3] [--seconds 1.5]

Four brokers in a row run in the simulator. Traffic over all three links takes half of the capacity of the slowest link;
each link also has traffic of its own that fills it up to the load. Messages of four classes arrive at random (Poisson),
with random sizes. The load is the bytes of their parcels on the wire divided by the capacity of the link. Every variant
gets the same messages. The figure is the share of published messages that arrive within the deadline.

The variants differ in the policy of the link queues and in the values that each item gets for it: the budgets of
`laxity`, and the plan of `edf-shed`. So the benchmark replaces the queue of each neighbour by one that sets these
values and is otherwise the broker's. Results are kept in bench/out/scheduling.json, and those of other loads in it are
shown too.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from random import Random
from statistics import mean, stdev

from rich.console import Console
from rich.progress import track
from rich.table import Table

from overlane.core.links.latency_budgets import STEP_NS, BudgetTable, LatencyDemand, Spacing, Split
from overlane.core.links.link_queue import LinkQueue, QueuedItem
from overlane.core.links.neighbour import OutgoingParcel
from overlane.core.units import MS, NEVER, SECOND, US, Nanos
from overlane.network import Broker as BrokerSpec
from overlane.network import Link, Network, Simulation, Subscriber, Topic
from overlane.sim.traffic import SimulatedPublisher
from overlane.sim.world import World

OUT = Path(__file__).parent / "out" / "scheduling.json"

THREE_HOPS, EVERYTHING = "three hops", "everything"
BROKERS = ("a", "b", "c", "d")
RATES_BPS = (40_000_000, 20_000_000, 40_000_000)
LATENCIES_NS = (3 * MS, 2 * MS, 3 * MS)
QUEUE_BYTES = 1 << 20
THROUGH_BPS = min(RATES_BPS) / 2
OVERHEAD_BYTES = 92
"""Of a parcel of one message."""
SIZES = 8
"""Different sizes per class and flow."""


@dataclass(frozen=True)
class Kind:
    name: str
    deadline_ns: Nanos
    sizes: tuple[int, int]
    share: float
    """Of the bytes."""
    reliable: bool = False


KINDS: tuple[Kind, ...] = (
    Kind("alarms", 30 * MS, (64, 256), 0.04),
    Kind("orders", 60 * MS, (256, 1_024), 0.10, reliable=True),
    Kind("readings", 60 * MS, (512, 4_096), 0.26),
    Kind("video", 200 * MS, (4_096, 16_384), 0.60),
)


@dataclass(frozen=True)
class Flow:
    first: int
    last: int
    rate_bps: float

    @property
    def name(self) -> str:
        return BROKERS[self.first] + BROKERS[self.last]

    @property
    def is_through(self) -> bool:
        return self.last - self.first > 1

    def deadline_ns(self, kind: Kind) -> Nanos:
        """A microsecond more for those that go over one link, so that a parcel's header tells them apart."""
        return kind.deadline_ns if self.is_through else kind.deadline_ns + US


FLOWS = (
    Flow(0, 3, THROUGH_BPS),
    *(Flow(hop, hop + 1, rate_bps - THROUGH_BPS) for hop, rate_bps in enumerate(RATES_BPS)),
)


@dataclass(frozen=True)
class Variant:
    name: str
    policy: str
    split: Split | None = Split.EQUAL
    """None for no part to later hops."""
    spacing: Spacing | None = None
    """How budgets follow from the margin; None for no budgets."""
    plans: bool = False
    step_ns: Nanos = STEP_NS


VARIANTS = (
    Variant("laxity, H8 equal", "laxity", Split.EQUAL, Spacing.RANKED),
    Variant("laxity, H8 proportional", "laxity", Split.PROPORTIONAL, Spacing.RANKED),
    Variant("laxity, margin equal", "laxity", Split.EQUAL, Spacing.MARGIN),
    Variant("laxity, margin proportional", "laxity", Split.PROPORTIONAL, Spacing.MARGIN),
    Variant("edf", "edf"),
    Variant("edf-shed, as brokers plan", "edf-shed"),
    Variant("edf-shed, no plan", "edf-shed", plans=True, split=None),
    Variant("edf-shed, plan equal", "edf-shed", Split.EQUAL, plans=True),
    Variant("edf-shed, plan proportional", "edf-shed", Split.PROPORTIONAL, plans=True),
)


class StudyQueue(LinkQueue):
    """The queue in front of one hop, with the budgets and plans of a variant."""

    def __init__(self, variant: Variant, hop: int) -> None:
        super().__init__(variant.policy, QUEUE_BYTES)
        self._variant = variant
        self._hop = hop
        self._budgets: BudgetTable[Nanos] = BudgetTable(
            variant.split or Split.EQUAL, variant.spacing or Spacing.RANKED, variant.step_ns
        )
        for kind, flow in product(KINDS, FLOWS):
            if flow.first <= hop < flow.last:
                latency_ns = sum(LATENCIES_NS[flow.first : flow.last])
                here, all_hops = _weights(variant.split, hop, flow.first, flow.last)
                demand = LatencyDemand(
                    kind.deadline_ns, latency_ns, flow.last - flow.first, here_ns=latency_ns * here // all_hops
                )
                self._budgets.put(flow.deadline_ns(kind), demand)

    def push(self, item: QueuedItem, now: Nanos) -> list[QueuedItem]:
        if isinstance(item.chunk, OutgoingParcel) and item.due_ns < NEVER:
            deadline_us = item.chunk.header.deadline_us
            last = len(RATES_BPS) if deadline_us % 1_000 == 0 else self._hop + 1
            item.budget_ns = self._budgets.budget(deadline_us * US) if self._variant.spacing is not None else 0
            if self._variant.plans:
                here, ahead = _weights(self._variant.split, self._hop, self._hop, last)
                item.plan_ns = now + max(0, item.due_ns - now) * here // ahead
        return super().push(item, now)


def _weights(split: Split | None, hop: int, first: int, last: int) -> tuple[int, int]:
    """How much this hop counts, and all from first to last together: each the same, or by the time for a byte."""
    if split is None:
        return 1, 1
    if split is Split.EQUAL:
        return 1, last - first
    per_byte = [8 * SECOND // rate_bps for rate_bps in RATES_BPS]
    return per_byte[hop], sum(per_byte[first:last])


def network() -> Network:
    return Network(
        brokers=tuple(BrokerSpec(name=name) for name in BROKERS),
        links=tuple(
            Link(ends=ends, latency_ns=latency_ns, rate_bps=rate_bps, queue_bytes=QUEUE_BYTES)
            for ends, latency_ns, rate_bps in zip(pairwise(BROKERS), LATENCIES_NS, RATES_BPS, strict=True)
        ),
        topics=tuple(
            Topic(
                filter=f"{kind.name}/{flow.name}/#",
                deadline_ns=flow.deadline_ns(kind),
                reliability="reliable" if kind.reliable else "best-effort",
                routing="single",
            )
            for kind, flow in product(KINDS, FLOWS)
        ),
        subscribers=tuple(
            Subscriber(broker=BROKERS[flow.last], topic=f"{kind.name}/{flow.name}/#")
            for kind, flow in product(KINDS, FLOWS)
        ),
        simulation=Simulation(settle_ns=5 * SECOND),
    )


def arrivals(flow: Flow, kind: Kind, load: float, duration_ns: Nanos, rng: Random) -> Iterator[Nanos]:
    bytes_mean = sum(kind.sizes) / 2 + OVERHEAD_BYTES
    gap_ns = 8 * bytes_mean * SECOND / (load * flow.rate_bps * kind.share)
    at = rng.expovariate(1) * gap_ns
    while at < duration_ns:
        yield int(at)
        at += rng.expovariate(1) * gap_ns


@dataclass
class Tally:
    offered: int = 0
    in_time: int = 0


def run(variant: Variant, load: float, seed: int, duration_ns: Nanos) -> dict[tuple[str, str], Tally]:
    """What came of each class and flow."""
    world = World(network(), seed=seed, scheduling=variant.policy, duration_ns=duration_ns)
    world.engine.run_until(0)
    for hop, (here, there) in enumerate(pairwise(BROKERS)):
        world.hosts[here].core._neighbours[there].queue = StudyQueue(variant, hop)
    rng = Random(seed)
    tallies = {}
    for kind, flow in product(KINDS, FLOWS):
        low, high = kind.sizes
        publishers = [
            world.add_hand_publisher(
                BROKERS[flow.first], f"{kind.name}/{flow.name}/{n}", low + (high - low) * (2 * n + 1) // (2 * SIZES)
            )
            for n in range(SIZES)
        ]
        tally = tallies[kind.name, flow.name] = Tally()
        for at in arrivals(flow, kind, load, duration_ns, rng):
            world.engine.at(at, _publish, rng.choice(publishers))
            tally.offered += 1
    report = world.run()
    for (kind_name, flow_name), tally in tallies.items():
        tally.in_time = report.topics[f"{kind_name}/{flow_name}/#"].in_time
    return tallies


def _publish(publisher: SimulatedPublisher) -> None:
    publisher.publish()


def rates(tallies: dict[tuple[str, str], Tally]) -> dict[str, float]:
    """In time, in percent of what was published: each class over three hops, all over three hops, all."""

    def rate(kinds: list[str], flows: list[str]) -> float:
        chosen = [tallies[kind, flow] for kind, flow in product(kinds, flows)]
        return 100 * sum(tally.in_time for tally in chosen) / sum(tally.offered for tally in chosen)

    names = [kind.name for kind in KINDS]
    through = [flow.name for flow in FLOWS if flow.is_through]
    return {
        **{name: rate([name], through) for name in names},
        THREE_HOPS: rate(names, through),
        EVERYTHING: rate(names, [flow.name for flow in FLOWS]),
    }


Results = dict[str, dict[str, dict[str, list[float]]]]
"""By load, variant and column: one figure per seed."""


def show(results: Results, console: Console) -> None:
    for load in sorted(results, key=float):
        table = Table(title=f"Load {load}: in time, percent (mean ± standard deviation over the seeds)")
        table.add_column("variant")
        for column in (*(kind.name for kind in KINDS), THREE_HOPS, EVERYTHING):
            table.add_column(column, justify="right")
        for variant, columns in results[load].items():
            cells = [
                f"{mean(figures):.1f} ±{stdev(figures) if len(figures) > 1 else 0:.1f}" for figures in columns.values()
            ]
            table.add_row(variant, *cells)
        console.print(table)


def swap_sizes() -> None:
    global KINDS  # noqa: PLW0603
    sizes = [kind.sizes for kind in reversed(KINDS)]
    KINDS = tuple(replace(kind, sizes=size) for kind, size in zip(KINDS, sizes, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", default="0.9,1.2,2.0")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--variants", default="", help="only those whose name begins so")
    parser.add_argument("--step-ms", type=int, default=STEP_NS // MS, help="between the budgets of H8")
    parser.add_argument("--swap-sizes", action="store_true", help="the tightest deadlines for the largest messages")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    if options.swap_sizes:
        swap_sizes()
    results: Results = json.loads(options.out.read_text()) if options.out.exists() else {}
    variants = [
        replace(variant, step_ns=options.step_ms * MS)
        for variant in VARIANTS
        if variant.name.startswith(options.variants)
    ]
    runs = list(product(options.loads.split(","), variants, map(int, options.seeds.split(","))))
    for load in options.loads.split(","):
        results[load] = {}
    for load, variant, seed in track(runs, "Simulating"):
        tallies = run(variant, float(load), seed, int(options.seconds * SECOND))
        columns = results[load].setdefault(variant.name, {})
        for column, figure in rates(tallies).items():
            columns.setdefault(column, []).append(round(figure, 3))
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")
    show(results, Console(width=120))


if __name__ == "__main__":
    main()
