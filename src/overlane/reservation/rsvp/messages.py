"""RSVP messages, byte for byte as in RFC 2205, section 3.1.

     0      4       8        16          32      40     48         64
    +------+-------+--------+-----------+-------+------+----------+-------------+
    | 1    | flags | type   | checksum  | TTL   | 0    | length   | objects     |
    +------+-------+--------+-----------+-------+------+----------+-------------+

    Path      SESSION RSVP_HOP TIME_VALUES [TREE] [TOPIC_FILTER] SENDER_TEMPLATE SENDER_TSPEC [ADSPEC]
    PathTear  SESSION RSVP_HOP SENDER_TEMPLATE
    PathErr   SESSION ERROR_SPEC SENDER_TEMPLATE SENDER_TSPEC
    Resv      SESSION RSVP_HOP TIME_VALUES [RESV_CONFIRM] [SCOPE] STYLE flows
    ResvTear  SESSION RSVP_HOP [SCOPE] STYLE flows
    ResvErr   SESSION RSVP_HOP ERROR_SPEC [SCOPE] STYLE flows
    ResvConf  SESSION ERROR_SPEC RESV_CONFIRM STYLE flows

Flows are a FLOWSPEC (WF), a FLOWSPEC and its FILTER_SPECs (SE), or such pairs (FF), where a FLOWSPEC that is the same
as the one before may be left out; in a ResvTear any may. Except for flows, objects may come in any order. An object of
an unknown class is an error, to be ignored, or to be passed on, as the two highest bits of its class say.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar, assert_never

from overlane.planning.reserve import TSpec
from overlane.reservation.rsvp import intserv, objects
from overlane.reservation.rsvp.intserv import AdSpec, FlowSpec
from overlane.reservation.rsvp.objects import (
    SENDERS_MAX,
    Address,
    BadMessage,
    ClassNum,
    ErrorSpec,
    Hop,
    Sender,
    Session,
    Style,
    Tree,
    Unknown,
)

MESSAGE_BYTES_MAX = 2047
"""What a control message between two neighbours takes, with one byte ahead of it."""
OBJECTS_MAX = 160

_HEADER = struct.Struct("!BBHBBH")
_OBJECT = struct.Struct("!HBB")
_VERSION = 1
_TTL = 64


class MessageType(IntEnum):
    PATH = 1
    RESV = 2
    PATH_ERR = 3
    RESV_ERR = 4
    PATH_TEAR = 5
    RESV_TEAR = 6
    RESV_CONF = 7


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow descriptor: what is requested, for which senders; with the wildcard filter for all."""

    flowspec: FlowSpec | None
    """None only in a ResvTear."""
    senders: tuple[Sender, ...] = ()


@dataclass(frozen=True, slots=True)
class Path:
    session: Session
    hop: Hop
    refresh_ms: int
    sender: Sender
    tspec: TSpec
    adspec: AdSpec | None = None
    tree: Tree | None = None
    topic_filter: str | None = None
    passed_on: tuple[Unknown, ...] = ()


@dataclass(frozen=True, slots=True)
class PathTear:
    session: Session
    hop: Hop
    sender: Sender


@dataclass(frozen=True, slots=True)
class PathErr:
    session: Session
    error: ErrorSpec
    sender: Sender
    tspec: TSpec
    tree: Tree | None = None
    """The link at fault: the broker in front of it, and the one behind it."""


@dataclass(frozen=True, slots=True)
class Resv:
    session: Session
    hop: Hop
    refresh_ms: int
    style: Style
    flows: tuple[Flow, ...]
    confirm: Address | None = None
    scope: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class ResvTear:
    session: Session
    hop: Hop
    style: Style
    flows: tuple[Flow, ...]
    scope: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class ResvErr:
    session: Session
    hop: Hop
    error: ErrorSpec
    style: Style
    flows: tuple[Flow, ...]
    scope: tuple[Address, ...] = ()
    tree: Tree | None = None
    """The link at fault, as in a PathErr."""


@dataclass(frozen=True, slots=True)
class ResvConf:
    session: Session
    error: ErrorSpec
    receiver: Address
    style: Style
    flows: tuple[Flow, ...]


