"""Links of a client of AMQP 1.0: what waits for credit or is not settled, and deliveries that come in parts; pure."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

UINTS = 0x1_0000_0000
"""Numbers of AMQP go round."""
CREDIT = 200
"""Messages that a receiver may get before it has settled earlier ones."""


class Outgoing(NamedTuple):
    """A message that is to be sent."""

    number: int
    data: bytes
    is_settled: bool


@dataclass(slots=True)
class SendingLink:
    address: str | None
    """None: of the anonymous relay."""
    name: str
    handle: int
    is_attached: bool = False
    is_detached: bool = False
    credit: int = 0
    delivery_count: int = 0
    message_bytes_max: int = 0
    """0: no limit."""
    waiting: deque[Outgoing] = field(default_factory=deque)
    unsettled: dict[int, int] = field(default_factory=dict)
    """Numbers of messages, by their delivery."""

    @property
    def is_idle(self) -> bool:
        return self.is_attached and not self.waiting and not self.unsettled

    def granted(self, peer_count: int | None, credit: int) -> None:
        """Credit counts from the deliveries that the peer knew of (section 2.6.7)."""
        left = ((peer_count or 0) + credit - self.delivery_count) % UINTS
        self.credit = left if left < UINTS // 2 else 0

    def sent(self) -> None:
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) % UINTS

    def drain(self) -> bool:
        """Give up credit that there is nothing for; whether there was any."""
        had = self.credit
        self.delivery_count, self.credit = (self.delivery_count + had) % UINTS, 0
        return had > 0


@dataclass(slots=True)
class ReceivingLink:
    name: str
    handle: int
    source: str
    read_from: str | None
    """The filter that it is for; None: a queue with topics of all kinds."""
    is_attached: bool = False
    delivery_count: int = 0
    credit: int = 0
    to_settle: int = 0
    """Deliveries that were given out and are not settled."""
    parts: list[bytes] = field(default_factory=list)
    part_bytes: int = 0
    delivery_id: int = -1
    is_settled: bool = False
    is_too_large: bool = False

    @property
    def credit_due(self) -> bool:
        return self.credit + self.to_settle <= CREDIT // 2

    def began(self, delivery_id: int, is_settled: bool) -> None:
        self.parts, self.part_bytes, self.is_too_large = [], 0, False
        self.delivery_id, self.is_settled = delivery_id, is_settled

    def add(self, data: bytes, bytes_max: int) -> None:
        """What is too large is not kept: it will be rejected when it is whole."""
        self.part_bytes += len(data)
        if self.part_bytes > bytes_max:
            self.is_too_large, self.parts = True, []
        else:
            self.parts.append(data)

    def ended(self) -> None:
        """The delivery is whole, or was aborted."""
        self.delivery_id = -1
        self.delivery_count = (self.delivery_count + 1) % UINTS
        self.credit -= 1
