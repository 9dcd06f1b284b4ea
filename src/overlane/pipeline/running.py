"""Running: one run of the pipeline, from a session to a directory of tables.

Tables that grow are known to Spark by where they lie, so any Spark may go on where another one stopped: nothing is
kept in a catalogue between runs. Which files have landed is in the checkpoints, and they are committed together with
the rows; a run that dies in between is simply run again.
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

from overlane.pipeline.definitions import RAW, define
from overlane.pipeline.place import Place, Run
from overlane.pipeline.plans import write_plans
from overlane.pipeline.schemas import LANDED
from overlane.pipeline.settings import Settings

CATALOG = "spark_catalog"


class FlowState(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """A table has come so far; `done` of `tables` are complete."""

    table: str
    state: FlowState
    done: int
    tables: int
    reason: str = ""


class RunFailed(Exception):
    """A table could not be made. What was there before is there still."""


class Summary(msgspec.Struct):
    run: int
    lake: str
    started_ns: int
    finished_ns: int
    rows: dict[str, int]


Told = Callable[[Progress], None]


def untold(_: Progress) -> None:
    pass


def run(spark: SparkSession, settings: Settings, out: str | Path, told: Told = untold) -> tuple[Run, Summary]:
    """All tables of what is in the lake now."""
    place = Place(out)
    with place.held():
        started_ns = time.time_ns()
        this = place.begin()
        try:
            _flow(spark, settings, place, this, started_ns, told, dry=False)
            rows = _rows(this)
            write_plans(this, settings)
        finally:
            _forget(spark, place, this)
        summary = Summary(this.number, settings.lake, started_ns, time.time_ns(), rows)
        this.about.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2))
        place.complete(this)
        return this, summary


def dry_run(spark: SparkSession, settings: Settings, told: Told = untold) -> list[str]:
    """Check that all tables could be made, without making any; their names."""
    with TemporaryDirectory(prefix="overlane-pipeline-") as nowhere:
        place = Place(nowhere)
        this = place.begin()
        try:
            return _flow(spark, settings, place, this, time.time_ns(), told, dry=True)
        finally:
            _forget(spark, place, this)


def _flow(
    spark: SparkSession, settings: Settings, place: Place, this: Run, now_ns: int, told: Told, *, dry: bool
) -> list[str]:
    faults: list[str] = []
    try:
        _prepare(spark, place, this)
        graph = create_dataflow_graph(spark, CATALOG, place.database, {})
        registry = SparkConnectGraphElementRegistry(spark, graph)
        with graph_element_registration_context(registry):
            names = define(spark, settings, now_ns)
        # Not before: what is in the catalogue already would not be taken for a table of this pipeline.
        _register(spark, place)
        events = start_run(spark, graph, [], False, [], dry, place.state.as_uri())
        _follow(events, len(names), told, faults)
        return names
    except PySparkException as refused:
        raise RunFailed("\n".join(faults) or str(refused).split("JVM stacktrace")[0].strip()) from None


def _prepare(spark: SparkSession, place: Place, this: Run) -> None:
    """A database that lies in the directory of this run."""
    # One that a run has left that died is of that run: its tables may go.
    _do(spark, f"DROP DATABASE IF EXISTS {place.database} CASCADE")
    _do(spark, f"CREATE DATABASE {place.database} LOCATION '{this.tables.as_uri()}'")


def _register(spark: SparkSession, place: Place) -> None:
    """Tell Spark of the tables that grow, by where they lie."""
    for table, name in RAW.items():
        declared = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in LANDED[table])
        place.raw(table).mkdir(parents=True, exist_ok=True)
        location = place.raw(table).as_uri()
        _do(spark, f"CREATE TABLE {place.database}.{name} ({declared}) USING parquet LOCATION '{location}'")


def _forget(spark: SparkSession, place: Place, this: Run) -> None:
    """Take the run out of the catalogue and leave its files: they are read from where they lie."""
    kept = this.path / "kept"
    this.tables.rename(kept)
    with suppress(PySparkException):
        _do(spark, f"DROP DATABASE IF EXISTS {place.database} CASCADE")
    with suppress(FileNotFoundError):
        this.tables.rmdir()
    kept.rename(this.tables)


def _do(spark: SparkSession, statement: str) -> None:
    spark.sql(statement)


_FLOW = re.compile(r"Flow '?(?:\w+\.)*`?(\w+)`?'? (?:is|has) (\w+)\.?(.*)", re.DOTALL)
_UNRESOLVED = re.compile(r"Failed to resolve flow: '?(?:\w+\.)*`?(\w+)`?'?\.\s*(?:Error: )?(.*)", re.DOTALL)


def _follow(events: Iterator[dict[str, Any]], tables: int, told: Told, faults: list[str]) -> None:
    """Tell of flows as they complete; the first causes go to `faults`, not what fails because of them."""
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
            told(Progress(name, FlowState(state.lower()), len(done), tables, reason.strip()))


def _rows(this: Run) -> dict[str, int]:
    return {
        path.name: sum(pq.read_metadata(part).num_rows for part in path.glob("*.parquet"))
        for path in sorted(this.tables.iterdir())
        if path.is_dir()
    }
