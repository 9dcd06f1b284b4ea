"""Speed of the pipeline: rows per second of each stage, growth with the number of rows, and the same aggregates in
DuckDB.

    python bench/pipeline.py [--rows 1e6 4e6] [--brokers 20] [--topics 1000] [--memory 4g] [--plans] [--scratch DIR]
        [--once] [--remote sc://host:15002] [--conf NAME=VALUE]

For each number of rows, a sample with about this number in all its tables is written, and the whole pipeline is run on
it. Its CPU time is that of the benchmark, Spark and Spark's Python processes together; Spark's is missing with
--remote. A stage is a table; its time is from the start of its flow to its completion. Several run at once, so they add
up to more than the whole. Growth is the time per row of the largest sample divided by that of the smallest: 1 is
linear. A second run, without new files, is timed on the smallest, unless --once is given. --remote measures an existing
Spark, as in the command; --conf gives a setting of Spark, and may be repeated.

Spark and DuckDB then compute five of the aggregates (load_windows, alive, link_minutes, latency_bins, lake_files) from
the same files, one after the other: Spark by the functions of the pipeline, with everything compiled before. --plans
writes Spark's plans of the heaviest stages, as the pipeline runs them, to bench/out/pipeline-plans.txt. Writes
bench/out/pipeline.json, again after each size.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.table import Table

from overlane.pipeline import quarantine
from overlane.pipeline.analysis import compliance, covariance, intervals, load, load_series
from overlane.pipeline.runner import Progress, run
from overlane.pipeline.samples.sample import write_sample
from overlane.pipeline.schemas import INGESTED, TABLES
from overlane.pipeline.session import open_session
from overlane.pipeline.settings import PipelineSettings
from overlane.pipeline.units import HOUR_S

OUT = Path(__file__).parent / "out"
SEED = 1

SECOND = "(at_ns + 500000000) // 1000000000 - 1"
IN_DUCKDB = {
    "load_windows": f"""select ({SECOND}) // 900 * 900 as window_s, broker, topic, sum(messages_in), sum(bytes_in),
        sum(messages_overlay), sum(bytes_overlay), sum(messages_out), sum(bytes_out), count(*), max(messages_in)
        from read_parquet('{{lake}}/topic_rates/*/*.parquet') group by all""",
    "alive": f"""select broker, ({SECOND}) // 60 * 60 as minute_s, bit_or(1::bigint << (({SECOND}) % 60))
        from (select broker, at_ns from read_parquet('{{lake}}/queues/*/*.parquet')
        union all select broker, at_ns from read_parquet('{{lake}}/topic_rates/*/*.parquet')) group by all""",
    "link_minutes": f"""select broker, peer, ({SECOND}) // 60 * 60 as minute_s, bit_or(1::bigint << (({SECOND}) % 60)),
        bit_or(case when state in ('failed', 'down') then 1::bigint << (({SECOND}) % 60) else 0 end), count(latency_ns),
        avg(latency_ns), max(latency_ns), avg(jitter_ns), avg(loss), avg(queue_bytes), max(queue_bytes_max)
        from read_parquet('{{lake}}/links/*/*.parquet') group by all""",
    "latency_bins": f"""select at_ns // {HOUR_S * 10**9} * {HOUR_S} as hour_s, topic, origin, broker,
        array_to_string(path, '>') as way, floor(ln(greatest(age_ns, 1)) / ln(1.02)) as bin, sum(weight),
        sum(case when in_time is not null then weight end), sum(case when in_time then weight end)
        from read_parquet('{{lake}}/deliveries/*/*.parquet') group by all""",
    "lake_files": """select filename, count(*), min(at_ns), max(at_ns)
        from read_parquet('{lake}/*/*/*.parquet', filename = true, union_by_name = true) group by all""",
}


def one_size(path: Path, rows: int, given: argparse.Namespace, with_again: bool) -> dict[str, Any]:
    """One sample, the pipeline on it, and the same aggregates by Spark and by DuckDB."""
    probe = write_sample(path / "probe", given.brokers, given.topics, 1, SEED).rows
    hours = max(1, round(rows / probe))
    shutil.rmtree(path / "probe")
    lake, out = path / "lake", path / "out"
    begin_s = time.perf_counter()
    sampled = write_sample(lake, given.brokers, given.topics, hours, SEED)
    told: dict[str, Any] = {"rows": sampled.rows, "hours": hours, "sample_s": time.perf_counter() - begin_s}
    started: dict[str, float] = {}
    stages: dict[str, float] = {}

    def hear(step: Progress) -> None:
        now_s = time.perf_counter()
        if step.state == "running":
            started[step.table] = now_s
        elif step.state == "completed":
            stages[step.table] = now_s - started.get(step.table, begin_s)

    conf = {"spark.driver.memory": given.memory, "spark.local.dir": str(path)}
    conf |= dict(each.split("=", 1) for each in given.conf)
    with open_session(remote=given.remote, conf=conf) as spark:
        begin_s, begin_cpu_s = time.perf_counter(), cpu_s()
        settings = PipelineSettings(lake.as_uri())
        run(spark, settings, out, hear)
        told["pipeline_s"] = time.perf_counter() - begin_s
        told["pipeline_cpu_s"] = cpu_s() - begin_cpu_s
        if with_again:
            begin_s = time.perf_counter()
            run(spark, settings, out)
            told["again_s"] = time.perf_counter() - begin_s
        told["spark_s"] = _in_spark(spark, lake, out)
        if given.plans:
            _write_plans(spark, out)
    told["stages_s"] = stages
    told["duckdb_s"] = _in_duckdb(lake)
    return told


def cpu_s() -> float:
    """CPU time of this process and of all that it has started, directly or not."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = stat.read_text().rpartition(")")[2].split()
            process = int(stat.parent.name)
            parents[process] = int(fields[1])
            used[process] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    own = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(used.get(process, 0.0) for process in own)


