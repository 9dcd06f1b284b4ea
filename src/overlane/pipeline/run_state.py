"""Run state: which hours a run computes, what it takes over from the run before, and where its tables are read.

A run continues the last completed run of the same format. New rows belong to hours; these hours are computed again from
all their rows, so late rows count as if they had come in time. Hours without new rows, and tables whose inputs have not
changed, are taken over. If the clock of a broker is wrong, its rows may move to a neighbouring hour: then that is
computed too.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from overlane.pipeline.flows import RAW, Flow
from overlane.pipeline.hour_files import UNDIVIDED, HourFiles
from overlane.pipeline.output_directory import Run, spark_path
from overlane.pipeline.schemas import INGESTED, TABLES
from overlane.pipeline.settings import PipelineSettings
from overlane.pipeline.units import HOUR_S, WINDOW_S

LOGIC = 1
"""Raised when tables of the same columns are computed differently: then all hours are computed again."""

_SCHEMAS: dict[str, StructType] = {**TABLES, **{RAW[table]: schema for table, schema in INGESTED.items()}}


def format_of(schemas: dict[str, StructType]) -> str:
    told = [(name, schema.simpleString()) for name, schema in sorted(schemas.items())]
    return hashlib.sha256(repr((LOGIC, told)).encode()).hexdigest()[:16]


RAW_FORMAT, TABLES_FORMAT = format_of(INGESTED), format_of(TABLES)


class RunState:
    def __init__(self, spark: SparkSession, settings: PipelineSettings, this: Run, before: Run | None) -> None:
        self.spark, self.settings, self.this = spark, settings, this
        told = _summary(before)
        self.sealed_before_s = sealed_hours(before)
        """Hours before this one are taken over whatever has changed (`raw_retention`)."""
        self._sealed = before if self.sealed_before_s else None
        self._before = before if told.get("raw_format") == RAW_FORMAT else None
        self._has_tables = self._before is not None and told.get("tables_format") == TABLES_FORMAT
        self._is_same = self._has_tables and told.get("settings") == settings_key(settings)
        self.changed: set[str] = set()
        self.touched_hours: set[int] = set()
        self._is_skewed = False
        self._new: dict[str, set[Path]] = {}

    # What is taken over

    def ingested(self) -> set[tuple[str, str]]:
        """(table, name) of the files that earlier runs have read."""
        if self._before is None:
            return set()
        found = pq.read_table(self._before.tables / "lake_files", columns=["table", "file"])
        return set(zip(found["table"].to_pylist(), found["file"].to_pylist(), strict=True))

    def take_over_raw(self) -> None:
        for table in RAW:
            files = self.files(RAW[table])
            files.directory.mkdir(parents=True, exist_ok=True)
            if self._before is not None:
                files.share_from(HourFiles(self._before.raw / table), lambda _: True)
            if not self._has_tables:
                self.touched_hours |= files.hours()

    def take_over(self, flow: Flow, hours: set[int] | None) -> bool:
        """Share what is still valid of a table; gives whether that is all of it."""
        files = self.files(flow.name)
        files.directory.mkdir(parents=True, exist_ok=True)
        if not self._has_tables or self._before is None:
            if self._sealed is not None:
                is_kept = self._is_sealed if not flow.is_appended else lambda _: self._before is not None
                files.share_from(HourFiles(self._sealed.tables / flow.name), is_kept)
            return False
        earlier = HourFiles(self._before.tables / flow.name)
        if flow.is_appended:
            files.share_from(earlier, lambda _: True)
            return not self.changed & set(flow.reads)
        if hours is not None:
            files.share_from(earlier, lambda hour_s: hour_s not in hours)
            return not hours
        if self._is_same and not self.changed & set(flow.reads):
            files.share_from(earlier, lambda _: True)
            return True
        return False

    # Which hours

    def add_rows(self, table: str, hours: set[int], written: Iterable[Path]) -> None:
        self._new[RAW[table]] = set(written)
        if hours:
            self.changed.add(RAW[table])
            self.touched_hours |= hours

    def hours_of(self, flow: Flow) -> set[int] | None:
        """The hours that a flow computes; None if it is not divided by hours."""
        if flow.hour is None:
            return None
        hours = self.touched_hours | self._peaks_moved() if flow.is_peak else self.touched_hours
        return {hour_s for hour_s in hours if not self._is_sealed(hour_s)}

    def _is_sealed(self, hour_s: int) -> bool:
        return UNDIVIDED < hour_s < self.sealed_before_s

    def widen_by_clocks(self) -> None:
        """After `clock_offsets` is known: neighbours of hours in which a clock is, or was taken to be, wrong."""
        wrong = self._wrong_hours(self.this)
        self._is_skewed = bool(wrong)
        if self._has_tables and self._before is not None:
            wrong |= self._wrong_hours(self._before)
        for hour_s in wrong & self.touched_hours:
            self.touched_hours |= {hour_s - HOUR_S, hour_s + HOUR_S}

    def _wrong_hours(self, run: Run) -> set[int]:
        found = pq.read_table(run.tables / "clock_offsets", columns=["hour_s", "offset_s"])
        return {
            hour_s
            for hour_s, offset_s in zip(found["hour_s"].to_pylist(), found["offset_s"].to_pylist(), strict=True)
            if offset_s
        }

    def _peaks_moved(self) -> set[int]:
        """Hours of windows that are peaks now and were none, or the other way round."""
        now = _peak_windows(self.this)
        before = _peak_windows(self._before) if self._has_tables and self._before is not None else set()
        return {window_s // HOUR_S * HOUR_S for window_s in now ^ before}

    # Where tables are read

    def files(self, name: str) -> HourFiles:
        if name in TABLES:
            return HourFiles(self.this.tables / name)
        return HourFiles(self.this.raw / name.removeprefix("raw_"))

    def source(self, flow: Flow, hours: set[int] | None, spark: SparkSession | None = None) -> "RunSource":
        return RunSource(self, flow, hours, spark or self.spark)

    def hours_read(self, name: str, hours: set[int]) -> set[int]:
        if name in TABLES or not self._is_skewed:
            return hours
        return hours | {hour_s + off for hour_s in hours for off in (-HOUR_S, HOUR_S)}

    def rows_of(self, flow: Flow, hours: set[int] | None) -> int:
        """The ingested rows that a flow reads."""
        paths: list[Path] = []
        for name in flow.reads:
            if name not in TABLES:
                files = self.files(name)
                paths += [path for _, path in files] if hours is None else files.of_hours(hours)
        return sum(pq.read_metadata(path).num_rows for path in paths)

    def frame(self, spark: SparkSession, name: str, paths: list[Path]) -> DataFrame:
        schema = _SCHEMAS[name]
        if not paths:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(*map(spark_path, paths))

    def new_files(self, name: str) -> list[Path]:
        """The files of new rows; all files where no table is taken over."""
        if not self._has_tables:
            return [path for _, path in self.files(name)]
        return sorted(self._new.get(name, set()))

    @property
    def is_recomputed(self) -> bool:
        """Whether all tables are computed from rows that earlier runs have ingested, and these are all still there."""
        return self._before is not None and not self._has_tables and self._sealed is None

    @property
    def is_skewed(self) -> bool:
        return self._is_skewed


class RunSource:
    """Reads the files of a run. Only tables that the flow declares."""

    def __init__(self, state: RunState, flow: Flow, hours: set[int] | None, spark: SparkSession) -> None:
        self._state, self._flow, self._hours, self._spark = state, flow, hours, spark

    def table(self, name: str) -> DataFrame:
        files = self._files(name)
        has_files = next(iter(files), None) is not None
        return self._state.frame(self._spark, name, [files.directory] if has_files else [])

    def touched(self, name: str) -> DataFrame:
        files = self._files(name)
        if self._hours is None:
            return self.table(name)
        wanted = self._state.hours_read(name, self._hours)
        paths = files.of_hours(wanted)
        return self.table(name) if files.hours() <= wanted else self._state.frame(self._spark, name, paths)

    def new(self, name: str) -> DataFrame:
        self._files(name)
        return self._state.frame(self._spark, name, self._state.new_files(name))

    def is_empty(self, name: str) -> bool:
        files = self._files(name)
        if name == "clock_offsets":
            return not self._state.is_skewed
        return not any(pq.read_metadata(path).num_rows for _, path in files)

    def _files(self, name: str) -> HourFiles:
        if name not in self._flow.reads:
            raise LookupError(f"{self._flow.name} reads {name}, which it does not declare")
        return self._state.files(name)


def sealed_hours(run: Run | None) -> int:
    """The first hour that is not sealed after this run."""
    found: int = _summary(run).get("sealed_before_s", 0)
    return found


def settings_key(settings: PipelineSettings) -> str:
    """Of those settings that tables depend on."""
    told = (settings.domain, settings.item_levels, settings.capacity, settings.residence_ms, settings.channels)
    return repr((*told, settings.placement))


def _summary(run: Run | None) -> dict[str, Any]:
    if run is None:
        return {}
    try:
        found: dict[str, Any] = msgspec.json.decode(run.summary_file.read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    return found


def _peak_windows(run: Run) -> set[int]:
    found = pq.read_table(run.tables / "peaks", columns=["start_s", "end_s"]).to_pylist()
    return {window_s for row in found for window_s in range(row["start_s"], row["end_s"], WINDOW_S)}
