"""What a storage knows of itself, as a record: the table `replica`, with one key.

It is written in the transaction of every batch, belongs to one storage, is never sent to another, and stays when a
snapshot is applied.
"""

import msgspec

from overlane.core.records import THE_BROKER, Kind
from overlane.recovery.events import REPLICA_TABLE, Position, Stored

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


REPLICA_KIND = Kind(REPLICA_TABLE, lambda _: THE_BROKER, _read)