Message = Path | PathTear | PathErr | Resv | ResvTear | ResvErr | ResvConf


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


# Writing


def encode(message: Message) -> bytes:
    kind, parts = _parts(message)
    body = b"".join(parts)
    size = _HEADER.size + len(body)
    if size > MESSAGE_BYTES_MAX:
        raise ValueError(f"an RSVP message of {size} bytes; at most {MESSAGE_BYTES_MAX} can be sent")
    head = _HEADER.pack(_VERSION << 4, kind, 0, _TTL, 0, size)
    # 0 would mean that there is none; the other zero of one's complement says the same sum.
    found = checksum(head + body) or 0xFFFF
    return _HEADER.pack(_VERSION << 4, kind, found, _TTL, 0, size) + body


def _parts(message: Message) -> tuple[MessageType, list[bytes]]:
    session = objects.write_session(message.session)
    match message:
        case Path():
            return MessageType.PATH, [
                session,
                objects.write_hop(message.hop),
                objects.write_refresh(message.refresh_ms),
                *([] if message.tree is None else [objects.write_tree(message.tree)]),
                *([] if message.topic_filter is None else [objects.write_topic_filter(message.topic_filter)]),
                objects.write_sender(message.sender, ClassNum.SENDER_TEMPLATE),
                intserv.write_tspec(message.tspec),
                *([] if message.adspec is None else [intserv.write_adspec(message.adspec)]),
                *(objects.framed(one.class_num, one.c_type, one.body) for one in message.passed_on),
            ]
        case PathTear():
            sender = objects.write_sender(message.sender, ClassNum.SENDER_TEMPLATE)
            return MessageType.PATH_TEAR, [session, objects.write_hop(message.hop), sender]
        case PathErr():
            return MessageType.PATH_ERR, [
                session,
                objects.write_error(message.error),
                *([] if message.tree is None else [objects.write_tree(message.tree)]),
                objects.write_sender(message.sender, ClassNum.SENDER_TEMPLATE),
                intserv.write_tspec(message.tspec),
            ]
        case Resv():
            return MessageType.RESV, [
                session,
                objects.write_hop(message.hop),
                objects.write_refresh(message.refresh_ms),
                *([] if message.confirm is None else [objects.write_confirm(message.confirm)]),
                *_scope_and_flows(message),
            ]
        case ResvTear():
            return MessageType.RESV_TEAR, [session, objects.write_hop(message.hop), *_scope_and_flows(message)]
        case ResvErr():
            return MessageType.RESV_ERR, [
                session,
                objects.write_hop(message.hop),
                objects.write_error(message.error),
                *([] if message.tree is None else [objects.write_tree(message.tree)]),
                *_scope_and_flows(message),
            ]
        case ResvConf():
            return MessageType.RESV_CONF, [
                session,
                objects.write_error(message.error),
                objects.write_confirm(message.receiver),
                objects.write_style(message.style),
                *_flows(message.style, message.flows),
            ]
        case _:
            assert_never(message)


def _scope_and_flows(message: Resv | ResvTear | ResvErr) -> list[bytes]:
    scope = [objects.write_scope(message.scope)] if message.scope else []
    return [*scope, objects.write_style(message.style), *_flows(message.style, message.flows)]


def _flows(style: Style, flows: Sequence[Flow]) -> list[bytes]:
    if fault := _flow_fault(style, flows):
        raise ValueError(fault)
    parts = []
    for flow in flows:
        if flow.flowspec is not None:
            parts.append(intserv.write_flowspec(flow.flowspec))
        parts += [objects.write_sender(one, ClassNum.FILTER_SPEC) for one in flow.senders]
    return parts


def _flow_fault(style: Style, flows: Sequence[Flow]) -> str:
    """What is wrong with the flows of a message of this style; empty if nothing is."""
    match style:
        case Style.WF:
            fits = len(flows) == 1 and not flows[0].senders
        case Style.SE:
            fits = len(flows) == 1 and 0 < len(flows[0].senders) <= SENDERS_MAX
        case Style.FF:
            fits = 0 < len(flows) <= SENDERS_MAX and all(len(flow.senders) == 1 for flow in flows)
        case _:
            assert_never(style)
    return "" if fits else f"flows that do not fit the style {style.name}"


