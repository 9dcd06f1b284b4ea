"""The other brokers of a domain, as their clients and sessions concern them; and what they say to each other of it.

A domain with no peers is how a broker without coordination sees itself: nothing is asked, and nothing told.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from overlane.core.units import Nanos

ALTERNATIVES_MAX = 8
"""Addresses that a client is told."""


@dataclass(frozen=True, slots=True)
class DomainPeer:
    """Another broker that takes clients of this domain."""

    name: str
    clients: Mapping[str, str] = field(default_factory=dict)
    """Where clients reach it, `HOST:PORT`, by the kind of listener."""
    is_registered: bool = True
    """Whether it counts as alive, though it may not be linked: it may have the session of a client."""


@dataclass(frozen=True, slots=True)
class Domain:
    clients: Mapping[str, str] = field(default_factory=dict)
    """Where clients reach this broker, as of a peer."""
    peers: tuple[DomainPeer, ...] = ()
    continued_until_ns: Nanos = 0
    """Until when this broker counts as one that has just gone on: its registration was replaced before it ended, so
    that no peer has let its clients begin other sessions meanwhile, unless they started clean."""

    def alternatives(self, listener: str, *, with_own: bool) -> list[str]:
        """Addresses of the same kind as the one that a client came to; where it was passed on, this broker's first."""
        found = [peer.clients[listener] for peer in self.peers if listener in peer.clients]
        if with_own and listener in self.clients:
            found.insert(0, self.clients[listener])
        return found[:ALTERNATIVES_MAX]

    def address(self, broker: str, listener: str) -> str | None:
        return next((one.clients.get(listener) for one in self.peers if one.name == broker), None)


ALONE = Domain()


class Holding(IntEnum):
    """What a broker has of a client identifier."""

    NOTHING = 0
    OPENING = 1
    """A client is connecting there, and gets a session unless there is one elsewhere."""
    CONNECTED = 2
    """A session that ends with its connection."""
    KEPT = 3
    """A session that outlives its connection."""
    FOR_EVER = 4
    """A session that does not expire."""


class HeldSession(msgspec.Struct, frozen=True, array_like=True):
    """`claimed_ns`: when a client last connected to the session."""

    holding: Holding = Holding.NOTHING
    claimed_ns: int = 0

    @property
    def is_kept(self) -> bool:
        return self.holding >= Holding.KEPT


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A client connects to the sender under this identifier. `is_clean`: whatever there is of it is to end."""

    number: int
    client_id: str
    is_clean: bool


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """To the question of this number."""

    number: int
    held: HeldSession


class Discard(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """There is a later session elsewhere: one that was claimed at this time or before is to end."""

    client_id: str
    until_ns: int


Message = Ask | Answer | Discard

_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
encode = msgspec.msgpack.Encoder().encode


def decode(body: bytes) -> Message | None:
    """None for what a later version may say."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
