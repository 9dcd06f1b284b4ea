"""Runner: one run of the pipeline, from a Spark session to a directory of tables.

New files of the lake are ingested first; `lake_files` records them, and is complete together with the run, so that a
run that fails is simply repeated. Then every flow is computed as soon as its inputs are complete, a few at once. What
is still valid of the last run is taken over (`run_state`).
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema

from overlane.errors import OverlaneError
from overlane.pipeline import run_metrics
from overlane.pipeline.compaction import compact
from overlane.pipeline.flows import FLOWS, RAW, Flow
from overlane.pipeline.hour_files import EMPTY, PARTITION, UNDIVIDED
from overlane.pipeline.ingest import new_files, rejected_file
from overlane.pipeline.lake_listing import LakeFile, list_lake
from overlane.pipeline.output_directory import OutputDirectory, Run, spark_path
from overlane.pipeline.parquet_comments import commented, commented_arrow
from overlane.pipeline.plans.plan_export import write_plans
from overlane.pipeline.raw_retention import DROPPED, drop_rows, first_day, prune_records, sealed_before
from overlane.pipeline.raw_writer import FILE_RECORD, file_record, write_raw
from overlane.pipeline.run_metrics import Summary, TableMetrics
from overlane.pipeline.run_state import RAW_FORMAT, TABLES_FORMAT, RunState, sealed_hours, settings_key
from overlane.pipeline.schemas import INGESTED, TABLES
from overlane.pipeline.session import compiling
from overlane.pipeline.settings import PipelineSettings
from overlane.pipeline.units import HOUR_S

CONCURRENT = 4
POLL_S = 1.0
BATCH_CONF = "spark.sql.execution.arrow.maxRecordsPerBatch"
FILES_PER_BATCH = "4"
"""Rows of the ingest are whole files."""
COMPILED_ROWS = 20_000
"""Ingested rows from which compiling a query takes less time than interpreting it, in small runs."""
REASON_CHARACTERS = 300
EMPTY_FILE = "unreadable: the file is empty"


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


ProgressCallback = Callable[[Progress], None]


def ignore_progress(_: Progress) -> None:
    pass


def run(
    spark: SparkSession,
    settings: PipelineSettings,
    out: str | Path | OutputDirectory,
    on_progress: ProgressCallback = ignore_progress,
) -> tuple[Run, Summary]:
    """Compute all tables from the current contents of the lake."""
    output = out if isinstance(out, OutputDirectory) else OutputDirectory(out)
    with output.locked():
        started_ns = time.time_ns()
        before = output.latest()
        files = list_lake(settings.lake, first_day(sealed_hours(before)))
        this = output.begin()
        running = _Running(RunState(spark, settings, this, before), started_ns, on_progress)
        running.ingest(files)
        with compiling(spark) as compiled:
            running.compute(FLOWS, compiled)
        running.seal()
        running.compact()
        write_plans(this, settings)
        summary = Summary(
            run=this.number,
            lake=settings.lake,
            started_ns=started_ns,
            finished_ns=time.time_ns(),
            rows={name: running.metrics[name].rows for name in sorted(TABLES)},
            tables=running.metrics,
            hours=len(running.state.touched_hours - {UNDIVIDED}),
            raw_format=RAW_FORMAT,
            tables_format=TABLES_FORMAT,
            settings=settings_key(settings),
            sealed_before_s=running.state.sealed_before_s,
        )
        run_metrics.write(this, summary)
        output.complete(this)
        return this, summary


def dry_run(spark: SparkSession, settings: PipelineSettings) -> list[str]:
    """Check that all tables can be computed, without computing them. Returns their names."""
    source = _EmptySource(spark)
    try:
        for flow in FLOWS:
            flow.make(source, settings)._explain_string()  # type: ignore[operator]
    except PySparkException as failed:
        raise RunFailed(f"{flow.name}: {reason_of(failed)}") from None
    return [*RAW.values(), *(flow.name for flow in FLOWS)]


class _EmptySource:
    """Tables with their columns and no rows."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def table(self, name: str) -> DataFrame:
        schema = TABLES[name] if name in TABLES else INGESTED[name.removeprefix("raw_")]
        return self._spark.createDataFrame([], schema)

    def touched(self, name: str) -> DataFrame:
        return self.table(name)

    def new(self, name: str) -> DataFrame:
        return self.table(name)

    def is_empty(self, name: str) -> bool:  # noqa: ARG002
        return False


