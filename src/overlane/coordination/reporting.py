"""Reporting: what a broker tells in nodes of its own that it replaces again and again. Pure.

A change is written at once, one write at a time: what changes meanwhile goes with the next one, as it is then. So a
burst of a thousand changes costs two writes, and none of them waits for a timer. In the long run there are 20 writes a
second at most.
"""

from collections.abc import Callable
from dataclasses import dataclass

from overlane.core.units import MS, NEVER, Nanos

REPORT_EVERY: Nanos = 50 * MS
REPORT_BURST = 4
"""How many may follow each other faster than that, if there were fewer before."""

IsFree = Callable[[str], bool]
"""Whether nothing is being written at a path."""


@dataclass(slots=True)
class _Told:
    data: bytes
    is_written: bool = False
    paid_until: Nanos = 0
    """As if every write had taken `REPORT_EVERY`; ahead of the time while there is a burst."""

    @property
    def due(self) -> Nanos:
        return self.paid_until - (REPORT_BURST - 1) * REPORT_EVERY


class Reporting:
    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}
        """By path."""

    def tell(self, path: str, data: bytes) -> None:
        told = self._told.get(path)
        if told is None:
            self._told[path] = _Told(data)
        elif told.data != data:
            told.data, told.is_written = data, False

    def content(self, path: str) -> bytes | None:
        """What is to be there; None: nothing of this broker's."""
        told = self._told.get(path)
        return None if told is None else told.data

    def failed(self, path: str) -> None:
        """A write has failed, or may have."""
        if (told := self._told.get(path)) is not None:
            told.is_written = False

    def next_deadline(self, is_free: IsFree) -> Nanos:
        return min([NEVER, *(told.due for path, told in self._told.items() if not told.is_written and is_free(path))])

    def due(self, now: Nanos, is_free: IsFree) -> list[tuple[str, bytes]]:
        """Path and content of what is written now."""
        found = []
        for path, told in self._told.items():
            if not told.is_written and now >= told.due and is_free(path):
                told.is_written, told.paid_until = True, max(now, told.paid_until) + REPORT_EVERY
                found.append((path, told.data))
        return found
