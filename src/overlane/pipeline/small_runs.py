"""Small runs: Spark settings for lakes so small that startup takes longer than the computation.

A large lake profits from compiled queries, adaptive query plans and many partitions. A small one is done before these
pay off: on two cores, half of its run time was spent in compilation. The size is checked if lake and tables are local
directories; otherwise the lake counts as large.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SMALL_BYTES = 16 << 20
SMALL_ROWS = 2_000_000
"""Limits of Parquet bytes and rows, above which compilation pays off. Compressed data may have many rows per byte."""

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


def is_small(lake: str, out: Path | None = None) -> bool:
    """Whether the lake and the raw tables of earlier runs are small; False if they are not local directories."""
    if "://" in lake and not lake.startswith("file://"):
        return False
    left_bytes = SMALL_BYTES
    files: list[Path] = []
    for directory in (Path(lake.removeprefix("file://")), *([out / "latest" / "raw"] if out is not None else [])):
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


def _rows(file: Path) -> int:
    try:
        return int(pq.read_metadata(file).num_rows) if file.suffix == ".parquet" else 0
    except (OSError, pa.ArrowException):  # the run reports it
        return 0
