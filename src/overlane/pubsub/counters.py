"""Counters of a server, for operators: every cause of a dropped or refused message has a name here."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class Drop(StrEnum):
    """Why a message did not reach a client."""

    QUEUE_FULL = "queue full"
    SLOW_CLIENT = "slow client"
    EXPIRED = "expired"
    TOO_LARGE = "too large for the client"
    TRIES = "too many tries"
    REJECTED = "rejected by the client"
    SESSION_ENDED = "session ended"
    DENIED = "denied"
    OVERLAY_FULL = "overlay full"
    MEDIATION = "mediation failed"


class Refusal(StrEnum):
    """Why a client or its packet was turned away."""

    CONNECTIONS = "too many connections"
    CONNECTION_RATE = "connection rate"
    CONNECT_LATE = "no CONNECT in time"
    CREDENTIALS = "credentials"
    DENIED = "denied"
    MALFORMED = "malformed"
    PROTOCOL = "protocol error"
    TOO_LARGE = "packet too large"
    SESSION_AWAY = "session not reachable"
    KEEP_ALIVE = "keep-alive"
    SLOW_CLIENT = "slow client"
    QUOTA = "quota"
    STORE = "store unavailable"
    BUSY = "overlay busy"
    SUSPECT = "ended the broker before"
    BORDER = "border (leave)"
    """A message was not sent to brokers that it may not leave for; others got it."""


@dataclass(slots=True)
class TopicStats:
    """What was published on one topic here: messages, and the bytes of their payloads."""

    messages: int = 0
    bytes: int = 0
    messages_before: int = 0
    """When the idlest topics were looked for the last time."""
    is_forgotten: bool = False
    """Whoever still holds these counts has to ask for new ones."""

    @property
    def lately(self) -> int:
        return self.messages - self.messages_before


@dataclass(slots=True)
class Counters:
    connections_accepted: int = 0
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    throttled: int = 0
    dead_letters: int = 0
    filtered: int = 0
    """Messages that a subscription did not get because of its content filter."""
    filtered_not_json: int = 0
    """And because their payload is not JSON, which the filter needs."""
    mediated: int = 0
    """Messages to which rules of mediation were applied."""
    mediation_dropped: int = 0
    """Messages that a rule has dropped, or replaced by a later one."""
    mediation_failed: int = 0
    """Messages that a rule could not be applied to."""
    dropped: Counter[Drop] = field(default_factory=Counter)
    refused: Counter[Refusal] = field(default_factory=Counter)
