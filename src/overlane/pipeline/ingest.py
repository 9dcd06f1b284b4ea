"""Ingest: the files of brokers become rows; faulty files and rows are kept with the reason.

Files are read whole, as bytes, so any file system that Spark reads will do. A file that is not Parquet, lacks a column
or has one of another type becomes a row with the reason, and the run continues. A row is faulty if a required value is
missing, negative, or in the future, or if the file has the row twice. Faulty rows are ingested too, with `fault` set:
nothing is read twice or lost silently. Rows of hours that are sealed (`raw_retention`) are faulty. A file of a newer
schema version is not guessed at: it is rejected as a whole.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from overlane.pipeline.columns import columns, declare
from overlane.pipeline.lake_listing import file_system, file_system_path, is_read_by_arrow
from overlane.pipeline.raw_retention import DROPPED
from overlane.pipeline.schemas import INGESTED, KEYS
from overlane.pipeline.units import HOUR_S, SECOND_NS
from overlane.telemetry.schema import SCHEMAS, TABLE_KEY, VERSION, VERSION_KEY

FILES = columns("path string, length bigint, content binary")
AHEAD_NS = 600 * SECOND_NS
"""Tolerated clock difference."""
BATCH_ROWS = 64 * 1024
TASKS_MAX = 64
"""That read files of an object store."""
HOURS_MAX = 10_000
"""A file with rows of more hours is rejected."""
BY_SECOND = ("topic_rates", "links", "queues")
READ_VERSIONS = tuple(str(version) for version in range(1, VERSION + 1))
REPEATED = "repeated"
TOO_LATE = "too late: the other rows of its hour have been deleted"

_ROW = "row number"
_ODD = np.uint64(0x9E3779B97F4A7C15)

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


def new_files(spark: SparkSession, lake: str, table: str, names: Sequence[str]) -> DataFrame:
    """The contents of these files. A broker may remove one meanwhile.

    Files of object stores have no content here: tasks read them with Arrow, so Spark needs no jars for the store.
    """
    paths = [f"{lake.rstrip('/')}/{table}/{name}" for name in names]
    if is_read_by_arrow(lake):
        rows = [(path, 0, None) for path in paths]
        return spark.createDataFrame(rows, FILES).repartition(min(len(rows), TASKS_MAX))
    found = spark.read.format("binaryFile").option("ignoreMissingFiles", "true").load(paths)
    return declare(found, FILES)


def contents_of(batch: Any) -> Iterator[tuple[str, Any]]:
    """Path and content of the files of a batch."""
    paths, contents = batch.column("path").to_pylist(), batch.column("content")
    system = None
    for path, content in zip(paths, contents, strict=True):
        if content.is_valid:
            yield path, content.as_buffer()
            continue
        if system is None:
            system, _ = file_system(path)
        try:
            with system.open_input_file(file_system_path(path)) as file:
                yield path, file.read_buffer()
        except FileNotFoundError:  # removed meanwhile
            continue


def ingest_files(found: DataFrame, table: str, now_ns: int) -> DataFrame:
    """The rows of the files, including faulty ones."""
    return declare(found, FILES).mapInArrow(_reader(table, now_ns), INGESTED[table])


def _reader(table: str, now_ns: int) -> Callable[[Batches], Batches]:
    def read(batches: Batches) -> Batches:
        for batch in batches:
            for path, content in contents_of(batch):
                rows = read_file(table, path, content, now_ns)
                yield from rows.to_batches(max_chunksize=BATCH_ROWS)

    return read


def name_of(path: str) -> str:
    """The name of a file within its table: `date=2026-01-02/seattle-1-1.parquet`."""
    return "/".join(path.split("/")[-2:])


def read_file(table: str, path: str, content: Any, now_ns: int, sealed_before_s: int = 0) -> Any:
    """The rows of one file as a pyarrow.Table."""
    name = name_of(path)
    try:
        given = pq.read_table(pa.BufferReader(content))
    except (pa.ArrowException, OSError) as wrong:
        return rejected_file(table, name, f"unreadable: {str(wrong).splitlines()[0]}")
    metadata = given.schema.metadata or {}
    says = metadata.get(TABLE_KEY, table.encode()).decode(errors="replace")
    if says != table:
        return rejected_file(table, name, f"a file of {says}")
    version = metadata.get(VERSION_KEY, b"%d" % VERSION).decode(errors="replace")
    if version not in READ_VERSIONS:
        return rejected_file(table, name, f"schema version {version}; expected {' or '.join(READ_VERSIONS)}")
    arrays = {}
    for field in SCHEMAS[table]:
        array, fault = _column(given, field)
        if fault is not None:
            return rejected_file(table, name, fault)
        arrays[field.name] = array
    rows = given.num_rows
    faults = _faults(table, arrays, rows, now_ns)
    hours = _hours(table, arrays["at_ns"], faults)
    if table in DROPPED and rows and hours.min() < sealed_before_s:
        is_late = (hours < sealed_before_s) & (hours != 0)
        faults, hours = pc.if_else(pa.array(is_late), TOO_LATE, faults), np.where(is_late, 0, hours)
    if len(np.unique(hours)) > HOURS_MAX:
        return rejected_file(table, name, f"rows of more than {HOURS_MAX} hours")
    return _table(
        table,
        {
            **arrays,
            "file": pa.repeat(pa.scalar(name), rows),
            "row": pa.array(np.arange(rows)),
            "hour_s": pa.array(hours),
            "fault": faults,
        },
    )


def _hours(table: str, at_ns: Any, faults: Any) -> Any:
    """The hours that rows belong to. Where rows cover a second, it is that second which counts (`second_masks`)."""
    at = at_ns.fill_null(0).to_numpy()
    at_s = (at + SECOND_NS // 2) // SECOND_NS - 1 if table in BY_SECOND else at // SECOND_NS
    return np.where(faults.is_valid().to_numpy(zero_copy_only=False), 0, at_s // HOUR_S * HOUR_S)


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
    repeated = _repeated(table, arrays, rows)
    if repeated is not None:
        mark(repeated, REPEATED)
    return fault


def _repeated(table: str, arrays: dict[str, Any], rows: int) -> Any | None:
    """Which rows the file has told before; None if there are none."""
    keys = ("at_ns", "broker", "incarnation", *KEYS[table])
    suspects = np.flatnonzero(_has_twin(_hashes([arrays[name] for name in keys], rows)))
    if not len(suspects):
        return None
    taken = {name: _comparable(arrays[name].take(pa.array(suspects))) for name in keys}
    every = pa.table({**taken, _ROW: pa.array(suspects)})
    is_repeated = np.zeros(rows, dtype=np.bool_)
    is_repeated[suspects] = True
    is_repeated[every.group_by(list(keys)).aggregate([(_ROW, "min")]).column(f"{_ROW}_min").to_numpy()] = False
    return pa.array(is_repeated)


def _hashes(columns: list[Any], rows: int) -> Any:
    """Equal for equal rows, and nearly always different for others."""
    mixed = np.zeros(rows, dtype=np.uint64)
    for column in columns:
        if pa.types.is_integer(column.type):
            codes = column.fill_null(-1)
        elif pa.types.is_string(column.type):
            codes = column.combine_chunks().dictionary_encode().indices.fill_null(-1)
        else:
            continue
        mixed = mixed * _ODD + codes.to_numpy(zero_copy_only=False).astype(np.uint64)
    return mixed


def _has_twin(hashes: Any) -> Any:
    order = np.argsort(hashes, kind="stable")
    same = hashes[order][1:] == hashes[order][:-1]
    found = np.zeros(len(hashes), dtype=np.bool_)
    found[order[1:]] |= same
    found[order[:-1]] |= same
    return found


def _comparable(array: Any) -> Any:
    """Arrow cannot group by lists: they become texts."""
    if not pa.types.is_nested(array.type):
        return array
    return pa.array([None if value is None else repr(value) for value in array.to_pylist()], pa.string())


def rejected_file(table: str, name: str, fault: str) -> Any:
    """One row for a rejected file."""
    return _table(table, {"file": pa.array([name]), "hour_s": pa.array([0]), "fault": pa.array([fault])})


def _table(table: str, arrays: dict[str, Any]) -> Any:
    rows = len(arrays["file"])
    own = [
        pa.field("file", pa.string()),
        pa.field("row", pa.int64()),
        pa.field("hour_s", pa.int64()),
        pa.field("fault", pa.string()),
    ]
    fields = [pa.field(field.name, field.type) for field in SCHEMAS[table]] + own
    every = [arrays.get(field.name, pa.nulls(rows, field.type)) for field in fields]
    return pa.Table.from_arrays(every, schema=pa.schema(fields))
