"""Clients as the rest of pubsub sees them, for any protocol.

A `Consumer` takes messages: the connection of an MQTT session, an AMQP link, a NATS subscription, a reader of a stream.
Delivery needs little of it: to take a message with a QoS, the number of unread bytes, and whether it keeps reading. A
`Publisher` is a source of messages, and can be stopped while there is no room for more. Both are ends of a connection;
operators can see its user and address.

A delivery of QoS 1 and 2 has a tag, 1 to 65,535, by which the consumer acknowledges it; after that the tag is free. At
QoS 2 a consumer confirms twice: that it has received the message and, after the release, that it has removed the tag.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from overlane.core.units import Nanos
from overlane.pubsub.message import Message

if TYPE_CHECKING:
    from overlane.pubsub.delivery.window import Entry
    from overlane.pubsub.sessions.session import Session


class Ending(Enum):
    """Why the broker ends a connection that has done nothing wrong."""

    TAKEN_OVER = "another connection has come for the session"
    BY_OPERATOR = "an operator has ended it"
    LOGIN_EXPIRED = "the login has expired"
    SHUTTING_DOWN = "the broker is shutting down"
    INTERNAL_ERROR = "internal error of the broker"


class Confirmation(Enum):
    """A step of a QoS 2 exchange that a client confirms, and that may have to wait until the store works again."""

    PUBLISHED = "a message that was accepted before is published again"
    RELEASED = "the publisher has released a message"
    RECEIVED = "the consumer has received a message"


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a connection comes from. `certified`: the user name in the client's certificate, if it showed one."""

    address: str
    is_loopback: bool = True
    is_secure: bool = False
    certified: str | None = None
    listener: str = "mqtt"
    via: str = ""
    """The broker of the domain that the client reached, and that has passed its connection on. It has found out who the
    client is: `certified`, or nobody."""


class ConnectionEnd(Protocol):
    """One end of a connection."""

    peer: Peer
    session: "Session | None"


class Consumer(ConnectionEnd, Protocol):
    closing: str | None
    """Why the connection has been ended, if it has."""
    unanswerable_until_ns: Nanos
    """Until then it could not answer: it was not read from, or what it was sent waited for a slow disk. NEVER while it
    is not read from."""
    waits: bool
    """Packets of this turn must not be sent before the records of the turn are durable; set by pubsub."""

    @property
    def backlog_bytes(self) -> int:
        """What it was given and has not read yet."""

    def keeps_reading(self, now: Nanos) -> bool:
        """Whether it has read a good deal lately. Asked of one that has much left to read."""

    def take(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        now: Nanos,
        tag: int = 0,
        again: bool = False,
    ) -> bool:
        """Take a message. `identifiers`: those of the subscriptions it came by. `again`: it may have been given before.
        False if the consumer does not take messages of this size."""

    def take_run(self, entries: "Sequence[Entry]") -> bool:
        """Take messages of QoS 1 that have nothing but topic and payload, each under the tag of its entry, all for the
        first time. False, and none is taken, if they have to be given one by one."""

    def release(self, tag: int) -> None:
        """A QoS 2 message that it has received will not come again."""

    def end(self, ending: Ending, why: str) -> None:
        """Close the connection, and tell the client the reason where the protocol has a way to. Of several the first
        counts."""


class Publisher(ConnectionEnd, Protocol):
    stops_for: Hashable
    """The flow (`Uplink.way_of`) without space for its messages; None while it may continue."""
    stops_until_ns: Nanos
    waits_on: bool
    """Whether it may be stopped for longer than that, while its way moves: nothing of it has a deadline."""
    passes: bool
    """It was stopped for long enough: its next messages are accepted, even without space."""
    keep_alive_ns: Nanos
    """After this time without input it counts as disconnected."""
