"""A simulated disk, and the store on it: after a crash a broker has what was synced, and what the crash left of the
rest.

    idle -- submit --> writing -- written --> syncing -- synced --> reported, batch by batch; idle, or writing
    writing -- the disk is full or broken --> failing -- pause --> writing again, with all that was submitted since

A batch is written entry by entry, then its commit mark; then it is synced. Waiting batches are written together, as by
the store on SQLite. A killed process leaves everything that was written. When the power fails, anything from nothing to
all of what was not synced is left, so a batch may be torn: without its commit mark it does not count.

A full disk accepts writes that do not increase its size. While the reserve lasts it accepts everything, but reports
failure, so that the broker accepts nothing new.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from random import Random

from overlane.core.units import MS, Nanos
from overlane.sim.engine import Engine
from overlane.sim.random_streams import between
from overlane.turn.turn import Records

RETRY_NS: Nanos = 100 * MS

Name = tuple[str, bytes]
Done = Callable[[int], None]
OnState = Callable[["Trouble | None"], None]


class Trouble(Enum):
    RESERVE = 0
    """Full, but for a reserve that takes what was submitted."""
    FULL = 1
    BROKEN = 2


class Disk:
    """Outlives the broker's process."""

    def __init__(self) -> None:
        self.records: dict[Name, bytes] = {}
        self.incarnation = 0
        self.trouble: Trouble | None = None
        self.written: list[tuple[Name, bytes | None]] = []
        """Entries of a batch that is not synced yet, in the order in which they are written."""
        self.is_marked = False
        """Whether the commit mark stands behind them."""
        self.torn = 0
        """Batches of which a crash has left a part."""

    def kill(self) -> None:
        """The process is gone; what it has written is there."""
        self._recover()

    def lose_power(self, luck: Random) -> None:
        """Some of what was not synced is gone too: the commit mark, or entries before it as well."""
        kept = between(luck, 0, len(self.written) + 1)
        if kept <= len(self.written):
            self.is_marked = False
            del self.written[kept:]
        self._recover()

    def apply(self) -> None:
        for name, value in self.written:
            if value is None:
                self.records.pop(name, None)
            else:
                self.records[name] = value
        self.written.clear()
        self.is_marked = False

    def _recover(self) -> None:
        """A batch without its commit mark does not count."""
        if self.is_marked:
            self.apply()
        self.torn += bool(self.written)
        self.written.clear()
        self.is_marked = False


class SimulatedStore:
    """Of one life of a broker. `latency_ns`: the least and the most that a write, and a sync, take."""

    def __init__(
        self, engine: Engine, disk: Disk, luck: Random, latency_ns: tuple[Nanos, Nanos], done: Done, on_state: OnState
    ) -> None:
        disk.incarnation += 1
        self._engine = engine
        self._disk = disk
        self._luck = luck
        self._latency_ns = latency_ns
        self._done = done
        self._on_state = on_state
        self._told: Trouble | None = None
        self._waiting: list[tuple[int, Records]] = []
        self._writing: list[tuple[int, Records]] = []
        self._is_gone = False

    def records(self) -> Iterator[tuple[str, bytes, bytes]]:
        return ((table, key, value) for (table, key), value in sorted(self._disk.records.items()))

    def submit(self, batch: int, records: Records) -> None:
        self._waiting.append((batch, records))
        if not self._writing:
            self._write()

    @property
    def pending(self) -> int:
        return len(self._waiting) + len(self._writing)

    def gone(self) -> None:
        """The process is no more."""
        self._is_gone = True

    # One commit after the other

    def _write(self, _: None = None) -> None:
        if self._is_gone:
            return
        self._writing += self._waiting
        self._waiting = []
        self._after(self._written)

    def _after(self, action: Callable[[None], None]) -> None:
        self._engine.at(self._engine.now + between(self._luck, *self._latency_ns), action)

    def _written(self, _: None) -> None:
        if self._is_gone:
            return
        disk = self._disk
        entries = [entry for _batch, records in self._writing for entry in records.items()]
        trouble = disk.trouble
        if trouble is Trouble.BROKEN or (trouble is Trouble.FULL and self._grows(entries)):
            self._say(trouble)
            self._engine.at(self._engine.now + RETRY_NS, self._write)
            return
        disk.written = entries
        disk.is_marked = True
        self._after(self._synced)

    def _grows(self, entries: list[tuple[Name, bytes | None]]) -> bool:
        held = self._disk.records
        return sum(len(value or b"") - len(held.get(name, b"")) for name, value in entries) > 0

    def _synced(self, _: None) -> None:
        if self._is_gone:
            return
        self._disk.apply()
        self._say(self._disk.trouble)
        batches, self._writing = self._writing, []
        for batch, _records in batches:
            self._done(batch)
        if self._waiting and not self._writing:
            self._write()

    def _say(self, trouble: Trouble | None) -> None:
        if trouble is not self._told:
            self._told = trouble
            self._on_state(trouble)

    def look(self) -> None:
        """The disk's trouble has begun or ended: a store that has nothing to write finds out too, after a while."""
        if not self._is_gone and not self._writing:
            self._say(self._disk.trouble)
