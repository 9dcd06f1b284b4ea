"""Cost of the control traffic of an overlay and of its simulation, as the overlay grows.

    python bench/growth.py [--sizes 20,50,100,200] [--seconds 60] [--rate 0.1] [--beside OTHER/src]

The networks of scale.py: about four links and five topics per broker, with the same rate of faults in all of them
(twenty in five minutes). The frames that brokers send are counted from the moment publishers begin, except parcels, but
with the descriptions of routes that parcels carry: bytes per broker and second by kind of frame, and the number of link
adverts sent to each broker, which is the number it receives. Target: with 200 brokers at most twice the bytes per
broker and second of 20.

Every network runs in a separate process. `--beside` also runs it with the sources in another directory, directly after,
so that two versions can be compared in one run. Writes bench/out/growth.json.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import process_time

from rich.console import Console
from rich.table import Table

from overlane.core.broker import OverlayBroker
from overlane.core.events import Lane
from overlane.core.units import SECOND
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import decode
from overlane.core.wire.frame_codec import FrameType
from overlane.sim.host import Host
from overlane.sim.world import World
from scale import large

OUT = Path(__file__).parent / "out"
SOURCES = Path(__file__).parents[1] / "src"
SIZES = (20, 50, 100, 200)
FAULT_EVERY_S = 15.0
GROWTH_MAX = 2.0
FIRST_USE = "first use"
SINCE_FAULT_MS = 5_000


@dataclass(frozen=True)
class Row:
    sources: str
    brokers: int
    seconds: float
    start_processor_s: float
    """From nothing to the moment publishers begin: links, maps, subscriptions."""
    run_processor_s: float
    bytes_per_broker_s: float
    adverts_per_broker: float
    """Heard by each broker, per minute."""
    adverts_at_start: float
    by_kind: dict[str, float]
    """Bytes per broker and second."""
    in_time: float
    lost: int
    moves: int
    moved_after_ms: float | None
    """From a fault to the new route being in use: median of the routes that moved within SINCE_FAULT_MS."""
    established_after_ms: float | None
    """From the description of a route to its acknowledgement by all brokers on it: median."""


def measure(brokers: int, seconds: float, rate_hz: float, sources: str) -> Row:
    world = World(large(brokers, int(seconds * SECOND), max(1, round(seconds / FAULT_EVERY_S)), rate_hz))
    tap = Tap()
    for host in world.hosts.values():
        tap.listen(host)
    began = process_time()
    world.engine.run_until(0)
    start_s, at_start = process_time() - began, tap.adverts
    tap.clear()
    began = process_time()
    report = world.run()
    rows = report.topics.values()
    broker_seconds = brokers * seconds
    return Row(
        sources=sources,
        brokers=brokers,
        seconds=seconds,
        start_processor_s=start_s,
        run_processor_s=process_time() - began,
        bytes_per_broker_s=tap.sizes.total() / broker_seconds,
        adverts_per_broker=60 * tap.adverts / broker_seconds,
        adverts_at_start=at_start / brokers,
        by_kind={kind: size / broker_seconds for kind, size in tap.sizes.most_common()},
        in_time=sum(row.in_time for row in rows) / sum(row.expected for row in rows),
        lost=sum(row.lost for row in rows),
        moves=len(report.route_changes),
        moved_after_ms=_median(
            move.since_fault_ms
            for move in report.route_changes
            if move.cause != FIRST_USE and (move.since_fault_ms or 0) < SINCE_FAULT_MS
        ),
        established_after_ms=_median(move.established_after_ms for move in report.route_changes),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


class Tap:
    """Reads what brokers hand to their links."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.sizes = Counter[str]()
        self.adverts = 0

    def listen(self, host: Host[OverlayBroker]) -> None:
        pull = host.pull

        def tapped(peer: str, bytes_max: int, in_buffer: int) -> list[tuple[Lane, bytes]]:
            frames = pull(peer, bytes_max, in_buffer)
            for _, data in frames:
                self._read(data)
            return frames

        host.pull = tapped  # type: ignore[method-assign]  # what the links of this host call

    def _read(self, data: bytes) -> None:
        for kind, body in frame_codec.split(data)[0]:
            if kind in (FrameType.PARCEL, FrameType.DETOUR):
                continue
            name = FrameType(kind).name.lower()
            if kind == FrameType.CONTROL:
                name = type(decode(frame_codec.read_control(body)[1])).__name__
                self.adverts += name == "Advert"
            self.sizes[name] += frame_codec.FRAME_OVERHEAD + len(body)


