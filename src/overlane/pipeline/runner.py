"""Runner: one run of the pipeline, from a Spark session to a directory of tables.

Raw tables are registered by their location, so any Spark can continue where another stopped: nothing is kept in a
catalogue between runs. Checkpoints record which files were ingested, and are committed together with the rows; a run
that fails in between is simply repeated.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run
from pyspark.sql import SparkSession

from overlane.errors import OverlaneError
from overlane.pipeline.definitions import RAW, define
from overlane.pipeline.output_directory import OutputDirectory, Run
from overlane.pipeline.plans.plan_export import write_plans
from overlane.pipeline.schemas import INGESTED
from overlane.pipeline.settings import Settings

CATALOG = "spark_catalog"


class FlowState(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of one table; `done` of `tables` are complete."""

    table: str
    state: FlowState
    done: int
    tables: int
    reason: str = ""


class RunFailed(OverlaneError):
    """A table could not be computed. The tables of the previous run are unchanged."""

    error_code = "OVL-213"


class Summary(msgspec.Struct):
    run: int
    lake: str
    started_ns: int
    finished_ns: int
    rows: dict[str, int]


ProgressCallback = Callable[[Progress], None]


def ignore_progress(_: Progress) -> None:
    pass


def run(
    spark: SparkSession, settings: Settings, out: str | Path, on_progress: ProgressCallback = ignore_progress
) -> tuple[Run, Summary]:
    """Compute all tables from the current contents of the lake."""
    output = OutputDirectory(out)
    with output.locked():
        started_ns = time.time_ns()
        this = output.begin()
        try:
            _run_graph(spark, settings, output, this, started_ns, on_progress, dry=False)
            rows = _rows(this)
            write_plans(this, settings)
        finally:
            _unregister(spark, output, this)
        summary = Summary(this.number, settings.lake, started_ns, time.time_ns(), rows)
        this.summary_file.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2))
        output.complete(this)
        return this, summary


def dry_run(spark: SparkSession, settings: Settings, on_progress: ProgressCallback = ignore_progress) -> list[str]:
    """Check that all tables can be computed, without computing them. Returns their names."""
    with TemporaryDirectory(prefix="overlane-pipeline-") as scratch:
        output = OutputDirectory(scratch)
        this = output.begin()
        try:
            return _run_graph(spark, settings, output, this, time.time_ns(), on_progress, dry=True)
        finally:
            _unregister(spark, output, this)


def _run_graph(
    spark: SparkSession,
    settings: Settings,
    output: OutputDirectory,
    this: Run,
    now_ns: int,
    on_progress: ProgressCallback,
    *,
    dry: bool,
) -> list[str]:
    faults: list[str] = []
    try:
        _prepare(spark, output, this)
        graph = create_dataflow_graph(spark, CATALOG, output.database, {})
        registry = SparkConnectGraphElementRegistry(spark, graph)
        with graph_element_registration_context(registry):
            names = define(spark, settings, now_ns)
        # Only now: a table already in the catalogue would not count as a table of this pipeline.
        _register(spark, output)
        events = start_run(spark, graph, [], False, [], dry, output.state.as_uri())
        _report_progress(events, len(names), on_progress, faults)
        return names
    except PySparkException as failed:
        raise RunFailed("\n".join(faults) or str(failed).split("JVM stacktrace")[0].strip()) from None


def _prepare(spark: SparkSession, output: OutputDirectory, this: Run) -> None:
    """Create a database located in the directory of this run."""
    # Left over from a failed run.
    _execute(spark, f"DROP DATABASE IF EXISTS {output.database} CASCADE")
    _execute(spark, f"CREATE DATABASE {output.database} LOCATION '{this.tables.as_uri()}'")


def _register(spark: SparkSession, output: OutputDirectory) -> None:
    """Register the raw tables, which grow with each run, by their location."""
    for table, name in RAW.items():
        declared = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in INGESTED[table])
        output.raw(table).mkdir(parents=True, exist_ok=True)
        location = output.raw(table).as_uri()
        _execute(spark, f"CREATE TABLE {output.database}.{name} ({declared}) USING parquet LOCATION '{location}'")


def _unregister(spark: SparkSession, output: OutputDirectory, this: Run) -> None:
    """Remove the run from the catalogue, but keep its files."""
    kept = this.path / "kept"
    this.tables.rename(kept)
    with suppress(PySparkException):
        _execute(spark, f"DROP DATABASE IF EXISTS {output.database} CASCADE")
    with suppress(FileNotFoundError):
        this.tables.rmdir()
    kept.rename(this.tables)


def _execute(spark: SparkSession, statement: str) -> None:
    spark.sql(statement)


_FLOW = re.compile(r"Flow '?(?:\w+\.)*`?(\w+)`?'? (?:is|has) (\w+)\.?(.*)", re.DOTALL)
_UNRESOLVED = re.compile(r"Failed to resolve flow: '?(?:\w+\.)*`?(\w+)`?'?\.\s*(?:Error: )?(.*)", re.DOTALL)


def _report_progress(
    events: Iterator[dict[str, Any]], tables: int, on_progress: ProgressCallback, faults: list[str]
) -> None:
    """Report the progress of flows. Original causes of failure go to `faults`, not the failures that follow."""
    done: set[str] = set()
    for event in events:
        if "pipeline_event_result" not in event:
            continue
        message = event["pipeline_event_result"].event.message
        if unresolved := _UNRESOLVED.match(message):
            faults.append(": ".join(unresolved.groups()))
        match = _FLOW.search(message)
        if match is None:
            continue
        name, state, reason = match.groups()
        if state.lower() in set(FlowState):
            if state == "COMPLETED":
                done.add(name)
            on_progress(Progress(name, FlowState(state.lower()), len(done), tables, reason.strip()))


def _rows(this: Run) -> dict[str, int]:
    return {
        path.name: sum(pq.read_metadata(part).num_rows for part in path.glob("*.parquet"))
        for path in sorted(this.tables.iterdir())
        if path.is_dir()
    }
