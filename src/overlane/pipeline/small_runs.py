"""Small runs: Spark settings for runs so small that startup takes longer than the computation.

A large run profits from compiled queries, adaptive query plans and many partitions. A small one is done before these
pay off: on two cores, half of its run time was spent in compilation. A run is small if its lake is, or if it continues
an earlier run and has few new rows in few hours: all other hours are taken over. Of a lake that is not a local
directory rows are not counted, and fewer bytes count as small.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from overlane.pipeline.lake_listing import LakeFile
from overlane.pipeline.output_directory import OutputDirectory, Run
from overlane.pipeline.units import HOUR_S, SECOND_NS

SMALL_BYTES = 16 << 20
SMALL_ROWS = 2_000_000
"""Limits of Parquet bytes and rows, above which compilation pays off. Compressed data may have many rows per byte."""
SMALL_REMOTE_BYTES = 2 << 20
"""Of the files of a lake that is not a local directory: their rows are not counted."""
SMALL_TABLES_BYTES = 64 << 20
"""Of the tables of the run that is continued: those that are not divided by hours are computed from all of them."""
HOURS_MAX = 1_000

_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""With tier 1 alone Java reserves a code cache of 48 MiB, which Spark overflows."""

SMALL_RUN_CONF: dict[str, str] = {
    "spark.buffer.pageSize": "1m",  # default 32m, for each of hundreds of small aggregations and sorts
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
CASE_TASKS = 8


def is_small_run(lake: str, output: OutputDirectory, listed: Sequence[LakeFile]) -> bool:
    """Whether a run of these files of the lake is small."""
    return is_small(lake, output.path, listed) or is_small_addition(lake, output.latest(), listed)


def is_small_addition(lake: str, latest: Run | None, listed: Iterable[LakeFile]) -> bool:
    """Whether the new files, the ingested rows of their hours and all tables are small. Only of a local lake."""
    records = None if latest is None else latest.tables / "lake_files"
    if latest is None or records is None or not records.is_dir() or ("://" in lake and not lake.startswith("file://")):
        return False
    known = pq.read_table(records, columns=["table", "file"])
    names = set(zip(known["table"].to_pylist(), known["file"].to_pylist(), strict=True))
    new = [file for file in listed if (file.table, file.name) not in names]
    if sum(file.size_bytes for file in new) > SMALL_BYTES:
        return False
    paths = [Path(lake.removeprefix("file://")) / file.table / file.name for file in new]
    if sum(map(_rows, paths)) > SMALL_ROWS:
        return False
    hours = set[int]().union(*map(_hours, paths))
    touched = [path for path, _ in _files(latest.raw) if int(path.name.partition("-")[0] or 0) in hours]
    if sum(path.stat().st_size for path in touched) > SMALL_BYTES or sum(map(_rows, touched)) > SMALL_ROWS:
        return False
    return sum(size_bytes for _, size_bytes in _files(latest.tables)) <= SMALL_TABLES_BYTES


def is_small(lake: str, out: Path | None = None, listed: Iterable[LakeFile] = ()) -> bool:
    """Whether the lake and the ingested rows of earlier runs are few. Of a lake elsewhere only sizes are known."""
    left_bytes = SMALL_BYTES
    directories = [out / "latest" / "raw"] if out is not None else []
    if "://" in lake and not lake.startswith("file://"):
        sizes = [file.size_bytes for file in listed]
        if not sizes or sum(sizes) > SMALL_REMOTE_BYTES:
            return False
    else:
        directories.append(Path(lake.removeprefix("file://")))
    files: list[Path] = []
    for directory in directories:
        for file, size_bytes in _files(directory):
            files.append(file)
            left_bytes -= size_bytes
            if left_bytes < 0:
                return False
    return sum(map(_rows, files)) <= SMALL_ROWS


def _files(directory: Path) -> Iterator[tuple[Path, int]]:
    for where, _, names in os.walk(directory):
        for name in names:
            file = Path(where) / name
            try:
                yield file, file.stat().st_size
            except FileNotFoundError:  # deleted by a broker meanwhile
                continue


def _hours(file: Path) -> set[int]:
    """The hours of the rows of a file of the lake, by its statistics."""
    found: set[int] = set()
    try:
        metadata = pq.read_metadata(file)
    except (OSError, pa.ArrowException):
        return found
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(0).statistics  # of at_ns
        if statistics is not None and statistics.has_min_max and isinstance(statistics.min, int):
            first, last = (at_ns // (HOUR_S * SECOND_NS) for at_ns in (statistics.min, statistics.max))
            found |= {hour * HOUR_S for hour in range(first, min(last, first + HOURS_MAX) + 1)}
    return found


def _rows(file: Path) -> int:
    try:
        return int(pq.read_metadata(file).num_rows) if file.suffix == ".parquet" else 0
    except (OSError, pa.ArrowException):  # the run reports it
        return 0
