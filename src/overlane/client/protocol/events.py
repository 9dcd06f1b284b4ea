"""Events that the protocol returns to its driver. A received `Message` is an event too."""

from dataclasses import dataclass

from overlane.client.message import Message, Publication
from overlane.core.units import NEVER, Nanos


@dataclass(slots=True, eq=False)
class Sending:
    """A publication on its way; the driver knows by it who waits."""

    publication: Publication
    expires_at: Nanos = NEVER
    released: bool = False
    """The broker has it (PUBREC)."""
    cancelled: bool = False
    """Nobody waits for it any more."""
    words: str = ""
    """What the broker said of it in PUBREC."""


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker accepted the connection. Without `session_present` it has no earlier session."""

    session_present: bool
    alternatives: tuple[str, ...] = ()
    """Addresses of other brokers of its domain."""


@dataclass(frozen=True, slots=True)
class ConnectRefused:
    """The broker rejected CONNECT. `reference`: the server that it names instead."""

    code: int
    words: str
    reference: str = ""


@dataclass(frozen=True, slots=True)
class ServerDisconnected:
    """The broker ended the connection with DISCONNECT."""

    code: int
    words: str


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    """The connection cannot be used: the broker violates the protocol, or has been silent for too long."""

    reason: str
    is_violation: bool


@dataclass(frozen=True, slots=True)
class PublicationAccepted:
    """The broker acknowledged a publication of QoS 1 or 2. `words`: what it says about it, such as who gets nothing."""

    sending: Sending
    words: str = ""


@dataclass(frozen=True, slots=True)
class PublicationRejected:
    """A publication will not be delivered: the broker rejected it, or it exceeds a limit of the broker."""

    sending: Sending
    code: int
    words: str


@dataclass(frozen=True, slots=True)
class PublicationExpired:
    """A publication expired before it could be sent."""

    sending: Sending


@dataclass(frozen=True, slots=True)
class Subscribed:
    number: int


@dataclass(frozen=True, slots=True)
class SubscriptionRefused:
    number: int
    topic_filter: str
    code: int
    words: str


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    number: int


Event = (
    Message
    | Connected
    | ConnectRefused
    | ServerDisconnected
    | ConnectionFailed
    | PublicationAccepted
    | PublicationRejected
    | PublicationExpired
    | Subscribed
    | SubscriptionRefused
    | Unsubscribed
)
