"""A journal: rows of one table on disk that are not in a file of the lake yet.

A Parquet file is readable only once it is finished. Until then its rows are kept as a stream of Arrow batches, which
can be read up to where it was cut off: after a crash the next process finds what was written up to the last second, and
finishes the file.

A journal has the name of the file it becomes, so finishing it twice gives the same file:

    <table>.<date>.<broker>-<incarnation>-<number>.rows

An open journal is locked. A journal that is not locked is abandoned, and anyone may finish it.
"""

import errno
import fcntl
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

SUFFIX = ".rows"

_STEM = re.compile(r"(?P<table>[a-z_]+)\.(?P<date>\d{4}-\d\d-\d\d)\.(?P<broker>.+)-(?P<life>\d+)-(?P<number>\d+)")


@dataclass(frozen=True, slots=True, order=True)
class FileName:
    """Which file of the lake. In the order in which one broker makes them."""

    date: str
    incarnation: int
    number: int
    """Counts the files of one life of the broker, of all tables together."""
    table: str
    broker: str

    @property
    def stem(self) -> str:
        return f"{self.broker}-{self.incarnation}-{self.number}"

    @property
    def journal(self) -> str:
        return f"{self.table}.{self.date}.{self.stem}{SUFFIX}"

    @classmethod
    def of_journal(cls, name: str) -> "FileName | None":
        return cls.parse(name.removesuffix(SUFFIX)) if name.endswith(SUFFIX) else None

    @classmethod
    def parse(cls, text: str) -> "FileName | None":
        """From `<table>.<date>.<broker>-<incarnation>-<number>`; None if it is none."""
        found = _STEM.fullmatch(text)
        if found is None:
            return None
        return cls(found["date"], int(found["life"]), int(found["number"]), found["table"], found["broker"])


class Journal:
    """One that is being written."""

    def __init__(self, directory: Path, name: FileName, schema: Any) -> None:
        """OSError if it cannot be had."""
        self.name = name
        self.path = directory / name.journal
        self.bytes = 0
        self._file: FileIO = FileIO(self.path, "x")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write(schema.serialize())
        except OSError:
            self._file.close()
            raise

    def append(self, batch: Any) -> None:
        """OSError when the disk does not take it; the journal is then as it was before."""
        self._write(batch.serialize())

    def close(self) -> None:
        """Nothing more is appended; what is in it waits to be made into a file."""
        self._file.close()

    def _write(self, message: Any) -> None:
        try:
            if self._file.write(message) != message.size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with suppress(OSError):
                self._file.truncate(self.bytes)
                self._file.seek(self.bytes)
            raise
        self.bytes += message.size


def abandoned(path: Path) -> bool:
    """Whether nobody writes this journal any more."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def read_journal(path: Path) -> Any:
    """The rows that are in it, as a pyarrow.Table: all whole batches up to the first that is not.

    ValueError if there is nothing to be read in it; OSError if the disk does not give it.
    """
    batches = []
    with pa.OSFile(str(path)) as file:
        try:
            reader = pa.ipc.open_stream(file)
        except pa.ArrowInvalid as wrong:
            raise ValueError(f"{path.name}: {wrong}") from None
        try:
            for batch in reader:
                batch.validate(full=True)
                batches.append(batch)
        except (pa.ArrowException, OSError):
            pass  # cut off in the middle of this one
        return pa.Table.from_batches(batches, schema=reader.schema)
