"""The replica set of a broker: which storages have every acknowledged batch, and which of them is the primary's.

It is the content of one znode per broker, changed by compare-and-set only. Which sets may follow:

    without(storage)       the primary drops a mirror                 same epoch
    joined(copy)           the primary takes a mirror in              same epoch
    claimed(storage)       a mirror promotes itself, or the primary   epoch + 1
                           has restarted
    handed_over(storage)   the primary names a mirror as the next     epoch + 1
    forgotten()            an operator gives all copies up            epoch + 1, and nobody is in sync
    begun(copy)            the home of the broker begins anew         epoch + 1

A promotion leaves the former primary out. It keeps the other mirrors: they have all acknowledged batches.

A forgotten set stays, so that epochs continue: a copy that reappears later must not count as one of the broker that was
started again.
"""

from dataclasses import dataclass
from functools import cached_property

import msgspec

from overlane.coordination.records import MalformedRecord
from overlane.core.wire.control_messages import is_name

REPLICAS = "/replicas"
"""The parent of the znodes of all brokers."""
COPIES_MAX = 16
SET_BYTES_MAX = 4_096
NUMBER_MAX = (1 << 63) - 1


class Copy(msgspec.Struct, frozen=True):
    storage: int
    host: str
    """Where it was when it joined."""


class ReplicaSet(msgspec.Struct, frozen=True, dict=True):
    epoch: int
    primary: int
    """The storage of the primary, one of those in sync; 0 where the set is forgotten."""
    in_sync: tuple[Copy, ...]
    """By storage id."""

    @cached_property
    def storages(self) -> frozenset[int]:
        return frozenset(copy.storage for copy in self.in_sync)

    @cached_property
    def mirrors(self) -> tuple[Copy, ...]:
        return tuple(copy for copy in self.in_sync if copy.storage != self.primary)

    @property
    def primary_host(self) -> str:
        """On which the broker runs; empty where the set is forgotten."""
        return next((copy.host for copy in self.in_sync if copy.storage == self.primary), "")

    @property
    def is_forgotten(self) -> bool:
        return not self.in_sync

    def has(self, storage: int) -> bool:
        return storage in self.storages

    def without(self, storage: int) -> "ReplicaSet":
        if storage == self.primary:
            raise ValueError("a primary does not drop itself")
        return ReplicaSet(self.epoch, self.primary, tuple(copy for copy in self.in_sync if copy.storage != storage))

    def joined(self, copy: Copy) -> "ReplicaSet":
        others = [one for one in self.in_sync if one.storage != copy.storage]
        return ReplicaSet(self.epoch, self.primary, _sorted([*others, copy]))

    def handed_over(self, storage: int) -> "ReplicaSet":
        """The set of the next epoch, whose primary is this mirror. All stay in it, also the former primary: it has all
        that was acknowledged, and the mirror may be gone when it is to serve."""
        if not self.has(storage) or storage == self.primary:
            raise ValueError(f"storage {storage} is no mirror in sync")
        return ReplicaSet(self.epoch + 1, storage, self.in_sync)

    def claimed(self, copy: Copy) -> "ReplicaSet":
        """The set of the next epoch, whose primary is this copy. ValueError where it is not in sync."""
        if not self.has(copy.storage):
            raise ValueError(f"storage {copy.storage} is not in sync")
        others = [one for one in self.in_sync if one.storage not in (copy.storage, self.primary)]
        return ReplicaSet(self.epoch + 1, copy.storage, _sorted([*others, copy]))

    def forgotten(self) -> "ReplicaSet":
        return ReplicaSet(self.epoch + 1, 0, ())

    def begun(self, copy: Copy) -> "ReplicaSet":
        """ValueError where there are copies."""
        if not self.is_forgotten:
            raise ValueError("there are copies")
        return ReplicaSet(self.epoch + 1, copy.storage, (copy,))


def first_set(copy: Copy) -> ReplicaSet:
    return ReplicaSet(1, copy.storage, (copy,))


def _sorted(copies: list[Copy]) -> tuple[Copy, ...]:
    return tuple(sorted(copies, key=lambda copy: copy.storage))


# The znode


@dataclass(frozen=True, slots=True)
class KnownReplicaSet:
    """A version of the znode."""

    stamp: tuple[int, int]
    """When the znode was created, and its version: greater is later."""
    value: ReplicaSet

    @property
    def version(self) -> int:
        return self.stamp[1]


def replica_path(broker: str) -> str:
    return f"{REPLICAS}/{broker}"


def encode_set(value: ReplicaSet) -> bytes:
    return msgspec.json.encode(value)


_decoder = msgspec.json.Decoder(ReplicaSet)


def decode_set(path: str, data: bytes) -> ReplicaSet:
    """MalformedRecord."""
    if len(data) > SET_BYTES_MAX:
        raise MalformedRecord(path, f"{len(data)} bytes; at most {SET_BYTES_MAX} are allowed")
    try:
        value = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRecord(path, str(error)) from None
    if (flaw := _flaw(value)) is not None:
        raise MalformedRecord(path, flaw)
    return value


def _flaw(value: ReplicaSet) -> str | None:
    storages = [copy.storage for copy in value.in_sync]
    if not 1 <= value.epoch <= NUMBER_MAX:
        return "the epoch is not between 1 and 2**63 - 1"
    if not all(0 < storage <= NUMBER_MAX for storage in storages):
        return "a storage id is not between 1 and 2**63 - 1"
    if len(storages) > COPIES_MAX or len(set(storages)) < len(storages):
        return f"not at most {COPIES_MAX} different storages"
    if value.primary not in (storages or [0]):
        return "the primary is not in sync"
    if not all(is_name(copy.host) for copy in value.in_sync):
        return "a host has no valid name"
    return None