def _in_spark(spark: Any, lake: Path, out: Path) -> dict[str, float]:
    """The aggregates by themselves. Which file a row is of, only what has raw says."""

    def of(table: str) -> Any:
        return spark.read.parquet(str(lake / table))

    raw = {table: spark.read.schema(INGESTED[table]).parquet(str(out / "latest" / "raw" / table)) for table in INGESTED}
    took_s = {}
    for name, frame in {**_aggregates(of), "lake_files": quarantine.lake_files(raw)}.items():
        begin_s = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        took_s[name] = time.perf_counter() - begin_s
    return took_s


def _aggregates(of: Callable[[str], Any]) -> dict[str, Any]:
    return {
        "load_windows": load.load_windows(of("topic_rates")),
        "alive": load.alive(of("queues"), of("topic_rates")),
        "link_minutes": intervals.link_minutes(of("links")),
        "latency_bins": compliance.latency_bins(of("deliveries")),
    }


def _in_duckdb(lake: Path) -> dict[str, float]:
    took_s = {}
    with duckdb.connect() as base:
        for name, query in IN_DUCKDB.items():
            begin_s = time.perf_counter()
            base.execute(f"create or replace table found as {query.format(lake=lake)}")
            took_s[name] = time.perf_counter() - begin_s
    return took_s


def _write_plans(spark: Any, out: Path) -> None:
    tables = out / "latest" / "tables"
    repeated = spark.read.schema(TABLES["repeats"]).parquet(str(tables / "repeats"))

    def good(table: str) -> Any:
        rows = spark.read.schema(INGESTED[table]).parquet(str(out / "latest" / "raw" / table))
        return quarantine.good(rows, table, repeated)

    frames = _aggregates(good)
    peaks, chunks = (spark.read.parquet(str(tables / name)) for name in ("peaks", "load_chunks"))
    frames["load_series"] = load_series.load_series(good("topic_rates"), peaks, chunks)
    of_series = (spark.read.parquet(str(tables / name)) for name in ("load_series", "topic_load", "load_chunks"))
    frames["topic_covariance"] = covariance.topic_covariance(*of_series)
    frames["compliance"] = compliance.compliance(spark.read.parquet(str(tables / "latency_bins")))
    OUT.mkdir(exist_ok=True)
    with (OUT / "pipeline-plans.txt").open("w") as file:
        for name, frame in frames.items():
            file.write(f"== {name}\n{frame._explain_string(mode='formatted')}\n\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 4e6])
    parser.add_argument("--brokers", type=int, default=20)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--memory", default="4g", help="of the driver of Spark")
    parser.add_argument("--plans", action="store_true")
    parser.add_argument("--scratch", help="a directory with room for sample and tables, up to 100 bytes a row")
    parser.add_argument("--once", action="store_true", help="without the run that has nothing new to read")
    parser.add_argument("--remote", help="a Spark Connect server, which sees the same files")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    sizes: list[dict[str, Any]] = []
    OUT.mkdir(exist_ok=True)
    for number, rows in enumerate(given.rows):
        path = Path(tempfile.mkdtemp(prefix="overlane-pipeline-bench-", dir=given.scratch)).absolute()
        try:
            sizes.append(one_size(path, int(rows), given, with_again=number == 0 and not given.once))
        finally:
            shutil.rmtree(path)
        (OUT / "pipeline.json").write_text(json.dumps({"sizes": sizes, "growth": growth(sizes)}, indent=1))
        show(sizes)


def growth(sizes: list[dict[str, Any]]) -> float:
    """The time per row of the largest over that of the smallest."""
    per_row: list[float] = [size["pipeline_s"] / size["rows"] for size in sizes]
    return per_row[-1] / per_row[0]


def show(sizes: list[dict[str, Any]]) -> None:
    console = Console()
    table = Table("", *[f"{size['rows']:,} rows" for size in sizes], title="Thousand rows a second")
    for name in ("sample", "pipeline", "again"):
        table.add_row(name, *[_per_second(size, size.get(f"{name}_s")) for size in sizes])
    for name in sorted(sizes[-1]["stages_s"], key=lambda name: -sizes[-1]["stages_s"][name]):
        table.add_row(f"  {name}", *[_per_second(size, size["stages_s"].get(name)) for size in sizes])
    console.print(table)
    for size in sizes:
        console.print(f"{size['rows']:,} rows: {size['pipeline_cpu_s']:,.1f} s of CPU")
    console.print(f"time per row, largest over smallest: {growth(sizes):.2f}")
    beside = Table("", *[f"{size['rows']:,} rows" for size in sizes], title="Spark's time over DuckDB's")
    for name in IN_DUCKDB:
        beside.add_row(name, *[f"{size['spark_s'][name] / size['duckdb_s'][name]:,.1f}" for size in sizes])
    for name, of in (("these five", "spark_s"), ("the whole pipeline over these five", "pipeline_s")):
        beside.add_row(name, *[f"{_total(size[of]) / _total(size['duckdb_s']):,.1f}" for size in sizes])
    console.print(beside)


def _per_second(size: dict[str, Any], took_s: float | None) -> str:
    """Of all rows, though a stage need not read them all."""
    return "" if took_s is None else f"{size['rows'] / took_s / 1e3:,.0f}"


def _total(took_s: float | dict[str, float]) -> float:
    return sum(took_s.values()) if isinstance(took_s, dict) else took_s


if __name__ == "__main__":
    main()
