"""The data directory of a broker: private, and used by one broker at a time.

The lock is on a file in it, and ends with the process. The file contains the process id, so that the error message for
a second broker can name the first.
"""

import fcntl
import os
from pathlib import Path

from overlane.errors import Unavailable

LOCK = "broker.lock"


class DataDirectory:
    """A directory that this process has for itself until it lets go of it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> "DataDirectory":
        try:
            _make(path)
            descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise Unavailable(f"data directory {path}", error.strerror or str(error)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            reason = f"in use by another broker, process {holder}" if holder else "in use by another broker"
            raise Unavailable(f"data directory {path}", reason) from error
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        except OSError:
            # On a full disk the process id is missing; the lock is held all the same.
            pass
        return cls(path, descriptor)

    def sync(self) -> None:
        """Make names given and taken in the directory last through a power cut."""
        sync_directory(self.path)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def holder_of(path: Path) -> str | None:
    """Who uses the directory now: ", process N", or nothing where that is not known; None if nobody does."""
    try:
        descriptor = os.open(path / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return f", process {holder}" if holder else ""
    finally:
        os.close(descriptor)
    return None


def _make(path: Path) -> None:
    if path.is_dir():
        return
    _make(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
