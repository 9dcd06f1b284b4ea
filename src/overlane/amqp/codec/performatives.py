"""Performatives, termini and outcomes (part 2, section 2.7; part 3, sections 3.4 and 3.5; part 5, section 5.3)."""

from typing import Any, NamedTuple

from overlane.amqp.codec.composites import define

Map = dict[Any, Any]

SENDER = False
RECEIVER = True
"""Roles, as the field `role` writes them."""


class Error(NamedTuple):
    condition: str = ""
    description: str | None = None
    info: Map | None = None


class Open(NamedTuple):
    container_id: str = ""
    hostname: str | None = None
    max_frame_size: int | None = None
    channel_max: int | None = None
    idle_time_out: int | None = None
    outgoing_locales: tuple[str, ...] | None = None
    incoming_locales: tuple[str, ...] | None = None
    offered_capabilities: tuple[str, ...] | None = None
    desired_capabilities: tuple[str, ...] | None = None
    properties: Map | None = None


class Begin(NamedTuple):
    remote_channel: int | None = None
    next_outgoing_id: int = 0
    incoming_window: int = 0
    outgoing_window: int = 0
    handle_max: int | None = None
    offered_capabilities: tuple[str, ...] | None = None
    desired_capabilities: tuple[str, ...] | None = None
    properties: Map | None = None


class Attach(NamedTuple):
    name: str = ""
    handle: int = 0
    role: bool = SENDER
    snd_settle_mode: int | None = None
    rcv_settle_mode: int | None = None
    source: object = None
    target: object = None
    unsettled: Map | None = None
    incomplete_unsettled: bool | None = None
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: tuple[str, ...] | None = None
    desired_capabilities: tuple[str, ...] | None = None
    properties: Map | None = None


class Flow(NamedTuple):
    next_incoming_id: int | None = None
    incoming_window: int = 0
    next_outgoing_id: int = 0
    outgoing_window: int = 0
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool | None = None
    echo: bool | None = None
    properties: Map | None = None


class Transfer(NamedTuple):
    handle: int = 0
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool | None = None
    rcv_settle_mode: int | None = None
    state: object = None
    resume: bool | None = None
    aborted: bool | None = None
    batchable: bool | None = None


class Disposition(NamedTuple):
    role: bool = SENDER
    first: int = 0
    last: int | None = None
    settled: bool | None = None
    state: object = None
    batchable: bool | None = None


class Detach(NamedTuple):
    handle: int = 0
    closed: bool | None = None
    error: object = None


class End(NamedTuple):
    error: object = None


class Close(NamedTuple):
    error: object = None


class Source(NamedTuple):
    address: object = None
    durable: int | None = None
    expiry_policy: str | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Map | None = None
    distribution_mode: str | None = None
    filter: Map | None = None
    default_outcome: object = None
    outcomes: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] | None = None


class Target(NamedTuple):
    address: object = None
    durable: int | None = None
    expiry_policy: str | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Map | None = None
    capabilities: tuple[str, ...] | None = None


class Coordinator(NamedTuple):
    """The target of transactions (part 4)."""

    capabilities: tuple[str, ...] | None = None


class Received(NamedTuple):
    section_number: int = 0
    section_offset: int = 0


class Accepted(NamedTuple):
    pass


class Rejected(NamedTuple):
    error: object = None


class Released(NamedTuple):
    pass


class Modified(NamedTuple):
    delivery_failed: bool | None = None
    undeliverable_here: bool | None = None
    message_annotations: Map | None = None


class SaslMechanisms(NamedTuple):
    mechanisms: tuple[str, ...] = ()


class SaslInit(NamedTuple):
    mechanism: str = ""
    initial_response: bytes | None = None
    hostname: str | None = None


class SaslChallenge(NamedTuple):
    challenge: bytes = b""


class SaslResponse(NamedTuple):
    response: bytes = b""


class SaslOutcome(NamedTuple):
    code: int = 0
    additional_data: bytes | None = None


Performative = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
SaslFrame = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome

define(Error, "amqp:error:list", 0x1D, "symbol string map", 1)
define(
    Open, "amqp:open:list", 0x10, "string string uint ushort uint symbols symbols symbols symbols map", 1, is_whole=True
)
define(Begin, "amqp:begin:list", 0x11, "ushort uint uint uint uint symbols symbols map", is_whole=True)
define(
    Attach,
    "amqp:attach:list",
    0x12,
    "string uint boolean ubyte ubyte composite composite map boolean uint ulong symbols symbols map",
    3,
    is_whole=True,
)
define(Flow, "amqp:flow:list", 0x13, "uint uint uint uint uint uint uint uint boolean boolean map", is_whole=True)
define(
    Transfer,
    "amqp:transfer:list",
    0x14,
    "uint uint binary uint boolean boolean ubyte composite boolean boolean boolean",
    1,
    is_whole=True,
)
define(Disposition, "amqp:disposition:list", 0x15, "boolean uint uint boolean composite boolean", 2, is_whole=True)
define(Detach, "amqp:detach:list", 0x16, "uint boolean composite", 1, is_whole=True)
define(End, "amqp:end:list", 0x17, "composite", is_whole=True)
define(Close, "amqp:close:list", 0x18, "composite", is_whole=True)
define(
    Source,
    "amqp:source:list",
    0x28,
    "any uint symbol uint boolean map symbol map composite symbols symbols",
)
define(Target, "amqp:target:list", 0x29, "any uint symbol uint boolean map symbols")
define(Coordinator, "amqp:coordinator:list", 0x30, "symbols")
define(Received, "amqp:received:list", 0x23, "uint ulong", 2)
define(Accepted, "amqp:accepted:list", 0x24, "")
define(Rejected, "amqp:rejected:list", 0x25, "composite")
define(Released, "amqp:released:list", 0x26, "")
define(Modified, "amqp:modified:list", 0x27, "boolean boolean map")
define(SaslMechanisms, "amqp:sasl-mechanisms:list", 0x40, "symbols", 1)
define(SaslInit, "amqp:sasl-init:list", 0x41, "symbol binary string", 1)
define(SaslChallenge, "amqp:sasl-challenge:list", 0x42, "binary", 1)
define(SaslResponse, "amqp:sasl-response:list", 0x43, "binary", 1)
define(SaslOutcome, "amqp:sasl-outcome:list", 0x44, "ubyte binary", 1)
