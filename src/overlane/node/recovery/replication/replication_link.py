"""A replication connection: the greeting of brokers, then frames (`recovery.replication.fragments`).

Both ends are named BROKER@HOST in the greeting, so that two copies of one broker can talk to each other. The identity
is proven as on overlay links: by certificates that name both broker and host, or by the shared secret; on one machine,
or where the file allows it, the name is enough. With certificates the connection is encrypted.

What is sent waits in the transport, up to a limit; where the rate of the line is known (`replication_pace`), here, and
the transport gets it in parts, heartbeats first. A receiver that is further behind than that is disconnected: it dials
again, and gets what it lacks from the log or as a snapshot. Everything that comes is a sign of life, also a part of a
frame, which may take long over a slow line.
"""

import asyncio
import logging
import secrets
from time import monotonic_ns
from typing import Protocol, cast

from overlane.core.units import SECOND
from overlane.errors import ProtocolViolation
from overlane.node.links.greeting import NONCE_BYTES, Credentials, Greeting
from overlane.node.recovery.replication.replication_pace import ReplicationPace
from overlane.recovery.hosts.questions import Message, encode_message
from overlane.recovery.replication.fragments import Reassembly, Waiting, whole

GREETING_S = 5.0
ROOM_BYTES = 1 << 20
"""So much may wait in the transport before a snapshot waits for it to be sent."""

log = logging.getLogger("overlane.recovery")


class LinkOwner(Protocol):
    def credentials(self, transport: asyncio.Transport) -> Credentials: ...

    def opened(self, link: "ReplicationLink") -> ReplicationPace | None:
        """The greeting has come to its end: `link.peer` is who it says. How it is paced."""

    def heard(self, link: "ReplicationLink", size: int) -> None:
        """So many bytes have come."""

    def sent_bytes(self, size: int) -> None:
        """So many are sent."""

    def received(self, link: "ReplicationLink", message: Message) -> None: ...

    def closed(self, link: "ReplicationLink") -> None:
        """It was open, and is not any more."""


class ReplicationLink(asyncio.Protocol):
    """`dials`: BROKER@HOST where we dial, "" where we are dialled."""

    def __init__(self, owner: LinkOwner, buffer_bytes_max: int, dials: str = "") -> None:
        self.peer = dials
        self.is_dialled_by_us = bool(dials)
        self.is_open = False
        self.settled = asyncio.Event()
        """Set when the greeting has come to its end, one way or another."""
        self._owner = owner
        self._buffer_bytes_max = buffer_bytes_max
        self._transport: asyncio.Transport | None = None
        self._greeting: Greeting | None = None
        self._late: asyncio.TimerHandle | None = None
        self._reassembly = Reassembly()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_paused = False
        """Whether the transport is full."""
        self._pace: ReplicationPace | None = None
        self._waiting: Waiting | None = None
        """What the pace does not allow yet."""
        self._pumping: asyncio.TimerHandle | None = None

    # Sending

    def send(self, message: Message) -> bool:
        """False where the connection is closed, or the other end is too far behind."""
        transport = self._transport
        if not self.is_open or transport is None or transport.is_closing():
            return False
        before_bytes = self._buffered_bytes()
        if self._pace is None or self._waiting is None:
            data = whole(encode_message(message))
            self._owner.sent_bytes(len(data))
            transport.write(data)
        else:
            self._waiting.add(message)
            if self._pumping is None:
                self._pump(self._pace, self._waiting)
        if before_bytes > self._buffer_bytes_max:
            log.warning("%s is too slow: disconnected", self.peer)
            self.close()
            return False
        return True

    def _buffered_bytes(self) -> int:
        assert self._transport is not None
        return self._transport.get_write_buffer_size() + (0 if self._waiting is None else self._waiting.size_bytes)

    def _pump(self, pace: ReplicationPace, waiting: Waiting) -> None:
        """Give the transport what the line takes now, and wait for more room."""
        self._pumping = None
        while waiting.size_bytes and self._transport is not None:
            now = monotonic_ns()
            size = pace.part_bytes(now)
            if not size:
                pause_s = max(0, pace.next_room - now) / SECOND
                self._pumping = asyncio.get_running_loop().call_later(pause_s, self._pump, pace, waiting)
                break
            data = waiting.take(size)
            self._transport.write(data)
            self._owner.sent_bytes(len(data))
            pace.sent(len(data), now)
        if waiting.size_bytes > pace.room_bytes_max:
            self._has_room.clear()
        elif not self._is_paused:
            self._has_room.set()

    async def send_slowly(self, message: Message) -> bool:
        await self._has_room.wait()
        return self.send(message)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has all of it, but is no subclass
        self._transport.set_write_buffer_limits(ROOM_BYTES)
        credentials = self._owner.credentials(self._transport)
        self._greeting = Greeting(credentials, secrets.token_bytes(NONCE_BYTES), self.peer)
        self._late = asyncio.get_running_loop().call_later(GREETING_S, self.close)
        self._transport.write(self._greeting.opening())

    def data_received(self, data: bytes) -> None:
        try:
            if self._greeting is not None:
                data = self._greet(self._greeting, data)
            if self.is_open:
                self._owner.heard(self, len(data))
                for message in self._reassembly.receive(data):
                    if self.is_open:
                        self._owner.received(self, message)
        except ProtocolViolation as violation:
            log.warning("replication with %s: %s", self.peer or "somebody", violation)
            self.close()

    def pause_writing(self) -> None:
        self._is_paused = True
        self._has_room.clear()

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._pace is None or self._waiting is None or self._waiting.size_bytes <= self._pace.room_bytes_max:
            self._has_room.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        was_open, self.is_open, self._transport = self.is_open, False, None
        for timer in (self._late, self._pumping):
            if timer is not None:
                timer.cancel()
        if self._waiting is not None:
            self._waiting.clear()
        self._has_room.set()
        self.settled.set()
        if was_open:
            self._owner.closed(self)

    # What comes

    def _greet(self, greeting: Greeting, data: bytes) -> bytes:
        assert self._transport is not None
        answer, rest = greeting.receive(data)
        if answer:
            self._transport.write(answer)
        if greeting.is_done:
            self._greeting = None
            if self._late is not None:
                self._late.cancel()
            self.peer = greeting.peer
            self.is_open = True
            self._pace = self._owner.opened(self)
            self._waiting = None if self._pace is None else Waiting(self._pace.room_bytes_max)
            self.settled.set()
        return rest
