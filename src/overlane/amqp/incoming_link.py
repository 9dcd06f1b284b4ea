"""A link on which the client sends (part 2, section 2.6): credit, and deliveries put together from their frames.

A client gets credit for so many messages as it may have in flight, less those that are not answered because the disk or
the way is slow. More than it has credit for ends the link, as does a message that is too large: neither is kept.
"""

from typing import TYPE_CHECKING, NamedTuple

from overlane.amqp.addresses import Address
from overlane.amqp.codec.malformed import (
    INVALID_FIELD,
    MESSAGE_SIZE,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT,
    TRANSFER_LIMIT,
    AmqpError,
    Malformed,
    TooLarge,
)
from overlane.amqp.codec.performatives import Transfer

if TYPE_CHECKING:
    from overlane.amqp.session import AmqpSession

PARTIAL_MESSAGES = 4
"""What has come of messages that are not whole, on all links of a connection: at most so many times the largest."""
_NUMBERS = 1 << 32


class Delivery(NamedTuple):
    link: "IncomingLink"
    delivery_id: int
    settled: bool
    payload: bytes


class IncomingLink:
    __slots__ = (
        "_delivery_id",
        "_is_settled",
        "_partial",
        "_partial_bytes",
        "address",
        "credit",
        "delivery_count",
        "handle",
        "message_bytes_max",
        "name",
        "session",
    )

    def __init__(
        self,
        session: "AmqpSession",
        handle: int,
        name: str,
        address: Address | None,
        message_bytes_max: int,
        count: int,
    ) -> None:
        self.session = session
        self.handle = handle
        self.name = name
        self.address = address
        """None: each message says where it goes (the anonymous relay)."""
        self.message_bytes_max = message_bytes_max
        self.credit = 0
        self.delivery_count = count
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self._delivery_id = -1
        """Of the delivery that is not whole; -1 if there is none."""
        self._is_settled = False

    def transfer(self, frame: Transfer, payload: bytes) -> Delivery | None:
        """The delivery that is whole with this frame; AmqpError ends the link, Malformed the connection."""
        if self._delivery_id < 0:
            if frame.delivery_id is None:
                raise Malformed("the first transfer of a delivery has no delivery-id", INVALID_FIELD)
            if frame.resume:
                raise AmqpError(NOT_IMPLEMENTED, "deliveries are not resumed: send it again")
            if self.credit <= 0:
                raise AmqpError(TRANSFER_LIMIT, "a message without credit")
            if frame.message_format:
                raise AmqpError(NOT_IMPLEMENTED, f"message format {frame.message_format}; known is 0")
            self.credit -= 1
            self.delivery_count = (self.delivery_count + 1) % _NUMBERS
            self._delivery_id, self._is_settled = frame.delivery_id, False
        elif frame.delivery_id not in (None, self._delivery_id):
            raise Malformed("a delivery begins before the one ahead of it is whole", INVALID_FIELD)
        self._is_settled |= bool(frame.settled)
        if frame.aborted:
            self.drop_partial()
            self._delivery_id = -1
            return None
        if self._partial_bytes + len(payload) > self.message_bytes_max:
            raise AmqpError(MESSAGE_SIZE, f"a message of more than {self.message_bytes_max} bytes")
        if frame.more:
            self._keep(payload)
            return None
        if self._partial:
            payload = b"".join((*self._partial, payload))
            self.drop_partial()
        delivery = Delivery(self, self._delivery_id, self._is_settled, payload)
        self._delivery_id = -1
        return delivery

    def _keep(self, payload: bytes) -> None:
        connection = self.session.connection
        connection.partial_bytes += len(payload)
        if connection.partial_bytes > PARTIAL_MESSAGES * self.message_bytes_max:
            told = f"more than {PARTIAL_MESSAGES * self.message_bytes_max} bytes of messages that are not whole"
            raise TooLarge(told, RESOURCE_LIMIT)
        self._partial.append(payload)
        self._partial_bytes += len(payload)

    def drop_partial(self) -> None:
        self.session.connection.partial_bytes -= self._partial_bytes
        self._partial, self._partial_bytes = [], 0

    # Credit

    @property
    def _room(self) -> int:
        """How many more messages the client may have in flight."""
        connection = self.session.connection
        in_flight = connection.limits_told.in_flight
        return in_flight - connection.acks_held - connection.acks_owed - len(connection.held)

    @property
    def owes_credit(self) -> bool:
        """Whether the client has less than half of the credit that it may have."""
        return 2 * self.credit < self._room

    def give_credit(self) -> None:
        self.credit = self._room
        self.tell_credit()

    def tell_credit(self) -> None:
        self.session.say(
            self.session.flow(handle=self.handle, delivery_count=self.delivery_count, link_credit=self.credit)
        )
