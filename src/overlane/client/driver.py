"""The driver: bytes and time for the protocol, under asyncio.

Bytes from the line go into the protocol, and its bytes go to the line at the end of the loop's turn, so that what is
said in one turn leaves in one write. One timer is kept armed. Lines come and go (`connecting.py` makes them); what
the protocol knows stays. All events go to `handle`.
"""

import asyncio
from collections.abc import Callable

from overlane.client.clocks import now_ns
from overlane.client.errors import ConnectionRefused
from overlane.client.line import Line
from overlane.client.protocol import Broken, Connected, Dismissed, Event, Protocol, Refused
from overlane.core.units import NEVER, SECOND, Nanos

FLUSH_BYTES = 64 * 1024
"""Gathered bytes are written before the turn ends when they are this many."""
LINGER_S = 1.0
"""How long the last bytes have to get across."""

Parting = Dismissed | Broken | str
"""Why a connection is over; a string if the line itself broke."""


class Driver:
    def __init__(self, protocol: Protocol, handle: Callable[[list[Event]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._handle = handle
        self._line: Line | None = None
        self._greeting: asyncio.Future[None] | None = None
        self._parted: asyncio.Future[Parting] | None = None
        self._out_bytes = 0
        self._flush_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Nanos = NEVER
        self.wants_reading: Callable[[], bool] = lambda: True
        """Whether the application keeps up with what arrives."""

    # Lines

    async def greet(self, line: Line) -> None:
        """Introduce ourselves on a new line; returns when the broker has accepted."""
        self._line = line
        self._greeting = self._loop.create_future()
        self._parted = self._loop.create_future()
        self._protocol.opened()
        self.flush()
        await self._greeting

    async def parting(self) -> Parting:
        """Until the connection that was made last is over."""
        if self._parted is None:
            raise AssertionError("no connection was made")
        return await asyncio.shield(self._parted)

    def drop_line(self) -> None:
        """Nothing more is to be heard on it. What has been said has a moment to get across."""
        if self._line is not None:
            self._line.close()
            self._loop.call_later(LINGER_S, self._line.abort)
            self.lost(self._line, "given up")

    def take_leave(self, end_session: bool) -> Line | None:
        """Say goodbye; the line that is to be closed."""
        self.flush()
        self._protocol.disconnect(end_session)
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
        return self._line

    def turned(self, event: Connected | Refused | Dismissed | Broken) -> None:
        """An event of the protocol about the connection itself."""
        match event:
            case Connected():
                if self._greeting is not None and not self._greeting.done():
                    self._greeting.set_result(None)
            case Refused(code, words):
                self._greet_in_vain(ConnectionRefused("connection", code, words))
            case Dismissed() | Broken():
                self._part(event)

    # What the line tells

    def received(self, line: Line, data: bytes) -> None:
        if line is self._line:
            self._handle(self._protocol.receive(data, now_ns()))
            self.flush()
            self.regulate()

    def writable(self, line: Line, writable: bool) -> None:
        if line is self._line:
            self._handle(self._protocol.writable(writable, now_ns()))
            self.flush()

    def lost(self, line: Line, reason: str) -> None:
        if line is self._line:
            self._line = None
            self._protocol.lost()
            self._part(reason)

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
        if out and self._line is not None:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self._protocol.sent(now_ns())
            self._line.write(data)
            self.regulate()
        self._arm()

    def regulate(self) -> None:
        """Read from the line, or stop reading."""
        if self._line is not None:
            reading = not self._protocol.online or self.wants_reading()
            if self._line.read_on(reading):
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
        self._greet_in_vain(OSError(parting.reason if isinstance(parting, Broken) else str(parting)))
        if self._parted is not None and not self._parted.done():
            self._parted.set_result(parting)

    def _greet_in_vain(self, error: Exception) -> None:
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(error)
            self._greeting.exception()  # looked at: whoever waited may have given up
