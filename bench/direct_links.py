"""Eight cases of a deadline between two edges: over the routing tier, with a direct link that is opened on demand, and
in a flat overlay that has this link all the time.

    python bench/direct_links.py [--seconds 12]

The cases are those of `wan.py` (`cases-extra`): L1 and L2 lead over the routing broker, L3 is between the edges; A is
30 ms without loss, B 250 ms with 1 %. The deadline is 100 ms. One case follows the other, in one run, and each is
judged from two seconds after its beginning on; the table has the share in time, and the same from the beginning on.

Simulated time, real broker cores. A direct link is dialled one second after it is wanted: an assumption of what
looking up the other edge, a first refusal and the next attempt take (decision 27).
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from _wan_scenarios import CASES, SETTLES_S, Path
from overlane.core.bundles import BUNDLES
from overlane.core.config import BrokerConfig
from overlane.core.events import DirectLinksWanted
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.sim.setup import SimulationSetup
from overlane.sim.story import network_of
from overlane.sim.world import World

TOPIC = "alarms/hall/fire"
DEADLINE_NS: Nanos = 100 * MS
PER_SECOND = 100
EDGES = frozenset({"e1", "e2"})
L1, L2, L3 = ("e1", "r"), ("e2", "r"), ("e1", "e2")
DIALLED_AFTER: Nanos = 1 * SECOND
UNDER_WAY: Nanos = 1 * SECOND
"""What is published so shortly before the end of a case is judged by the next one, or not at all."""
KINDS = ("tier", "direct", "flat")


class DirectSetup(SimulationSetup):
    def config_of(self, name: str, failure: float) -> BrokerConfig:
        config = super().config_of(name, failure)
        return replace(config, direct=EDGES - {name}) if name in EDGES else config


@dataclass(frozen=True)
class Share:
    published: int = 0
    in_time: int = 0

    @property
    def percent(self) -> float:
        """Messages under way when a span begins are published before it and arrive in it: at most all are in time."""
        return min(100.0, 100 * self.in_time / self.published)

    def since(self, before: "Share") -> "Share":
        return Share(self.published - before.published, self.in_time - before.in_time)


class Edges:
    """Two edges and a routing broker. `direct`: L3 is there while the publishing edge wants it; `flat`: always."""

    def __init__(self, kind: str) -> None:
        latencies = dict.fromkeys((L1, L2) if kind == "tier" else (L1, L2, L3), 30 * MS)
        network = network_of(
            latencies, {TOPIC: DEADLINE_NS}, publishers=[("e1", TOPIC, PER_SECOND)], subscribers=[("e2", TOPIC)]
        )
        if kind == "flat":
            self.world = World(network, duration_ns=NEVER)
        else:
            self.world = World(
                network,
                duration_ns=NEVER,
                roles={**dict.fromkeys(EDGES, "edge"), "r": "routing"},
                assignment=dict.fromkeys(range(BUNDLES), "r"),
                plan=DirectSetup(network, None, None),
            )
        self.wanted: list[tuple[Nanos, bool]] = []
        self._is_wanted = kind == "flat"
        self._paths: Mapping[tuple[str, str], Path] = {}
        if kind == "direct":
            self.world.links[L3].cut()
            self.world.watch.direct_links_wanted = self._follow
        self.world.engine.run_until(0)

    def become(self, paths: Mapping[tuple[str, str], Path]) -> None:
        self._paths = paths
        for ends in paths.keys() & self.world.links.keys():
            self._set(ends)

    def run(self, time_ns: Nanos) -> None:
        self.world.engine.run_until(self.world.engine.now + time_ns)

    def share(self) -> Share:
        row = self.world.judge.rows[TOPIC]
        return Share(row.published, row.in_time)

    def _follow(self, _: str, effect: DirectLinksWanted) -> None:
        is_wanted = bool(effect.peers)
        self.wanted.append((self.world.engine.now, is_wanted))
        after = DIALLED_AFTER if is_wanted else 0
        self.world.engine.at(self.world.engine.now + after, self._open, is_wanted)

    def _open(self, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self._set(L3)
        if is_wanted:
            self.world.links[L3].dial_anew()

    def _set(self, ends: tuple[str, str]) -> None:
        link, path = self.world.links[ends], self._paths.get(ends)
        link.heal()
        if path is not None:
            link.slow(round(path.latency_ms * MS))
            link.lose(path.loss)
        if ends == L3 and not self._is_wanted:
            link.cut()


def run(kind: str, phase_s: float) -> dict[int, tuple[Share, Share]]:
    """By case: from two seconds after its beginning on, and from its beginning on."""
    edges = Edges(kind)
    found = {}
    for number, paths in CASES.items():
        edges.become(dict(zip((L1, L2, L3), paths, strict=True)))
        begin = edges.share()
        edges.run(round(SETTLES_S * SECOND))
        settled = edges.share()
        edges.run(round(phase_s * SECOND) - UNDER_WAY)
        end = edges.share()
        edges.run(UNDER_WAY)
        found[number] = end.since(settled), end.since(begin)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12.0, help="how long each case is judged")
    options = parser.parse_args()
    results = {kind: run(kind, options.seconds) for kind in KINDS}
    table = Table(title="In time over the tier, with a direct link on demand, and with a link that is always there")
    for name in ("case", *KINDS, *(f"{kind}, all" for kind in KINDS)):
        table.add_column(name, justify="right")
    for number, paths in CASES.items():
        name = f"{number}: " + "".join("B" if path.loss else "A" for path in paths)
        rows = [results[kind][number] for kind in KINDS]
        table.add_row(name, *(f"{one.percent:.1f} %" for pair in zip(*rows, strict=True) for one in pair))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
