"""Brevity: settings of Spark for so little telemetry that starting takes longer than counting.

A large lake wants code that was compiled for its queries, plans that are made anew when the sizes of tables are known,
and many partitions. A small one is done before any of that pays: on two cores half of the time of its run went into
compiling. How much there is, is looked up where lake and tables are directories of this machine; elsewhere it is taken
for much.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

SMALL_BYTES = 16 << 20
SMALL_ROWS = 2_000_000
"""Of Parquet. From there on what was compiled has paid; what repeats itself has many rows in few bytes."""

_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""With the simple compiler alone Java keeps room for 48 MiB of code, which all of Spark overflows; then it ends."""

BRIEF: dict[str, str] = {
    "spark.buffer.pageSize": "1m",  # each of hundreds of small sums and sorts would take 32, and keep it a while
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
CASE_TASKS = 8


def is_small(lake: str, out: Path | None = None) -> bool:
    """Whether what there is to read, and what has landed before, is little."""
    place = urlsplit(lake)
    if place.scheme not in ("", "file"):
        return False
    left_bytes = SMALL_BYTES
    files: list[Path] = []
    for directory in (Path(unquote(place.path)), *([out / "raw"] if out is not None else [])):
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
            except FileNotFoundError:  # a broker has made room meanwhile
                continue


def _rows(file: Path) -> int:
    try:
        return int(pq.read_metadata(file).num_rows) if file.suffix == ".parquet" else 0
    except (OSError, pa.ArrowException):  # the run will tell of it
        return 0