class _Running:
    def __init__(self, state: RunState, now_ns: int, on_progress: ProgressCallback) -> None:
        self.state = state
        self.metrics: dict[str, TableMetrics] = {}
        self._now_ns = now_ns
        self._on_progress = on_progress
        self._total = len(FLOWS)
        self._compiled = state.spark
        """A session that compiles queries."""
        self._records: list[dict[str, Any]] = []
        """What `lake_files` has of the files that this run has read."""
        # One partition at most: then nothing is gained by another shuffle.
        self._is_small = state.spark.conf.get("spark.sql.shuffle.partitions") == "1"

    def ingest(self, files: Sequence[LakeFile]) -> None:
        """Read the files that earlier runs have not read."""
        state = self.state
        state.take_over_raw()
        known = state.ingested()
        new: dict[str, list[LakeFile]] = {}
        for file in files:
            if (file.table, file.name) not in known:
                new.setdefault(file.table, []).append(file)
        self._total = len(FLOWS) + len(new)
        usual = state.spark.conf.get(BATCH_CONF)
        state.spark.conf.set(BATCH_CONF, FILES_PER_BATCH)
        try:
            self._all_of({RAW[table]: _bound(self._ingest_table, table, of) for table, of in new.items()}, {})
        finally:
            with suppress(PySparkException):
                state.spark.conf.set(BATCH_CONF, usual or "10000")

    def _ingest_table(self, table: str, new: list[LakeFile]) -> TableMetrics:
        state, name = self.state, RAW[table]
        begin_s = time.perf_counter()
        before = {path for _, path in state.files(name)}
        staging = state.this.staging / name
        staging.mkdir(parents=True, exist_ok=True)
        records: list[dict[str, Any]] = []
        parts: list[str] = []
        full = [file.name for file in new if file.size_bytes]
        if full:
            read = new_files(state.spark, state.settings.lake, table, full)
            written_raw = write_raw(read, table, self._now_ns, spark_path(staging), state.sealed_before_s)
            for row in written_raw.toArrow().to_pylist():
                part = row.pop("part")
                if part is None:
                    records.append(row)
                else:
                    parts.append(part)
        empty = {file.name: rejected_file(table, file.name, EMPTY_FILE) for file in new if not file.size_bytes}
        if empty:  # Spark passes over them
            parts.append("empty.parquet")
            pq.write_table(pa.concat_tables(empty.values()), staging / parts[-1])
            records += [file_record(table, file, rows) for file, rows in empty.items()]
        hours = state.files(name).move_from(staging, state.this.number, parts)
        self._records += records
        written = [path for _, path in state.files(name) if path not in before]
        state.add_rows(table, hours, written)
        return self._measured(name, (), begin_s, written, 0, len(hours))

    def seal(self) -> None:
        """Delete ingested rows that are older than is asked for: all tables of them are complete."""
        state, keep_s = self.state, self.state.settings.keep_raw_s
        tables = [state.files(RAW[table]) for table in DROPPED]
        newest_hour_s = max((hour_s for files in tables for hour_s in files.hours()), default=UNDIVIDED)
        state.sealed_before_s = sealed_before(newest_hour_s, keep_s, state.sealed_before_s)
        drop_rows(tables, state.sealed_before_s)
        if prune_records(state.files("lake_files"), state.this.number, first_day(state.sealed_before_s)):
            self.metrics["lake_files"] = structs.replace(self.metrics["lake_files"], **self._sizes("lake_files"))

    def compact(self) -> None:
        """Merge files of hours that have many; the next run reads the merged ones."""
        for name in RAW.values():
            if name in self.metrics:
                try:
                    compact(self.state.files(name), self.state.this.number)
                except (OSError, pa.ArrowException) as failed:
                    raise RunFailed(f"{name}: {reason_of(failed)}") from None

    def compute(self, flows: Sequence[Flow], compiled: SparkSession) -> None:
        self._compiled = compiled
        work = {flow.name: _bound(self._compute_flow, flow) for flow in flows}
        self._all_of(work, {flow.name: {name for name in flow.reads if name in TABLES} for flow in flows})

    def _compute_flow(self, flow: Flow) -> TableMetrics:
        state = self.state
        begin_s = time.perf_counter()
        hours = state.hours_of(flow)
        if hours is not None and flow.name not in _WITH_FAULTY:
            hours = hours - {UNDIVIDED}
        is_whole = state.take_over(flow, hours)
        is_recorded = flow.name == "lake_files" and not state.is_recomputed
        if is_recorded and self._records:
            is_whole = False  # files without rows too, which change no hour
        files = state.files(flow.name)
        before = {path for _, path in files}
        shuffled = 0
        is_needed = hours is None or bool(hours)
        if not is_whole and is_needed and (flow.name not in _CHECKS or _CHECKS[flow.name](state)):
            staging = state.this.staging / flow.name
            if is_recorded:
                staging.mkdir()
                told = pa.Table.from_pylist(self._records, commented_arrow(FILE_RECORD, flow.name))
                pq.write_table(told, staging / "records.parquet")
            else:
                frame = flow.make(state.source(flow, hours, self._session(flow, hours)), state.settings)
                shuffled = _write(self._divided(frame, flow, hours), staging, is_divided=flow.hour is not None)
            files.move_from(staging, state.this.number)
        if not is_whole:
            state.changed.add(flow.name)
        if next(iter(files), None) is None:
            _write_empty(flow.name, files.directory / f"{UNDIVIDED}-{state.this.number:04d}{EMPTY}")
        if flow.name == "clock_offsets":
            state.widen_by_clocks()
        written = [path for _, path in files if path not in before]
        return self._measured(flow.name, flow.reads, begin_s, written, shuffled, len(hours or ()))

    def _session(self, flow: Flow, hours: set[int] | None) -> SparkSession:
        state = self.state
        if self._compiled is state.spark or not flow.is_row_aggregate:
            return state.spark
        return self._compiled if state.rows_of(flow, hours) >= COMPILED_ROWS else state.spark

    def _divided(self, frame: DataFrame, flow: Flow, hours: set[int] | None) -> DataFrame:
        if flow.hour is None:
            return commented(frame, flow.name)
        by_hour = commented(frame, flow.name).select(
            "*", sf.expr(f"{flow.hour} div {HOUR_S} * {HOUR_S}").alias(PARTITION)
        )
        if hours is not None:
            by_hour = by_hour.where(sf.col(PARTITION).isin(sorted(hours)))
        # One file an hour. Series are large, and their chunks are together already.
        return by_hour if self._is_small or flow.name == "load_series" else by_hour.repartition(PARTITION)

    def _measured(
        self, name: str, reads: Sequence[str], begin_s: float, written: Sequence[Path], shuffled: int, hours: int
    ) -> TableMetrics:
        found = TableMetrics(
            seconds=round(time.perf_counter() - begin_s, 3),
            **self._sizes(name),
            written_bytes=sum(path.stat().st_size for path in written),
            shuffle_bytes=shuffled,
            hours=hours,
            reads=list(reads),
        )
        self.metrics[name] = found
        return found

    def _sizes(self, name: str) -> dict[str, int]:
        every = [path for _, path in self.state.files(name)]
        return {
            "rows": sum(pq.read_metadata(path).num_rows for path in every),
            "size_bytes": sum(path.stat().st_size for path in every),
        }

    def _all_of(self, work: dict[str, Callable[[], TableMetrics]], needs: dict[str, set[str]]) -> None:
        """Do the work, each part when what it needs is done. The first failure ends it."""
        waiting, done = dict(work), set(self.metrics)
        running: dict[Future[TableMetrics], str] = {}
        with ThreadPoolExecutor(CONCURRENT) as pool:
            try:
                while waiting or running:
                    for name in [name for name in waiting if needs.get(name, set()) <= done]:
                        if len(running) >= CONCURRENT:
                            break
                        self._tell(name, FlowState.RUNNING)
                        running[pool.submit(waiting.pop(name))] = name
                    finished, _ = wait(running, POLL_S, FIRST_COMPLETED)
                    for future in finished:
                        name = running.pop(future)
                        self._finish(name, future)
                        done.add(name)
            except BaseException:
                for session in (self.state.spark, self._compiled):
                    with suppress(Exception):
                        session.interruptAll()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _finish(self, name: str, future: Future[TableMetrics]) -> None:
        try:
            future.result()
        except (PySparkException, OSError, pa.ArrowException) as failed:
            reason = reason_of(failed)
            self._tell(name, FlowState.FAILED, reason)
            raise RunFailed(f"{name}: {reason}") from None
        self._tell(name, FlowState.COMPLETED)

    def _tell(self, name: str, state: FlowState, reason: str = "") -> None:
        self._on_progress(Progress(name, state, len(self.metrics), self._total, reason))


