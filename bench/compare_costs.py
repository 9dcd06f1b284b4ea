"""Cost of a message, compared with the committed figures: opcodes of the interpreter, and CPU time.

    python bench/compare_costs.py [--only opcodes] [--write]

    lone a, b, c     opcodes of a single message, at each of three brokers in a row (`lone.py`)
    ordinary a, c    opcodes of a single message that is not on the fast path: with a payload format
    QoS 1, one       opcodes of a message at one broker, of 20 that a publisher writes at once into a durable session,
                     with its acknowledgements on both sides; without the disk
    chain, CPU       CPU time of three brokers for a message of the mixed load (`mixed.py --only chain-1`), in
                     units of `mqtt5.read` of one message

Opcodes are the same on every machine, even a busy one, and differ with the version of Python: a figure may be 2 % above
the committed one. CPU time is not: it may be 50 % above. A larger increase is reported, and the exit status is 1. A
decrease of 2 % or 50 % is reported as well: commit the new figures, or the next change may lose them unnoticed.

The figures are in bench/costs.json; --write replaces those that were measured.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time_ns
from types import CodeType, FrameType
from typing import Any

import mqtt5
from rich.console import Console
from rich.table import Table

from _lone_row import PAYLOAD, PUBLISH, TOPIC, LoneRow
from _qos1_row import IN_FLIGHT, Qos1Row
from lone import one, opcodes

ORDINARY = mqtt5.PublishPacket(TOPIC, PAYLOAD, payload_format_indicator=1).write()
"""A message that the broker has to look at."""
FIGURES = Path(__file__).parent / "costs.json"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
TOLERANCES = {"opcodes": 0.02, "cpu": 0.5}
WARM = 100
MESSAGES = 60
ROUNDS = 30
READS = 20_000

Figures = dict[str, float]


def opcodes_of_lone(messages: int = MESSAGES) -> Figures:
    """The least of many: pings, timers and other things that brokers do now and then are not the message's."""
    plain = _opcodes_of(PUBLISH, messages)
    ordinary = _opcodes_of(ORDINARY, messages)
    found = {f"lone {broker}": count for broker, count in plain.items()}
    return found | {f"ordinary {broker}": ordinary[broker] for broker in "ac"}


def _opcodes_of(message: bytes, messages: int) -> Figures:
    row = LoneRow(message=message)
    for _ in range(WARM):
        one(row, lambda _, work: work())
    counted = [opcodes(row, messages=1) for _ in range(messages)]
    return {broker: min(counts[broker].total() for counts in counted) for broker in "abc"}


def opcodes_of_qos1(rounds: int = ROUNDS) -> Figures:
    row = Qos1Row()
    found = []
    for number in range(rounds + 10):
        packets = row.window()
        count = counted(partial(row.publish, packets))
        acks = row.acknowledgements()
        count += counted(partial(row.acknowledge, acks))
        if number >= 10:  # by then every topic has been published on
            found.append(count / IN_FLIGHT)
    return {"QoS 1, one": min(found)}


def counted(work: Callable[[], object]) -> int:
    counts: Counter[CodeType] = Counter()

    def count(frame: FrameType, event: str, _argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            counts[frame.f_code] += 1
        return count

    sys.settrace(count)
    work()
    sys.settrace(None)
    return counts.total()


def cpu_of_chain() -> Figures:
    from _chain_peers import row
    from _mixed_measures import MEASURES
    from _turns import Extent
    from mixed import Overlane

    with tempfile.TemporaryDirectory() as directory, row(Overlane(), Path(directory) / "row") as brokers:
        found = [MEASURES["chain-1"].round(brokers, Extent(1.0))["cpu_ns"] / read_ns() for _ in range(3)]
    return {"chain, CPU": min(found)}


def read_ns() -> float:
    """Processor time of `mqtt5.read` of one message, now."""
    buffer = memoryview(PUBLISH)
    rounds = []
    for _ in range(5):
        start = process_time_ns()
        for _ in range(READS):
            mqtt5.read(buffer)
        rounds.append((process_time_ns() - start) / READS)
    return median(rounds)


def compared(found: Figures, committed: Figures, tolerance: float) -> dict[str, str]:
    """What is to be told of each figure: "" if it is as committed."""
    told = {}
    for name, figure in found.items():
        share = figure / committed[name] if name in committed else None
        if share is None:
            told[name] = "not committed"
        elif share > 1 + tolerance:
            told[name] = "MORE"
        else:
            told[name] = "less: commit it" if share < 1 - tolerance else ""
    return told


def committed_figures(kind: str) -> Figures:
    """Those of opcodes hold for one version of Python; none if there are none for this one."""
    written = json.loads(FIGURES.read_text(encoding="utf-8"))
    found: Figures = written[kind].get(VERSION, {}) if kind == "opcodes" else written[kind]
    return found


def write(kind: str, found: Figures) -> None:
    written = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {"opcodes": {}, "cpu": {}}
    rounded = {name: round(figure, 1) for name, figure in found.items()}
    if kind == "opcodes":
        written["opcodes"][VERSION] = rounded
    else:
        written[kind] = rounded
    FIGURES.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=TOLERANCES, help="the other kind of figure takes no time")
    parser.add_argument("--write", action="store_true", help="replace the committed figures")
    options = parser.parse_args()
    console = Console()
    is_more = False
    for kind, tolerance in TOLERANCES.items():
        if options.only not in (None, kind):
            continue
        found = opcodes_of_lone() | opcodes_of_qos1() if kind == "opcodes" else cpu_of_chain()
        if options.write:
            write(kind, found)
        committed = committed_figures(kind)
        told = compared(found, committed, tolerance)
        is_more |= "MORE" in told.values()
        table = Table(kind, "now", "committed", "", title=f"at most {tolerance:.0%} more", box=None)
        for name, figure in found.items():
            table.add_row(name, f"{figure:,.1f}", f"{committed.get(name, 0):,.1f}", told[name])
        console.print(table)
    sys.exit(is_more)


if __name__ == "__main__":
    main()
