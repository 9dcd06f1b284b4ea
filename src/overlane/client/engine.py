"""The engine: turns the calls of an application into requests of the protocol.

It decides nothing about MQTT. Calls go into the protocol; the events of the protocol become results of futures, and
messages in inboxes; the driver moves the bytes.

`end` ends it: all waiting calls, and all later ones, raise the reason.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import assert_never

from overlane.client.clocks import moment, now_ns
from overlane.client.driver import Driver
from overlane.client.errors import (
    ClientError,
    Expired,
    InvalidRequest,
    PublishRefused,
    SubscribeRefused,
)
from overlane.client.inbox import UNREAD_BYTES_MAX, Inbox, Inboxes
from overlane.client.message import Message, Publication
from overlane.client.protocol import (
    Connected,
    ConnectionFailed,
    ConnectRefused,
    Event,
    Protocol,
    PublicationAccepted,
    PublicationExpired,
    PublicationRejected,
    Sending,
    ServerDisconnected,
    SessionSettings,
    Subscribed,
    SubscriptionRefused,
    Unsubscribed,
    WantedSubscription,
)
from overlane.core.units import Nanos

log = logging.getLogger("overlane.client")
TOLD_MAX = 100
"""Different remarks of brokers on accepted messages that are logged, each once."""


class Engine:
    def __init__(
        self, settings: SessionSettings, *, keep_session: bool, outbox_max: int, outbox_bytes_max: int
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._protocol = Protocol(settings)
        self._keep_session = keep_session
        self._outbox_max = outbox_max
        self._outbox_bytes_max = outbox_bytes_max
        self.driver = Driver(self._protocol, self._handle)
        self.driver.wants_reading = self._keeps_up
        self._publishing: dict[Sending, asyncio.Future[None]] = {}
        self._told: set[str] = set()
        self._granting: dict[int, asyncio.Future[None]] = {}
        self._leaving: dict[int, asyncio.Future[None]] = {}
        self._changes: list[asyncio.Future[None]] = []
        self._abandoned: deque[int] = deque()
        self._numbers = 0
        self._error: Exception | None = None
        self.inboxes = Inboxes(self.done)
        self.session_present = False
        self.alternatives: tuple[str, ...] = ()
        """What the broker of the latest connection has named."""
        self.connections = 0
        """How many have been made."""
        self.last_error = ""
        """Why the latest connection ended, or the latest attempt failed."""
        self.unsent_dropped = 0
        """Messages of QoS 0 that were given up in the outbox: expired, or beyond what the broker takes."""

    @property
    def online(self) -> bool:
        return self._protocol.online

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    @property
    def heard_at(self) -> Nanos:
        """When the broker last sent anything."""
        return self._protocol.heard_at

    def ping(self) -> None:
        """Ask the broker for a sign of life."""
        if self._protocol.online:
            self._protocol.ping(now_ns())
            self.driver.flush_soon()

    # What the application asks for

    async def publish(self, publication: Publication) -> None:
        """Until it is in the outbox, and for QoS 1 and 2 until the broker has it."""
        sending, waiter = await self.submit(publication)
        if waiter is None:
            return
        try:
            await waiter
        except asyncio.CancelledError:
            self.withdraw(sending)
            raise

    async def submit(self, publication: Publication) -> tuple[Sending, "asyncio.Future[None] | None"]:
        """Until it is in the outbox; what to wait for then, if the broker is to answer."""
        self.check()
        if self._outbox_is_full():
            await self.until(lambda: not self._outbox_is_full())
        sending, events = self._protocol.publish(publication, now_ns())
        waiter = None
        if publication.qos or events:
            waiter = self._publishing[sending] = self._loop.create_future()
            self._handle(events)
        if self.driver.flush_soon():
            # One who publishes without end must not keep everyone else from running.
            await asyncio.sleep(0)
        if publication.qos or waiter is None:
            return sending, waiter
        del self._publishing[sending]
        if waiter.done():
            waiter.result()
        return sending, None

    def withdraw(self, sending: Sending) -> None:
        """Nobody waits for it any more."""
        self._protocol.withdraw(sending)
        self._publishing.pop(sending, None)
        self._changed()

    async def write_batch(self, packets: bytes) -> None:
        """Whole PUBLISH packets of QoS 0, behind everything that was published before."""
        self.check()
        if not self._takes_batch():
            await self.until(self._takes_batch)
        self._protocol.out.append(packets)
        self.driver.flush()

    @property
    def packet_bytes_max(self) -> int:
        return self._protocol.limits.packet_bytes_max

    def subscribe(self, wanted: WantedSubscription, unread_max: int, replaced: int | None = None) -> tuple[int, Inbox]:
        """`replaced`: a subscription to the same filters, with other options, which ends without a gap."""
        self.check()
        self._leave_abandoned()
        if replaced is not None:
            self._protocol.forget(replaced)
            self._granting.pop(replaced, None)
            self.inboxes.detach(replaced)
        for topic_filter in wanted.filters:
            if self.inboxes.subscribed(topic_filter):
                raise InvalidRequest(f"there is already a subscription to {topic_filter}")
        self._numbers += 1
        number = self._numbers
        inbox = self.inboxes.open(number, wanted.filters, unread_max)
        self._granting[number] = self._loop.create_future()
        self._protocol.subscribe(number, wanted)
        self.driver.flush_soon()
        return number, inbox

    async def granted(self, number: int) -> None:
        waiter = self._granting.get(number)
        if waiter is not None:
            await asyncio.shield(waiter)

    def is_granted(self, number: int) -> bool:
        waiter = self._granting.get(number)
        return waiter is None or (waiter.done() and waiter.exception() is None)

    async def unsubscribe(self, number: int) -> None:
        self.check()
        inbox = self.inboxes.get(number)
        if inbox is None:
            return
        waiter = self._leaving.setdefault(number, self._loop.create_future())
        self._protocol.unsubscribe(number)
        self.driver.flush_soon()
        await asyncio.shield(waiter)

    def leave(self, number: int, *, for_good: bool = False) -> None:
        """Nobody reads the subscription any more. `for_good`: it ends at the broker, although the session is kept."""
        self._granting.pop(number, None)
        if self._error is not None or self.inboxes.get(number) is None:
            return
        if self._keep_session and not for_good:
            self._protocol.forget(number)
        else:
            self._protocol.unsubscribe(number)
        self.inboxes.close(number, keep_unread=self._keep_session and not for_good)
        self.driver.flush_soon()
        self.driver.regulate()

    def abandon(self, number: int) -> None:
        """Nobody holds the subscription any more. Called by the garbage collector: at any moment, from any thread."""
        self._abandoned.append(number)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._leave_abandoned)

    def done(self, message: Message) -> None:
        """A reader is done with the message."""
        if message.receipt is not None:
            self._protocol.done(message.receipt)
            self.driver.flush_soon()

    def was_read(self) -> None:
        """The application has read something."""
        self.driver.regulate()

    # The end

    def check(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(None)

    async def settle(self) -> None:
        """Until everything published has been sent, and answered where an answer is due."""
        await self.until(lambda: not self._protocol.waiting and not self._protocol.unanswered)

    def end(self, error: Exception, *, readers_told: bool) -> None:
        """Everything ends with this error from now on; readers just end, unless `readers_told`."""
        if self._error is not None:
            return
        self._error = error
        for waiter in (*self._publishing.values(), *self._granting.values(), *self._leaving.values(), *self._changes):
            _fail(waiter, error)
        self._publishing.clear()
        self._changes.clear()
        self.inboxes.end(error if readers_told else None)

    async def until(self, ready: Callable[[], bool]) -> None:
        """Until it is so, looked at whenever something has changed."""
        while not ready():
            self.check()
            change = self._loop.create_future()
            self._changes.append(change)
            await change
        self.check()

    # Events

    def _handle(self, events: Iterable[Event]) -> None:
        arrival = None
        for event in events:
            match event:
                case Message():
                    arrival = arrival or moment()
                    event.arrived(arrival)
                    self.inboxes.deliver(event)
                case PublicationAccepted(sending, words):
                    if words and words not in self._told and len(self._told) < TOLD_MAX:
                        self._told.add(words)
                        log.warning("the broker: %s", words)
                    _succeed(self._publishing.pop(sending, None))
                case PublicationRejected(sending, code, words):
                    topic = sending.publication.topic_utf8.decode()
                    self._unsent(sending, PublishRefused(f"message to {topic}", code, words))
                case PublicationExpired(sending):
                    self._unsent(sending, Expired(sending.publication.topic_utf8.decode()))
                case Subscribed(number):
                    _succeed(self._granting.get(number))
                case SubscriptionRefused(number, topic_filter, code, words):
                    self._refused(number, SubscribeRefused(topic_filter, code, words))
                case Unsubscribed(number):
                    _succeed(self._leaving.pop(number, None))
                    self._ended(number)
                case Connected(session_present, alternatives):
                    self.session_present = session_present
                    self.alternatives = alternatives
                    self.connections += 1
                    self.driver.turned(event)
                case ConnectRefused() | ServerDisconnected() | ConnectionFailed():
                    self.driver.turned(event)
                case _:
                    assert_never(event)
        self._changed()

    def _unsent(self, sending: Sending, error: ClientError) -> None:
        waiter = self._publishing.get(sending)
        if waiter is not None:
            _fail(waiter, error)
            if sending.publication.qos:
                del self._publishing[sending]
        else:
            self.unsent_dropped += 1
            log.warning("%s", error)

    def _refused(self, number: int, error: SubscribeRefused) -> None:
        waiter = self._granting.get(number)
        if waiter is not None:
            _fail(waiter, error)
        inbox = self.inboxes.get(number)
        if inbox is not None:
            inbox.end(error)
        self.inboxes.close(number, keep_unread=False)

    def _ended(self, number: int) -> None:
        inbox = self.inboxes.detach(number)
        if inbox is not None:
            inbox.end()

    def _leave_abandoned(self) -> None:
        while self._abandoned:
            self.leave(self._abandoned.popleft())

    def _outbox_is_full(self) -> bool:
        protocol = self._protocol
        return protocol.waiting >= self._outbox_max or protocol.waiting_bytes >= self._outbox_bytes_max

    def _takes_batch(self) -> bool:
        return self._protocol.is_writable and not self._protocol.waiting

    def _keeps_up(self) -> bool:
        """Whether to read on from the broker (see `inbox.py`)."""
        if not self.inboxes.are_full:
            return True
        protocol = self._protocol
        return bool(protocol.unanswered or protocol.waiting) and self.inboxes.unread_bytes < UNREAD_BYTES_MAX

    def _changed(self) -> None:
        changes, self._changes = self._changes, []
        for change in changes:
            _succeed(change)


def _succeed(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _fail(waiter: "asyncio.Future[None]", error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)
        waiter.exception()  # looked at: nobody has to wait for it
