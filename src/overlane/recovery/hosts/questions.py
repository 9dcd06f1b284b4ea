"""Questions over a replication connection: how long ago has the other end heard a broker?

HeardQuestion   to the home process of another host, which finds out; or to the broker itself, for a sign of life
HeardAgo        the answer: nanoseconds, NOT_REACHED, or NOT_LINKED if it does not know where the broker is
"""

from typing import TypeAlias

import msgspec

from overlane.core.wire.control_messages import is_name
from overlane.errors import ProtocolViolation
from overlane.recovery.replication.frames import (
    FRAME_BYTES_MAX,
    Acknowledge,
    Append,
    Begin,
    Frame,
    Heartbeat,
    Lacks,
    Name,
    Refuse,
    SnapshotPart,
    encode,
)

NOT_REACHED, NOT_LINKED = -1, -2


class HeardQuestion(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=20):
    broker: Name


class HeardAgo(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=21):
    broker: Name
    ago_ns: int


Message: TypeAlias = Frame | HeardQuestion | HeardAgo

_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(
    Begin | Append | SnapshotPart | Heartbeat | Acknowledge | Lacks | Refuse | HeardQuestion | HeardAgo
)


def encode_message(message: Message) -> bytes:
    """Unsendable."""
    return msgspec.msgpack.encode(message) if isinstance(message, HeardQuestion | HeardAgo) else encode(message)


def decode_message(data: bytes | bytearray | memoryview) -> Message:
    """As `frames.decode`, for questions and answers too. ProtocolViolation."""
    if len(data) > FRAME_BYTES_MAX:
        raise ProtocolViolation(f"a frame of {len(data)} bytes; at most {FRAME_BYTES_MAX} are allowed")
    try:
        message = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise ProtocolViolation(f"a replication frame that is not one: {wrong}") from None
    if not is_name(message.broker):
        raise ProtocolViolation(f"{message.broker[:20]!a} is not a broker's name")
    return message
