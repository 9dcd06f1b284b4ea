"""Reserve: disk space that is kept for a full disk.

On a full disk nothing could be erased: an erasure too is first written to the log, and the log cannot be copied into a
database that cannot grow. So a file of some size is kept beside the database. When the disk is full it is removed, and
the log can be emptied into the freed space. From then on the log can be restarted repeatedly, as long as the database
does not grow: erasures continue. The file is created again when the disk has room.
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
