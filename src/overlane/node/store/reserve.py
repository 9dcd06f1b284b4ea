"""Disk space held back for the day on which there is none left.

On a full disk nothing could be erased either: erasing too is written to the log first, and the log cannot be copied
into a database that cannot grow. So a file of some size lies beside the database. When the disk is full it is given up,
and the log can be emptied into what it leaves. From then on the log has room to start anew in, over and over, as long
as the database does not grow: erasing goes on. The space is taken again when the disk has it.
"""

import os
from contextlib import suppress
from pathlib import Path

MARGIN = 1.5
"""So much more than its size must be free before the space is taken again."""


class Reserve:
    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self._size_bytes = size_bytes
        self.is_held = False

    def hold(self) -> bool:
        """Take the space, if there is enough of it."""
        if not self.is_held and (self._is_there() or self._free_bytes() >= MARGIN * self._size_bytes):
            self.is_held = self._allocate()
        return self.is_held

    def give_up(self) -> bool:
        """Leave the space to others; True if there was some to leave, and the disk has need of it."""
        if not self.is_held or self._free_bytes() >= self._size_bytes:
            return False
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            return False
        self.is_held = False
        return True

    def _is_there(self) -> bool:
        try:
            return self._path.stat().st_size == self._size_bytes
        except OSError:
            return False

    def _free_bytes(self) -> int:
        try:
            disk = os.statvfs(self._path.parent)
        except OSError:
            return 0
        return disk.f_bavail * disk.f_frsize

    def _allocate(self) -> bool:
        if not self._size_bytes:
            return True
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size_bytes)
            finally:
                os.close(descriptor)
        except OSError:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            return False
        return True
