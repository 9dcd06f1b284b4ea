"""Reasons why a store cannot write or be opened, in words for operators."""

import os
import sqlite3
from enum import Enum
from pathlib import Path

from overlane.errors import Unavailable


class Cause(Enum):
    """Why the store cannot write."""

    FULL = "full"
    READ_ONLY = "read-only"
    BROKEN = "broken"
    CLOSED = "closed"


class StoreError(Unavailable):
    error_code = "OVL-202"

    def __init__(self, what: str, reason: str, cause: Cause) -> None:
        super().__init__(what, reason)
        self.cause = cause


def store_error(path: Path, error: sqlite3.Error | OSError) -> StoreError:
    """What an error of SQLite's or the system's comes to."""
    if isinstance(error, OSError):
        return StoreError(str(path), error.strerror or str(error), Cause.BROKEN)
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return StoreError(str(path), "the disk, or the share of it that the store may use, is full", Cause.FULL)
        case sqlite3.SQLITE_READONLY:
            return StoreError(str(path), "the disk is read-only", Cause.READ_ONLY)
        case sqlite3.SQLITE_BUSY:
            return StoreError(str(path), "another program holds a lock on the file", Cause.BROKEN)
        case _:
            return _unclear(path, str(error))


def _unclear(path: Path, reason: str) -> StoreError:
    """SQLite only reports that the disk failed: the state of the file system may give the reason."""
    try:
        disk = os.statvfs(path.parent)
    except OSError as error:
        return StoreError(str(path), error.strerror or reason, Cause.BROKEN)
    if disk.f_flag & os.ST_RDONLY:
        return StoreError(str(path), "the disk is read-only", Cause.READ_ONLY)
    if not disk.f_bavail:
        return StoreError(str(path), "the disk is full", Cause.FULL)
    return StoreError(str(path), reason, Cause.BROKEN)