def _bound(function: Callable[..., TableMetrics], *given: Any) -> Callable[[], TableMetrics]:
    return lambda: function(*given)


_WITH_FAULTY = ("repeats", "quarantine")
"""Flows that read rows with faults, which have no hour."""


def _has_overlaps(state: RunState) -> bool:
    """Whether any two files of a broker overlap in time; otherwise nothing can be repeated."""
    files = [row for row in _rows(state, "lake_files") if row["first_ns"] is not None]
    files.sort(key=lambda row: (row["table"], row["broker"] or "", row["incarnation"] or 0, row["first_ns"]))
    last: tuple[Any, ...] | None = None
    until_ns = 0
    for row in files:
        key = (row["table"], row["broker"], row["incarnation"])
        if key == last and row["first_ns"] <= until_ns:
            return True
        until_ns = row["last_ns"] if key != last else max(until_ns, row["last_ns"])
        last = key
    return False


def _has_faults(state: RunState) -> bool:
    return any(row["faults"] for row in _rows(state, "lake_files")) or bool(_rows(state, "repeats"))


_CHECKS: dict[str, Callable[[RunState], bool]] = {"repeats": _has_overlaps, "quarantine": _has_faults}
"""Flows that are usually empty, and how that is known without Spark."""


def _rows(state: RunState, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(state.this.tables / name).to_pylist()
    return found


def _write(frame: DataFrame, staging: Path, *, is_divided: bool) -> int:
    """Write a table; gives the bytes that were shuffled, where Spark tells them."""
    writer = frame.write.mode("overwrite")
    (writer.partitionBy(PARTITION) if is_divided else writer).parquet(spark_path(staging))
    return run_metrics.shuffled_bytes(frame)


def _write_empty(name: str, path: Path) -> None:
    """A table without rows has its columns all the same."""
    schema = commented_arrow(to_arrow_schema(TABLES[name]), name)
    pq.write_table(schema.empty_table(), path)


def reason_of(error: BaseException) -> str:
    """The cause of a failure in a line: Spark's messages contain plans and stack traces."""
    text = str(error)
    for cause in ("No space left on device", "Permission denied", "Disk quota exceeded"):
        if cause in text:
            return cause.lower()
    lines = [line.strip() for line in text.split("JVM stacktrace")[0].splitlines() if line.strip()]
    ends = [line for line in lines if line.split(":")[0].split(".")[-1].endswith(("Error", "Exception"))]
    found = (ends[-1] if ends else lines[0]) if lines else type(error).__name__
    return found if len(found) <= REASON_CHARACTERS else f"{found[:REASON_CHARACTERS]}..."
