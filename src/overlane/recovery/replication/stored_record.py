"""What a storage knows of itself, as a record: the table `replica`, with one key.

It is written in the transaction of every batch, belongs to one storage, is never sent to another, and stays when a
snapshot is applied. This module imports nothing of the coordination: every broker has the kind in its registry.
"""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from overlane.core.records import THE_BROKER, RecordKind

REPLICA_TABLE = "replica"
"""The table of `Stored`: of one storage, never sent to another."""


class Position(NamedTuple):
    """Names one content: that of the log of an epoch up to a batch."""

    epoch: int = 0
    sequence: int = 0


NOWHERE = Position()
"""Of a storage that was never in a replica set. It names no content: there may be records from before, or none."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a storage knows of itself, on disk."""

    storage: int
    """Random, made with the database."""
    promised: int = 0
    """No frame of an earlier epoch is accepted."""
    position: Position = NOWHERE


STORED_KEY = b"stored"


class _Fields(msgspec.Struct, frozen=True, array_like=True):
    storage: int
    promised: int
    epoch: int
    sequence: int


_decoder = msgspec.msgpack.Decoder(_Fields)


def encode_stored(stored: Stored) -> bytes:
    return msgspec.msgpack.encode(_Fields(stored.storage, stored.promised, *stored.position))


def decode_stored(value: bytes) -> Stored:
    """ValueError or msgspec.MsgspecError."""
    fields = _decoder.decode(value)
    if fields.storage < 1 or min(fields.promised, fields.epoch, fields.sequence) < 0:
        raise ValueError("a number of a storage is negative, or its id is 0")
    return Stored(fields.storage, fields.promised, Position(fields.epoch, fields.sequence))


def _read(key: bytes, value: bytes) -> Stored:
    if key != STORED_KEY:
        raise ValueError(f"the key {key[:20]!a} is none of a storage")
    return decode_stored(value)


REPLICA_KIND = RecordKind(REPLICA_TABLE, lambda _: THE_BROKER, _read)
