"""What a client of AMQP 1.0 is told, and what happens at it."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Receiver(NamedTuple):
    """A source to read from: an address, and the filter of the rule that it is for, or None for a queue."""

    address: str
    read_from: str | None


class ClientOptions(NamedTuple):
    container_id: str
    hostname: str
    receivers: tuple[Receiver, ...]
    group: str | None = None
    """The shared subscription of several gateways."""
    is_durable: bool = True
    """Subscriptions last while it is away."""
    is_reliable: bool = True
    """QoS 1: messages are settled when they are accepted."""
    user: str | None = None
    password: bytes | None = None
    has_certificate: bool = False
    node: str = "topic"
    """The capability of addresses: `topic` or `queue`."""


@dataclass(frozen=True, slots=True)
class Ready:
    """All receivers are attached: nothing is missed from now on."""


@dataclass(frozen=True, slots=True)
class Delivered:
    data: bytes
    read_from: str | None
    delivery_id: int | None
    """None: it is settled already."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The peer has it."""

    number: int


@dataclass(frozen=True, slots=True)
class NotSent:
    number: int
    reason: str
    is_final: bool


ClientEvent: TypeAlias = Ready | Delivered | Sent | NotSent
