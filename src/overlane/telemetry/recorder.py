"""The recorder: bounded buffers between the event loop of the broker and the writer thread.

Rows are added in the event loop as plain tuples, and handed over in batches: every run of the writer makes the loop
release the interpreter a dozen times. Only events are handed over within a second: they may be the last information
about a broker.

A full buffer drops new rows and counts them, so a slow disk costs only telemetry. Buffers are bounded per table, so
that a million active topics cannot displace the one event that explains a failure.
"""

import threading
from collections import Counter

from overlane.telemetry.rows import TABLES, Event, Row

WORTH_ROWS = 1_000
WORTH_SECONDS = 5
ROWS_MAX = 50_000
"""Of one table, from the moment they are added until they are on disk."""

Batch = dict[str, list[Row]]
"""Rows by table."""


class Recorder:
    """`worth_seconds` may be changed at any time."""

    def __init__(self, rows_max: int = ROWS_MAX, worth_seconds: float = WORTH_SECONDS) -> None:
        self.worth_seconds = worth_seconds
        self._open: Batch = {}
        """The loop's alone; handed over whole."""
        self._seconds = 0
        """Since rows were handed over."""
        self._room = dict.fromkeys(TABLES.values(), rows_max)
        """What the loop may still add: a count of its own, so that adding a row takes no lock."""
        self._changed = threading.Condition()
        """Guards what follows."""
        self._waiting: list[Batch] = []
        self._written: Counter[str] = Counter()
        self._is_closed = False
        self.added = 0
        self.lost: Counter[str] = Counter()
        """Rows that found no room, by table."""

    # In the loop

    def add(self, row: Row) -> None:
        table = TABLES[type(row)]
        if self._room[table] <= 0:
            self.lost[table] += 1
            return
        self._room[table] -= 1
        self.added += 1
        self._open.setdefault(table, []).append(row)

    def next_second(self) -> None:
        """A second is over: hand over what was added, if it is worth it."""
        self._seconds += 1
        rows = sum(map(len, self._open.values()))
        if self._seconds >= self.worth_seconds or rows >= WORTH_ROWS or TABLES[Event] in self._open:
            self.hand_over()

    def hand_over(self) -> None:
        """Let the writer have what was added since."""
        self._seconds = 0
        with self._changed:
            if self._open:
                self._waiting.append(self._open)
                self._open = {}
            for table, count in self._written.items():
                self._room[table] += count
            self._written.clear()
            self._changed.notify()

    def close(self) -> None:
        """Nothing more will be added."""
        self.hand_over()
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    # In the writer's thread

    def take(self, patience_s: float) -> tuple[list[Batch], bool]:
        """What was handed over, waited for a while if there is nothing; and whether that was all there will be."""
        with self._changed:
            if not self._waiting and not self._is_closed:
                self._changed.wait(patience_s)
            batches, self._waiting = self._waiting, []
            return batches, self._is_closed

    def done(self, table: str, rows: int) -> None:
        """Rows that were taken are on disk, or given up: there is room for as many again."""
        with self._changed:
            self._written[table] += rows
