"""The driver of the protocol under asyncio: moves bytes, and provides the time.

Received bytes go into the protocol. Its bytes for the broker are written at the end of an iteration of the event loop,
in one write. One timer is kept armed. Connections come and go (`connecting.py` opens them); the state of the protocol
remains. All events go to `handle`.
"""

import asyncio
from collections.abc import Callable

from overlane.client.clocks import now_ns
from overlane.client.connection import BrokerConnection
from overlane.client.errors import ConnectionRefused
from overlane.client.protocol import Connected, ConnectionFailed, ConnectRefused, Event, Protocol, ServerDisconnected
from overlane.core.units import NEVER, SECOND, Nanos

FLUSH_BYTES = 64 * 1024
"""Gathered bytes are written before the turn ends when they are this many."""
LINGER_S = 1.0
"""How long the last bytes have to get across."""

Parting = ServerDisconnected | ConnectionFailed | str
"""Why a connection is over; a string if the connection itself broke."""


class Driver:
    def __init__(self, protocol: Protocol, handle: Callable[[list[Event]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._handle = handle
        self._connection: BrokerConnection | None = None
        self._greeting: asyncio.Future[None] | None = None
        self._parted: asyncio.Future[Parting] | None = None
        self._out_bytes = 0
        self._flush_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Nanos = NEVER
        self.wants_reading: Callable[[], bool] = lambda: True
        """Whether the application keeps up with what arrives."""

    # Connections

    async def greet(self, connection: BrokerConnection, *, is_redirected: bool = True) -> None:
        """Send CONNECT on a new connection; returns when the broker has accepted."""
        self._connection = connection
        self._greeting = self._loop.create_future()
        self._parted = self._loop.create_future()
        self._protocol.opened(is_redirected=is_redirected)
        self.flush()
        await self._greeting

    async def parting(self) -> Parting:
        """Waits until the latest connection has ended."""
        if self._parted is None:
            raise AssertionError("no connection was made")
        return await asyncio.shield(self._parted)

    def drop_connection(self) -> None:
        """Stop using the connection. Written bytes have LINGER_S to be sent."""
        if self._connection is not None:
            self._connection.close()
            self._loop.call_later(LINGER_S, self._connection.abort)
            self.lost(self._connection, "given up")

    def take_leave(self, end_session: bool) -> BrokerConnection | None:
        """Send DISCONNECT; returns the connection to be closed."""
        self.flush()
        self._protocol.disconnect(end_session)
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
        return self._connection

    def turned(self, event: Connected | ConnectRefused | ServerDisconnected | ConnectionFailed) -> None:
        """An event of the protocol about the connection itself."""
        match event:
            case Connected():
                if self._greeting is not None and not self._greeting.done():
                    self._greeting.set_result(None)
            case ConnectRefused(code, words, reference):
                self._greet_in_vain(ConnectionRefused("connection", code, words, reference))
            case ServerDisconnected() | ConnectionFailed():
                self._part(event)

    # Called by the connection

    def received(self, connection: BrokerConnection, data: bytes) -> None:
        if connection is self._connection:
            self._handle(self._protocol.receive(data, now_ns()))
            self.flush()
            self.regulate()

    def writable(self, connection: BrokerConnection, writable: bool) -> None:
        if connection is self._connection:
            self._handle(self._protocol.writable(writable, now_ns()))
            self.flush()

    def lost(self, connection: BrokerConnection, reason: str) -> None:
        if connection is self._connection:
            self._connection = None
            self._protocol.lost()
            self._part(reason)
            self._handle([])

    # Bytes and time

    def flush_soon(self) -> bool:
        """Flush at the end of the loop's turn, or now if there is much. True if it was now."""
        if self._flush_handle is None:
            self._flush_handle = self._loop.call_soon(self.flush)
            self._out_bytes = 0
        out = self._protocol.out
        if out:
            self._out_bytes += len(out[-1])
            if self._out_bytes >= FLUSH_BYTES:
                self.flush()
                return True
        return False

    def flush(self) -> None:
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        out = self._protocol.out
        if out and self._connection is not None:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self._protocol.sent(now_ns())
            self._connection.write(data)
            self.regulate()
        self._arm()

    def regulate(self) -> None:
        """Read from the connection, or stop reading."""
        if self._connection is not None:
            reading = not self._protocol.online or self.wants_reading()
            if self._connection.read_on(reading):
                self._protocol.listening(reading, now_ns())

    def _arm(self) -> None:
        at = self._protocol.next_deadline
        if at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._loop.call_later(max(0, at - now_ns()) / SECOND, self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_at = None, NEVER
        self._handle(self._protocol.tick(now_ns()))
        self.flush()

    def _part(self, parting: Parting) -> None:
        self._greet_in_vain(OSError(parting.reason if isinstance(parting, ConnectionFailed) else str(parting)))
        if self._parted is not None and not self._parted.done():
            self._parted.set_result(parting)

    def _greet_in_vain(self, error: Exception) -> None:
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(error)
            self._greeting.exception()  # looked at: whoever waited may have given up
