"""Salvage: a damaged file of records is read as far as possible, and its records are written to a new file.

SQLite cannot read a table with a broken page. The records do not depend on it: each has its own checksum, so a record
found anywhere in the file is known to be correct or damaged. They are searched along the tree of the table first; if
that is broken, in every page that is not known to be free. Records found only there may have been erased before: such a
broker prefers to deliver a message twice rather than not at all. Records of all kinds are copied, known or not: the
registry checks them when the new file is opened.

    1  the new file is filled under the name NAME.part, synced, and renamed to NAME.salvaged
    2  the damaged log, then the damaged database are renamed to NAME.damaged-1-wal and NAME.damaged-1 (or -2 ...)
    3  NAME.salvaged is renamed to NAME

A start that finds NAME.salvaged continues with step 2. Nothing is deleted that cannot be created again.
"""

import logging
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from overlane.node.store.data_directory import sync_directory
from overlane.node.store.record_format import COLUMNS, connect, create, fault, log_of, roots
from overlane.node.store.sqlite_pages import Pages
from overlane.node.store.write_ahead_log import read_log

SALVAGED = ".salvaged"

log = logging.getLogger("overlane.store")


@dataclass(frozen=True, slots=True)
class Salvage:
    """What became of a damaged file."""

    reason: str
    aside: Path
    """The damaged file, as it was."""
    records: int
    """Records found, including damaged ones, which are detected when the new file is opened."""
    orphans: int
    """Of the records, those to which no way led any more: they may have been erased before."""
    damaged_pages: int


def salvage(path: Path, reason: str) -> Salvage:
    """Replace the damaged file by a fresh one that holds what can be read of it."""
    log.error("%s is damaged: %s; salvaging what can be read", path, reason)
    write_ahead = read_log(log_of(path))
    pages = Pages(path, write_ahead)
    part = create_part(path)
    with closing(connect(part)) as connection:
        of_records, of_quarantine = roots(connection)
        found, earlier = pages.table(of_records), pages.table(of_quarantine)
        rows = [(number, *row[1:]) for number, row in found.rows.items() if len(row) == COLUMNS]
        orphans = [
            (number, *row[1:])
            for number, row in found.orphans.items()
            if number not in found.rows and len(row) == COLUMNS and fault(*row[1:]) is None
        ]
        quarantined = [row for row in earlier.rows.values() if len(row) == COLUMNS + 1]
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO records VALUES (?, CAST(? AS TEXT), ?, ?, ?)", rows + orphans)
        connection.executemany(
            "INSERT INTO quarantine VALUES (?, CAST(? AS TEXT), ?, ?, ?, CAST(? AS TEXT))", quarantined
        )
        connection.execute("COMMIT")
    part.rename(_beside(path, SALVAGED))
    sync_directory(path.parent)
    aside = finish(path)
    damaged_pages = found.damaged_pages + write_ahead.damaged_frames
    told = Salvage(reason, aside, len(rows) + len(orphans), len(orphans), damaged_pages)
    log.error(
        "%s: %d records salvaged, of which %d may have been erased before; %d pages unreadable; the damaged file is %s",
        *(path, told.records, told.orphans, damaged_pages, aside),
    )
    return told


def create_part(path: Path) -> Path:
    """An empty file beside the one it is going to be."""
    part = _beside(path, ".part")
    for leftover in (part, log_of(part), _beside(part, "-shm"), _beside(part, "-journal")):
        leftover.unlink(missing_ok=True)
    create(part)
    return part


def was_cut_short(path: Path) -> bool:
    return _beside(path, SALVAGED).exists()


def finish(path: Path) -> Path:
    """Put the salvaged file in its place. Says where the damaged one is now."""
    if log_of(path).exists():
        # So that a log without a database gets a name of its own too.
        path.touch()
    asides = (_beside(path, f".damaged-{number}") for number in count(1))
    aside = next(aside for aside in asides if not aside.exists())
    if log_of(path).exists():
        log_of(path).rename(log_of(aside))
    if path.exists():
        path.rename(aside)
    _beside(path, "-shm").unlink(missing_ok=True)
    sync_directory(path.parent)
    _beside(path, SALVAGED).rename(path)
    sync_directory(path.parent)
    return aside


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
