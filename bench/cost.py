"""CPU cost of a message at its source, at a broker in between and at its destination, relative to decoding it from
MQTT.

    python bench/cost.py [--rounds 15]

Three brokers in a row, no network: a publishes 64 messages of 64 bytes in a turn, which are sent in one parcel through
b to c. The unit is `mqtt5.read`, a compiled decoder, on the same messages as PUBLISH packets.

    in and out         publishing, encoding the parcel, and from the frame to the messages at the destination; the
                       target is at most 3 x mqtt5.read, which processors run at different speeds
    with flush         the same with the complete flush of the source, so with routing and queueing; no target
    pack + unpack      encoding and decoding only, without the decisions of the source
    end to end         all work of a until it has sent them, and all work of c until they are delivered
    transit            the work of b: at least 20 x cheaper per message in a parcel of 64 than in a parcel of one

The measurements alternate; figures are medians. Writes bench/out/cost.json.
"""

import argparse
import json
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from _cost_measures import CLASSES, measure, typical

OUT = Path(__file__).parent / "out" / "cost.json"
PACKING_MAX = 3.0
TRANSIT_MIN = 20.0
HEADINGS = ("read", "interpreted", "publish", "flush", "pack", "pull", "unpack", "receive", "transit", "alone")
RATIOS = ("in and out", "with flush", "pack+unpack", "end to end", "transit")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    console = Console()
    table = Table(title="Nanoseconds per message; the last five against mqtt5.read and a parcel of one", box=None)
    table.add_column("class", no_wrap=True)
    for heading in HEADINGS + RATIOS:
        table.add_column(heading, justify="right")
    saved = dict[str, dict[str, float]]()
    for name, qos in CLASSES.items():
        costs = measure(qos, options.rounds)
        plain = {field: typical(costs, attrgetter(field)) for field in asdict(costs[0])}
        ratios = {
            "packing": typical(costs, lambda one: one.packing),
            "with_flush": typical(costs, lambda one: one.with_flush),
            "codec": typical(costs, lambda one: one.codec),
            "end_to_end": typical(costs, lambda one: one.end_to_end),
            "transit_gain": typical(costs, lambda one: one.transit_gain),
        }
        saved[name] = {**{f"{field}_ns": value for field, value in plain.items()}, **ratios}
        table.add_row(
            name, *(f"{value:.0f}" for value in plain.values()), *(f"{value:.2f} x" for value in ratios.values())
        )
    console.print(table)
    for name, figures in saved.items():
        packing, gain = figures["packing"], figures["transit_gain"]
        _say(
            console,
            f"{name}: publish, pack and unpack {packing:.2f} x mqtt5.read, at most {PACKING_MAX:g}",
            packing <= PACKING_MAX,
        )
        _say(
            console,
            f"{name}: transit {gain:.1f} x cheaper by the parcel, at least {TRANSIT_MIN:g}",
            gain >= TRANSIT_MIN,
        )
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(saved, indent=1))
    console.print("wrote bench/out/cost.json")


def _say(console: Console, text: str, holds: bool) -> None:
    console.print(f"[green]holds[/]   {text}" if holds else f"[red]misses[/]  {text}", highlight=False)


if __name__ == "__main__":
    main()
