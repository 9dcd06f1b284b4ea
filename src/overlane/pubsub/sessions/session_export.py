"""A session as one value, and as bytes: to be continued by another broker.

    magic "OVLS" | version, 2 bytes | CRC-32 of the rest, 4 bytes | MessagePack of `SessionExport`

Times are durations from the moment of the export, because the clocks of two hosts need not agree. Everything else is as
the client knows it: sequence numbers, and so packet identifiers, stages of QoS 2 exchanges, identifiers of messages
that it has published. Sent messages are marked as sent, even if a connection is open: a session is exported as if its
connection ended at that moment.
"""

import zlib
from typing import Annotated

import msgspec
from msgspec import Meta

from overlane.core.topics import check_topic
from overlane.core.units import NEVER
from overlane.errors import OverlaneError
from overlane.pubsub.delivery.window import TAGS, DeliveryStage
from overlane.pubsub.properties import decode as decode_properties
from overlane.pubsub.reservations.request import ReservationRequest
from overlane.pubsub.sessions.deduplication import TakenMessages
from overlane.pubsub.subscriptions.table import split_shared
from overlane.selectors import Selector

MAGIC = b"OVLS"
VERSION = 1
IDENTIFIER_MAX = (1 << 28) - 1
"""Of a subscription."""
HEAD_BYTES = len(MAGIC) + 2 + 4

Qos = Annotated[int, Meta(ge=0, le=2)]
Seconds = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
Span = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
"""Nanoseconds from the export on; negative if that was before."""
Number = Annotated[int, Meta(ge=0, lt=1 << 62)]
PacketId = Annotated[int, Meta(ge=1, le=TAGS)]


class MalformedSession(OverlaneError, ValueError):
    """Bytes that are no exported session, or one of a newer release: what is wrong with them."""

    error_code = "OVL-404"


class ExportedMessage(msgspec.Struct, frozen=True, array_like=True):
    """`properties`: as `Message.encoded`. `expires_in_ns` None: never."""

    topic: str
    payload: bytes
    qos: Qos
    retain: bool
    properties: bytes
    sender: str
    published_in_ns: Span
    expires_in_ns: Span | None


class ExportedEntry(msgspec.Struct, frozen=True, array_like=True):
    """One message that is owed to the client; its packet identifier follows from `sequence`."""

    sequence: Annotated[int, Meta(ge=1, lt=1 << 62)]
    qos: Annotated[int, Meta(ge=1, le=2)]
    retain: bool
    identifiers: tuple[Annotated[int, Meta(ge=1, le=IDENTIFIER_MAX)], ...]
    group: str
    stage: DeliveryStage
    tries: Number
    message: ExportedMessage

    @property
    def tag(self) -> int:
        return self.sequence % TAGS + 1


class ExportedSubscription(msgspec.Struct, frozen=True, array_like=True):
    """`name`: a filter, or `$share/GROUP/FILTER`. `deadline_ns` to `strict`: the QoS override. `where`: the
    content filter, "" for none."""

    name: str
    qos: Qos
    no_local: bool
    retain_as_published: bool
    identifier: Annotated[int, Meta(ge=0, le=IDENTIFIER_MAX)]
    deadline_ns: Annotated[int, Meta(ge=0, le=NEVER)]
    reliable: bool
    strict: bool
    where: str = ""
    is_standby: bool = False
    reserve: str = ""


class ExportedWill(msgspec.Struct, frozen=True, array_like=True):
    user: str | None
    topic: str
    payload: bytes
    qos: Qos
    retain: bool
    properties: bytes
    user_properties: tuple[tuple[str, str], ...]
    expiry_s: Seconds | None
    delay_s: Seconds
    due_in_ns: Span


class SessionExport(msgspec.Struct, frozen=True, array_like=True):
    """`expires_in_ns` None: never. `replays`, `received`, `headway`: as in `Session`. `publishes_as` "": as itself."""

    client_id: Annotated[str, Meta(min_length=1)]
    user: str | None
    expiry_s: Annotated[int, Meta(ge=1, le=0xFFFF_FFFF)]
    expires_in_ns: Span | None
    subscriptions: tuple[ExportedSubscription, ...]
    replays: tuple[tuple[str, str], ...]
    sent: tuple[ExportedEntry, ...]
    waiting: tuple[ExportedEntry, ...]
    next_sequence: Annotated[int, Meta(ge=1, lt=1 << 62)]
    sent_up_to: Number
    headway: Number
    received: tuple[PacketId, ...]
    deduplication: TakenMessages
    will: ExportedWill | None
    publishes_as: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SessionExport).decode


def encode_session(exported: SessionExport) -> bytes:
    body = _encode(exported)
    return MAGIC + VERSION.to_bytes(2) + zlib.crc32(body).to_bytes(4) + body


def decode_session(data: bytes) -> SessionExport:
    """MalformedSession if it is none that this release reads."""
    if len(data) < HEAD_BYTES or not data.startswith(MAGIC):
        raise MalformedSession("not an exported session")
    version = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 2])
    if version != VERSION:
        raise MalformedSession(f"an exported session of version {version}; this release reads version {VERSION}")
    body = data[HEAD_BYTES:]
    if zlib.crc32(body) != int.from_bytes(data[HEAD_BYTES - 4 : HEAD_BYTES]):
        raise MalformedSession("an exported session whose checksum is wrong")
    try:
        exported = _decode(body)
        _check(exported)
    except MalformedSession:
        raise
    except (ValueError, msgspec.MsgspecError, OverlaneError) as error:
        raise MalformedSession(f"an exported session that is not valid: {error}") from error
    return exported


def _check(exported: SessionExport) -> None:
    """Checks that the types do not express."""
    _require("\0" not in exported.client_id, "a null character in the client identifier")
    names = [one.name for one in exported.subscriptions]
    _require(len(set(names)) == len(names), "a subscription twice")
    for one in exported.subscriptions:
        split_shared(one.name)
        if one.where:
            Selector.parse(one.where)
        if one.reserve:
            ReservationRequest.decode(one.reserve)
    _require({name for name, _ in exported.replays} <= set(names), "a replay without its subscription")
    entries = [*exported.sent, *exported.waiting]
    sequences = {one.sequence for one in entries}
    _require(len(sequences) == len(entries), "a sequence number twice")
    _require(max(sequences, default=0) < exported.next_sequence, "a sequence number that was not given yet")
    _require(exported.sent_up_to < exported.next_sequence, "more sent than there was")
    _require(exported.sent_up_to <= exported.headway, "more sent than the headway allows")
    _require(len({one.tag for one in exported.sent}) == len(exported.sent), "a packet identifier in flight twice")
    _require(all(one.stage is not DeliveryStage.WAITING for one in exported.sent), "in flight, but not sent")
    _require(all(one.stage is not DeliveryStage.RELEASED for one in exported.waiting), "released, but not in flight")
    _require(all(one.qos == 2 for one in entries if one.stage is DeliveryStage.RELEASED), "QoS 1 that is released")
    slots = [slot for slot, _, _ in exported.deduplication.taken]
    _require(len(set(slots)) == len(slots), "a slot of deduplication twice")
    for message in [one.message for one in entries]:
        check_topic(message.topic)
        decode_properties(message.properties)
    if exported.will is not None:
        check_topic(exported.will.topic)
        decode_properties(exported.will.properties)


def _require(is_right: bool, wrong: str) -> None:
    if not is_right:
        raise MalformedSession(f"an exported session that is not valid: {wrong}")
