"""Frames of replication between the hosts of one broker, as values; their bytes are msgpack.

    Begin          primary -> mirror   an epoch, and the content that it goes on from
    Append         primary -> mirror   one batch: the records of one turn
    SnapshotPart   primary -> mirror   some of all records up to a batch
    Heartbeat      primary -> mirror   the last batch
    Acknowledge    mirror -> primary   this storage has on disk all up to a batch
    Lacks          mirror -> primary   this storage has other content, or a gap behind it
    Refuse         mirror -> primary   a later epoch was promised

Every frame has the broker and the epoch. `stamp` is the primary's own clock; a mirror echoes the latest. The length of
a frame is checked before it is decoded, and types, lengths and numbers before anything else is looked at.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, TypeAlias, cast

import msgspec
from msgspec import Meta

from overlane.core.records import Record
from overlane.core.wire.control_messages import Unsendable, is_name
from overlane.core.wire.frame_codec import NAME_BYTES_MAX
from overlane.errors import ProtocolViolation

FRAME_BYTES_MAX = 320 * 2**20
"""A turn with the largest MQTT packet (256 MiB) has to fit."""
CHANGES_MAX = 1_000_000
TABLE_LENGTH_MAX = 64
KEY_BYTES_MAX = 256 * 1024
PART_BYTES = 256 * 1024
"""Of records in a part of a snapshot, unless a single one is larger."""
CHANGE_OVERHEAD = 24
"""Bytes of a change beside its table, key and value, at most."""

Name = Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Storage = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
Epoch = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
Change = tuple[
    Annotated[str, Meta(min_length=1, max_length=TABLE_LENGTH_MAX)],
    Annotated[bytes, Meta(max_length=KEY_BYTES_MAX)],
    bytes | None,
]
"""Table, key and value; None erases."""
Changes = Annotated[tuple[Change, ...], Meta(max_length=CHANGES_MAX)]


class Begin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    broker: Name
    epoch: Epoch
    sequence: Count
    base_epoch: Count
    """The epoch goes on from position (base_epoch, sequence)."""
    stamp: Count


class Append(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    broker: Name
    epoch: Epoch
    sequence: Count
    changes: Changes
    stamp: Count


class SnapshotPart(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """Parts of one snapshot come in order; all of them have its number, and the `sequence` up to which it goes."""

    broker: Name
    epoch: Epoch
    sequence: Count
    snapshot: Count
    part: Count
    changes: Changes
    is_last: bool
    stamp: Count


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    broker: Name
    epoch: Epoch
    sequence: Count
    stamp: Count


class Acknowledge(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5):
    broker: Name
    epoch: Epoch
    sequence: Count
    storage: Storage
    echo: Count


class Lacks(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=6):
    broker: Name
    epoch: Epoch
    """That it has promised."""
    sequence: Count
    storage: Storage
    content_epoch: Count
    """Its content is at position (content_epoch, sequence)."""
    echo: Count


class Refuse(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=7):
    broker: Name
    epoch: Epoch
    """That it has promised."""
    sequence: Count
    storage: Storage


Frame: TypeAlias = Begin | Append | SnapshotPart | Heartbeat | Acknowledge | Lacks | Refuse
FromPrimary: TypeAlias = Begin | Append | SnapshotPart | Heartbeat
FromMirror: TypeAlias = Acknowledge | Lacks | Refuse

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """Unsendable where the receiver would refuse it for its size."""
    if isinstance(frame, Append | SnapshotPart) and len(frame.changes) > CHANGES_MAX:
        raise Unsendable(f"{len(frame.changes)} changes in one frame; at most {CHANGES_MAX} are allowed")
    data = _encoder.encode(frame)
    if len(data) > FRAME_BYTES_MAX:
        raise Unsendable(f"a frame of {len(data)} bytes; at most {FRAME_BYTES_MAX} are allowed")
    return data


def decode(data: bytes | bytearray | memoryview) -> Frame:
    if len(data) > FRAME_BYTES_MAX:
        raise ProtocolViolation(f"a frame of {len(data)} bytes; at most {FRAME_BYTES_MAX} are allowed")
    try:
        frame = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise ProtocolViolation(f"a replication frame that is not one: {wrong}") from None
    if not is_name(frame.broker):
        raise ProtocolViolation(f"{frame.broker[:20]!a} is not a broker's name")
    return frame


def snapshot_parts(
    broker: str,
    epoch: int,
    through: int,
    snapshot: int,
    records: Iterable[Record],
    stamp: int,
    part_bytes: int = PART_BYTES,
) -> Iterator[SnapshotPart]:
    """All records in parts of about `part_bytes`; at least one part. The caller leaves out what is not to be sent."""
    pending: list[Change] = []
    size = part = 0
    for record in records:
        cost = sum(map(len, record)) + CHANGE_OVERHEAD
        if pending and size + cost > part_bytes:
            yield SnapshotPart(broker, epoch, through, snapshot, part, tuple(pending), False, stamp)
            pending, size, part = [], 0, part + 1
        pending.append(cast(Change, record))
        size += cost
    yield SnapshotPart(broker, epoch, through, snapshot, part, tuple(pending), True, stamp)