def run_child(brokers: int, sources: Path, options: argparse.Namespace) -> Row:
    """Measure in a process of its own."""
    arguments = [f"--{name}={value}" for name, value in (("seconds", options.seconds), ("rate", options.rate))]
    found = subprocess.run(
        [sys.executable, __file__, f"--measure={brokers}", f"--sources={sources}", *arguments],
        env={**os.environ, "PYTHONPATH": str(sources)},
        check=True,
        capture_output=True,
        text=True,
    )
    return Row(**json.loads(found.stdout))


def show(rows: list[Row], console: Console) -> None:
    table = Table(title="Growth with the number of brokers", box=None)
    for heading in (
        "brokers",
        "start: CPU s",
        "adverts",
        "run: CPU s",
        "adverts/min",
        "B/s",
        "growth",
        "in time",
        "lost",
    ):
        table.add_column(heading, justify="right")
    for sources in dict.fromkeys(row.sources for row in rows):
        own = [row for row in rows if row.sources == sources]
        table.add_row(sources, style="bold")
        for row in own:
            table.add_row(
                f"{row.brokers}",
                f"{row.start_processor_s:.1f}",
                f"{row.adverts_at_start:.0f}",
                f"{row.run_processor_s:.1f}",
                f"{row.adverts_per_broker:.0f}",
                f"{row.bytes_per_broker_s:.0f}",
                f"{row.bytes_per_broker_s / own[0].bytes_per_broker_s:.2f}",
                f"{row.in_time:.2%}",
                f"{row.lost}",
            )
    console.print(table)
    for row in rows:
        kinds = ", ".join(f"{kind} {size:.0f}" for kind, size in row.by_kind.items() if size >= 1)
        console.print(f"{row.sources}, {row.brokers} brokers, B/s: {kinds}", highlight=False)
        reactions = (("moved", row.moved_after_ms), ("established", row.established_after_ms))
        times = [f"{what} after {ms:.0f} ms" for what, ms in reactions if ms is not None]
        console.print(f"{row.moves} routes planned; medians: {', '.join(times)}", highlight=False)
    for text, holds in verdicts(rows):
        console.print(f"[green]holds[/]   {text}" if holds else f"[red]misses[/]  {text}", highlight=False)


def verdicts(rows: list[Row]) -> list[tuple[str, bool]]:
    bytes_of = {row.brokers: row.bytes_per_broker_s for row in rows if row.sources == str(SOURCES)}
    low, high = min(SIZES), max(SIZES)
    if low not in bytes_of or high not in bytes_of:
        return []
    growth = bytes_of[high] / bytes_of[low]
    text = f"control bytes per broker and second, {high} brokers against {low}: {growth:.2f} x"
    text += f", at most {GROWTH_MAX:g} wanted"
    return [(text, growth <= GROWTH_MAX)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of brokers")
    parser.add_argument("--seconds", type=float, default=60.0, help="of virtual time")
    parser.add_argument("--rate", type=float, default=0.1, help="messages a second and topic")
    parser.add_argument("--beside", type=Path, help="the sources of another version, to run beside these")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--sources", default=str(SOURCES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(asdict(measure(options.measure, options.seconds, options.rate, options.sources))))
        return
    trees = [SOURCES] if options.beside is None else [options.beside.resolve(), SOURCES]
    sizes = [int(size) for size in options.sizes.split(",") if size]
    rows = [run_child(size, sources, options) for size in sizes for sources in trees]
    show(rows, Console())
    OUT.mkdir(exist_ok=True)
    aims = [{"aim": text, "holds": holds} for text, holds in verdicts(rows)]
    (OUT / "growth.json").write_text(json.dumps({"growth": [asdict(row) for row in rows], "aims": aims}, indent=1))


if __name__ == "__main__":
    main()
