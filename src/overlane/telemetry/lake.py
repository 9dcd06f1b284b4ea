"""The lake: the finished files of one broker, in a place that brokers may share.

    <lake>/<table>/date=YYYY-MM-DD/<broker>-<incarnation>-<number>.parquet

A file is written under a hidden name in its directory and then renamed: readers see a complete file or none. It is
never modified. When the files of this broker exceed their limit, the oldest are deleted.

The lake is a directory, or a URL that Arrow supports, such as s3://bucket/lake. Files of other brokers are not touched.
"""

import os
from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from overlane.errors import Unavailable
from overlane.telemetry.journal import FileName

SUFFIX = ".parquet"
PART = ".part"
DATE = "date="
ROW_GROUP_ROWS = 256 * 1024


@dataclass(frozen=True, slots=True, order=True)
class LakeFile:
    name: FileName
    bytes: int


class Lake:
    """`where` is a path or an address. Unavailable where it means nothing; OSError where it cannot be reached now."""

    def __init__(self, where: str, broker: str, size_bytes: int | None = None) -> None:
        """`size_bytes`: of the files of this broker, if it is known."""
        self._broker = broker
        self._where = where
        try:
            self._system, self._root = opened(where)
        except (pa.ArrowException, OSError, ValueError) as wrong:
            raise Unavailable(f"telemetry in {where}", str(wrong)) from None
        self._files: list[LakeFile] = []
        """Of this broker, oldest first, as far as they are known."""
        self.bytes = size_bytes

    @property
    def files(self) -> list[LakeFile]:
        return list(self._files)

    def look(self, is_being_written: Callable[[FileName], bool] = lambda _: False) -> None:
        """Find out which files are there; what was left half written is removed."""
        found: list[LakeFile] = []
        for info in self._everything():
            table, date, base = _place(info.path)
            stem = base.removesuffix(PART).removeprefix(".") if base.endswith(PART) else base
            name = FileName.parse(f"{table}.{date}.{stem.removesuffix(SUFFIX)}") if stem.endswith(SUFFIX) else None
            if name is None or name.broker != self._broker:
                continue
            if base.endswith(PART):
                if not is_being_written(name):
                    self._system.delete_file(info.path)
            else:
                found.append(LakeFile(name, info.size))
        self._files = sorted(found)
        self.bytes = sum(file.bytes for file in found)

    def put(self, name: FileName, rows: Any) -> LakeFile:
        """Make a file of the rows, a pyarrow.Table."""
        directory, path = self._directory(name), self._path(name)
        part = f"{directory}/.{name.stem}{SUFFIX}{PART}"
        self._make(name)
        with self._system.open_output_stream(part) as sink:
            pa.parquet.write_table(rows, sink, compression="zstd", row_group_size=ROW_GROUP_ROWS)
        if isinstance(self._system, pa.fs.LocalFileSystem):
            _sync(part)
        self._system.move(part, path)
        file = LakeFile(name, self._system.get_file_info(path).size)
        self._forget(name)  # a file that is made a second time takes the place of the first
        insort(self._files, file)
        if self.bytes is not None:
            self.bytes += file.bytes
        return file

    def remove_oldest(self) -> LakeFile | None:
        """None if there is none."""
        if not self._files:
            return None
        oldest = self._files[0]
        with suppress(FileNotFoundError):
            self._system.delete_file(self._path(oldest.name))
        self._forget(oldest.name)
        return oldest

    def _forget(self, name: FileName) -> None:
        if self.bytes is not None:
            self.bytes -= sum(file.bytes for file in self._files if file.name == name)
        self._files = [file for file in self._files if file.name != name]

    def _directory(self, name: FileName) -> str:
        return f"{self._root}/{name.table}/{DATE}{name.date}"

    def _make(self, name: FileName) -> None:
        """The directory of a file. The lake itself was made by the broker: one that has been removed stays so."""
        if isinstance(self._system, pa.fs.LocalFileSystem):
            for directory in (f"{self._root}/{name.table}", self._directory(name)):
                Path(directory).mkdir(exist_ok=True)
        else:
            self._system.create_dir(self._directory(name), recursive=True)

    def _path(self, name: FileName) -> str:
        return f"{self._directory(name)}/{name.stem}{SUFFIX}"

    def _everything(self) -> Iterator[Any]:
        selector = pa.fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        return (info for info in self._system.get_file_info(selector) if info.is_file)


def opened(where: str) -> tuple[Any, str]:
    if "://" in where:
        system, root = pa.fs.FileSystem.from_uri(where)
        return system, root.rstrip("/")
    return pa.fs.LocalFileSystem(), str(Path(where).absolute())


def _place(path: str) -> tuple[str, str, str]:
    """Table, date and name of a file; nothing where it lies somewhere else."""
    parts = path.split("/")[-3:]
    if len(parts) < 3 or not parts[1].startswith(DATE):
        return "", "", ""
    return parts[0], parts[1].removeprefix(DATE), parts[2]


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
