"""The file of records: one SQLite database, its format, and how it is read and written.

    records     id | kind | key | value | crc           what the broker must not forget
    quarantine  id | kind | key | value | crc | reason  records that were found damaged, as they were found

A record is known by (kind, key). In the file it has a number instead, which grows with every new record, and which
records have which numbers is kept in memory. New records so go to the end of the tree, next to each other, wherever
their keys would lie; and an erased one is found without a search. `crc` is the CRC-32 of kind, key and value.

All changes of a batch are written by a few statements of many rows, because the interpreter's lock is let go and
taken back with each statement, and whoever waits for it may wait long. How many rows a statement has is rounded up
and filled with nulls, so that SQLite has seen it before.

The kind `store` is the file's own: the incarnation lives there, and is counted and checked like every record.
"""

import logging
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from overlane.errors import ConfigError, Fault

FORMAT = 1
APPLICATION = int.from_bytes(b"OVLN", "big")
PAGE_BYTES = 4096
CHECKPOINT_PAGES = 4000
"""So many pages go to the write-ahead log before they are copied into the database."""
ROWS_MAX = 4096
"""Per statement: SQLite allows 32,766 parameters, and a record has five."""
FETCH_ROWS = 1000
BUSY_MS = 1000
"""How long a commit waits for someone who looks into the file with a tool of their own."""

SCHEMA = (
    "CREATE TABLE records (id INTEGER PRIMARY KEY, kind TEXT, key BLOB, value BLOB, crc INTEGER)",
    "CREATE TABLE quarantine (id INTEGER, kind TEXT, key BLOB, value BLOB, crc INTEGER, reason TEXT)",
)

OWN_KIND = "store"
INCARNATION = b"incarnation"

Name = tuple[str, bytes]
"""(kind, key) of a record."""

