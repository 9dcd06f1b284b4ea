"""The open file of records: reading and writing.

A record is identified by (kind, key). In the file it has a number instead, which grows with every new record; the
mapping is kept in memory. So new records are appended to the end of the tree, next to each other, whatever their keys
are, and a record is erased without a search.

All changes of a batch are written by a few statements of many rows, because each statement releases and reacquires the
interpreter lock, which may take long. Preparing a new statement takes SQLite several times as long as executing it, so
there are not many different ones: the number of rows is rounded up, and the last row repeated, which changes nothing.

The kind `store` belongs to the file itself: it contains incarnation and instance, which are counted and checked like
every record.

Opening checks every record by the registry (`core.records`):

    of this release's version       it is used, or quarantined if it cannot be read
    of an older version             it is upgraded, all of them in one transaction
    of a newer version              the whole file is rejected and left unchanged: using the rest would break guarantees
    of an unknown kind              it is kept unchanged and reported: no known kind depends on it
"""

import logging
import secrets
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from errno import ENOENT
from pathlib import Path
from typing import Any

import msgspec

from overlane.core.gossip.incarnation import INCARNATION, INSTANCE, choose
from overlane.core.gossip.incarnation import TABLE as OWN_KIND
from overlane.core.records import Record, RecordKind, Registry, Standing, upgrade, version_of
from overlane.core.records import fault as record_fault
from overlane.errors import ConfigError, Fault
from overlane.node.store.record_format import CHECKPOINT_PAGES, connect, fault, log_of, text
from overlane.node.store.write_ahead_log import PAGE_BYTES
from overlane.recovery.replication.stored_record import REPLICA_TABLE
from overlane.turn.record_registry import REGISTRY

ROWS_MAX = 512
"""Per statement."""
FETCH_ROWS = 1000
MARGIN_PART = 8
MARGIN_PAGES_MAX = CHECKPOINT_PAGES
"""What is kept free of a file that may not grow beyond some size, for what has been begun: a part of it, up to that."""

Name = tuple[str, bytes]
"""(kind, key) of a record."""

