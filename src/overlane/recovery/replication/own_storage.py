"""The storage of this host: submitted writes, and writes on disk.

    written    after all writes that were returned
    durable    after all writes that the driver has confirmed: what a restart finds

Writes are numbered and become durable in their order.
"""

from collections import deque

from overlane.recovery.events import Stored, Write
from overlane.recovery.replication.frames import Change


class OwnStorage:
    def __init__(self, stored: Stored) -> None:
        self.durable = stored
        self.written = stored
        self._number = 0
        self._pending: deque[tuple[int, Stored]] = deque()

    @property
    def id(self) -> int:
        return self.durable.storage

    def write(self, stored: Stored, changes: tuple[Change, ...] = (), *, is_snapshot: bool = False) -> Write:
        self._number += 1
        self.written = stored
        self._pending.append((self._number, stored))
        return Write(self._number, changes, stored, is_snapshot)

    def confirm(self, number: int) -> None:
        """This write and all before it are on disk."""
        while self._pending and self._pending[0][0] <= number:
            _, self.durable = self._pending.popleft()

    def is_durable(self, number: int) -> bool:
        return not self._pending or self._pending[0][0] > number
