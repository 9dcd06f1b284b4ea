"""A storage: one database with a copy of a broker's records, as the replica's driver uses it.

`Stored` is written in the transaction of every batch. Parts of a snapshot are kept in memory until the last one has
come: whoever continues the broker needs all of its records in memory anyway. A database that was salvaged, or has lost
a record to quarantine, is another storage from then on: it has lost content that it may have acknowledged.
"""

import secrets
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from overlane.core.records import Record
from overlane.node.store.durable import Done, Soon, Store, StoreError
from overlane.node.store.record_file import Name
from overlane.recovery.events import REPLICA_TABLE, Stored, Write
from overlane.recovery.replication.frames import Change
from overlane.recovery.replication.stored_record import STORED_KEY, decode_stored, encode_stored

RECORDS_AT_ONCE = 1_000


class ReplicaStorage:
    def __init__(self, store: Store, stored: Stored) -> None:
        self.store = store
        self.stored = stored
        """As it was found on disk."""
        self._staged: dict[Name, bytes | None] = {}

    @classmethod
    def open(
        cls,
        path: Path,
        soon: Soon,
        on_state: Done = lambda _: None,
        *,
        bytes_max: int | None = None,
        is_synced: bool = True,
    ) -> "ReplicaStorage":
        """StoreError, ConfigError or Unavailable."""
        store = Store.open(path, soon, on_state, bytes_max=bytes_max, synced=is_synced, is_replica=True)
        value = store.value(REPLICA_TABLE, STORED_KEY)
        has_lost = store.salvaged is not None or bool(store.quarantined)
        if value is not None and not has_lost:
            return cls(store, decode_stored(value))
        stored = Stored(secrets.randbits(62) | 1)
        try:
            # Before anybody hears of it: a set whose only storage has forgotten its id could never be served again.
            store.write_first({(REPLICA_TABLE, STORED_KEY): encode_stored(stored)})
        except BaseException:
            store.close()
            raise
        return cls(store, stored)

    def write(self, effect: Write, done: Done) -> None:
        """One transaction; `done` is called in the loop's thread when it is on disk, or never will be."""
        changes: dict[Name, bytes | None] = {(table, key): value for table, key, value in effect.changes}
        if effect.is_snapshot:
            changes, self._staged = {**self._staged, **changes}, {}
        changes[REPLICA_TABLE, STORED_KEY] = encode_stored(effect.stored)
        self.store.submit(changes, done, replaces=effect.is_snapshot)

    def stage(self, changes: tuple[Change, ...], *, is_first: bool) -> None:
        if is_first:
            self._staged = {}
        self._staged.update({(table, key): value for table, key, value in changes if table != REPLICA_TABLE})

    def snapshot(self) -> "tuple[Stored | None, Iterator[list[Record]]]":
        """What it knows of itself, and all records at the same moment, some at a time. To be called, and used, outside
        the loop's thread."""
        value, records = self.store.snapshot()
        return None if value is None else decode_stored(value), _some_at_a_time(records)

    def records(self) -> list[Record]:
        """All records that the broker is continued from, the store's own included."""
        return [record for record in self.store.replica() if record[0] != REPLICA_TABLE]

    def close(self) -> StoreError | None:
        return self.store.close()


def _some_at_a_time(records: Iterator[Record]) -> Iterator[list[Record]]:
    while some := list(islice(records, RECORDS_AT_ONCE)):
        yield some


def as_changes(changes: Mapping[Name, bytes | None]) -> tuple[Change, ...]:
    return tuple((table, key, value) for (table, key), value in changes.items())
