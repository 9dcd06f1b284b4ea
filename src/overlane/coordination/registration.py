"""A broker registers itself: one ephemeral node in the folder of its role and domain, one name for one broker. Pure.

Brokers read only some folders, so no single folder shows whether a name is used. `/names/NAME` does: it contains the
place of the registration. It is replaced in the same transaction that creates the registration, and only in the version
that was read, so of two brokers with one name one succeeds.

  - If that registration does not exist any more, the name is free for the next registration.
  - If the registration is of an earlier session of the same store, in whatever folder, it is replaced.
  - If the store has copies on several hosts, the later epoch of its replica set takes the name, an earlier one does
    not.
  - If it is of another store, two brokers have one name, and the one that was first stays.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from overlane.coordination.contract import Create, Delete, Operation, Replace, Znode
from overlane.coordination.records import (
    BROKERS,
    EDGES,
    NAMES,
    OTHERS,
    ROUTING,
    BrokerRecord,
    MalformedRecord,
    NameRecord,
    decode,
    decode_registration,
    encode,
    folder_of,
)


@dataclass(frozen=True, slots=True)
class Taken:
    """Another broker has the name."""


class Registration:
    def __init__(self, name: str, record: BrokerRecord) -> None:
        self.record = record
        self.path = f"{folder_of(record)}/{name}"
        self.name_path = f"{NAMES}/{name}"

    def folders(self) -> tuple[str, ...]:
        """That must exist, in this order."""
        return NAMES, BROKERS, ROUTING, EDGES, OTHERS, *({folder_of(self.record)} - {ROUTING, OTHERS})

    def claimed_path(self, found: Mapping[str, Znode]) -> str:
        """Where the broker of this name is registered, or was last."""
        claim = self._claim(found)
        return self.path if claim is None else claim.path

    def due(self, found: Mapping[str, Znode], session: int) -> tuple[Operation, ...] | Taken:
        """What registers the broker; nothing where it is registered. The nodes of the name, of this broker's path and
        of the claimed one have been read."""
        data, node = encode(self.record), found.get(self.path)
        if node is not None and node.owner == session:
            return () if node.data == data else (Replace(self.path, data, node.version),)
        claimed = self.claimed_path(found)
        removed: list[Operation] = []
        for path in sorted({self.path, claimed}):
            former = found.get(path)
            if former is None:
                continue
            if not self._is_ours(path, former):
                return Taken()
            removed.append(Delete(path, former.version))
        return (self._claiming(found), *removed, Create(self.path, data, is_ephemeral=True))

    def _claiming(self, found: Mapping[str, Znode]) -> Operation:
        data, node = encode(NameRecord(self.record.instance, self.path)), found.get(self.name_path)
        return Create(self.name_path, data) if node is None else Replace(self.name_path, data, node.version)

    def _claim(self, found: Mapping[str, Znode]) -> NameRecord | None:
        if (node := found.get(self.name_path)) is None:
            return None
        try:
            record = decode(self.name_path, node.data, NameRecord)
        except MalformedRecord:
            return None
        return record if record.path.rpartition("/")[2] == self.name_path.rpartition("/")[2] else None

    def _is_ours(self, path: str, node: Znode) -> bool:
        """Whether it is of an earlier session of this very store, or is no broker's at all. Where the store has copies
        on several hosts, they have the same instance: then the later epoch counts."""
        try:
            registered = decode_registration(path, node.data)
            return registered.instance == self.record.instance and registered.epoch <= self.record.epoch
        except MalformedRecord:
            return True
