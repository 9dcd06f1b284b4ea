"""A subscription of an application: an iterator of messages that acknowledges the messages that were processed."""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Protocol as Interface

from overlane.client.errors import InvalidRequest
from overlane.client.inbox import Inbox
from overlane.client.message import Message


class SubscriptionHost(Interface):
    """What a subscription needs of its client."""

    def done(self, message: Message) -> None: ...

    def was_read(self) -> None: ...

    def leave(self, number: int) -> None: ...

    def abandon(self, number: int) -> None: ...

    async def granted(self, number: int) -> None: ...

    async def unsubscribe(self, number: int) -> None: ...


class Subscription(AsyncIterator[Message]):
    """Messages in the order in which they arrive, for one reader.

    The broker was asked when this was made, so nothing that is published after that is missed. `await ready()`, or
    `async with`, waits until the broker has agreed; a refusal is raised there or at the first message.

    A message of QoS 1 or 2 is acknowledged when the next one is asked for, or when an `async with` block of the
    client or the subscription ends without an exception. What an exception leaves unfinished, the broker sends again
    if the session lives.

    Without `session_expiry` the subscription ends when nobody holds this object any more. With it, the subscription
    belongs to the session and goes on at the broker until `unsubscribe()`.
    """

    def __init__(self, host: SubscriptionHost, number: int, inbox: Inbox) -> None:
        self._host = host
        self._number = number
        self._inbox = inbox

    @property
    def filters(self) -> tuple[str, ...]:
        """What was subscribed to."""
        return self._inbox.filters

    @property
    def unread(self) -> int:
        """How many messages have arrived and wait to be read."""
        return len(self._inbox.messages)

    async def ready(self) -> None:
        """Until the broker has agreed; `SubscribeRefused` if it does not."""
        await self._host.granted(self._number)

    async def unsubscribe(self) -> None:
        """Until the broker has agreed to send no more. What has arrived can still be read, then the iterator ends."""
        await self._host.unsubscribe(self._number)

    async def batches(self, *, acknowledge: bool = True) -> AsyncIterator[list[Message]]:
        """All messages that are there at a time, for those who have to be fast. Acknowledged like single ones, or,
        without `acknowledge`, one by one by `done`."""
        while True:
            try:
                await self._news()
            except StopAsyncIteration:
                return
            batch = self._inbox.take_all()
            if acknowledge:
                self._inbox.taken = batch
            self._host.was_read()
            yield batch

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Message:
        await self._news()
        message = self._inbox.take()
        self._inbox.taken.append(message)
        self._host.was_read()
        return message

    async def __aenter__(self) -> "Subscription":
        await self.ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.acknowledge()
        self._host.leave(self._number)

    def __del__(self) -> None:
        self._host.abandon(self._number)

    def acknowledge(self) -> None:
        """Done with every message read so far, without waiting for the next."""
        taken, self._inbox.taken = self._inbox.taken, []
        for message in taken:
            self._host.done(message)

    def done(self, message: Message) -> None:
        """Acknowledge a message of `batches(acknowledge=False)`. The broker is told in the order of arrival."""
        self._host.done(message)

    async def _news(self) -> None:
        self.acknowledge()
        inbox = self._inbox
        while not inbox.messages:
            if inbox.error is not None:
                raise inbox.error
            if inbox.ended:
                raise StopAsyncIteration
            if inbox.has_reader:
                raise InvalidRequest("only one task may read a subscription")
            await inbox.news()
