"""The log: batches of this epoch that a mirror may still need, in memory and bounded.

Batches are numbered one after the other. The oldest are forgotten when every mirror has them, or when the log is larger
than its limit: then a mirror that needs them gets a snapshot. The last one is kept, however large it is.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice

from overlane.recovery.replication.frames import CHANGE_OVERHEAD, Change

Batch = tuple[Change, ...]


class BatchLog:
    def __init__(self, start: int, bytes_max: int) -> None:
        self.start = start
        """It has all batches behind this one."""
        self.last = start
        self.size_bytes = 0
        self._bytes_max = bytes_max
        self._batches: deque[tuple[Batch, int]] = deque()

    def append(self, batch: Batch) -> int:
        """Its number."""
        size = sum(len(table) + len(key) + len(value or b"") + CHANGE_OVERHEAD for table, key, value in batch)
        self._batches.append((batch, size))
        self.size_bytes += size
        self.last += 1
        while self.size_bytes > self._bytes_max and self.last - self.start > 1:
            self._forget_oldest()
        return self.last

    def forget(self, through: int) -> None:
        """Nobody needs these any more."""
        while self.start < min(through, self.last):
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, size = self._batches.popleft()
        self.size_bytes -= size
        self.start += 1

    def reaches(self, sequence: int) -> bool:
        """Whether all batches behind this one are here."""
        return self.start <= sequence <= self.last

    def bytes_after(self, sequence: int) -> int:
        """Of the batches behind this one, as far as they are here."""
        return sum(size for _, size in islice(self._batches, max(0, sequence - self.start), None))

    def after(self, sequence: int) -> Iterator[tuple[int, Batch]]:
        for index, (batch, _) in enumerate(islice(self._batches, sequence - self.start, None)):
            yield sequence + 1 + index, batch
