"""What a message costs a broker at its source, on its way and at its destination, against reading it as MQTT.

    python bench/cost.py [--rounds 15]

Three brokers in a row, no network: a publishes 64 messages of 64 bytes in a turn, they travel in one parcel through b
to c. Compared with `mqtt5.read`, a compiled decoder, on the same messages as PUBLISH packets.

    in and out         publishing, making the parcel's bytes, and from the frame to the messages at the far end: no more
                       than 3 x mqtt5.read is the aim
    with flush         the same with all of the source's flush, so with routing and queueing; no aim of its own
    pack + unpack      of it, the bytes alone, without what the source decides
    end to end         all that a does until it has sent them, and all that c does until they are delivered
    transit            what b does: at least 20 x cheaper per message in a parcel of 64 than in a parcel of one

Everything is measured in turn, over and over; figures are medians. Writes bench/out/cost.json.
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
HEADINGS = ("read", "publish", "flush", "pack", "pull", "unpack", "receive", "transit", "alone")
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
