"""One broker beside its peers: Overlane, Mosquitto, NATS and Zenoh, measured side by side in one run.

    python bench/broker.py [--quick] [--only small,latency] [--systems overlane,nats] [--rounds 5] [--seconds 2]

    small, large       messages a second, 64 bytes and 1 KiB, QoS 0, one publisher that floods, one subscriber that
                       counts. Aim at 64 bytes: at least 2 x Mosquitto and 0.8 x NATS
    latency            at 5,000 messages a second; p99 at most 1.5 x that of the best. Where that is allowed, brokers
                       and load run with real-time priority for it, so that other work on the machine is not measured
    fanout             deliveries a second to 100 subscribers
    connections        memory per idle connection
    subscriptions      memory per subscription
    durable            acknowledged messages a second at QoS 1 into a persistent session, with and without waiting for
                       the disk. Aim: 20,000 with. Mosquitto beside it never waits: what it has acknowledged since it
                       last saved, every half an hour, is lost when it is killed

Load comes from processes of their own, over raw sockets for MQTT and NATS (`_load.py`), and by its own library for
Zenoh (`_zenoh_load.py`), so there what Python takes per message counts too. Every message has a number: what is lost or
out of order is seen. "no broker" is the load by itself.

Brokers take turns, round by round, each time in another order; figures are medians over rounds, ratios are taken within
a round. What is not installed is said and left out. Writes bench/out/broker.json.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from _broker_measures import MEASURES, Extent, Figures, Measure, once
from _broker_tables import Found, aims, show
from _crew import LoadFailed
from _peers import (
    Mosquitto,
    NatsServer,
    Nobody,
    Overlane,
    Peer,
    Running,
    Unavailable,
    ZenohRouter,
    install_mosquitto,
    running,
)

OUT = Path(__file__).parent / "out"
PEERS: tuple[Peer, ...] = (Overlane(), Mosquitto(), NatsServer(), ZenohRouter())
KEEPERS: tuple[Peer, ...] = (
    Overlane(),
    Overlane("Overlane --no-sync", sync=False),
    Mosquitto("Mosquitto, no sync", persistent=True),
)
WIDTH = 120
"""Of what goes to a file."""
WITHOUT_BROKER = ("small", "large", "latency")


@dataclass(slots=True)
class Bench:
    console: Console
    systems: frozenset[str]
    rounds: int
    extent: Extent
    directory: Path
    real_time: bool
    left_out: dict[str, str] = field(default_factory=dict)
    there: dict[str, bool] = field(default_factory=dict)
    started: int = 0

    def candidates(self, name: str) -> list[Peer]:
        peers = [*KEEPERS] if name == "durable" else [*PEERS]
        if name in WITHOUT_BROKER:
            peers.append(Nobody())
        chosen = [peer for peer in peers if not self.systems or key(peer) in self.systems or isinstance(peer, Nobody)]
        return [peer for peer in chosen if self._is_there(peer)]

    def measure(self, name: str, measure: Measure) -> Found:
        peers = self.candidates(name)
        found: Found = {peer.name: [] for peer in peers}
        with ExitStack() as stack, self.console.status("") as status:
            if measure.at_once and self.real_time:
                stack.enter_context(self._real_time())
            brokers = {} if measure.fresh else self._start(peers, stack)
            for number in range(1 if measure.fresh else self.rounds):
                turn = number % max(1, len(peers))
                for peer in [*peers[turn:], *peers[:turn]]:
                    status.update(f"{measure.title}: {peer.name}, round {number + 1}")
                    figures = self._round(measure, peer, brokers.get(peer.name))
                    if figures is not None:
                        found[peer.name].append(figures)
        return {peer: rounds for peer, rounds in found.items() if rounds}

    @contextmanager
    def _real_time(self) -> Iterator[None]:
        """For this process and those it starts meanwhile."""
        before, usual = os.sched_getscheduler(0), os.sched_getparam(0)
        try:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        except PermissionError:
            self.console.print("[yellow]without real-time priority[/]: what else runs here counts as latency")
        try:
            yield
        finally:
            os.sched_setscheduler(0, before, usual)

    def _start(self, peers: Sequence[Peer], stack: ExitStack) -> dict[str, Running]:
        brokers = {}
        for peer in peers:
            try:
                brokers[peer.name] = stack.enter_context(running(peer, self._fresh_directory()))
            except Unavailable as why:
                self._leave_out(peer, str(why))
        return brokers

    def _round(self, measure: Measure, peer: Peer, broker: Running | None) -> Figures | None:
        try:
            if measure.fresh:
                return once(measure, peer, self._fresh_directory(), self.extent)
            return measure.round(broker, self.extent) if broker is not None else None
        except (LoadFailed, Unavailable, FileNotFoundError) as why:
            self._leave_out(peer, f"{measure.title}: {why}")
            return None

    def _is_there(self, peer: Peer) -> bool:
        if peer.name not in self.there:
            missing = peer.missing()
            if missing is not None:
                self._leave_out(peer, missing)
            self.there[peer.name] = missing is None
        return self.there[peer.name]

    def _leave_out(self, peer: Peer, why: str) -> None:
        if self.left_out.get(peer.name) != why:
            self.console.print(f"[yellow]left out[/]  {peer.name}: {why}", highlight=False)
            self.left_out[peer.name] = why

    def _fresh_directory(self) -> Path:
        self.started += 1
        return self.directory / str(self.started)


def main() -> None:
    options = _options()
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    if options.nice:
        os.nice(options.nice)
    if options.install and Mosquitto().missing() is not None:
        install_mosquitto()
    OUT.mkdir(exist_ok=True)
    rounds = options.rounds or (2 if options.quick else 5)
    seconds = options.seconds or (1.0 if options.quick else 2.0)
    results: dict[str, Found] = {}
    # Beside the results, not where temporary files are: those may lie in memory, where waiting for the disk is free.
    with tempfile.TemporaryDirectory(dir=OUT, prefix="broker-") as directory:
        bench = Bench(console, frozenset(options.systems), rounds, Extent(seconds), Path(directory), options.real_time)
        for name in options.only or MEASURES:
            found = bench.measure(name, MEASURES[name])
            if found:
                results[name] = found
                show(console, name, MEASURES[name], found)
    verdicts = aims(results)
    for text, holds in verdicts.items():
        console.print(f"[green]holds[/]   {text}" if holds else f"[red]misses[/]  {text}", highlight=False)
    _save(results, verdicts, bench.left_out)
    console.print("wrote bench/out/broker.json")


def key(peer: Peer) -> str:
    """By what a system is chosen: the first word of its name, in small letters."""
    return peer.name.split()[0].strip(",").lower()


def _save(results: Mapping[str, Found], verdicts: Mapping[str, bool], left_out: Mapping[str, str]) -> None:
    saved = {
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "python": sys.version.split()[0]},
        "versions": {peer.name: peer.version() for peer in PEERS if peer.missing() is None},
        "rounds": results,
        "aims": verdicts,
        "left_out": left_out,
    }
    (OUT / "broker.json").write_text(json.dumps(saved, indent=1))


def _options() -> argparse.Namespace:
    names = [key(peer) for peer in PEERS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rounds of a second each")
    parser.add_argument("--only", type=_among(MEASURES), default=[], help=f"of {', '.join(MEASURES)}")
    parser.add_argument("--systems", type=_among(names), default=[], help=f"of {', '.join(names)}")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="that a round measures")
    parser.add_argument("--nice", type=int, default=0, help="for brokers and load alike; below 0 needs to be root")
    parser.add_argument("--no-real-time", dest="real_time", action="store_false", help="for latency")
    parser.add_argument("--install", action="store_true", help="install mosquitto with apt-get if it is missing")
    return parser.parse_args()


class _among:  # noqa: N801 - reads as a function
    def __init__(self, allowed: Sequence[str] | Mapping[str, object]) -> None:
        self._allowed = allowed

    def __call__(self, text: str) -> list[str]:
        found = text.split(",")
        for one in found:
            if one not in self._allowed:
                raise argparse.ArgumentTypeError(f"{one!r} is not one of {', '.join(self._allowed)}")
        return found


if __name__ == "__main__":
    main()
