"""Compaction: an hour to which many files were added is kept in one file.

Every run adds files to the hours that its rows belong to, one per task. Many small files take longer to list, open and
read than one. At the end of a run, hours with more than `FILES_MAX` files of ingested rows are merged. The files of
earlier runs stay as they are: only the links of this run are replaced, before it becomes the latest.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overlane.pipeline.hour_files import EMPTY, HourFiles
from overlane.pipeline.raw_writer import COMPRESSION

FILES_MAX = 8
ROW_GROUP_ROWS = 256 * 1024


def compact(files: HourFiles, run: int, files_max: int = FILES_MAX) -> int:
    """Merge the files of hours that have more than `files_max`; gives the number of these hours."""
    by_hour: dict[int, list[Path]] = {}
    for hour_s, path in files:
        if not path.name.endswith(EMPTY):
            by_hour.setdefault(hour_s, []).append(path)
    many = {hour_s: paths for hour_s, paths in by_hour.items() if len(paths) > files_max}
    for hour_s, paths in many.items():
        merged = files.directory / f".{hour_s}"  # not a file of the table until it is complete
        _merge(paths, merged)
        merged.rename(files.free(hour_s, run))
        for path in paths:
            path.unlink()
    return len(many)


def _merge(paths: list[Path], merged: Path) -> None:
    # Files of other versions may differ in metadata and in the names of list elements.
    schema = pq.read_schema(paths[-1])
    with pq.ParquetWriter(merged, schema, compression=COMPRESSION) as writer:
        for rows in _row_groups(paths, schema):
            writer.write_table(rows)


def _row_groups(paths: list[Path], schema: Any) -> Iterator[Any]:
    """The rows of all files in groups of a good size, so that they need not fit into memory."""
    held: list[Any] = []
    count = 0
    for path in paths:
        with pq.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                held.append(file.read_row_group(number).replace_schema_metadata().cast(schema))
                count += held[-1].num_rows
                if count >= ROW_GROUP_ROWS:
                    yield pa.concat_tables(held)
                    held, count = [], 0
    if held:
        yield pa.concat_tables(held)
