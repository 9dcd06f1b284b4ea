"""The files of a lake, listed without Spark: `<table>/date=YYYY-MM-DD/<name>.parquet`.

Local directories, and stores that Arrow reads (`s3://`, `s3a://`, `gs://`, `hdfs://`). A lake that does not exist
or has no telemetry is reported at once, before Spark is started.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs

from overlane.errors import Unavailable
from overlane.telemetry.schema import SCHEMAS

SUFFIX = ".parquet"
S3_SCHEMES = ("s3a", "s3n")
"""Names that Hadoop gives to s3."""


@dataclass(frozen=True, slots=True, order=True)
class LakeFile:
    table: str
    name: str
    """Within the table: `date=2026-01-02/seattle-1-1.parquet`."""
    size_bytes: int
    modified_s: float = 0.0
    """When it was written, since 1970."""


def list_lake(lake: str, first_day: str = "") -> list[LakeFile]:
    """All files of telemetry, from this day on (`date=2026-01-02`); Unavailable if there are none at all."""
    try:
        system, root = file_system(lake)
        if system.get_file_info(root).type != fs.FileType.Directory:
            raise Unavailable(lake, "no such directory")
        files = sorted(file for table in SCHEMAS for file in _files(system, root, table, first_day))
    except (OSError, ValueError, pa.ArrowException) as refused:
        raise Unavailable(lake, str(refused).splitlines()[0]) from None
    if not files and not first_day:
        raise Unavailable(lake, f"no telemetry; expected files such as links/date=2026-01-02/seattle-1-1{SUFFIX}")
    return files


def file_system(lake: str) -> tuple[Any, str]:
    """Arrow's file system for the URL of a lake, and the path in it."""
    scheme, separator, rest = lake.partition("://")
    if not separator or scheme == "file":
        return fs.LocalFileSystem(), str(Path(rest if separator else lake).absolute())
    url = f"s3://{rest}" if scheme in S3_SCHEMES else lake
    system, path = fs.FileSystem.from_uri(url)
    return system, path.rstrip("/")


def file_system_path(address: str) -> str:
    """Of a file in an object store: bucket and key."""
    return address.partition("://")[2]


def is_read_by_arrow(lake: str) -> bool:
    """Whether tasks read the files of this lake themselves."""
    return lake.partition("://")[0] in ("s3", *S3_SCHEMES, "gs", "gcs")


def _files(system: Any, root: str, table: str, first_day: str) -> Iterator[LakeFile]:
    for day in system.get_file_info(fs.FileSelector(f"{root}/{table}", allow_not_found=True)):
        if day.type != fs.FileType.Directory or not day.base_name.startswith("date="):
            continue
        if day.base_name < first_day:
            continue
        for file in system.get_file_info(fs.FileSelector(day.path, allow_not_found=True)):
            name = file.base_name
            if file.type == fs.FileType.File and name.endswith(SUFFIX) and not name.startswith((".", "_")):
                modified_s = (file.mtime_ns or 0) / 1e9
                yield LakeFile(table, f"{day.base_name}/{name}", file.size or 0, modified_s)
