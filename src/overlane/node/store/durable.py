"""The durable store: records are on disk before anything that depends on them is sent.

At the end of each turn the driver submits the changes of the turn. A thread of the store writes them as one transaction
and syncs it; then `done` is called in the event loop. Turns that end while a commit is in progress wait together, and
the next commit includes all of them: under load, more turns share one sync.

    idle -- submit --> committing -- on disk --> idle, or committing what was submitted meanwhile
                       committing -- disk full, read-only, broken --> failing
                       failing -- backoff over --> committing what failed and all that was submitted since
                       failing -- the reserve given up --> committing, but still failing until there is room
                       committing -- little is left of the size limit of the file --> the same
                       any -- close --> drained, or given up at the end of the time limit

Nothing submitted is dropped while the store is open. A batch that fails stays ahead of all later ones, and is tried
again together with them: their erasures may make room for it. Turns become durable in the order in which they were
submitted, each completely or not at all.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Protocol

from overlane.core.records import Record, Registry
from overlane.node.store.data_directory import DataDirectory
from overlane.node.store.errors import Cause, StoreError, store_error
from overlane.node.store.record_file import Name, Quarantined, RecordFile
from overlane.node.store.record_format import CHECKPOINT_PAGES, file_damage, log_of
from overlane.node.store.reserve import Reserve
from overlane.node.store.salvage import Salvage, create_part, finish, salvage, was_cut_short
from overlane.recovery.replication.stored_record import REPLICA_TABLE
from overlane.turn.record_registry import REGISTRY

__all__ = ["Batch", "Cause", "Done", "RecordStore", "Soon", "Store", "StoreError"]

FILE = "broker.db"
RETRY_MIN_S, RETRY_MAX_S = 0.1, 5.0
RESERVE, RESERVE_BYTES = "broker.reserve", 32 << 20
"""Twice the log's usual length."""
PATIENCE_S = 5.0
"""How long closing waits for a disk that does not take what is pending."""

log = logging.getLogger("overlane.store")


Done = Callable[[StoreError | None], object]
Soon = Callable[..., object]
"""Runs a callable with its arguments in the loop's thread, soon, and may be called from any thread: as does asyncio's
`call_soon_threadsafe`."""


class RecordStore(Protocol):
    """What the driver of a broker asks of a store."""

    @property
    def incarnation(self) -> int:
        """Of this life of the broker: greater than that of every life before."""

    @property
    def instance(self) -> int:
        """The same in all lives of the broker on this store, and another for every other store."""

    @property
    def quarantined(self) -> list[Quarantined]:
        """The damaged records that opening found."""

    @property
    def unknown(self) -> Mapping[str, int]:
        """How many records there are of kinds that this release does not know."""

    @property
    def salvaged(self) -> Salvage | None:
        """What became of the file, if opening found it damaged as a whole."""

    @property
    def failing(self) -> StoreError | None:
        """Why nothing, or nothing more than the most necessary, can be written at present, if so."""

    def records(self) -> Iterator[Record]:
        """Every good record (table, key, value) but the store's own, for recovery."""

    def replica(self) -> Iterator[Record]:
        """Every good record, the store's own and those of unknown kinds included: what another store needs to continue
        the broker."""

    def submit(self, changes: Mapping[Name, bytes | None], done: Done, *, needs_mirror: bool = False) -> None:
        """Save records, and erase those whose value is None. From the loop's thread only. `needs_mirror`: they have to
        be on another host too, where there are copies (`[recovery]`).

        `done(None)` is called in the loop's thread when they are on disk, after the `done` of everything submitted
        before; `done(error)` if the store was closed before that.
        """

    def close(self) -> StoreError | None:
        """Write what is pending and release the file. Returns what could not be written."""


@dataclass(slots=True)
class Batch:
    """The changes of turns that become durable together; the later turn wins."""

    changes: dict[Name, bytes | None] = field(default_factory=dict)
    dones: list[Done] = field(default_factory=list)
    replaces: bool = False
    """Whether all records that are not in `changes` are erased, except those of this storage alone."""

    def add(self, changes: Mapping[Name, bytes | None], *, replaces: bool) -> None:
        if replaces:
            self.changes = {name: value for name, value in self.changes.items() if name[0] == REPLICA_TABLE}
            self.replaces = True
        self.changes.update(changes)


