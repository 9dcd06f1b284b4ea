"""Refused requests: a fault that every protocol maps to a code of its own, the counter, and a sentence."""

from enum import Enum

from overlane.errors import OverlaneError
from overlane.pubsub.counters import Refusal

STORE_FAILS = "the durable store cannot write at the moment"


class RequestFault(Enum):
    NOT_ALLOWED = "the client has no permission"
    INVALID_TOPIC = "a topic or filter that is invalid, too long or has too many levels"
    INVALID_OVERRIDE = "a QoS override or a content filter that cannot be read"
    UNPROCESSABLE = "the broker cannot handle it"
    NO_ROOM = "a quota is exhausted, or the store or the overlay has no space now"


class RequestRefused(OverlaneError):
    """`why` is the counter, `told` a sentence for the client and for operators."""

    error_code = "OVL-216"

    def __init__(self, fault: RequestFault, why: Refusal, told: str) -> None:
        super().__init__(told)
        self.fault = fault
        self.why = why
        self.told = told


class PublicationRefused(RequestRefused):
    """A message was not accepted."""


class SubscriptionNotGranted(RequestRefused):
    """A subscription was not granted."""