# Reading


def decode(data: bytes) -> Message:
    """The message, or `BadMessage`."""
    kind, found = _objects(data)
    reader = _Reader(found)
    try:
        message_type = MessageType(kind)
    except ValueError:
        raise BadMessage(f"an RSVP message of unknown type {kind}") from None
    session = reader.one(ClassNum.SESSION, objects.read_session)
    message = _message(message_type, session, reader)
    reader.check_empty()
    return message


def _objects(data: bytes) -> tuple[int, list[tuple[int, int, bytes]]]:
    """The type of a message, and its objects as (class, C-type, body)."""
    if not _HEADER.size <= len(data) <= MESSAGE_BYTES_MAX or len(data) % 4:
        raise BadMessage(f"an RSVP message of {len(data)} bytes")
    version, kind, check, _, _, size = _HEADER.unpack_from(data)
    if version >> 4 != _VERSION:
        raise BadMessage(f"RSVP version {version >> 4}; expected {_VERSION}")
    if size != len(data):
        raise BadMessage(f"an RSVP message of {len(data)} bytes that claims {size}")
    if check and checksum(data):
        raise BadMessage("an RSVP message with a wrong checksum")
    found: list[tuple[int, int, bytes]] = []
    at = _HEADER.size
    while at < len(data):
        length, class_num, c_type = _OBJECT.unpack_from(data, at)
        if length < 4 or length % 4 or at + length > len(data):
            raise BadMessage(f"an RSVP object of {length} bytes")
        if len(found) == OBJECTS_MAX:
            raise BadMessage(f"more than {OBJECTS_MAX} RSVP objects")
        found.append((class_num, c_type, data[at + 4 : at + length]))
        at += length
    return kind, found


_KNOWN = frozenset(ClassNum)
_FLOW_CLASSES = (ClassNum.FLOWSPEC, ClassNum.FILTER_SPEC)
Value = TypeVar("Value")


class _Reader:
    """The objects of one message, taken one after the other."""

    def __init__(self, found: list[tuple[int, int, bytes]]) -> None:
        self._single: dict[int, tuple[int, bytes]] = {}
        self._flows: list[tuple[int, int, bytes]] = []
        self.tree: Tree | None = None
        self.topic_filter: str | None = None
        self.passed_on: list[Unknown] = []
        for class_num, c_type, body in found:
            if class_num in (ClassNum.NULL, ClassNum.POLICY_DATA) or class_num >> 6 == 0b10:
                continue
            if class_num == ClassNum.PRIVATE:
                self._take_private(objects.read_private(c_type, body))
            elif class_num >> 6 == 0b11:
                self.passed_on.append(Unknown(class_num, c_type, body))
            elif class_num not in _KNOWN:
                raise BadMessage(f"an RSVP object of unknown class {class_num}")
            elif class_num in _FLOW_CLASSES:
                self._flows.append((class_num, c_type, body))
            elif class_num in self._single:
                raise BadMessage(f"two RSVP objects of class {class_num}")
            else:
                self._single[class_num] = c_type, body

    def _take_private(self, found: Tree | str | Unknown) -> None:
        match found:
            case Unknown():
                self.passed_on.append(found)
            case Tree() if self.tree is None:
                self.tree = found
            case str() if self.topic_filter is None:
                self.topic_filter = found
            case _:
                raise BadMessage("two RSVP objects of the same kind")

    def one(self, class_num: ClassNum, read: Callable[[int, bytes], Value]) -> Value:
        found = self.maybe(class_num, read)
        if found is None:
            raise BadMessage(f"an RSVP message without {class_num.name}")
        return found

    def maybe(self, class_num: ClassNum, read: Callable[[int, bytes], Value]) -> Value | None:
        entry = self._single.pop(class_num, None)
        return None if entry is None else read(*entry)

    def flows(self, style: Style, *, may_be_bare: bool = False) -> tuple[Flow, ...]:
        """`may_be_bare`: a FLOWSPEC may be missing."""
        found: list[Flow] = []
        spec: FlowSpec | None = None
        senders: list[Sender] = []
        entries = self._flows
        self._flows = []
        for class_num, c_type, body in entries:
            if class_num == ClassNum.FLOWSPEC:
                if style is not Style.FF and (spec is not None or senders):
                    raise BadMessage("more than one FLOWSPEC")
                spec = intserv.read_flowspec(c_type, body)
            elif style is Style.FF:
                found.append(Flow(spec, (objects.read_sender(c_type, body),)))
            else:
                senders.append(objects.read_sender(c_type, body))
        if style is not Style.FF:
            found.append(Flow(spec, tuple(senders)))
        if not may_be_bare and any(flow.flowspec is None for flow in found):
            raise BadMessage("a flow without FLOWSPEC")
        if fault := _flow_fault(style, found):
            raise BadMessage(fault)
        return tuple(found)

    def check_empty(self) -> None:
        if self._single or self._flows:
            names = sorted(ClassNum(one).name for one in [*self._single, *(flow[0] for flow in self._flows)])
            raise BadMessage(f"RSVP objects out of place: {', '.join(names)}")