log = logging.getLogger("overlane.store")


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A damaged record: it is not served, and kept in the table `quarantine` for whoever wants to look."""

    table: str
    key: bytes
    reason: str


def fault(kind: object, key: object, value: object, crc: object) -> str | None:
    """What is wrong with a record as it lies in the file, if anything."""
    if type(kind) is not bytes or type(key) is not bytes or type(value) is not bytes:
        return "a column has a type it should not have"
    if (found := checksum(zlib.crc32(kind), key, value)) != crc:
        return f"the checksum is {crc}, of the content it is {found}"
    if not kind:
        # A row of nothing but zeros has the right checksum.
        return "the kind is empty"
    return None


def checksum(of_kind: int, key: bytes, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(key, of_kind))


def connect(path: Path, bytes_max: int | None = None, synced: bool = True) -> sqlite3.Connection:
    """A connection to the file, which must exist. Text comes as bytes: damaged text is no text."""
    connection = sqlite3.connect(
        f"file:{_quoted(path)}?mode=rw", uri=True, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        connection.text_factory = bytes
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        connection.execute(f"PRAGMA synchronous = {'FULL' if synced else 'OFF'}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        if bytes_max is not None:
            connection.execute(f"PRAGMA max_page_count = {max(1, bytes_max // PAGE_BYTES)}")
    except BaseException:
        connection.close()
        raise
    return connection


def create(path: Path) -> None:
    """An empty file of records. It is not yet safe from a power cut: its directory must be synced too."""
    path.touch(mode=0o600)
    with closing(connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute("COMMIT")


def ailment(path: Path) -> str | None:
    """What is wrong with the file as a whole, if anything. Whether its records are good is not looked at."""
    if not path.exists():
        return "the database is missing, though its write-ahead log is there"
    if not path.stat().st_size:
        return "the database is empty"
    try:
        with closing(connect(path)) as connection:
            _require_known_format(path, connection)
            if (found := connection.execute("PRAGMA quick_check(1)").fetchone()) != (b"ok",):
                return bytes(found[0]).decode(errors="replace").replace("\n", " ")
            if {bytes(sql).decode() for (sql,) in connection.execute("SELECT sql FROM sqlite_schema")} != set(SCHEMA):
                return "the tables are not those of a store"
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return str(error)
        raise
    return None


def _require_known_format(path: Path, connection: sqlite3.Connection) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise ConfigError([Fault(str(path), 0, "", "a database of another application", "a store of a broker")])
    if version > FORMAT:
        allowed = f"at most format {FORMAT}: a newer release wrote it, run that one"
        raise ConfigError([Fault(str(path), 0, "", f"a store of format {version}", allowed)])


class RecordFile:
    """The open file. It is read once, at the start; from then on only written, by one thread at a time."""

    def __init__(self, path: Path, bytes_max: int | None = None, synced: bool = True) -> None:
        self.path = path
        self.quarantined: list[Quarantined] = []
        self._numbers: dict[Name, int] = {}
        self._number = 0
        """The last one given to a record."""
        self._kinds: dict[str, int] = {}
        """CRC of each kind, where the CRC of its records starts."""
        self._connection = connect(path, bytes_max, synced)
        try:
            self._load()
        except BaseException:
            self._connection.close()
            raise

    def _load(self) -> None:
        damaged: list[tuple[int, str]] = []
        numbers = self._numbers
        kinds: dict[bytes, str] = {}
        for number, kind, key, value, crc in _rows(self._connection):
            self._number = number
            if reason := fault(kind, key, value, crc):
                damaged.append((number, reason))
                continue
            name = kinds.get(kind) or kinds.setdefault(kind, kind.decode()), key
            if (older := numbers.get(name)) is not None:
                damaged.append((older, f"record {number} is a newer one of the same kind and key"))
            numbers[name] = number
        if damaged:
            self._quarantine(damaged)

    def _quarantine(self, damaged: list[tuple[int, str]]) -> None:
        """Take damaged records out of the way, as they are."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        for number, reason in damaged:
            kind, key = execute("SELECT kind, key FROM records WHERE id = ?", (number,)).fetchone()
            execute("INSERT INTO quarantine SELECT *, ? FROM records WHERE id = ?", (reason, number))
            execute("DELETE FROM records WHERE id = ?", (number,))
            found = Quarantined(_text(kind), key if isinstance(key, bytes) else b"", reason)
            log.error("%s: record %d (%s %r) is damaged: %s", self.path, number, found.table, found.key, reason)
            self.quarantined.append(found)
        execute("COMMIT")

    def records(self) -> Iterator[tuple[str, bytes, bytes]]:
        """Every good record but the file's own, oldest first, as of now."""
        with closing(connect(self.path)) as connection:
            for _, kind, key, value, _ in _rows(connection):
                if kind != OWN_KIND.encode():
                    yield kind.decode(), key, value

    def raise_incarnation(self, least: int) -> int:
        """One more than ever before and no less than `least`, from now on."""
        incarnation = least
        if (number := self._numbers.get((OWN_KIND, INCARNATION))) is not None:
            (value,) = self._connection.execute("SELECT value FROM records WHERE id = ?", (number,)).fetchone()
            incarnation = max(int(value) + 1, least)
        self.write({(OWN_KIND, INCARNATION): b"%d" % incarnation})
        return incarnation

    def write(self, changes: Mapping[Name, bytes | None]) -> None:
        """Save records and erase (None) others, all or nothing, and on disk when this returns.

        What was never written need not be erased: it costs nothing.
        """
        numbers, kinds, last = self._numbers, self._kinds, self._number
        fresh: dict[Name, int] = {}
        erased: list[Name] = []
        gone: list[int | None] = []
        kept: list[object] = []
        for name, value in changes.items():
            number = numbers.get(name)
            if value is None:
                if number is not None:
                    erased.append(name)
                    gone.append(number)
                continue
            kind, key = name
            if number is None:
                last += 1
                fresh[name] = number = last
            if (of_kind := kinds.get(kind)) is None:
                of_kind = kinds[kind] = zlib.crc32(kind.encode())
            kept += number, kind, key, value, zlib.crc32(value, zlib.crc32(key, of_kind))
        if not gone and not kept:
            return
        self._commit(gone, kept)
        self._number = last
        for name in erased:
            del numbers[name]
        numbers.update(fresh)

    def _commit(self, gone: list[int | None], kept: list[object]) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            # Erasing comes first: it may make the room that saving needs.
            for statement, parameters in _statements(_ERASE, gone, 1):
                execute(statement, parameters)
            for statement, parameters in _statements(_SAVE, kept, 5):
                execute(statement, parameters)
            execute("COMMIT")
        except BaseException:
            # After some errors SQLite has rolled back by itself.
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the database, to make it short again."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def close(self) -> None:
        self._connection.close()


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[int, Any, Any, Any, Any]]:
    cursor = connection.execute("SELECT id, kind, key, value, crc FROM records ORDER BY id")
    while rows := cursor.fetchmany(FETCH_ROWS):
        yield from rows


_ERASE = "DELETE FROM records WHERE id IN ({})", "?"
_SAVE = "INSERT OR REPLACE INTO records SELECT * FROM (VALUES {}) WHERE column1 NOT NULL", "(?,?,?,?,?)"


def _statements(
    template: tuple[str, str], parameters: list[object] | list[int | None], width: int
) -> Iterable[tuple[str, list[object]]]:
    """Statements that carry the parameters, `width` of them in a row."""
    text, row = template
    for start in range(0, len(parameters), ROWS_MAX * width):
        part: list[object] = [*parameters[start : start + ROWS_MAX * width]]
        rows = _rounded(len(part) // width)
        part += [None] * (rows * width - len(part))
        yield text.format(",".join([row] * rows)), part


def _rounded(rows: int) -> int:
    """Up to the next number of which only the first four bits are not zero: at most an eighth more."""
    unit = 1 << max(0, rows.bit_length() - 4)
    return -(-rows // unit) * unit


def _text(column: object) -> str:
    return column.decode(errors="replace") if isinstance(column, bytes) else ""


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
