"""A store without a disk, for tests of its users. It implements the contract of the store, and passes the same tests.

The content of the disk is in a `MemoryDisk`, which outlives the store as a disk outlives a process. A commit happens in
the event loop, some time after `submit`; while the disk is `held` it does not, so that a test can examine what waits
for it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from overlane.core.gossip.incarnation import INCARNATION, INSTANCE
from overlane.core.gossip.incarnation import TABLE as OWN_KIND
from overlane.core.records import Record
from overlane.node.store.durable import Batch, Done, Soon
from overlane.node.store.errors import Cause, StoreError
from overlane.node.store.record_file import Name, Quarantined, fresh_instance
from overlane.node.store.salvage import Salvage


@dataclass
class MemoryDisk:
    records: dict[Name, bytes] = field(default_factory=dict)
    incarnation: int = 0
    instance: int = field(default_factory=fresh_instance)
    quarantined: list[Quarantined] = field(default_factory=list)
    """Found at the next opening."""
    bytes_max: int | None = None
    broken: Cause | None = None
    """Why it takes nothing at present."""
    held: bool = False


class MemoryStore:
    def __init__(self, disk: MemoryDisk, soon: Soon, on_state: Done = lambda _: None) -> None:
        disk.incarnation += 1
        self.incarnation = disk.incarnation
        self.instance = disk.instance
        self.quarantined, disk.quarantined = disk.quarantined, []
        self.unknown: dict[str, int] = {}
        self.failing: StoreError | None = None
        self.salvaged: Salvage | None = None
        self._disk = disk
        self._soon = soon
        self._on_state = on_state
        self._waiting = Batch()
        self._closed = False

    def records(self) -> Iterator[Record]:
        return iter([(table, key, value) for (table, key), value in self._disk.records.items()])

    def replica(self) -> Iterator[Record]:
        own = {INCARNATION: self.incarnation, INSTANCE: self.instance}
        return chain(((OWN_KIND, key, b"%d" % number) for key, number in own.items()), self.records())

    def submit(
        self,
        changes: Mapping[Name, bytes | None],
        done: Done,
        *,
        needs_mirror: bool = False,  # noqa: ARG002
    ) -> None:
        if self._closed:
            raise RuntimeError("the store is closed")
        self._waiting.changes.update(changes)
        self._waiting.dones.append(done)
        self._soon(self.commit)

    def commit(self) -> None:
        """Write all that waits, if the disk accepts it. Call it after the disk works again."""
        if self._disk.held or not self._waiting.dones:
            return
        batch = self._waiting
        after = {name: value for name, value in {**self._disk.records, **batch.changes}.items() if value is not None}
        cause = self._disk.broken
        if self._disk.bytes_max is not None and sum(map(len, after.values())) > self._disk.bytes_max:
            cause = Cause.FULL
        error = cause and StoreError("memory", f"the disk is {cause.value}", cause)
        if str(error) != str(self.failing):
            self.failing = error
            self._soon(self._on_state, error)
        if error is None:
            self._disk.records = after
            self._waiting = Batch()
            for done in batch.dones:
                self._soon(done, None)

    def close(self) -> StoreError | None:
        self._closed = True
        self._disk.held = False
        self.commit()
        if not self._waiting.dones:
            return None
        error = StoreError("memory", f"closed with {len(self._waiting.dones)} turns not written", Cause.CLOSED)
        for done in self._waiting.dones:
            self._soon(done, error)
        return error
