"""A journal: rows of one table on disk that are not in a file of the lake yet.

A Parquet file is readable only once it is finished, and the library that writes it takes more memory than a broker. So
a broker appends rows to a journal, and another process turns it into a file. A journal can be read up to where it was
cut off: after a crash the next process finds what was written up to the last second, and finishes the file.

A journal has the name of the file it becomes, so finishing it twice gives the same file:

    <table>.<date>.<broker>-<incarnation>-<number>.rows

It begins with MAGIC and a frame with its columns, and then has a frame for each time that rows were appended:

    frame    length u32 | CRC-32 of the body u32 | body
    body     msgpack: at first a list of the names of the columns, then lists of rows, each a list of values

Whoever writes a journal or makes a file of it holds a lock on it. A journal that is not locked is abandoned, and anyone
may finish it.
"""

import errno
import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from struct import Struct
from typing import BinaryIO
from zlib import crc32

import msgspec

from overlane.telemetry.rows import ROWS, Row

SUFFIX = ".rows"
MAGIC = b"overlane rows 1\n"
_HEAD = Struct(">II")

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

    def __init__(self, directory: Path, name: FileName) -> None:
        """OSError if it cannot be had."""
        self.name = name
        self.path = directory / name.journal
        self.bytes = 0
        self._file: FileIO = FileIO(self.path, "x")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write(MAGIC + _frame(ROWS[name.table]._fields))
        except OSError:
            self._file.close()
            raise

    def append(self, rows: Sequence[Row]) -> None:
        """OSError when the disk does not take them, ValueError if they cannot be written down; the journal is then as
        it was before."""
        try:
            frame = _frame(rows)
        except (OverflowError, TypeError) as wrong:
            raise ValueError(f"rows of {self.name.table}: {wrong}") from None
        self._write(frame)

    def close(self) -> None:
        """Nothing more is appended; what is in it waits to be made into a file."""
        self._file.close()

    def _write(self, frame: bytes) -> None:
        try:
            if self._file.write(frame) != len(frame):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with suppress(OSError):
                self._file.truncate(self.bytes)
                self._file.seek(self.bytes)
            raise
        self.bytes += len(frame)


def _frame(body: Sequence[object]) -> bytes:
    packed = msgspec.msgpack.encode(body)
    return _HEAD.pack(len(packed), crc32(packed)) + packed


def lock(file: BinaryIO) -> bool:
    """Whether the journal could be locked and is still there; the lock lasts until the file is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return os.fstat(file.fileno()).st_nlink > 0


def abandoned(path: Path) -> bool:
    """Whether the journal is not locked."""
    try:
        with path.open("rb") as file:
            return lock(file)
    except OSError:
        return False


def frames(file: BinaryIO) -> Iterator[list[list[object]]]:
    """The rows that are in a journal behind its MAGIC, as they were appended, up to the first frame that is not whole.

    The first list has the names of the columns. OSError if the disk does not give them.
    """
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        length, check = _HEAD.unpack(head)
        body = file.read(length)
        # Where the disk lost the end of a file there may be zeros, whose checksum is right.
        if not length or len(body) != length or crc32(body) != check:
            return
        yield msgspec.msgpack.decode(body)
