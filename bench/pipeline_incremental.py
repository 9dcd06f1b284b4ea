"""What new telemetry costs: the CPU time of a pipeline run with 1 % new rows beside that of a first run, and the bytes
that tables take per broker and day.

    python bench/pipeline_incremental.py [--rows 1e7] [--new 0.01] [--brokers 4] [--topics 150] [--memory 4g]
        [--quick] [--scratch DIR] [--remote sc://host:15002] [--conf NAME=VALUE]

A sample with about this number of rows is written. The files of its last hours, with about --new of the rows, are taken
away; `overlane pipeline run` is run, the files come back, and it is run again. The CPU time of a run is that of the
command, Spark and Spark's Python processes together, with their start.
A third run reads nothing new. At last everything is computed from scratch, unless --quick is given, and all tables are
compared: sums exactly, other numbers to 1e-9.

Bytes per broker and day are those of the tables that are divided by hours, and of the ingested rows. They grow with
time and brokers, and are extrapolated to 1,000 brokers in 90 days. Writes bench/out/pipeline-incremental.json.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from overlane.pipeline.flows import FLOWS
from overlane.pipeline.output_directory import OutputDirectory, Run
from overlane.pipeline.samples.sample import write_sample

OUT = Path(__file__).parent / "out"
SEED = 1
SHOWN = 12
BROKERS, DAYS = 1_000, 90
"""To which the bytes are extrapolated."""
RELATIVE = 1e-9


class Cost:
    """Of a run: filled in when it is over."""

    cpu_s = wall_s = 0.0


@contextmanager
def measured() -> Iterator[Cost]:
    cost = Cost()
    begin_s, begin = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    yield cost
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost.cpu_s = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    cost.wall_s = time.perf_counter() - begin_s


def one_run(lake: Path, out: Path, given: argparse.Namespace) -> tuple[Run, dict[str, Any], Cost]:
    """By the command, as users run it."""
    where = ["--remote", given.remote] if given.remote else ["--conf", f"spark.driver.memory={given.memory}"]
    words = [*where, *(word for each in given.conf for word in ("--conf", each))]
    command = [sys.executable, "-m", "overlane", "pipeline", "run", "--lake", str(lake), "--out", str(out), "--json"]
    with measured() as cost:
        done = subprocess.run([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    run = OutputDirectory(out).latest()
    assert run is not None
    return run, json.loads(done.stdout), cost


def hold_back(lake: Path, late: Path, first_hour: int) -> int:
    """Take the files of this and later hours away; gives their rows."""
    rows = 0
    for file in sorted(lake.rglob("*.parquet")):
        if int(file.stem.rpartition("-")[2]) > first_hour:
            rows += pq.read_metadata(file).num_rows
            place = late / file.relative_to(lake)
            place.parent.mkdir(parents=True, exist_ok=True)
            file.rename(place)
    return rows


def bytes_per_broker_day(done: Run, brokers: int, hours: int) -> dict[str, float]:
    """Of ingested rows, and of tables by hours."""
    divided = {flow.name for flow in FLOWS if flow.hour is not None}
    found = {}
    for kind, directory, names in (("raw", done.raw, None), ("tables", done.tables, divided)):
        for table in sorted(directory.iterdir()):
            if names is None or table.name in names:
                size = sum(file.stat().st_size for file in table.iterdir())
                found[f"{kind}/{table.name}"] = size / brokers / (hours / 24)
    return found


def differences(one: Run, other: Run) -> list[str]:
    """Tables that are not equal."""
    return [name for name in sorted(flow.name for flow in FLOWS) if not _is_same(one, other, name)]


def _is_same(one: Run, other: Run, name: str) -> bool:
    left, right = (_sorted_rows(run, name) for run in (one, other))
    return len(left) == len(right) and all(map(_is_near, left, right))


def _sorted_rows(of: Run, name: str) -> list[list[Any]]:
    rows = [list(row.values()) for row in pq.read_table(of.tables / name).to_pylist()]
    return sorted(rows, key=lambda row: repr([value for value in row if not isinstance(value, float)]))


def _is_near(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or abs(one - other) <= RELATIVE * max(1.0, abs(one), abs(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_near, one, other))
    return bool(one == other)


def measure(path: Path, given: argparse.Namespace) -> dict[str, Any]:
    probe = write_sample(path / "probe", given.brokers, given.topics, 1, SEED).rows
    shutil.rmtree(path / "probe")
    hours = max(2, round(given.rows / probe))
    new_hours = max(1, round(hours * given.new))
    lake, late, out = path / "lake", path / "late", path / "out"
    sampled = write_sample(lake, given.brokers, given.topics, hours, SEED)
    new_rows = hold_back(lake, late, hours - new_hours)
    told: dict[str, Any] = {"rows": sampled.rows, "hours": hours, "new_rows": new_rows}
    console = Console()
    console.print(f"{sampled.rows:,} rows of {hours} hours, {new_rows / sampled.rows:.2%} in the last {new_hours}")
    for name in ("first", "new", "nothing"):
        if name == "new":
            shutil.copytree(late, lake, dirs_exist_ok=True)
        done, summary, cost = one_run(lake, out, given)
        told[name] = {
            "cpu_s": cost.cpu_s,
            "wall_s": cost.wall_s,
            "tables_s": {table: of["seconds"] for table, of in summary["tables"].items()},
        }
        show(console, name, told)
    told["bytes_per_broker_day"] = bytes_per_broker_day(done, given.brokers, hours)
    show_bytes(console, told["bytes_per_broker_day"])
    if not given.quick:
        whole, _, cost = one_run(lake, path / "whole", given)
        told["from_scratch_cpu_s"] = cost.cpu_s
        told["different"] = differences(done, whole)
        console.print(f"tables that differ from those of a run from scratch: {told['different'] or 'none'}")
    return told


def show(console: Console, name: str, told: dict[str, Any]) -> None:
    first, this = told["first"], told[name]
    share = this["cpu_s"] / first["cpu_s"]
    console.print(f"{name}: {this['cpu_s']:,.1f} s of CPU, {share:.1%} of the first run; {this['wall_s']:,.1f} s")
    heaviest = sorted(this["tables_s"].items(), key=lambda each: -each[1])[:SHOWN]
    console.print("  " + ", ".join(f"{table} {seconds:.1f}" for table, seconds in heaviest), style="dim")


def show_bytes(console: Console, found: dict[str, float]) -> None:
    table = Table("", "KB per broker and day", f"GB of {BROKERS:,} brokers in {DAYS} days")
    totals: dict[str, float] = {}
    for name, size in found.items():
        totals[name.partition("/")[0]] = totals.get(name.partition("/")[0], 0.0) + size
    for name, size in [*found.items(), *totals.items()]:
        table.add_row(name, f"{size / 1e3:,.0f}", f"{size * BROKERS * DAYS / 1e9:,.1f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--new", type=float, default=0.01, help="share of the rows that come later")
    parser.add_argument("--brokers", type=int, default=4)
    parser.add_argument("--topics", type=int, default=150)
    parser.add_argument("--memory", default="4g", help="of the driver of Spark")
    parser.add_argument("--scratch", help="a directory with room for sample and tables, up to 200 bytes a row")
    parser.add_argument("--quick", action="store_true", help="without the run from scratch")
    parser.add_argument("--remote", help="a Spark Connect server that sees the same files; its CPU time is not counted")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="overlane-pipeline-bench-", dir=given.scratch)).absolute()
    try:
        told = measure(path, given)
    finally:
        shutil.rmtree(path)
    (OUT / "pipeline-incremental.json").write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
