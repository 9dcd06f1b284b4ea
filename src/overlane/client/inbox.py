"""Inboxes: messages that have arrived and are unread, and whether the client may continue to read from the broker.

Each subscription has one. Nothing is dropped if the application reads too slowly: when an inbox is full, the client
stops reading from the connection until half of the inbox has been read. TCP then slows the broker down. For QoS 1 and 2
the broker stops before that, because the application has not acknowledged.

While a response of the broker is outstanding, the client continues to read, because the response may be behind the
messages, and the application that should read them may be waiting for it. `UNREAD_BYTES_MAX` limits this.

A message goes to the subscription with its subscription identifier. A message without a subscription is unclaimed: it
belongs to a session that an earlier run of the application left, and waits until the application subscribes to it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from overlane.client.message import Message
from overlane.core.topics import matches

log = logging.getLogger("overlane.client")

UNREAD_MAX = 1_000
INBOX_BYTES_MAX = 16 * 1024 * 1024
UNREAD_BYTES_MAX = 64 * 1024 * 1024
UNCLAIMED_QOS_0_MAX = 100
UNCLAIMED_TOLD = 100
TOPICS_REMEMBERED = 10_000


class Inbox:
    def __init__(self, filters: Sequence[str], unread_max: int, full: "set[Inbox]") -> None:
        self.filters = tuple(filters)
        self.messages: deque[Message] = deque()
        self.unread_bytes = 0
        self.taken: list[Message] = []
        """Read, and not acknowledged yet."""
        self.error: Exception | None = None
        self.ended = False
        self._unread_max = unread_max
        self._full = full
        self._patterns = [_without_share(topic_filter) for topic_filter in filters]
        self._known: dict[str, bool] = {}
        self._reader: asyncio.Future[None] | None = None
        self.sink: Callable[[Message], None] | None = None
        """Where messages go instead, if set."""

    def matches(self, topic: str) -> bool:
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= TOPICS_REMEMBERED:
                self._known.clear()
            known = self._known[topic] = any(matches(pattern, topic) for pattern in self._patterns)
        return known

    def put(self, message: Message) -> None:
        if self.sink is not None:
            self.sink(message)
            return
        self.messages.append(message)
        self.unread_bytes += len(message.body)
        if len(self.messages) >= self._unread_max or self.unread_bytes >= INBOX_BYTES_MAX:
            self._full.add(self)
        self._wake()

    def take(self) -> Message:
        message = self.messages.popleft()
        self.unread_bytes -= len(message.body)
        if len(self.messages) <= self._unread_max // 2 and self.unread_bytes <= INBOX_BYTES_MAX // 2:
            self._full.discard(self)
        return message

    def take_all(self) -> list[Message]:
        taken = list(self.messages)
        self.messages.clear()
        self.unread_bytes = 0
        self._full.discard(self)
        return taken

    def end(self, error: Exception | None = None) -> None:
        """Nothing more will come; a reader gets what is there, and then the error."""
        self.ended = True
        self.error = self.error or error
        self._wake()

    @property
    def has_reader(self) -> bool:
        return self._reader is not None

    async def news(self) -> None:
        """Until a message or the end has come."""
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Inboxes:
    """All inboxes of a client. `done` is called with messages that will not be read any more."""

    def __init__(self, done: Callable[[Message], None]) -> None:
        self._done = done
        self._by_number: dict[int, Inbox] = {}
        self._full: set[Inbox] = set()
        self._left: list[Message] = []
        self.unclaimed = Inbox((), UNREAD_MAX, set())
        self.dropped = 0
        """Unclaimed messages of QoS 0 that found no room."""

    @property
    def are_full(self) -> bool:
        return bool(self._full)

    def stop(self, inbox: Inbox) -> None:
        """An inbox of several clients is full."""
        self._full.add(inbox)

    def go_on(self, inbox: Inbox) -> None:
        self._full.discard(inbox)

    @property
    def unread_bytes(self) -> int:
        return sum(inbox.unread_bytes for inbox in self._by_number.values())

    def open(self, number: int, filters: Sequence[str], unread_max: int) -> Inbox:
        """A new inbox, with those unclaimed messages in it that match."""
        inbox = self._by_number[number] = Inbox(filters, unread_max, self._full)
        for message in self.unclaimed.take_all():
            (inbox if inbox.matches(message.topic) else self.unclaimed).put(message)
        return inbox

    def subscribed(self, topic_filter: str) -> bool:
        return any(topic_filter in inbox.filters for inbox in self._by_number.values())

    def close(self, number: int, keep_unread: bool) -> None:
        """Nobody reads it any more. What is unread waits for another reader, or goes."""
        inbox = self._by_number.pop(number, None)
        if inbox is None:
            return
        if keep_unread:
            self._left += inbox.taken
            for message in inbox.take_all():
                self._claim(message)
        else:
            for message in [*inbox.taken, *inbox.take_all()]:
                self._done(message)
        inbox.taken = []
        inbox.end()

    def acknowledge(self) -> None:
        """The application is done with everything it has read."""
        for inbox in (*self._by_number.values(), self.unclaimed):
            self._left += inbox.taken
            inbox.taken = []
        for message in self._left:
            self._done(message)
        self._left = []

    def detach(self, number: int) -> Inbox | None:
        """Nothing more will come; what is unread stays with its reader."""
        inbox = self._by_number.pop(number, None)
        if inbox is not None:
            self._full.discard(inbox)
        return inbox

    def get(self, number: int) -> Inbox | None:
        return self._by_number.get(number)

    def deliver(self, message: Message) -> None:
        numbers = message.subscription_ids
        if len(numbers) == 1:
            only = self._by_number.get(numbers[0])
            if only is not None and only.matches(message.topic):
                only.put(message)
                return
        readers = [
            inbox
            for number in numbers
            if (inbox := self._by_number.get(number)) is not None and inbox.matches(message.topic)
        ]
        if not readers:
            # The broker gives no identifiers, or one of an earlier run.
            readers = [inbox for inbox in self._by_number.values() if inbox.matches(message.topic)]
        if len(readers) > 1:
            message.read_by(len(readers))
        for inbox in readers:
            inbox.put(message)
        if not readers:
            self._claim(message)

    def end(self, error: Exception | None = None) -> None:
        for inbox in [*self._by_number.values(), self.unclaimed]:
            if error is None:
                inbox.take_all()
            inbox.end(error)

    def _claim(self, message: Message) -> None:
        if not message.qos and len(self.unclaimed.messages) >= UNCLAIMED_QOS_0_MAX:
            self.dropped += 1
            return
        self.unclaimed.put(message)
        if len(self.unclaimed.messages) == UNCLAIMED_TOLD:
            log.warning(
                "%d unclaimed messages are queued, the last for topic %s; "
                "subscribe to them, or read them from Client.unclaimed()",
                UNCLAIMED_TOLD,
                message.topic,
            )


def _without_share(topic_filter: str) -> str:
    """`$share/GROUP/FILTER` matches what FILTER matches."""
    return topic_filter.split("/", 2)[2] if topic_filter.startswith("$share/") else topic_filter
