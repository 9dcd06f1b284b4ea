"""Errors between an application and its broker, by fault.

    ClientError
      InvalidRequest      the application requested something that MQTT or this client does not allow
      Refused             the broker rejected a request, with a reason code
        ConnectionRefused, PublishRefused, SubscribeRefused
      Disconnected        the broker ended the connection for good, with a reason code
      Unreachable         no address answers, or the connection is lost and reconnection is off
      Expired             a message waited for the broker longer than its expiry
      Closed              the client has been closed
      BrokerViolation     the broker violates the MQTT protocol

`Refused`, `Disconnected`, `Unreachable`, `Expired` and `Closed` are also `overlane.errors.Unavailable`, and
`BrokerViolation` is also an `overlane.errors.ProtocolViolation`, so that programs which use more of Overlane can catch
them by fault.
"""

from collections.abc import Sequence

from overlane.errors import OverlaneError, ProtocolViolation, Unavailable


class ClientError(OverlaneError):
    """Anything that `overlane.client` raises by itself."""

    error_code = "OVL-200"


class InvalidRequest(ClientError, ValueError):
    """An error of the application; the message gives the request and what is allowed."""

    error_code = "OVL-103"


class Refused(ClientError, Unavailable):
    """The broker rejected a request. `code` is the MQTT 5 reason code, `reason` its text."""

    error_code = "OVL-203"

    def __init__(self, what: str, code: int, words: str = "") -> None:
        super().__init__(what, described(code, words))
        self.code = code
        self.words = words


class ConnectionRefused(Refused):
    """The broker answered CONNECT with a reason to go away. `reference`: the server that it names instead, or ""."""

    error_code = "OVL-204"

    def __init__(self, what: str, code: int, words: str = "", reference: str = "") -> None:
        super().__init__(what, code, words)
        self.reference = reference


class PublishRefused(Refused):
    """The broker did not accept a message of QoS 1 or 2."""

    error_code = "OVL-205"


class SubscribeRefused(Refused):
    """The broker did not grant a subscription; `topic_filter` is the first filter it refused."""

    error_code = "OVL-206"

    def __init__(self, topic_filter: str, code: int, words: str = "") -> None:
        super().__init__(f"subscription to {topic_filter}", code, words)
        self.topic_filter = topic_filter


class Disconnected(Refused):
    """The broker ended the connection, and connecting again would only repeat it."""

    error_code = "OVL-207"


class Unreachable(ClientError, Unavailable):
    """No broker answers. `tried` holds each address with what happened there."""

    error_code = "OVL-208"

    def __init__(self, tried: Sequence[tuple[str, str]]) -> None:
        super().__init__("no connection", "; ".join(f"{address}: {reason}" for address, reason in tried))
        self.tried = tuple(tried)


class Expired(ClientError, Unavailable):
    """The message was never sent: it waited for the broker longer than its expiry allows."""

    error_code = "OVL-209"

    def __init__(self, topic: str) -> None:
        super().__init__(f"message to {topic}", "expired before the broker could be reached")


class Closed(ClientError, Unavailable):
    """The client has been closed, or was never opened."""

    error_code = "OVL-210"

    def __init__(self, reason: str = "closed") -> None:
        super().__init__("the client", reason)


class BrokerViolation(ClientError, ProtocolViolation):
    """The broker sent what MQTT does not allow."""

    error_code = "OVL-302"


REASONS = {
    0x00: "success",
    0x04: "disconnected with will",
    0x10: "no matching subscribers",
    0x11: "no subscription existed",
    0x80: "unspecified error",
    0x81: "malformed packet",
    0x82: "protocol error",
    0x83: "refused by the broker",
    0x84: "protocol version not supported",
    0x85: "client id not valid",
    0x86: "bad user name or password",
    0x87: "not authorized",
    0x88: "broker unavailable",
    0x89: "broker busy",
    0x8A: "banned",
    0x8B: "broker shutting down",
    0x8C: "bad authentication method",
    0x8D: "keep-alive timeout",
    0x8E: "session taken over by another connection with the same client id",
    0x8F: "topic filter not valid",
    0x90: "topic name not valid",
    0x91: "packet id in use",
    0x92: "packet id not found",
    0x93: "more in flight than was agreed",
    0x94: "topic alias not valid",
    0x95: "packet too large",
    0x96: "message rate too high",
    0x97: "quota exceeded",
    0x98: "ended by an administrator",
    0x99: "payload format not valid",
    0x9A: "retained messages not supported",
    0x9B: "QoS not supported",
    0x9C: "use another broker",
    0x9D: "broker moved",
    0x9E: "shared subscriptions not supported",
    0x9F: "connection rate exceeded",
    0xA0: "maximum connect time reached",
    0xA1: "subscription identifiers not supported",
    0xA2: "wildcard subscriptions not supported",
}


def described(code: int, words: str = "") -> str:
    """A reason code for people: `not authorized (0x87)`, with the broker's own words if it sent any."""
    reason = f"{REASONS.get(code, 'unknown reason')} (0x{code:02X})"
    return f"{reason}: {words}" if words else reason
