"""A link on which the client receives: a consumer, with credit instead of a receive maximum.

A link of a topic has a session of its own in the broker, under the names of container and link, with one subscription;
it is kept while the client is away if the subscription is durable. Links of a queue, or of a shared subscription, take
from one session together (`shared_queue`).

The window of the session is as large as what is unsettled and the credit that is left. QoS 0 messages without credit
wait here, up to the bytes that may wait for a client, and go before all that follows.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from overlane.amqp.codec import composites
from overlane.amqp.codec.framing import HEAD_BYTES, transfer_body
from overlane.amqp.codec.malformed import DETACH_FORCED, INTERNAL_ERROR, STOLEN
from overlane.amqp.codec.performatives import Detach, Error, Flow, Transfer
from overlane.amqp.messages.writing import write_message
from overlane.core.units import NEVER, Nanos
from overlane.pubsub.contract.consumer import Ending, Peer
from overlane.pubsub.message import Message

if TYPE_CHECKING:
    from overlane.amqp.connection import Connection
    from overlane.amqp.session import AmqpSession
    from overlane.amqp.shared_queue import SharedQueue
    from overlane.pubsub.delivery.window import Entry
    from overlane.pubsub.sessions.session import Session

_NUMBERS = 1 << 32
_CONDITIONS = {Ending.TAKEN_OVER: STOLEN, Ending.INTERNAL_ERROR: INTERNAL_ERROR}
TRANSFER_BYTES_MAX = 64
"""A transfer performative takes no more."""


class OutgoingLink:
    __slots__ = (
        "_channel",
        "_plain",
        "_plain_bytes",
        "closing",
        "credit",
        "delivery_count",
        "drains",
        "handle",
        "is_durable",
        "is_unsettled",
        "message_bytes_max",
        "name",
        "peer",
        "queue",
        "session",
    )

    def __init__(
        self, channel: "AmqpSession", handle: int, name: str, is_unsettled: bool, message_bytes_max: int
    ) -> None:
        self._channel = channel
        self.peer: Peer = channel.connection.peer
        self.handle = handle
        self.name = name
        self.is_unsettled = is_unsettled
        """Whether the client wants to settle every delivery; otherwise QoS 0 is sent settled."""
        self.message_bytes_max = message_bytes_max or NEVER
        self.credit = 0
        self.delivery_count = 0
        self.drains = False
        self.session: Session | None = None
        """Of the broker; None for a link of a queue."""
        self.queue: SharedQueue | None = None
        self.is_durable = False
        """Whether the session, or the queue, outlives the link."""
        self.closing: str | None = None
        self._plain: deque[bytes] = deque()
        """QoS 0 messages that wait for credit."""
        self._plain_bytes = 0

    # As a consumer

    @property
    def connection(self) -> "Connection":
        return self._channel.connection

    @property
    def unanswerable_until_ns(self) -> Nanos:
        return self._channel.connection.unanswerable_until_ns

    @unanswerable_until_ns.setter
    def unanswerable_until_ns(self, until_ns: Nanos) -> None:
        self._channel.connection.unanswerable_until_ns = until_ns

    @property
    def waits(self) -> bool:
        return self._channel.connection.waits

    @waits.setter
    def waits(self, waits: bool) -> None:
        self._channel.connection.waits = waits

    @property
    def backlog_bytes(self) -> int:
        return self._channel.connection.backlog_bytes + self._channel.blocked_bytes + self._plain_bytes

    def keeps_reading(self, now: Nanos) -> bool:
        return self._channel.connection.keeps_reading(now)

    def take(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],  # noqa: ARG002 - a link has one subscription
        now: Nanos,
        tag: int = 0,
        again: bool = False,
    ) -> bool:
        tries = 0
        if qos and again and self.session is not None:
            entry = self.session.window.next_to_send()
            tries = max(1, entry.tries) if entry is not None else 1
        return self.deliver(message, qos, retain, tries, tag, now)

    def deliver(self, message: Message, qos: int, retain: bool, tries: int, tag: int, now: Nanos) -> bool:
        """Send it, or keep it until there is credit. False if the client does not take messages of this size."""
        payload = write_message(message, qos, retain, tries, now)
        if len(payload) > self.message_bytes_max:
            return False
        if not qos and self.credit <= 0:
            self._plain.append(payload)
            self._plain_bytes += len(payload)
            return True
        self._send(payload, tag, not qos and not self.is_unsettled)
        if not qos:
            self._fit_window()
        return True

    def take_run(self, entries: "Sequence[Entry]") -> bool:
        """Plain messages of QoS 1: without properties, and for the first time."""
        if self.message_bytes_max < NEVER:
            return False
        for entry in entries:
            self._send(write_message(entry.message, 1, False, 0, 0), entry.tag, False)
        return True

    def release(self, tag: int) -> None:
        """There is no QoS 2 here."""

    def _send(self, payload: bytes, tag: int, is_settled: bool) -> None:
        channel, connection = self._channel, self._channel.connection
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) % _NUMBERS
        connection.messages_out += 1
        delivery_id = channel.number(self, tag, is_settled)
        room = connection.frame_bytes_max - HEAD_BYTES - TRANSFER_BYTES_MAX
        has_more = len(payload) > room
        head = transfer_body(self.handle, delivery_id, delivery_id.to_bytes(4), is_settled, has_more)
        if not has_more:
            channel.transfer(head + payload)
            return
        channel.transfer(head + payload[:room])
        for at in range(room, len(payload), room):
            has_more = at + room < len(payload)
            channel.transfer(composites.write(Transfer(self.handle, more=has_more)) + payload[at : at + room])

    # Credit

    @property
    def can_send(self) -> bool:
        """Whether a message waits for which there is credit."""
        if self.credit <= 0 or self.closing is not None:
            return False
        session = self.session if self.queue is None else self.queue.session
        return session is not None and session.window.next_to_send() is not None

    def _fit_window(self) -> None:
        """As large as what is unsettled and the credit that is left."""
        if self.queue is not None:
            self.queue.fit_window()
        elif self.session is not None:
            self.session.window.receive_max = len(self.session.window.sent) + self.credit

    def flow(self, flow: Flow) -> None:
        """The client gives credit, or takes it back; what waits for it is sent by the caller (`pump`)."""
        known = 0 if flow.delivery_count is None else flow.delivery_count
        credit = (known + (flow.link_credit or 0) - self.delivery_count) % _NUMBERS
        self.credit = credit if credit < _NUMBERS // 2 else 0
        self.drains = bool(flow.drain)
        while self._plain and self.credit > 0:
            payload = self._plain.popleft()
            self._plain_bytes -= len(payload)
            self._send(payload, 0, not self.is_unsettled)
        self._fit_window()

    def drained(self) -> None:
        """All that could be sent is sent: with a drain, what is left of the credit is void."""
        if self.drains and self.credit > 0:
            self.delivery_count = (self.delivery_count + self.credit) % _NUMBERS
            self.credit = 0
            self._fit_window()
            self.tell()
        elif self.drains:
            self.tell()

    def tell(self) -> None:
        """The state of the link."""
        session = self.session if self.queue is None else self.queue.session
        available = len(self._plain) + (len(list(session.window.waiting)) if session is not None else 0)
        self._channel.say(
            self._channel.flow(
                handle=self.handle,
                delivery_count=self.delivery_count,
                link_credit=self.credit,
                available=available,
                drain=self.drains,
            )
        )

    # The end

    def end(self, ending: Ending, why: str) -> None:
        self.detach(_CONDITIONS.get(ending, DETACH_FORCED), why)

    def detach(self, condition: str, why: str) -> None:
        """The broker ends the link. What is unsettled is the caller's."""
        if self.closing is None:
            self.closing = why
            self._channel.say(Detach(self.handle, True, Error(condition, why)))