def _message(kind: MessageType, session: Session, reader: _Reader) -> Message:
    one, maybe = reader.one, reader.maybe
    match kind:
        case MessageType.PATH:
            return Path(
                session,
                one(ClassNum.RSVP_HOP, objects.read_hop),
                one(ClassNum.TIME_VALUES, objects.read_refresh),
                one(ClassNum.SENDER_TEMPLATE, objects.read_sender),
                one(ClassNum.SENDER_TSPEC, intserv.read_tspec),
                maybe(ClassNum.ADSPEC, intserv.read_adspec),
                reader.tree,
                reader.topic_filter,
                tuple(reader.passed_on),
            )
        case MessageType.PATH_TEAR:
            sender = one(ClassNum.SENDER_TEMPLATE, objects.read_sender)
            # RFC 2205, section 3.1.5: the rest of the sender descriptor may be there, and is ignored.
            maybe(ClassNum.SENDER_TSPEC, intserv.read_tspec)
            maybe(ClassNum.ADSPEC, intserv.read_adspec)
            return PathTear(session, one(ClassNum.RSVP_HOP, objects.read_hop), sender)
        case MessageType.PATH_ERR:
            sender = one(ClassNum.SENDER_TEMPLATE, objects.read_sender)
            maybe(ClassNum.ADSPEC, intserv.read_adspec)
            error = one(ClassNum.ERROR_SPEC, objects.read_error)
            return PathErr(session, error, sender, one(ClassNum.SENDER_TSPEC, intserv.read_tspec), reader.tree)
        case MessageType.RESV | MessageType.RESV_TEAR | MessageType.RESV_ERR:
            return _upstream(kind, session, reader)
        case MessageType.RESV_CONF:
            style = one(ClassNum.STYLE, objects.read_style)
            receiver = one(ClassNum.RESV_CONFIRM, objects.read_confirm)
            error = one(ClassNum.ERROR_SPEC, objects.read_error)
            return ResvConf(session, error, receiver, style, reader.flows(style))
        case _:
            assert_never(kind)


def _upstream(kind: MessageType, session: Session, reader: _Reader) -> Message:
    one, maybe = reader.one, reader.maybe
    style = one(ClassNum.STYLE, objects.read_style)
    hop = one(ClassNum.RSVP_HOP, objects.read_hop)
    scope = maybe(ClassNum.SCOPE, objects.read_scope) or ()
    match kind:
        case MessageType.RESV:
            refresh_ms = one(ClassNum.TIME_VALUES, objects.read_refresh)
            confirm = maybe(ClassNum.RESV_CONFIRM, objects.read_confirm)
            return Resv(session, hop, refresh_ms, style, reader.flows(style), confirm, scope)
        case MessageType.RESV_TEAR:
            return ResvTear(session, hop, style, reader.flows(style, may_be_bare=True), scope)
        case _:
            error = one(ClassNum.ERROR_SPEC, objects.read_error)
            return ResvErr(session, hop, error, style, reader.flows(style), scope, reader.tree)
