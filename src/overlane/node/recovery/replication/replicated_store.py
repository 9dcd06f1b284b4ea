"""The store of a broker whose records are on several hosts: a batch is done when it is durable on all that have to have
it (`Durable`), in the order in which batches were submitted. One with a message of a mirrored topic needs a mirror; all
behind it wait with it.

It lives as long as this host serves in one epoch. When another host continues the broker (`void`), nothing that waits
is ever reported as done.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from time import time

from overlane.core.gossip.incarnation import INCARNATION, INSTANCE, choose
from overlane.core.gossip.incarnation import TABLE as OWN_KIND
from overlane.core.records import Record
from overlane.node.recovery.replication.replica_driver import ReplicaDriver
from overlane.node.store.durable import PATIENCE_S, Done
from overlane.node.store.errors import Cause, StoreError
from overlane.node.store.record_file import Name, Quarantined, fresh_instance
from overlane.node.store.salvage import Salvage
from overlane.recovery.events import Durable

log = logging.getLogger("overlane.recovery")


class ReplicatedStore:
    def __init__(self, driver: ReplicaDriver, records: list[Record], incarnation_min: int = 0) -> None:
        """`records`: all that are on disk. The incarnation is a record too: `begin` writes it."""
        self._driver = driver
        self._store = driver.storage.store
        own = {key: int(value) for table, key, value in records if table == OWN_KIND}
        self._records = [record for record in records if record[0] != OWN_KIND]
        self.incarnation, warning = choose(own.get(INCARNATION), int(time()), incarnation_min)
        if warning:
            log.error("%s", warning)
        self.instance = own.get(INSTANCE, 0) or fresh_instance()
        self._waiting: deque[tuple[int, bool, Done]] = deque()
        """Number of the batch, whether it needs a mirror, and who waits."""
        self._is_void = False
        self._is_settled = threading.Event()
        """Set while nothing waits, for `close`, which another thread calls."""
        self._is_settled.set()

    def begin(self, done: Done) -> None:
        """Write the incarnation. Others must not hear of it before it is durable: a host that takes over later would
        give the same number again."""
        own: dict[Name, bytes | None] = {
            (OWN_KIND, INCARNATION): b"%d" % self.incarnation,
            (OWN_KIND, INSTANCE): b"%d" % self.instance,
        }
        self.submit(own, done)

    # Events

    def durable(self, effect: Durable) -> None:
        waiting = self._waiting
        while waiting and not self._is_void:
            sequence, needs_mirror, done = waiting[0]
            if sequence > (effect.mirrored if needs_mirror else effect.local):
                break
            waiting.popleft()
            done(None)
        if not waiting:
            self._is_settled.set()

    def void(self) -> None:
        """Another host continues the broker."""
        self._is_void = True
        self._waiting.clear()
        self._is_settled.set()

    @property
    def pending(self) -> int:
        return len(self._waiting)

    # RecordStore

    def submit(self, changes: Mapping[Name, bytes | None], done: Done, *, needs_mirror: bool = False) -> None:
        if self._is_void:
            return
        self._is_settled.clear()
        # Not known before it is submitted; a disk never reports before the loop goes on.
        self._waiting.append((self._driver.submit(changes), needs_mirror, done))

    def records(self) -> Iterator[Record]:
        """Once, at the start of the broker."""
        records, self._records = self._records, []
        return iter(records)

    def replica(self) -> Iterator[Record]:
        return iter(self._driver.storage.records())

    def close(self) -> StoreError | None:
        """Waits for what is pending. The storage stays open: its owner closes it."""
        if self._is_settled.wait(PATIENCE_S):
            return None
        return StoreError(self._driver.broker, f"closed with {len(self._waiting)} batches not durable", Cause.CLOSED)

    @property
    def quarantined(self) -> list[Quarantined]:
        return self._store.quarantined

    @property
    def unknown(self) -> Mapping[str, int]:
        return self._store.unknown

    @property
    def salvaged(self) -> Salvage | None:
        return self._store.salvaged

    @property
    def failing(self) -> StoreError | None:
        return self._store.failing
