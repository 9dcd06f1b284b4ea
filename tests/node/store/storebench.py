"""What the tests of the store stand on: a loop without asyncio, and both stores behind one door."""

from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Protocol

from overlane.node.store.durable import RecordStore, Store
from overlane.node.store.errors import StoreError
from overlane.node.store.memory import MemoryDisk, MemoryStore
from overlane.node.store.record_file import Name

WAIT_MAX_S = 30.0


class Loop:
    """Runs what other threads hand over, in the thread of the test and only when it is told to."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = SimpleQueue()

    def soon(self, call: Callable[..., object], *arguments: Any) -> None:
        self._calls.put((call, arguments))

    def run_until(self, happened: Callable[[], bool]) -> None:
        until = monotonic() + WAIT_MAX_S
        while not happened():
            call, arguments = self._calls.get(timeout=max(0.0, until - monotonic()))
            call(*arguments)

    def run_what_waits(self) -> None:
        try:
            while True:
                call, arguments = self._calls.get_nowait()
                call(*arguments)
        except Empty:
            pass


class Turns:
    """Submits turns and writes down what becomes of them."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.ended: list[tuple[object, StoreError | None]] = []
        self.states: list[StoreError | None] = []
        self._submitted = 0

    def submit(self, store: RecordStore, turn: object, changes: Mapping[Name, bytes | None]) -> None:
        self._submitted += 1
        store.submit(changes, lambda error: self.ended.append((turn, error)))

    def commit(self, store: RecordStore, *turns: Mapping[Name, bytes | None]) -> None:
        """Submit turns and wait until they, and all before them, are on disk."""
        for turn in turns:
            self.submit(store, "", turn)
        self.loop.run_until(lambda: len(self.ended) == self._submitted)
        assert {error for _, error in self.ended} == {None}


class Kind(Protocol):
    """A kind of store: opening it again finds what was on disk."""

    def __call__(self, turns: Turns, bytes_max: int | None = None) -> RecordStore: ...


def stores_in(directory: Path) -> Kind:
    def opened(turns: Turns, bytes_max: int | None = None) -> RecordStore:
        return Store.open(directory, turns.loop.soon, turns.states.append, bytes_max=bytes_max, clock_s=1)

    return opened


def stores_on(disk: MemoryDisk) -> Kind:
    def opened(turns: Turns, bytes_max: int | None = None) -> RecordStore:
        disk.bytes_max = bytes_max
        return MemoryStore(disk, turns.loop.soon, turns.states.append)

    return opened


def content(store: RecordStore) -> dict[Name, bytes]:
    return {(table, key): value for table, key, value in store.records()}
