"""What the protocol tells its driver. A `Message` that arrived is an event too."""

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


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker accepted us. Without `session_present` it knows nothing of what was before."""

    session_present: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker answered CONNECT with no."""

    code: int
    words: str


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The broker ended the connection with DISCONNECT."""

    code: int
    words: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The connection is of no more use: the broker breaks the rules, or is silent for too long."""

    reason: str
    is_violation: bool


@dataclass(frozen=True, slots=True)
class Accepted:
    """The broker acknowledged a publication of QoS 1 or 2."""

    sending: Sending


@dataclass(frozen=True, slots=True)
class Rejected:
    """A publication will not be delivered: the broker refused it, or it is beyond what the broker takes."""

    sending: Sending
    code: int
    words: str


@dataclass(frozen=True, slots=True)
class Overdue:
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
    | Refused
    | Dismissed
    | Broken
    | Accepted
    | Rejected
    | Overdue
    | Subscribed
    | SubscriptionRefused
    | Unsubscribed
)
