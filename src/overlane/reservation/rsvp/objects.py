"""RSVP objects, byte for byte as in RFC 2205, Appendix A.

     0                16          24          32
    +----------------+-----------+-----------+------------------+
    | length         | class     | C-type    | body             |     length counts all of it, in units of 4 bytes
    +----------------+-----------+-----------+------------------+

    SESSION          1   address | protocol u8 | flags u8 | port u16
    RSVP_HOP         3   address | logical interface handle u32
    TIME_VALUES      5   refresh period u32, ms
    ERROR_SPEC       6   address of the node | flags u8 | code u8 | value u16
    SCOPE            7   addresses of senders
    STYLE            8   0 u8 | options u24
    FILTER_SPEC     10   address | 0 u16 | port u16
    SENDER_TEMPLATE 11   the same
    RESV_CONFIRM    15   address of the receiver
    private        252   enterprise number u32 | content: TREE (C-type 1) and TOPIC_FILTER (C-type 2), below

The C-type of an object with addresses is 1 for IPv4 and 2 for IPv6. A broker's address is a unique local IPv6 address
whose lower half is its identity, as parcels carry it, so that no two brokers share one; a session's is a multicast
address made of a hash of its topic filter. What RSVP has no object for goes in an object of a class that RFC 3936
leaves to vendors, and that other implementations would pass on without looking.

    TREE          attempt u16 | 0 u16 | per broker: identity u64 | place of its parent u16 | flags u16
                  the part of the sender's tree that begins at the receiver of the message, parents first
    TOPIC_FILTER  UTF-8, zero bytes at the end
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b

from overlane.errors import ProtocolViolation

Address = bytes
"""Of 4 bytes (IPv4) or 16 (IPv6)."""

ENTERPRISE = 32473
"""RFC 5612 sets this number aside for examples; the project has none of its own."""
TREE_NODES_MAX = 128
SENDERS_MAX = 64
"""Filters of one flow, and senders of one scope."""
FILTER_BYTES_MAX = 256

_BROKER_PREFIX = bytes.fromhex("fd4f564c4e000000")
_SESSION_PREFIX = bytes.fromhex("ff3e4f564c4e0000")
_ROOT = 0xFFFF
_LEAF = 1
_LAST = 2

_HEADER = struct.Struct("!HBB")
_SESSION_END = struct.Struct("!BBH")
_ERROR_END = struct.Struct("!BBH")
_SENDER_END = struct.Struct("!HH")
_U32 = struct.Struct("!I")
_TREE = struct.Struct("!IHH")
_NODE = struct.Struct("!QHH")


class BadMessage(ProtocolViolation):
    """Not a well-formed RSVP message. Nothing of it counts."""


class ClassNum(IntEnum):
    NULL = 0
    SESSION = 1
    RSVP_HOP = 3
    TIME_VALUES = 5
    ERROR_SPEC = 6
    SCOPE = 7
    STYLE = 8
    FLOWSPEC = 9
    FILTER_SPEC = 10
    SENDER_TEMPLATE = 11
    SENDER_TSPEC = 12
    ADSPEC = 13
    POLICY_DATA = 14
    RESV_CONFIRM = 15
    PRIVATE = 252


class Style(IntEnum):
    """How senders share a reservation. Reservations of different styles are never merged."""

    WF = 0b10001
    """Wildcard filter: one reservation for all senders of the session."""
    SE = 0b10010
    """Shared explicit: one reservation for the senders that are named."""
    FF = 0b01010
    """Fixed filter: a reservation for each sender."""


class ErrorCode(IntEnum):
    CONFIRMATION = 0
    ADMISSION = 1
    NO_PATH = 3
    NO_SENDER = 4
    CONFLICTING_STYLE = 5
    ROUTING = 24
    """RFC 3209."""


class AdmissionValue(IntEnum):
    DELAY = 1
    """The delay bound cannot be met."""
    BANDWIDTH = 2
    """The requested bandwidth is not available."""


IN_PLACE = 1
"""Flag of an error: there is still a reservation at the node where it arose."""


@dataclass(frozen=True, slots=True)
class Session:
    address: Address
    port: int
    protocol: int = 17
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Hop:
    address: Address
    handle: int = 0


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    node: Address
    code: int
    value: int = 0
    flags: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Sender:
    """The content of a SENDER_TEMPLATE, and of the FILTER_SPEC that selects it."""

    address: Address
    port: int


@dataclass(frozen=True, slots=True)
class TreeNode:
    broker: int
    """Its identity."""
    parent: int | None
    """Its place in the tree; None for the root."""
    is_leaf: bool
    """Whether messages are delivered here; brokers below do not change that."""
    is_last: bool = False
    """Whether the sender has no other path to this leaf if a reservation on this one is refused."""


@dataclass(frozen=True, slots=True)
class Tree:
    nodes: tuple[TreeNode, ...]
    attempt: int = 0
    """Grows whenever the sender changes the tree."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """An object of another implementation that is to be passed on as it is."""

    class_num: int
    c_type: int
    body: bytes


def broker_address(identity: int) -> Address:
    return _BROKER_PREFIX + identity.to_bytes(8)


def broker_of(address: Address) -> int | None:
    """The identity of the broker with this address."""
    if len(address) != 16 or not address.startswith(_BROKER_PREFIX):
        return None
    return int.from_bytes(address[8:])


def session_of(topic_filter: str) -> Session:
    digest = blake2b(topic_filter.encode(), digest_size=10).digest()
    return Session(_SESSION_PREFIX + digest[:8], int.from_bytes(digest[8:]))


# Writing


def framed(class_num: int, c_type: int, body: bytes) -> bytes:
    return _HEADER.pack(4 + len(body), class_num, c_type) + body


def _family(address: Address) -> int:
    if len(address) not in (4, 16):
        raise ValueError(f"an address has 4 or 16 bytes, not {len(address)}")
    return 1 if len(address) == 4 else 2


def write_session(one: Session) -> bytes:
    body = one.address + _SESSION_END.pack(one.protocol, one.flags, one.port)
    return framed(ClassNum.SESSION, _family(one.address), body)


def write_hop(one: Hop) -> bytes:
    return framed(ClassNum.RSVP_HOP, _family(one.address), one.address + _U32.pack(one.handle))


def write_refresh(refresh_ms: int) -> bytes:
    return framed(ClassNum.TIME_VALUES, 1, _U32.pack(refresh_ms))


def write_error(one: ErrorSpec) -> bytes:
    body = one.node + _ERROR_END.pack(one.flags, one.code, one.value)
    return framed(ClassNum.ERROR_SPEC, _family(one.node), body)


def write_style(style: Style) -> bytes:
    return framed(ClassNum.STYLE, 1, _U32.pack(style))


def write_scope(senders: tuple[Address, ...]) -> bytes:
    return framed(ClassNum.SCOPE, _family(senders[0]), b"".join(senders))


def write_sender(one: Sender, class_num: ClassNum) -> bytes:
    return framed(class_num, _family(one.address), one.address + _SENDER_END.pack(0, one.port))


def write_confirm(receiver: Address) -> bytes:
    return framed(ClassNum.RESV_CONFIRM, _family(receiver), receiver)


def write_tree(tree: Tree) -> bytes:
    if not 0 < len(tree.nodes) <= TREE_NODES_MAX:
        raise ValueError(f"a tree has 1 to {TREE_NODES_MAX} brokers, not {len(tree.nodes)}")
    head = _TREE.pack(ENTERPRISE, tree.attempt & 0xFFFF, 0)
    nodes = (
        _NODE.pack(one.broker, _ROOT if one.parent is None else one.parent, _LEAF * one.is_leaf | _LAST * one.is_last)
        for one in tree.nodes
    )
    return framed(ClassNum.PRIVATE, 1, head + b"".join(nodes))


def write_topic_filter(topic_filter: str) -> bytes:
    encoded = topic_filter.encode()
    if not 0 < len(encoded) <= FILTER_BYTES_MAX:
        raise ValueError(f"the filter of a reservation has 1 to {FILTER_BYTES_MAX} bytes, not {len(encoded)}")
    return framed(ClassNum.PRIVATE, 2, _U32.pack(ENTERPRISE) + encoded + bytes(-len(encoded) % 4))


# Reading


def _address(body: bytes, c_type: int, after: int, what: str) -> Address:
    """The address at the beginning of a body that has so many bytes behind it."""
    size = {1: 4, 2: 16}.get(c_type)
    if size is None:
        raise BadMessage(f"{what}: unknown C-type {c_type}")
    if len(body) != size + after:
        raise BadMessage(f"{what}: got {len(body)} bytes; expected {size + after}")
    return body[:size]


def read_session(c_type: int, body: bytes) -> Session:
    address = _address(body, c_type, 4, "SESSION")
    protocol, flags, port = _SESSION_END.unpack_from(body, len(address))
    return Session(address, port, protocol, flags)


def read_hop(c_type: int, body: bytes) -> Hop:
    address = _address(body, c_type, 4, "RSVP_HOP")
    return Hop(address, _U32.unpack_from(body, len(address))[0])


def read_refresh(c_type: int, body: bytes) -> int:
    if c_type != 1 or len(body) != 4:
        raise BadMessage("TIME_VALUES: expected C-type 1 and 4 bytes")
    return int(_U32.unpack(body)[0])


def read_error(c_type: int, body: bytes) -> ErrorSpec:
    node = _address(body, c_type, 4, "ERROR_SPEC")
    flags, code, value = _ERROR_END.unpack_from(body, len(node))
    return ErrorSpec(node, code, value, flags)


def read_style(c_type: int, body: bytes) -> Style:
    if c_type != 1 or len(body) != 4:
        raise BadMessage("STYLE: expected C-type 1 and 4 bytes")
    options = _U32.unpack(body)[0] & 0xFFFFFF
    try:
        return Style(options)
    except ValueError:
        raise BadMessage(f"STYLE: unknown options {options:#x}") from None


def read_scope(c_type: int, body: bytes) -> tuple[Address, ...]:
    size = {1: 4, 2: 16}.get(c_type, 0)
    if not size or not body or len(body) % size or len(body) // size > SENDERS_MAX:
        raise BadMessage(f"SCOPE: expected 1 to {SENDERS_MAX} addresses")
    return tuple(body[at : at + size] for at in range(0, len(body), size))


def read_sender(c_type: int, body: bytes) -> Sender:
    address = _address(body, c_type, 4, "SENDER_TEMPLATE or FILTER_SPEC")
    return Sender(address, _SENDER_END.unpack_from(body, len(address))[1])


def read_confirm(c_type: int, body: bytes) -> Address:
    return _address(body, c_type, 0, "RESV_CONFIRM")


def read_private(c_type: int, body: bytes) -> Tree | str | Unknown:
    """A tree, a topic filter, or what another vendor has put there."""
    if len(body) < 4 or _U32.unpack_from(body)[0] != ENTERPRISE or c_type not in (1, 2):
        return Unknown(ClassNum.PRIVATE, c_type, body)
    if c_type == 1:
        return _read_tree(body)
    encoded = body[4:].rstrip(b"\0")
    if not 0 < len(encoded) <= FILTER_BYTES_MAX:
        raise BadMessage(f"TOPIC_FILTER: expected 1 to {FILTER_BYTES_MAX} bytes")
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        raise BadMessage("TOPIC_FILTER: not UTF-8") from None


def _read_tree(body: bytes) -> Tree:
    count, rest = divmod(len(body) - _TREE.size, _NODE.size)
    if rest or not 0 < count <= TREE_NODES_MAX:
        raise BadMessage(f"TREE: expected 1 to {TREE_NODES_MAX} brokers")
    _, attempt, _ = _TREE.unpack_from(body)
    nodes: list[TreeNode] = []
    seen: set[int] = set()
    for place in range(count):
        broker, parent, node_flags = _NODE.unpack_from(body, _TREE.size + place * _NODE.size)
        is_root = parent == _ROOT
        # A parent ahead of its children: so there is no cycle, and one root.
        if is_root != (place == 0) or (not is_root and parent >= place) or broker in seen:
            raise BadMessage("TREE: expected every broker once, each behind its parent")
        seen.add(broker)
        flags = bool(node_flags & _LEAF), bool(node_flags & _LAST)
        nodes.append(TreeNode(broker, None if is_root else parent, *flags))
    return Tree(tuple(nodes), attempt)