log = logging.getLogger("overlane.store")


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A damaged record: it is not used, and is kept in the table `quarantine` for inspection."""

    table: str
    key: bytes
    reason: str


class RecordFile:
    """The open file. It is read once, at the start; from then on only written, by one thread at a time."""

    def __init__(
        self, path: Path, bytes_max: int | None = None, synced: bool = True, registry: Registry = REGISTRY
    ) -> None:
        self.path = path
        self._registry = registry
        self._pages_max = None if bytes_max is None else max(1, bytes_max // PAGE_BYTES)
        self.quarantined: list[Quarantined] = []
        self.unknown: Counter[str] = Counter()
        """Records of each kind that this release does not know."""
        self._numbers: dict[Name, int] = {}
        self._number = 0
        """The last one given to a record."""
        self._kinds: dict[str, int] = {}
        """CRC of each kind, where the CRC of its records starts."""
        self._places: list[tuple[int, int]] = []
        """Which files the database and its log are."""
        self._connection = connect(path, bytes_max, synced)
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._load()
        except BaseException:
            self._connection.close()
            raise

    def _load(self) -> None:
        damaged: list[tuple[int, str]] = []
        older: list[tuple[str, RecordKind, bytes, bytes]] = []
        newer: Counter[str] = Counter()
        numbers = self._numbers
        tables: dict[bytes, tuple[str, Standing, RecordKind | None]] = {}
        for number, kind, key, value, crc in _rows(self._connection):
            self._number = number
            if reason := fault(kind, key, value, crc):
                damaged.append((number, reason))
                continue
            if (found := tables.get(kind)) is None:
                found = tables[kind] = (kind.decode(), *self._registry.find(kind.decode()))
            table, standing, known = found
            if known is None:
                self.unknown[table] += 1
            elif standing is Standing.NEWER:
                newer[table] += 1
            elif standing is Standing.OLDER:
                older.append((table, known, key, value))
            elif reason := record_fault(known, key, value):
                damaged.append((number, reason))
                continue
            if (earlier := numbers.get((table, key))) is not None:
                damaged.append((earlier, f"record {number} is a newer one of the same kind and key"))
            numbers[table, key] = number
        if newer:
            raise ConfigError([self._too_new(table, count) for table, count in sorted(newer.items())])
        for table, count in sorted(self.unknown.items()):
            told = "%s: %d records of kind %s, unknown to this release, are kept unchanged"
            log.warning(told, self.path, count, table)
        if damaged:
            self._quarantine(damaged)
        if older:
            self._upgrade(older)

    def _too_new(self, table: str, count: int) -> Fault:
        name, version = version_of(table)
        _, kind = self._registry.find(table)
        found = f"{count} records of the kind {name} in version {version}"
        allowed = f"at most version {kind.version if kind else 0}: a newer release wrote them, run that one"
        return Fault(str(self.path), 0, "", found, allowed)

    def _upgrade(self, older: list[tuple[str, RecordKind, bytes, bytes]]) -> None:
        """Write records of older versions anew, as this release has them."""
        changes: dict[Name, bytes | None] = {}
        unusable: list[tuple[Name, str]] = []
        for table, kind, key, value in sorted(older, key=lambda one: version_of(one[0])[1], reverse=True):
            if (kind.table, key) in self._numbers or (kind.table, key) in changes:
                unusable.append(((table, key), f"there is one of version {kind.version} with the same key"))
                continue
            try:
                upgraded = upgrade(kind, table, value)
            except (ValueError, msgspec.MsgspecError) as error:
                unusable.append(((table, key), f"it cannot be upgraded: {error}"))
                continue
            if reason := record_fault(kind, key, upgraded):
                unusable.append(((table, key), reason))
                continue
            changes[kind.table, key], changes[table, key] = upgraded, None
        if unusable:
            self._quarantine([(self._numbers.pop(name), reason) for name, reason in unusable])
        self.write(changes)
        log.info("%s: %d records of earlier releases were upgraded", self.path, len(changes) // 2)

    def _quarantine(self, damaged: list[tuple[int, str]]) -> None:
        """Take damaged records out of the way, as they are."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        for number, reason in damaged:
            kind, key = execute("SELECT kind, key FROM records WHERE id = ?", (number,)).fetchone()
            execute("INSERT INTO quarantine SELECT *, ? FROM records WHERE id = ?", (reason, number))
            execute("DELETE FROM records WHERE id = ?", (number,))
            found = Quarantined(text(kind), key if isinstance(key, bytes) else b"", reason)
            log.error("%s: record %d (%s %r) is damaged: %s", self.path, number, found.table, found.key, reason)
            self.quarantined.append(found)
        execute("COMMIT")

    def records(self) -> Iterator[Record]:
        """Every good record but the file's own, oldest first, as of now."""
        return (record for record in self.replica() if record[0] != OWN_KIND)

    def replica(self) -> Iterator[Record]:
        """Every good record, the file's own and those of unknown kinds included."""
        with closing(connect(self.path)) as connection:
            for _, kind, key, value, _ in _rows(connection):
                yield kind.decode(), key, value

    def value(self, table: str, key: bytes) -> bytes | None:
        """Of a record, as it was when the file was opened or last written."""
        number = self._numbers.get((table, key))
        if number is None:
            return None
        (value,) = self._connection.execute("SELECT value FROM records WHERE id = ?", (number,)).fetchone()
        return bytes(value)

    def snapshot(self) -> "tuple[bytes | None, Iterator[Record]]":
        """What this storage knows of itself, and all other records at the same moment. The iterator is to be used up or
        closed, by one thread at a time: it has a connection of its own."""
        connection = connect(self.path)
        try:
            connection.execute("BEGIN")
            query = "SELECT value FROM records WHERE kind = ? ORDER BY id DESC LIMIT 1"
            row = connection.execute(query, (REPLICA_TABLE,)).fetchone()
        except BaseException:
            connection.close()
            raise
        return None if row is None else bytes(row[0]), _others(connection)

    def instance(self) -> int:
        """A random number of this file since its creation: its owner continues the broker."""
        if (number := self._numbers.get((OWN_KIND, INSTANCE))) is not None:
            (value,) = self._connection.execute("SELECT value FROM records WHERE id = ?", (number,)).fetchone()
            return int(value)
        instance = fresh_instance()
        self.write({(OWN_KIND, INSTANCE): b"%d" % instance})
        return instance

    def raise_incarnation(self, clock_s: int, least: int = 0) -> int:
        """Greater than ever before and no less than `least`, from now on; by the clock where that is plausible."""
        stored = None
        if (number := self._numbers.get((OWN_KIND, INCARNATION))) is not None:
            (value,) = self._connection.execute("SELECT value FROM records WHERE id = ?", (number,)).fetchone()
            stored = int(value)
        incarnation, warning = choose(stored, clock_s, least)
        if warning:
            log.error("%s: %s", self.path, warning)
        self.write({(OWN_KIND, INCARNATION): b"%d" % incarnation})
        return incarnation

    def replace(self, changes: Mapping[Name, bytes | None]) -> None:
        """As `write`; and all records that are not in `changes` are erased, except those of this storage alone."""
        others = [name for name in self._numbers if name not in changes and name[0] != REPLICA_TABLE]
        self.write({**dict.fromkeys(others), **changes})

    def write(self, changes: Mapping[Name, bytes | None]) -> None:
        """Save records and erase (None) others, all or nothing, and on disk when this returns.

        What was never written need not be erased: it costs nothing. Raises sqlite3.Error or OSError.
        """
        numbers, kinds, last = self._numbers, self._kinds, self._number
        fresh: dict[Name, int] = {}
        erased: list[Name] = []
        gone: list[int] = []
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
        self._require_in_place()
        self._commit(gone, kept)
        self._number = last
        for name in erased:
            del numbers[name]
        numbers.update(fresh)

    def _require_in_place(self) -> None:
        """SQLite continues to write to removed files, whose content would be lost."""
        places = [(found.st_dev, found.st_ino) for found in (self.path.stat(), log_of(self.path).stat())]
        if self._places != places and self._places:
            raise FileNotFoundError(ENOENT, "the file has been replaced by another")
        self._places = places

    def _commit(self, gone: list[int], kept: list[object]) -> None:
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

    def make_room(self) -> None:
        """Let the log start anew, in the space it already has. To be tried after a write has failed."""
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()

    def is_cramped(self, was_cramped: bool) -> bool:
        """Whether there is so little left of what the file may take that no more than must be should come. One that was
        is so until there is somewhat more, or it would be both by turns."""
        if self._pages_max is None:
            return False
        try:
            (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        except sqlite3.Error:
            return was_cramped
        margin = min(MARGIN_PAGES_MAX, self._pages_max // MARGIN_PART)
        return int(pages) - self.free_pages() > self._pages_max - (margin + margin // 2 if was_cramped else margin)

    def free_pages(self) -> int:
        """Number of free pages of the database; 0 if it cannot be read."""
        try:
            (count,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        except sqlite3.Error:
            return 0
        return int(count)

    def close(self) -> None:
        """The last of all connections to close copies the log into the database, and removes it."""
        self._connection.close()


def fresh_instance() -> int:
    """Of a broker that has none yet."""
    return secrets.randbits(62) | 1


def _others(connection: sqlite3.Connection) -> Iterator[Record]:
    """All records but those of one storage alone; closes the connection at the end."""
    with closing(connection):
        for _, kind, key, value, _ in _rows(connection):
            if (table := kind.decode()) != REPLICA_TABLE:
                yield table, key, value


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[int, Any, Any, Any, Any]]:
    cursor = connection.execute("SELECT id, kind, key, value, crc FROM records ORDER BY id")
    while rows := cursor.fetchmany(FETCH_ROWS):
        yield from rows


_ERASE = "DELETE FROM records WHERE id IN ({})", "?"
_SAVE = "INSERT OR REPLACE INTO records VALUES {}", "(?,?,?,?,?)"


def _statements(template: tuple[str, str], parameters: list[Any], width: int) -> Iterator[tuple[str, list[Any]]]:
    """Statements that carry the parameters, `width` of them in a row."""
    text, row = template
    for start in range(0, len(parameters), ROWS_MAX * width):
        part = parameters[start : start + ROWS_MAX * width]
        rows = _rounded(len(part) // width)
        part += part[-width:] * (rows - len(part) // width)
        yield text.format(",".join([row] * rows)), part


def _rounded(rows: int) -> int:
    """Up to the next number of which only the first four bits are not zero: at most an eighth more."""
    unit = 1 << max(0, rows.bit_length() - 4)
    return -(-rows // unit) * unit