class Store:
    """The store on disk."""

    def __init__(
        self,
        directory: DataDirectory,
        file: RecordFile,
        reserve: Reserve,
        soon: Soon,
        on_state: Done,
        clock_s: int | None,
        least: int = 0,
    ) -> None:
        """`clock_s` None: it is a copy of a broker's records, and gets its incarnation from whoever continues it."""
        self.failing: StoreError | None = None
        self.salvaged: Salvage | None = None
        self._directory = directory
        self._file = file
        self._reserve = reserve
        self._soon = soon
        self._on_state = on_state
        self.incarnation = self.instance = 0
        if clock_s is not None:
            self.incarnation = file.raise_incarnation(clock_s, least)
            self.instance = file.instance()
        self._changed = threading.Condition()
        """Guards what follows."""
        self._waiting = Batch()
        self._closes_at: float | None = None
        self._unwritten: StoreError | None = None
        self._thread = threading.Thread(target=self._run, name="overlane-store", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        path: Path,
        soon: Soon,
        on_state: Done = lambda _: None,
        *,
        bytes_max: int | None = None,
        reserve_bytes: int = RESERVE_BYTES,
        synced: bool = True,
        clock_s: int | None = None,
        incarnation_min: int = 0,
        registry: Registry = REGISTRY,
        is_replica: bool = False,
    ) -> "Store":
        """Open the store in the data directory `path`, which is made where there is none.

        `on_state` is called in the loop's thread with what `failing` becomes, whenever it changes. `bytes_max` limits
        the size of the database; `reserve_bytes` are held back for when the disk is full. Unless `synced`, an
        acknowledgement survives the end of the process, but not that of the machine. `clock_s` is the time
        in seconds if not given: so an incarnation grows even where the store has been lost, or replaced by an old copy.
        It is no less than `incarnation_min`. With `is_replica` the store has neither incarnation nor instance of its
        own: they are records as all others, written by whoever continues the broker.
        """
        directory = DataDirectory.take(path)
        try:
            sound, salvaged = _sound_file(directory)
            reserve = _reserve(path / RESERVE, reserve_bytes)
            file = RecordFile(sound, bytes_max, synced, registry)
            try:
                clock_s = int(time()) if clock_s is None else clock_s
                store = cls(directory, file, reserve, soon, on_state, None if is_replica else clock_s, incarnation_min)
            except BaseException:
                file.close()
                raise
            store.salvaged = salvaged
            return store
        except (sqlite3.Error, OSError) as error:
            directory.release()
            raise store_error(path / FILE, error) from error
        except BaseException:
            directory.release()
            raise

    @property
    def quarantined(self) -> list[Quarantined]:
        return self._file.quarantined

    @property
    def unknown(self) -> Mapping[str, int]:
        return self._file.unknown

    def records(self) -> Iterator[Record]:
        return self._file.records()

    def replica(self) -> Iterator[Record]:
        return self._file.replica()

    def value(self, table: str, key: bytes) -> bytes | None:
        """Of a record, before anything was submitted."""
        return self._file.value(table, key)

    def write_first(self, changes: Mapping[Name, bytes | None]) -> None:
        """Before anything is submitted: on disk when this returns. StoreError."""
        try:
            self._file.write(changes)
        except (sqlite3.Error, OSError) as error:
            raise store_error(self._file.path, error) from error

    def snapshot(self) -> tuple[bytes | None, Iterator[Record]]:
        """See `RecordFile.snapshot`."""
        return self._file.snapshot()

    def submit(
        self,
        changes: Mapping[Name, bytes | None],
        done: Done,
        *,
        needs_mirror: bool = False,  # noqa: ARG002
        replaces: bool = False,
    ) -> None:
        """`replaces`: see `Batch`."""
        with self._changed:
            if self._closes_at is not None:
                raise RuntimeError("the store is closed")
            self._waiting.add(changes, replaces=replaces)
            self._waiting.dones.append(done)
            self._changed.notify()

    def close(self, patience_s: float = PATIENCE_S) -> StoreError | None:
        with self._changed:
            if self._closes_at is None:
                self._closes_at = monotonic() + patience_s
                self._changed.notify()
        self._thread.join()
        return self._unwritten

    # From here on everything runs in the store's thread.

    def _run(self) -> None:
        batch: Batch | None = None
        try:
            while (batch := self._next()) is not None:
                if not self._commit(batch):
                    self._give_up(batch)
                    break
        except Exception as error:
            # A defect of ours. Nothing may be taken in any more that would never be written.
            log.exception("%s: the store has stopped", self._file.path)
            with self._changed:
                self._closes_at = monotonic()
            self._fails(StoreError(str(self._file.path), f"stopped by a defect: {error!r}", Cause.BROKEN))
            self._give_up(batch or Batch())
        finally:
            self._file.close()
            self._directory.release()

    def _next(self) -> Batch | None:
        """The turns that wait, as soon as there are some; None if there will be none."""
        while True:
            with self._changed:
                if not self._waiting.dones and self._closes_at is None:
                    self._changed.wait(RETRY_MAX_S if self.failing else None)
                if self._waiting.dones:
                    batch, self._waiting = self._waiting, Batch()
                    return batch
                if self._closes_at is not None:
                    return None
            if self.failing:
                self._fails(self._shortage())

    def _commit(self, batch: Batch) -> bool:
        """Write the batch, however long it takes; False if the store's closing did not leave the time."""
        pause_s = RETRY_MIN_S
        while True:
            try:
                (self._file.replace if batch.replaces else self._file.write)(batch.changes)
            except sqlite3.ProgrammingError:
                raise
            except (sqlite3.Error, OSError) as error:
                self._fails(store_error(self._file.path, error))
                is_relieved = self._reserve.give_up()
                self._file.make_room()
            else:
                self._fails(self._shortage())
                self._soon(self._tell, batch.dones, None)
                return True
            if not is_relieved:
                if not self._pause(pause_s):
                    return False
                pause_s = min(2 * pause_s, RETRY_MAX_S)
            self._join_waiting(batch)

    def _shortage(self) -> StoreError | None:
        """Whether only the reserve is left: what is submitted is written, but no more than must be should come."""
        if self._file.is_cramped(was_cramped=self.failing is not None):
            return StoreError(str(self._file.path), "the store has grown to its limit", Cause.FULL)
        if self._reserve.hold() or self._file.free_pages() >= CHECKPOINT_PAGES:
            return None
        return StoreError(str(self._file.path), "the disk is full", Cause.FULL)

    def _fails(self, error: StoreError | None) -> None:
        if (error and error.cause) is (self.failing and self.failing.cause):
            return
        self.failing = error
        if error is None:
            log.warning("%s: writing again", self._file.path)
        else:
            log.error("%s; no message is acknowledged until writing succeeds", error)
        self._soon(self._on_state, error)

    def _pause(self, pause_s: float) -> bool:
        """Wait before the next attempt; False if there is to be none."""
        until = monotonic() + pause_s
        with self._changed:
            while True:
                now = monotonic()
                if self._closes_at is not None:
                    if now >= self._closes_at:
                        return False
                    until = min(until, now + RETRY_MIN_S)
                if now >= until:
                    return True
                self._changed.wait(until - now)

    def _join_waiting(self, batch: Batch) -> None:
        with self._changed:
            batch.add(self._waiting.changes, replaces=self._waiting.replaces)
            batch.dones += self._waiting.dones
            self._waiting = Batch()

    def _give_up(self, batch: Batch) -> None:
        self._join_waiting(batch)
        reason = f"closed with {len(batch.changes)} changes of {len(batch.dones)} turns not written: {self.failing}"
        self._unwritten = StoreError(str(self._file.path), reason, Cause.CLOSED)
        log.error("%s", self._unwritten)
        self._soon(self._tell, batch.dones, self._unwritten)

    # From here on in the loop's thread again.

    def _tell(self, dones: list[Done], error: StoreError | None) -> None:
        for position, done in enumerate(dones):
            try:
                done(error)
            except BaseException:
                # One who fails must not keep the others waiting for ever.
                self._soon(self._tell, dones[position + 1 :], error)
                raise


def _sound_file(directory: DataDirectory) -> tuple[Path, Salvage | None]:
    """A file that can be opened, made if there is none; and what became of the one there was if it was not sound."""
    path = directory.path / FILE
    if was_cut_short(path):
        return path, Salvage("found by an earlier start, which was cut short", finish(path), 0, 0, 0)
    if not path.exists() and not log_of(path).exists():
        create_part(path).rename(path)
        directory.sync()
    reason = file_damage(path)
    return path, salvage(path, reason) if reason else None


def _reserve(path: Path, size_bytes: int) -> Reserve:
    reserve = Reserve(path, size_bytes)
    if not reserve.hold():
        log.warning("%s: not enough disk space for a reserve of %d bytes", path, size_bytes)
        reserve = Reserve(path, 0)
        reserve.hold()
    return reserve
