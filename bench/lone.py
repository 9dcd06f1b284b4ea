"""Cost of a single message at each of three brokers in a row, relative to decoding it from MQTT.

    python bench/lone.py [--rounds 15] [--profile a]

The brokers a - b - c run with drivers and links, but without sockets: the benchmark carries the bytes between them. A
client publishes 64 bytes at a, another gets them at c, one message at a time, each in a turn of its own.

    ns            median of a round, median of rounds; and the same in units of `mqtt5.read` of the same PUBLISH
    calls         of functions, Python's own and compiled ones
    opcodes       of the Python interpreter: the same on every machine, even a busy one

`later` is the work of all three between messages: pings, control messages, telemetry, and postponed work.

Writes bench/out/lone.json. With --profile it shows instead which functions of one broker run how many opcodes.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any

import mqtt5
from rich.console import Console
from rich.table import Table

from _lone_row import PUBLISH, LoneRow

OUT = Path(__file__).parent / "out" / "lone.json"
MESSAGES = 200
"""A round."""
WARM = 500
PROFILED = 60
"""Functions."""
STAGES = ("a", "b", "c", "later")

Work = Callable[[], object]
Around = Callable[[str, Work], object]
"""Takes a stage and its work, and does it."""


def one(row: LoneRow, around: Around) -> None:
    """One message from a through b to c; what is due besides is done before."""
    around("later", row.settle)
    around("a", row.publish)
    data = row.carry("a", "b")
    around("b", lambda: row.transit(data))
    onward = row.carry("b", "c")
    around("c", lambda: row.deliver(onward))
    row.check()


def timed(row: LoneRow, rounds: int) -> dict[str, float]:
    """Nanoseconds per stage, and of mqtt5.read."""
    medians: dict[str, list[float]] = {}
    for _ in range(rounds):
        times: dict[str, list[int]] = {"read": [], **{stage: [] for stage in STAGES}}

        def around(stage: str, work: Work, times: dict[str, list[int]] = times) -> None:
            start = perf_counter_ns()
            work()
            times[stage].append(perf_counter_ns() - start)

        for _ in range(MESSAGES):
            buffer = memoryview(PUBLISH)
            around("read", partial(mqtt5.read, buffer))
            one(row, around)
        for stage, values in times.items():
            medians.setdefault(stage, []).append(median(values))
    return {stage: median(values) for stage, values in medians.items()}


def calls(row: LoneRow) -> dict[str, float]:
    counts = dict.fromkeys(STAGES, 0)

    def around(stage: str, work: Work) -> None:
        def count(_frame: FrameType, event: str, _argument: Any) -> None:
            counts[stage] += event in ("call", "c_call")

        sys.setprofile(count)
        work()
        sys.setprofile(None)

    for _ in range(MESSAGES):
        one(row, around)
    return {stage: count / MESSAGES for stage, count in counts.items()}


def opcodes(row: LoneRow, messages: int = MESSAGES) -> dict[str, Counter[CodeType]]:
    """How many are run per stage, by function; of all messages together."""
    counts: dict[str, Counter[CodeType]] = {stage: Counter() for stage in STAGES}

    def around(stage: str, work: Work) -> None:
        def count(frame: FrameType, event: str, _argument: Any) -> Any:
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if event == "opcode":
                counts[stage][frame.f_code] += 1
            return count

        sys.settrace(count)
        work()
        sys.settrace(None)

    for _ in range(messages):
        one(row, around)
    return counts


def profile(counts: Counter[CodeType]) -> Table:
    table = Table("opcodes", "function", "where", box=None)
    for code, count in counts.most_common(PROFILED):
        name = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
        table.add_row(f"{count / MESSAGES:,.1f}", code.co_qualname, name)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--profile", choices=STAGES)
    options = parser.parse_args()
    row = LoneRow()
    for _ in range(WARM):
        one(row, lambda _, work: work())
    if options.profile:
        Console().print(profile(opcodes(row)[options.profile]))
        return
    took, called = timed(row, options.rounds), calls(row)
    opcoded = {stage: counts.total() / MESSAGES for stage, counts in opcodes(row).items()}
    table = Table(title=f"A message alone; mqtt5.read takes {took['read']:.0f} ns", box=None)
    table.add_column("broker")
    for heading in ("ns", "x read", "calls", "opcodes"):
        table.add_column(heading, justify="right")
    for stage in STAGES:
        figures = took[stage], took[stage] / took["read"], called[stage], opcoded[stage]
        table.add_row(stage, *(f"{figure:,.0f}" for figure in figures))
    Console().print(table)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"ns": took, "calls": called, "opcodes": opcoded}, indent=1))
    Console().print("wrote bench/out/lone.json")


if __name__ == "__main__":
    main()
