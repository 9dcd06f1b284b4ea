"""The pipeline's speed: rows a second of each stage, how it grows with the rows, and the same aggregates in DuckDB.

    python bench/pipeline.py [--rows 1e6 4e6] [--brokers 20] [--topics 1000] [--memory 4g] [--plans]

For each number of rows a sample is written that has about so many in all its tables, and the whole pipeline is run on
it. A stage is a table; the time is from when its flow starts to when it is complete, and several run at once, so they
add up to more than the whole. Growth is the time per row of the largest sample over that of the smallest: 1 is
linear. DuckDB then computes five of the aggregates from the same files (load_windows, alive, link_minutes,
latency_bins, lake_files), which the pipeline has timed as stages. --plans writes Spark's plans of the heaviest stages
to bench/out. Writes bench/out/pipeline.json.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.table import Table

from overlane.pipeline import compliance, intervals, load
from overlane.pipeline.running import Progress, run
from overlane.pipeline.sample import write_sample
from overlane.pipeline.session import open_session
from overlane.pipeline.settings import Settings
from overlane.pipeline.units import HOUR_S

OUT = Path(__file__).parent / "out"
SEED = 1
SHOWN = 12

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


def one_size(path: Path, rows: int, given: argparse.Namespace) -> dict[str, Any]:
    """One sample, the pipeline on it, and DuckDB on it."""
    probe = write_sample(path / "probe", given.brokers, given.topics, 1, SEED).rows
    hours = max(1, round(rows / probe))
    shutil.rmtree(path / "probe")
    begin_s = time.perf_counter()
    sampled = write_sample(path / "lake", given.brokers, given.topics, hours, SEED)
    told: dict[str, Any] = {"rows": sampled.rows, "hours": hours, "sample_s": time.perf_counter() - begin_s}
    started: dict[str, float] = {}
    stages: dict[str, float] = {}

    def hear(step: Progress) -> None:
        now_s = time.perf_counter()
        if step.state == "running":
            started[step.table] = now_s
        elif step.state == "completed":
            stages[step.table] = now_s - started.get(step.table, begin_s)

    with open_session(conf={"spark.driver.memory": given.memory}) as spark:
        begin_s = time.perf_counter()
        settings = Settings((path / "lake").as_uri())
        run(spark, settings, path / "out", hear)
        told["pipeline_s"] = time.perf_counter() - begin_s
        begin_s = time.perf_counter()
        run(spark, settings, path / "out")
        told["again_s"] = time.perf_counter() - begin_s
        if given.plans:
            _write_plans(spark, path / "lake")
    told["stages_s"] = stages
    told["duckdb_s"] = _in_duckdb(path / "lake")
    return told


def _in_duckdb(lake: Path) -> dict[str, float]:
    took_s = {}
    with duckdb.connect() as base:
        for name, query in IN_DUCKDB.items():
            begin_s = time.perf_counter()
            base.execute(f"create or replace table found as {query.format(lake=lake)}")
            took_s[name] = time.perf_counter() - begin_s
    return took_s


def _write_plans(spark: Any, lake: Path) -> None:
    def of(table: str) -> Any:
        return spark.read.parquet(str(lake / table))

    frames: dict[str, Any] = {
        "load_windows": load.load_windows(of("topic_rates")),
        "alive": load.alive(of("queues"), of("topic_rates")),
        "link_minutes": intervals.link_minutes(of("links")),
        "latency_bins": compliance.latency_bins(of("deliveries")),
    }
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
    given = parser.parse_args()
    sizes = []
    for rows in given.rows:
        path = Path(tempfile.mkdtemp(prefix="overlane-pipeline-bench-"))
        try:
            sizes.append(one_size(path, int(rows), given))
        finally:
            shutil.rmtree(path)
    per_row = [size["pipeline_s"] / size["rows"] for size in sizes]
    told = {"sizes": sizes, "growth": per_row[-1] / per_row[0]}
    OUT.mkdir(exist_ok=True)
    (OUT / "pipeline.json").write_text(json.dumps(told, indent=1))
    show(sizes, told["growth"])


def show(sizes: list[dict[str, Any]], growth: float) -> None:
    console = Console()
    table = Table("", *[f"{size['rows']:,} rows" for size in sizes], title="Thousand rows a second")
    for name in ("sample", "pipeline", "again"):
        table.add_row(name, *[f"{size['rows'] / size[f'{name}_s'] / 1e3:,.0f}" for size in sizes])
    heaviest = sorted(sizes[-1]["stages_s"], key=lambda name: -sizes[-1]["stages_s"][name])[:SHOWN]
    for name in heaviest:
        table.add_row(f"  {name}", *[f"{size['rows'] / size['stages_s'][name] / 1e3:,.0f}" for size in sizes])
    console.print(table)
    console.print(f"time per row, largest over smallest: {growth:.2f}")
    beside = Table("", *[f"{size['rows']:,} rows" for size in sizes], title="Spark's time over DuckDB's")
    for name in IN_DUCKDB:
        beside.add_row(name, *[f"{size['stages_s'][name] / size['duckdb_s'][name]:,.1f}" for size in sizes])
    whole = [size["pipeline_s"] / sum(size["duckdb_s"].values()) for size in sizes]
    beside.add_row("the whole pipeline over these five", *[f"{ratio:,.1f}" for ratio in whole])
    console.print(beside)


if __name__ == "__main__":
    main()
