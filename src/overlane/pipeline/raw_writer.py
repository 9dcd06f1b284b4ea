"""Raw writer: executors check the files of the lake and write their rows as files of hours.

    <staging>/_hour=1767603600/<random name>.parquet

Rows stay in Arrow from file to file: for Spark to write them, each would become a row of Java and columns again. A task
has one open file per hour, to which it adds row groups. It returns what `lake_files` records of each file of the lake,
and the names of the files it has written. Only these count: a task that failed may have left others behind, and is
repeated under other names.
"""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from overlane.pipeline.columns import columns, declare
from overlane.pipeline.hour_files import PARTITION, SUFFIX
from overlane.pipeline.ingest import FILES, contents_of, name_of, read_file
from overlane.pipeline.lake_listing import file_system
from overlane.pipeline.parquet_comments import RAW_PREFIX, commented_arrow

COMPRESSION = "zstd"
ROWS_HELD = 1 << 20
"""Rows that a task holds before it writes row groups."""
OPEN_MAX = 200
"""Files that a task has open; an hour that comes again later gets another file."""

FILE_RECORD = pa.schema(
    [
        ("table", pa.string()),
        ("file", pa.string()),
        ("broker", pa.string()),
        ("incarnation", pa.int64()),
        ("rows", pa.int64()),
        ("faults", pa.int64()),
        ("first_ns", pa.int64()),
        ("last_ns", pa.int64()),
    ]
)
"""As the table `lake_files`."""
WRITTEN = columns(
    "table string, file string, broker string, incarnation bigint, rows bigint, faults bigint, first_ns bigint, "
    "last_ns bigint, part string"
)
"""A file of the lake, or, with `part`, a file that was written, relative to the staging directory."""
_WRITTEN = pa.schema([*FILE_RECORD, ("part", pa.string())])


def write_raw(found: DataFrame, table: str, now_ns: int, staging: str, sealed_before_s: int = 0) -> DataFrame:
    """Check and write the files (`ingest.new_files`) when it is computed. `staging` is a path or URL."""
    return declare(found, FILES).mapInArrow(_task(table, now_ns, staging, sealed_before_s), WRITTEN)


def file_record(table: str, name: str, rows: Any) -> dict[str, Any]:
    """What `lake_files` has of one file, from its rows. A file without rows is recorded too, and not read again."""
    counts = rows.filter(pc.is_null(rows.column("fault"))).column("at_ns")
    span = pc.min_max(counts).as_py()
    return {
        "table": table,
        "file": name,
        "broker": _first(rows.column("broker")),
        "incarnation": _first(rows.column("incarnation")),
        "rows": rows.num_rows - rows.column("row").null_count,
        "faults": rows.num_rows - rows.column("fault").null_count,
        "first_ns": span["min"],
        "last_ns": span["max"],
    }


def _first(column: Any) -> Any:
    known = column if column.null_count == 0 else column.drop_null()
    return known[0].as_py() if len(known) else None


def _task(table: str, now_ns: int, staging: str, sealed_before_s: int = 0) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def write(batches: Iterator[Any]) -> Iterator[Any]:
        hours = HourWriter(staging, table=table)
        told = []
        for batch in batches:
            for path, content in contents_of(batch):
                rows = read_file(table, path, content, now_ns, sealed_before_s)
                told.append(file_record(table, name_of(path), rows))
                hours.add(rows)
        told += [{"part": part} for part in hours.close()]
        yield pa.RecordBatch.from_pylist(told, schema=_WRITTEN)

    return write


class HourWriter:
    """Writes rows to one file per hour."""

    def __init__(
        self, staging: str, rows_held: int = ROWS_HELD, open_max: int = OPEN_MAX, table: str | None = None
    ) -> None:
        self._system, self._root = file_system(staging)
        self._rows_held, self._open_max = rows_held, open_max
        self._table = table
        """Whose comments the files have."""
        self._held: dict[int, list[Any]] = {}
        self._rows = 0
        self._open: dict[int, Any] = {}
        self._parts: list[str] = []

    def add(self, rows: Any) -> None:
        column = rows.column("hour_s")
        hours = np.unique(column.to_numpy())
        for hour_s in hours.tolist():
            own = rows if len(hours) == 1 else rows.filter(pc.equal(column, hour_s))
            self._held.setdefault(hour_s, []).append(own)
        self._rows += rows.num_rows
        if self._rows >= self._rows_held:
            self._flush()

    def close(self) -> list[str]:
        """Gives the names of the files, relative to the staging directory."""
        self._flush()
        for writer in self._open.values():
            writer.close()
        self._open.clear()
        return self._parts

    def _flush(self) -> None:
        for hour_s, held in sorted(self._held.items()):
            rows = pa.concat_tables(held)
            self._writer(hour_s, rows.schema).write_table(rows)
        self._held.clear()
        self._rows = 0

    def _writer(self, hour_s: int, schema: Any) -> Any:
        if hour_s not in self._open:
            if len(self._open) >= self._open_max:
                self._open.pop(next(iter(self._open))).close()
            part = f"{PARTITION}={hour_s}/{uuid4().hex}{SUFFIX}"
            self._system.create_dir(f"{self._root}/{PARTITION}={hour_s}", recursive=True)
            if self._table is not None:
                schema = commented_arrow(schema, f"{RAW_PREFIX}{self._table}")
            self._open[hour_s] = pq.ParquetWriter(
                f"{self._root}/{part}", schema, filesystem=self._system, compression=COMPRESSION
            )
            self._parts.append(part)
        return self._open[hour_s]
