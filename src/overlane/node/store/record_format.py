"""The format of the file of records, and the check of its integrity.

    records     id | kind | key | value | crc           the records
    quarantine  id | kind | key | value | crc | reason  damaged records, as they were found

`crc` is the CRC-32 of kind, key and value. The database is in WAL mode: a commit is written to the write-ahead log
first, and copied from there from time to time, and at the end.
"""

import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

from overlane.errors import ConfigError, Fault
from overlane.node.store.sqlite_pages import HEADER_BYTES
from overlane.node.store.write_ahead_log import PAGE_BYTES, read_log

FORMAT = 1
APPLICATION = int.from_bytes(b"OVLN", "big")
CHECKPOINT_PAGES = 4000
"""So many pages go to the write-ahead log before they are copied into the database."""
BUSY_MS = 1000
"""How long a commit waits for someone who looks into the file with a tool of their own."""

SCHEMA = (
    "CREATE TABLE records (id INTEGER PRIMARY KEY, kind TEXT, key BLOB, value BLOB, crc INTEGER)",
    "CREATE TABLE quarantine (id INTEGER, kind TEXT, key BLOB, value BLOB, crc INTEGER, reason TEXT)",
)
HEADER = (
    (0, b"SQLite format 3\0" + PAGE_BYTES.to_bytes(2, "big")),
    (20, bytes([0, 64, 32, 32])),
    (44, bytes([0, 0, 0, 4])),
    (52, bytes([0, 0, 0, 0, 0, 0, 0, 1])),
)
"""What the header of every file of records has in common: where, and what. SQLite believes some of it blindly."""
JOURNALS = (bytes([1, 1]), bytes([2, 2]))
"""At 18 in the header: a copy may have been made without a write-ahead log."""
COLUMNS = 5
"""Of a record."""


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
        # Some builds of SQLite write zeros over each page that becomes free: erasing would fill the log.
        connection.execute("PRAGMA secure_delete = FAST")
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


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def roots(connection: sqlite3.Connection) -> tuple[int, int]:
    """The pages where the trees of both tables start. They are the same in every file."""
    records, quarantine = connection.execute("SELECT rootpage FROM sqlite_schema ORDER BY rootpage")
    return records[0], quarantine[0]


def file_damage(path: Path) -> str | None:
    """What is wrong with the file as a whole, if anything. Whether its records are good is not looked at."""
    if not path.exists():
        return "the database is missing, but its write-ahead log exists"
    if not path.stat().st_size:
        return "the database is empty"
    # Before SQLite looks at it: it would take the part before the damage for all there is.
    if read_log(log_of(path)).is_damaged:
        return "the write-ahead log is damaged"
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    is_ours = header[68:72] == APPLICATION.to_bytes(4, "big")
    if is_ours and (header[18:20] not in JOURNALS or any(not header.startswith(fixed, at) for at, fixed in HEADER)):
        return "the header is damaged"
    try:
        with closing(connect(path)) as connection:
            return _ailment_of_format(path, connection) or _ailment_of_pages(connection)
    except sqlite3.DatabaseError as error:
        # What is asked here is no error with any sound file.
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            return str(error)
        raise


def _ailment_of_format(path: Path, connection: sqlite3.Connection) -> str | None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    are_ours = {text(sql) for (sql,) in connection.execute("SELECT sql FROM sqlite_schema")} == set(SCHEMA)
    if application != APPLICATION and not are_ours:
        raise ConfigError([Fault(str(path), 0, "", "a database of another application", "a store of a broker")])
    if version > FORMAT:
        allowed = f"at most format {FORMAT}: a newer release wrote it, run that one"
        raise ConfigError([Fault(str(path), 0, "", f"a store of format {version}", allowed)])
    if application != APPLICATION or version != FORMAT:
        return "the header is damaged"
    return None if are_ours else "the tables are not those of a store"


def _ailment_of_pages(connection: sqlite3.Connection) -> str | None:
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    return None if found == b"ok" else text(found).replace("\n", " ")


def text(column: object) -> str:
    return column.decode(errors="replace") if isinstance(column, bytes) else ""


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
