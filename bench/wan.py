"""A wide area on one machine: the same network, faults and messages for Overlane and other systems.

    direct         five cities, faults on the direct path only: quiet, 1 % loss, 5 % loss, +60 ms, cut, healed. The
                   deadline is 60 ms; an alternative path takes 34 ms, the direct path 30
    bursts         bursts of 30 % loss on all paths of the source, then on all of the destination
    killed         no direct path: the intermediate broker in use is killed
    congested      the direct path has 10 Mbit/s, and is shared with bulk, first through the brokers, then beside them
    uplinks        the destination has two uplinks, and the one in use is unplugged
    cases-single   an edge, a router, an edge: eight cases of 30 ms without loss and 250 ms with 1 %
    cases-extra    the same with a path between the edges

Each site is a network namespace with a broker of its own; packets between sites are delayed, lost, paced and queued one
by one (`overlane.testbed.wide_area`), so TCP behaves as in a real wide area. A publisher at one site sends numbered
messages at a constant rate, a subscriber at another records when each arrives, both by the clock of the one machine.
The benchmark sets up every system with the configuration that suits it best (`_wan_peers`, `_wan_rabbit`).

Needs root. Emulator, brokers and load run with real-time priority if allowed. Missing systems are reported and skipped.
Writes bench/out/wan.json, all of its figures as tables in bench/out/wan.md, and bench/out/wan-SCENARIO.svg with the
share in time over time. `--add` keeps earlier results of other scenarios.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from rich.console import Console

from _crew import LoadFailed
from _peers import Unavailable
from _side_by_side import OUT, WIDTH, Among, machine, show_verdicts
from _wan_judge import figures, over_time, overall
from _wan_peers import MosquittoTree, NatsCluster, NatsLeaves, NoBroker, OverlaneOverlay, System, ZenohMesh
from _wan_rabbit import RabbitFederation
from _wan_scenarios import PhaseSeconds, Scenario, scenarios
from _wan_tables import STEP_S, PhaseRow, ScenarioRow, SystemRow, aims, described, draw, show
from _wan_tiers import OverlaneTiers
from _wan_trial import Found, Trial
from overlane import errors
from overlane.testbed.wide_area import why_not

SYSTEMS: tuple[System, ...] = (
    OverlaneOverlay("overlane", "Overlane", "mqtt-0"),
    OverlaneOverlay("overlane-qos1", "Overlane, QoS 1", "mqtt-1"),
    OverlaneOverlay("overlane-tcp", "Overlane, TCP alone", "mqtt-0", transport="stream"),
    OverlaneOverlay("overlane-rates", "Overlane, rates in the file", "mqtt-0", knows_rates=True),
    OverlaneTiers("overlane-tiers", "Overlane, two tiers", "mqtt-0"),
    NatsCluster("nats-cluster", "NATS cluster", "nats"),
    NatsLeaves("nats-leaf", "NATS leaf nodes", "nats"),
    ZenohMesh("zenoh", "Zenoh", "zenoh"),
    MosquittoTree("mosquitto", "Mosquitto bridges", "mqtt-1"),
    RabbitFederation("rabbitmq", "RabbitMQ federation", "mqtt-1"),
    NoBroker("tcp", "TCP, no broker", "tcp"),
    NoBroker("udp", "UDP, no broker", "udp"),
)
PHASE_S, QUICK_PHASE_S = 12.0, 4.0
PER_SECOND, PAYLOAD_BYTES = 100.0, 64
MAY_BE_NONE = ("recovered_s", "struck")
PACKAGES = ("mosquitto", "rabbitmq-server")


@dataclass(slots=True)
class Bench:
    console: Console
    chosen: argparse.Namespace
    directory: Path
    left_out: dict[str, str] = field(default_factory=dict)
    started: int = 0

    def measure(self, scenario: Scenario) -> ScenarioRow:
        rows = dict[str, SystemRow]()
        for system in self._systems(scenario):
            with self.console.status(f"{scenario.title}: {system.name}"):
                try:
                    rows[system.name] = self._row(scenario, self._run(system, scenario))
                except (LoadFailed, Unavailable, errors.Unavailable) as why:
                    self._leave_out(f"{system.name}, {scenario.name}", str(why))
        spans = [(span.name, span.from_s, span.to_s) for span in scenario.spans]
        return ScenarioRow(scenario.title, scenario.deadline_ms, scenario.quickest_ms, spans, scenario.duration_s, rows)

    def _run(self, system: System, scenario: Scenario) -> Found:
        self.started += 1
        directory = self.directory / f"{self.started}-{scenario.name}-{system.key}"
        watched = self.chosen.watch and isinstance(system, OverlaneOverlay)
        trial = Trial(
            system,
            scenario,
            directory,
            self.chosen.rate,
            PAYLOAD_BYTES,
            seed=self.chosen.seed,
            with_real_time=self.chosen.real_time,
            congestion=self.chosen.congestion,
            watch=watched,
        )
        return trial.run()

    @staticmethod
    def _row(scenario: Scenario, found: Found) -> SystemRow:
        by_phase = {phase.name: figures(found.stream, phase) for phase in found.phases}
        sent = sum(one.sent for one in by_phase.values())
        all_ = overall(by_phase)
        began_ns = found.began_ns
        return SystemRow(
            phases={
                name: PhaseRow(one, wire_bytes / max(1, one.sent), lost)
                for (name, one), wire_bytes, lost in zip(
                    by_phase.items(), found.wire_bytes, found.lost_packets, strict=True
                )
            },
            in_time=all_["in_time"],
            delivered=all_["delivered"],
            duplicated=int(all_["duplicated"]),
            worst_phase=all_["worst_phase"],
            bytes_per_message=sum(found.wire_bytes) / max(1, sent),
            over_time=over_time(
                found.stream, began_ns, began_ns + round(scenario.duration_s * 1e9), round(STEP_S * 1e9)
            ),
            struck=found.struck,
            load_average=os.getloadavg()[0],
        )

    def _systems(self, scenario: Scenario) -> Sequence[System]:
        found = []
        for system in SYSTEMS:
            if self.chosen.systems and system.key not in self.chosen.systems:
                continue
            if (missing := system.missing()) is not None:
                self._leave_out(system.name, missing)
            elif (why := system.cannot(scenario)) is not None:
                self._leave_out(f"{system.name}, {scenario.name}", why)
            else:
                found.append(system)
        return found

    def _leave_out(self, what: str, why: str) -> None:
        if self.left_out.get(what) != why:
            self.console.print(f"[yellow]left out[/]  {what}: {why}", highlight=False)
            self.left_out[what] = why


def main() -> None:
    chosen = _options()
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH + 60)
    if (why := why_not()) is not None:
        console.print(f"[yellow]left out[/]  all of it: {why}", highlight=False)
        return
    if chosen.install:
        command = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *PACKAGES]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    OUT.mkdir(exist_ok=True)
    all_of_them = scenarios(chosen.seconds or PhaseSeconds(str(QUICK_PHASE_S if chosen.quick else PHASE_S)))
    results = _measured_before() if chosen.add else {}
    with _directory(keep=chosen.keep) as directory:
        bench = Bench(console, chosen, directory)
        for name in chosen.only or all_of_them:
            results[name] = bench.measure(all_of_them[name])
            show(console, results[name])
            draw(results[name], OUT / f"wan-{name}.svg")
            _save(results, bench.left_out, chosen.congestion)
    show_verdicts(console, aims(results))
    console.print("wrote bench/out/wan.json, bench/out/wan.md and a picture of each scenario, bench/out/wan-*.svg")


def _measured_before() -> dict[str, ScenarioRow]:
    if not (OUT / "wan.json").exists():
        return {}
    before = json.loads((OUT / "wan.json").read_text())
    return msgspec.convert(_with_nan(before["scenarios"]), dict[str, ScenarioRow])


def _with_nan(saved: object) -> object:
    """What is no number, such as the latency of nothing, is null in JSON."""
    if isinstance(saved, dict):
        return {
            name: math.nan if one is None and name not in MAY_BE_NONE else _with_nan(one) for name, one in saved.items()
        }
    return [math.nan if one is None else _with_nan(one) for one in saved] if isinstance(saved, list) else saved


@contextmanager
def _directory(*, keep: bool) -> Iterator[Path]:
    """Beside the results, not where temporary files are: those may lie in memory, where a disk costs nothing."""
    directory = Path(tempfile.mkdtemp(dir=OUT, prefix="wan-"))
    try:
        yield directory
    finally:
        if not keep:
            shutil.rmtree(directory)


def _save(results: dict[str, ScenarioRow], left_out: dict[str, str], congestion: str) -> None:
    """After each scenario: the whole takes an hour."""
    saved = {
        "machine": {**machine(), "congestion_control": congestion},
        "versions": {system.name: system.version() for system in SYSTEMS if system.missing() is None},
        "scenarios": results,
        "aims": aims(results),
        "left_out": left_out,
    }
    (OUT / "wan.json").write_bytes(msgspec.json.format(msgspec.json.encode(saved), indent=1))
    (OUT / "wan.md").write_text("\n".join(line for one in results.values() for line in described(one)))


def _options() -> argparse.Namespace:
    names, keys = tuple(scenarios(PhaseSeconds(str(PHASE_S)))), tuple(system.key for system in SYSTEMS)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"phases of {QUICK_PHASE_S:g} s")
    parser.add_argument("--only", type=Among(names), default=[], help=f"of {', '.join(names)}")
    parser.add_argument("--systems", type=Among(keys), default=[], help=f"of {', '.join(keys)}")
    parser.add_argument(
        "--seconds", type=PhaseSeconds, help=f"of a phase, {PHASE_S:g} by default; or by scenario: 4,direct=12"
    )
    parser.add_argument("--add", action="store_true", help="keep other scenarios that were measured before")
    parser.add_argument("--rate", type=float, default=PER_SECOND, help=f"messages a second, {PER_SECOND:g} by default")
    parser.add_argument("--seed", type=int, default=1, help="of the losses")
    parser.add_argument("--congestion", default="cubic", help="TCP's congestion control at all sites: cubic, bbr, reno")
    parser.add_argument("--no-real-time", dest="real_time", action="store_false")
    parser.add_argument("--install", action="store_true", help="install mosquitto and rabbitmq-server with apt-get")
    parser.add_argument("--keep", action="store_true", help="keep logs and what subscribers heard, in bench/out/wan-*/")
    parser.add_argument("--watch", action="store_true", help="ask Overlane all the while what it sees; with --keep")
    return parser.parse_args()


if __name__ == "__main__":
    main()
