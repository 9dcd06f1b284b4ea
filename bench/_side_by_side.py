"""Shared by bench/broker.py and bench/chain.py: command-line options, the run, and the saved results.

bench/wan.py uses parts of it.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from _peers import Mosquitto, Peer, install_mosquitto
from _turns import Extent, Found, Measure, S, Turns

OUT = Path(__file__).parent / "out"
COMPILED_BUILD = Path(__file__).parent.parent / "scripts" / "compiled_build.py"
WIDTH = 120
"""Of what goes to a file."""


def options(description: str, measures: Mapping[str, Measure[S]], peers: Sequence[Peer]) -> argparse.Namespace:
    names = [key(peer) for peer in peers]
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="two rounds of a second each")
    parser.add_argument("--only", type=Among(measures), default=[], help=f"of {', '.join(measures)}")
    parser.add_argument("--systems", type=Among(names), default=[], help=f"of {', '.join(names)}")
    parser.add_argument("--against", type=Path, help="a checkout of another version, which takes turns with this one")
    parser.add_argument(
        "--compiled", action="store_true", help="the compiled build of this version too, in turns (getting-started.md)"
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="that a round measures")
    parser.add_argument("--nice", type=int, default=0, help="for brokers and load alike; below 0 needs to be root")
    parser.add_argument("--no-real-time", dest="real_time", action="store_false", help="for latency")
    parser.add_argument("--install", action="store_true", help="install mosquitto with apt-get if it is missing")
    return parser.parse_args()


def run(
    chosen: argparse.Namespace,
    name: str,
    measures: Mapping[str, Measure[S]],
    peers: Sequence[Peer],
    measured: Callable[[Turns, str], Found],
    show: Callable[[Console, str, Found], None],
    aims: Callable[[Mapping[str, Found]], dict[str, bool]],
) -> None:
    """Measures what was chosen, shows each as it is found, judges the aims, and saves all in `NAME.json`."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    if chosen.nice:
        os.nice(chosen.nice)
    if chosen.install and Mosquitto().missing() is not None:
        install_mosquitto()
    OUT.mkdir(exist_ok=True)
    rounds = chosen.rounds or (2 if chosen.quick else 5)
    extent = Extent(chosen.seconds or (1.0 if chosen.quick else 2.0))
    results: dict[str, Found] = {}
    load_before = os.getloadavg()
    # Beside the results, not where temporary files are: those may lie in memory, where waiting for the disk is free.
    with tempfile.TemporaryDirectory(dir=OUT, prefix=f"{name}-") as directory:
        turns = Turns(console, rounds, extent, Path(directory), chosen.real_time)
        for one in chosen.only or measures:
            found = measured(turns, one)
            if found:
                results[one] = found
                show(console, one, found)
    verdicts = aims(results)
    show_verdicts(console, verdicts)
    saved = {
        "machine": {**machine(), "load_before": load_before},
        "versions": {peer.name: peer.version() for peer in peers if peer.missing() is None},
        "rounds": results,
        "aims": verdicts,
        "left_out": turns.left_out,
    }
    (OUT / f"{name}.json").write_text(json.dumps(saved, indent=1))
    console.print(f"wrote bench/out/{name}.json")


def others(chosen: argparse.Namespace) -> dict[str, Path]:
    """What takes turns with the installed version, by the name that it is shown by: the folders of its packages."""
    found = {}
    if chosen.against is not None:
        found[f"Overlane {chosen.against.name}"] = chosen.against / "src"
    if chosen.compiled:
        done = subprocess.run([sys.executable, COMPILED_BUILD], stdout=subprocess.PIPE, text=True, check=True)
        found["Overlane, compiled"] = Path(done.stdout.strip())
    return found


def key(peer: Peer) -> str:
    """By what a system is chosen: the first word of its name, in small letters."""
    return peer.name.split()[0].strip(",").lower()


def machine() -> dict[str, object]:
    """What figures depend on."""
    return {"cores": os.cpu_count(), "kernel": platform.release(), "python": sys.version.split()[0]}


def show_verdicts(console: Console, verdicts: Mapping[str, bool]) -> None:
    for text, holds in verdicts.items():
        console.print(f"[green]holds[/]   {text}" if holds else f"[red]misses[/]  {text}", highlight=False)


@dataclass(frozen=True, slots=True, eq=False)
class Among:
    """Names with commas between them, each of them allowed."""

    allowed: Collection[str]

    def __call__(self, text: str) -> list[str]:
        found = text.split(",")
        for one in found:
            if one not in self.allowed:
                raise argparse.ArgumentTypeError(f"{one!r} is not one of {', '.join(self.allowed)}")
        return found
