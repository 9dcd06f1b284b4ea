"""Ingest: the files of brokers become rows; faulty files and rows are kept with the reason.

Files are read whole, as bytes, so any file system that Spark reads will do. A file that is not Parquet, lacks a column
or has one of another type becomes a row with the reason, and the run continues. A row is faulty if a required value is
missing, negative, or in the future. Faulty rows are ingested too, with `fault` set: nothing is read twice or lost
silently.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from overlane.pipeline.columns import columns, declare
from overlane.pipeline.schemas import INGESTED
from overlane.pipeline.units import SECOND_NS
from overlane.telemetry.schema import SCHEMAS, TABLE_KEY

FILES = columns("path string, length bigint, content binary")
AHEAD_NS = 600 * SECOND_NS
"""Tolerated clock difference."""
BATCH_ROWS = 64 * 1024

Batches = Iterator[Any]


def lake_files(spark: SparkSession, lake: str, table: str, bytes_per_batch: int = 1 << 30) -> DataFrame:
    """Stream of the files of one table, oldest first; may be empty."""
    found = (
        spark.readStream.format("binaryFile")
        .schema("path string, modificationTime timestamp, length bigint, content binary")
        .option("pathGlobFilter", "*.parquet")
        .option("maxBytesPerTrigger", str(bytes_per_batch))
        .load(f"{lake.rstrip('/')}/{table}/date=*")
    )
    return declare(found, FILES)


def ingest_files(found: DataFrame, table: str, now_ns: int) -> DataFrame:
    """The rows of the files, including faulty ones."""
    return declare(found, FILES).mapInArrow(_reader(table, now_ns), INGESTED[table])


def _reader(table: str, now_ns: int) -> Callable[[Batches], Batches]:
    def read(batches: Batches) -> Batches:
        for batch in batches:
            paths, contents = batch.column("path"), batch.column("content")
            for number in range(batch.num_rows):
                rows = read_file(table, paths[number].as_py(), contents[number].as_buffer(), now_ns)
                yield from rows.to_batches(max_chunksize=BATCH_ROWS)

    return read


def read_file(table: str, path: str, content: Any, now_ns: int) -> Any:
    """The rows of one file as a pyarrow.Table."""
    name = "/".join(path.split("/")[-2:])
    try:
        given = pq.read_table(pa.BufferReader(content))
    except (pa.ArrowException, OSError) as wrong:
        return _rejected_file(table, name, f"unreadable: {str(wrong).splitlines()[0]}")
    says = (given.schema.metadata or {}).get(TABLE_KEY, table.encode()).decode()
    if says != table:
        return _rejected_file(table, name, f"a file of {says}")
    arrays = {}
    for field in SCHEMAS[table]:
        array, fault = _column(given, field)
        if fault is not None:
            return _rejected_file(table, name, fault)
        arrays[field.name] = array
    rows = given.num_rows
    return _table(
        table,
        {
            **arrays,
            "file": pa.repeat(pa.scalar(name), rows),
            "row": pa.array(np.arange(rows)),
            "fault": _faults(table, arrays, rows, now_ns),
        },
    )


def _column(given: Any, field: Any) -> tuple[Any, str | None]:
    place = given.schema.get_field_index(field.name)
    if place < 0:
        if field.nullable:  # written before the column existed
            return pa.nulls(given.num_rows, field.type), None
        return None, f"column {field.name} is missing"
    column = given.column(place)
    if column.type != field.type and not _widens(column.type, field.type):
        return None, f"column {field.name} is {column.type}, not {field.type}"
    return column.cast(field.type), None


def _widens(found: Any, wanted: Any) -> bool:
    """Whether a type can be cast without loss: fewer bits, or another encoding."""
    if pa.types.is_dictionary(found):
        return bool(found.value_type == wanted)
    if pa.types.is_nested(wanted):
        return str(found).replace("element", "item") == str(wanted).replace("element", "item")
    if pa.types.is_signed_integer(wanted):
        return bool(pa.types.is_signed_integer(found))
    return bool(pa.types.is_floating(wanted) and pa.types.is_floating(found)) or found == pa.large_string()


def _faults(table: str, arrays: dict[str, Any], rows: int, now_ns: int) -> Any:
    """The first fault of each row; null if there is none."""
    fault = pa.nulls(rows, pa.string())

    def mark(is_wrong: Any, reason: str) -> None:
        nonlocal fault
        # Usually there is no fault: then no array of strings is allocated.
        if pc.any(is_wrong, min_count=0).as_py():
            fault = pc.if_else(pc.and_(pc.fill_null(is_wrong, False), pc.is_null(fault)), reason, fault)

    for field in SCHEMAS[table]:
        array = arrays[field.name]
        if not field.nullable and array.null_count:
            mark(pc.is_null(array), f"no {field.name}")
        if pa.types.is_integer(field.type):
            mark(pc.less(array, 0), f"negative {field.name}")
        if field.name == "interval_ns":
            mark(pc.equal(array, 0), "interval_ns is 0")
        if pa.types.is_floating(field.type):
            mark(pc.or_(pc.less(array, 0.0), pc.greater(array, 1.0)), f"{field.name} is not from 0 to 1")
    mark(pc.greater(arrays["at_ns"], now_ns + AHEAD_NS), "in the future")
    return fault


def _rejected_file(table: str, name: str, fault: str) -> Any:
    """One row for a rejected file."""
    return _table(table, {"file": pa.array([name]), "fault": pa.array([fault])})


def _table(table: str, arrays: dict[str, Any]) -> Any:
    rows = len(arrays["file"])
    own = [pa.field("file", pa.string()), pa.field("row", pa.int64()), pa.field("fault", pa.string())]
    fields = [pa.field(field.name, field.type) for field in SCHEMAS[table]] + own
    every = [arrays.get(field.name, pa.nulls(rows, field.type)) for field in fields]
    return pa.Table.from_arrays(every, schema=pa.schema(fields))
