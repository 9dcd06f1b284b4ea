"""Errors of AMQP: a condition for the peer, and a sentence for people (part 2, sections 2.8.15 to 2.8.18)."""

from overlane.errors import ProtocolViolation

INTERNAL_ERROR = "amqp:internal-error"
NOT_FOUND = "amqp:not-found"
UNAUTHORIZED = "amqp:unauthorized-access"
DECODE_ERROR = "amqp:decode-error"
RESOURCE_LIMIT = "amqp:resource-limit-exceeded"
NOT_ALLOWED = "amqp:not-allowed"
INVALID_FIELD = "amqp:invalid-field"
NOT_IMPLEMENTED = "amqp:not-implemented"
PRECONDITION_FAILED = "amqp:precondition-failed"
CONNECTION_FORCED = "amqp:connection:forced"
FRAMING_ERROR = "amqp:connection:framing-error"
WINDOW_VIOLATION = "amqp:session:window-violation"
ERRANT_LINK = "amqp:session:errant-link"
HANDLE_IN_USE = "amqp:session:handle-in-use"
UNATTACHED_HANDLE = "amqp:session:unattached-handle"
DETACH_FORCED = "amqp:link:detach-forced"
TRANSFER_LIMIT = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE = "amqp:link:message-size-exceeded"
STOLEN = "amqp:link:stolen"


class AmqpError(ProtocolViolation):
    """What the peer did wrong, or asked for in vain. The one who catches it decides what ends: message, link or
    connection."""

    error_code = "OVL-309"

    def __init__(self, condition: str, told: str) -> None:
        super().__init__(told)
        self.condition = condition
        self.told = told


class Malformed(AmqpError):
    """Bytes that are not AMQP, or more of them than allowed: the connection ends."""

    def __init__(self, told: str, condition: str = DECODE_ERROR) -> None:
        super().__init__(condition, told)


class TooLarge(Malformed):
    """More than a client may send."""
