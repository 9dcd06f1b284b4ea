"""The connection of a client: its transport, and what waits to be sent on it.

The packets of a turn for a client are sent at the end of the turn or, if they depend on records, when those are on
disk. The order is kept: packets that need not wait are sent after earlier ones that must.

Reading is paused while the client itself does not read, while much waits for the disk, and while more has been read
than one turn handles, of this client or of all. While the client must pause because it publishes too fast, or its
messages have no room on the way to other brokers, it is read ahead: its acknowledgements are handled, everything else
waits. Reading is paused when much waits.

A connection that the broker ends is half closed and read to its end (`lingering`), so that the client receives the
reason.
"""

from collections.abc import Callable
from typing import Protocol

from overlane.core.units import NEVER, SECOND, Nanos
from overlane.pubsub.contract.connection import ClientConnection
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.protocol import AnyServer
from overlane.pubsub.contract.questions import LoginVerdict
from overlane.pubsub.publishing.backpressure import PATIENCE
from overlane.pubsub.sessions.lookup import Found
from overlane.turn.backpressure import Backpressure
from overlane.turn.lingering import Drain, Lingering
from overlane.turn.timers import LoopTimer, LoopTimers

WRITE_HIGH_BYTES = 256 * 1024
WRITE_LOW_BYTES = 64 * 1024
PACKETS_A_TURN = 64
"""Of one client. Each may take a tenth of a millisecond: a read full of small ones would make all others wait."""
HELD_BYTES_MAX = 1 << 20
"""What may wait for the disk before nothing more is read from the client, as all answers would have to wait too."""
READ_AHEAD_BYTES = 16 * 1024
"""What of a client that has to rest, or to stop, may wait before nothing more is read from it."""
LINGER_S = 5.0
"""Time limit for the last packets of a connection that is being closed, including the wait for the disk."""


class Pipe(Protocol):
    """What carries the bytes: a TCP or TLS transport, or a WebSocket upon one."""

    def write(self, data: bytes) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def can_write_eof(self) -> bool: ...
    def write_eof(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class _Held:
    """What waits for one batch of records."""

    __slots__ = ("acks", "chunks")

    def __init__(self, chunks: list[bytes], acks: int) -> None:
        self.chunks = chunks
        self.acks = acks
        """How many acknowledgements are in it."""


class ClientLink:
    """Between one pipe and the server of the client's protocol. `end_turn_soon` asks the driver to end the turn."""

    __slots__ = (
        "_backpressure",
        "_drain",
        "_end_turn_soon",
        "_failed",
        "_held",
        "_held_bytes",
        "_is_closing",
        "_is_full",
        "_is_lingering",
        "_is_resting",
        "_is_waiting",
        "_lingering",
        "_now",
        "_pipe",
        "_server",
        "_stop",
        "_timers",
        "connection",
    )

    def __init__(
        self,
        timers: LoopTimers,
        server: AnyServer,
        now: Callable[[], Nanos],
        end_turn_soon: Callable[[], None],
        pipe: Pipe,
        peer: Peer,
        since_ns: Nanos,
        backpressure: Backpressure | None = None,
        failed: "Callable[[ClientLink, Exception], None] | None" = None,
        lingering: Lingering | None = None,
        is_turned_away: bool = False,
    ) -> None:
        """`backpressure`: the driver's lines of those that wait for room on the way.

        `failed` gets what the server has raised: a fault of ours, which is to harm this client alone. `is_turned_away`:
        it may introduce itself, to be told that too many connect at once.
        """
        self._timers = timers
        self._server = server
        self._now = now
        self._end_turn_soon = end_turn_soon
        self._failed = failed or _raise
        self._pipe = pipe
        self._held: list[_Held] | None = None
        """What waits for the store, by batches of records; None if nothing does, as with most clients."""
        self._held_bytes = 0
        self._is_full = False
        self._is_waiting = False
        self._is_resting = False
        self._stop: LoopTimer | None = None
        """Ends a stop for want of room on the way; None while there is no stop."""
        self._backpressure = backpressure or Backpressure(server.state.uplink)
        self._is_lingering = False
        self._lingering = Lingering(timers) if lingering is None else lingering
        self._drain: Drain | None = None
        self._is_closing = False
        self.connection: ClientConnection = server.connected(peer, now(), since_ns, is_turned_away)
        self.connection.driver = self
        end_turn_soon()

    @property
    def pipe(self) -> Pipe:
        return self._pipe

    # From the pipe

    def received(self, data: bytes, is_more: bool = False) -> None:
        """`is_more`: more has come than was read. It waits for the next turn, or one client could fill them all."""
        if self._is_closing:
            if self._drain is not None:
                self._drain.discard(len(data))
            return
        now = self._now()
        if self._is_resting or self._stop is not None:
            self._read_ahead(data, now)
            self._end_turn_soon()
            return
        if now > self._backpressure.turn_until_ns and self._server.receive_later(self.connection, data, now):
            self._pipe.pause_reading()
            self._timers.call_soon(self._go_on)
            return
        try:
            self._server.receive(self.connection, data, now, PACKETS_A_TURN)
        except Exception as error:
            self._failed(self, error)
        self._heard(is_more, now)

    def authenticated(self, verdict: LoginVerdict, user: str = "") -> None:
        """What was found out about the client, and which user it is."""
        now = self._now()
        try:
            self._server.authenticated(self.connection, verdict, now, PACKETS_A_TURN, user)
        except Exception as error:
            self._failed(self, error)
        self._heard(False, now)

    def placed(self, found: Found) -> None:
        """Which broker has the session, or is to have it."""
        now = self._now()
        try:
            self._server.placed(self.connection, found, now, PACKETS_A_TURN)
        except Exception as error:
            self._failed(self, error)
        self._heard(False, now)

    def _heard(self, is_more: bool, now: Nanos) -> None:
        connection = self.connection
        if connection.stops_for is not None and self._stop is None:
            self._backpressure.wait(self, now)
            self._stop_for(connection.stops_until_ns - now)
            self._read_ahead(b"", now)
        if connection.rests_until_ns > now and not self._is_resting:
            self._rest(connection.rests_until_ns - now)
            self._read_ahead(b"", now)
        elif self._stop is not None:
            pass
        elif (is_more or connection.is_behind) and not (self._is_resting or self._is_full or self._is_waiting):
            self._pipe.pause_reading()
            self._timers.call_soon(self._go_on)
        self._end_turn_soon()

    def _read_ahead(self, data: bytes, now: Nanos) -> None:
        """It rests, or has to stop: only its acknowledgements are handled. Where many have to stop, nothing more is
        read of those who have said something."""
        has_more = False
        try:
            has_more = self._server.receive_ahead(self.connection, data, now, PACKETS_A_TURN)
        except Exception as error:
            self._failed(self, error)
        if has_more:
            self._pipe.pause_reading()
            self._timers.call_soon(self._go_on)
        elif not self._may_read_ahead():
            self.connection.unanswerable_until_ns = NEVER
            self._pipe.pause_reading()

    def _read_on_ahead(self) -> None:
        """Handle its remaining acknowledgements, or read more."""
        if self.connection.has_acknowledgements_ahead:
            self._read_ahead(b"", self._now())
            self._end_turn_soon()
        elif self._may_read_ahead():
            self._pipe.resume_reading()

    def _may_read_ahead(self) -> bool:
        return self.connection.waiting_bytes <= (0 if self._backpressure.reads_little else READ_AHEAD_BYTES)

    def full(self) -> None:
        """The client does not read: nothing more is read from it, so that it causes no more output."""
        self._is_full = True
        self._pipe.pause_reading()

    def drained(self) -> None:
        self._is_full = False
        self.connection.unsent_bytes = self._unsent_bytes()
        self._go_on()
        self._writable()

    def _writable(self) -> None:
        try:
            self._server.writable(self.connection, self._now())
        except Exception as error:
            self._failed(self, error)
        self._end_turn_soon()

    def go(self) -> None:
        """What the client publishes finds room on its way again."""
        now = self._now()
        self._end_stop()
        self.connection.stops_for = None
        self.connection.stops_until_ns = now
        self._listen_again(now)

    def _listen_again(self, now: Nanos) -> None:
        """It need not rest any more, or not stop."""
        if self.connection.unanswerable_until_ns == NEVER and not self._is_resting and self._stop is None:
            self.connection.unanswerable_until_ns = now
        self._go_on()

    def _stop_for(self, patience_ns: Nanos) -> None:
        self._stop = self._timers.call_later(max(0, patience_ns) / SECOND, self._lose_patience)

    def _lose_patience(self) -> None:
        """The wait is over. If its link makes progress it waits on; if not, its input is accepted."""
        now = self._now()
        if self._backpressure.wait_on(self, now):
            self.connection.stops_until_ns = now + PATIENCE
            self._stop_for(PATIENCE)
        else:
            self.connection.passes = True
            self.go()

    def _end_stop(self) -> None:
        if self._stop is not None:
            self._stop.cancel()
            self._stop = None
        self._backpressure.leave(self)

    def lost(self) -> None:
        self._end_stop()
        if self._drain is not None:
            self._drain.cancel()
        self._held = None
        self._held_bytes = 0
        self._is_closing = True
        try:
            self._server.lost(self.connection, self._now())
        except Exception as error:
            self._failed(self, error)
        self._end_turn_soon()

    def break_off(self) -> None:
        """Close without sending the remaining data, which cannot be sent."""
        self._is_closing = True
        self._pipe.abort()

    # From the driver

    def end_for_failure(self, kind: str, error: Exception) -> None:
        """Send the client an internal error, and close its connection."""
        self._server.failed(self.connection, kind, error)

    def send(self, chunks: list[bytes], waits: bool) -> None:
        """At the end of a turn. If it waits, `release` will be called when its records are on disk."""
        if waits:
            if self._held is None:
                self._held = []
            self._held.append(_Held(chunks, self._acks()))
            self._held_bytes += sum(map(len, chunks))
        elif self._held:
            self._held[-1].chunks += chunks
            self._held[-1].acks += self._acks()
            self._held_bytes += sum(map(len, chunks))
        elif not self._is_closing:
            self._write(chunks)
        self._sent()
        if self._held_bytes > HELD_BYTES_MAX and not self._is_waiting:
            self._is_waiting = True
            self._pipe.pause_reading()

    def release(self) -> None:
        """The records that the first held packets waited for are on disk."""
        if self._held:
            first = self._held.pop(0)
            self._held = self._held or None
            self.connection.acks_held -= first.acks
            if self.connection.greeted_ns == NEVER:
                self.connection.greeted_ns = self._now()
            self._held_bytes -= sum(map(len, first.chunks))
            if not self._is_closing:
                self._write(first.chunks)
            self._sent()
        if self._is_waiting and self._held_bytes <= HELD_BYTES_MAX:
            self._is_waiting = False
            self._go_on()

    def _acks(self) -> int:
        """The number of them in the held data."""
        self.connection.acks_held += self.connection.acks_taken
        return self.connection.acks_taken

    def _write(self, chunks: list[bytes]) -> None:
        if chunks:
            self._pipe.write(chunks[0] if len(chunks) == 1 else b"".join(chunks))

    def _sent(self) -> None:
        self.connection.unsent_bytes = self._unsent_bytes()
        if self.connection.closing is not None:
            self._close()
        elif self.connection.has_more_to_say:
            self._timers.call_soon(self._say_more)

    def _close(self) -> None:
        if not self._is_lingering:
            self._is_lingering = True
            self._timers.call_later(LINGER_S, self._pipe.abort)
        if not self._held and not self._is_closing:
            self._is_closing = True
            if self.connection.is_stranger:
                self._pipe.close()  # it was told nothing
            else:
                self._drain = self._lingering.begin(self._pipe)

    def _say_more(self) -> None:
        """There is space again for data that could not be sent."""
        if not self._is_full and not self._is_closing:
            self._writable()

    def _unsent_bytes(self) -> int:
        return self._pipe.get_write_buffer_size() + self._held_bytes

    def _rest(self, rest_ns: Nanos) -> None:
        self._is_resting = True
        self._timers.call_later(rest_ns / SECOND, self._rested)

    def _rested(self) -> None:
        self._is_resting = False
        self._listen_again(self._now())

    def _go_on(self) -> None:
        """Resume reading, if everything that was read has been handled, or if the client may be read ahead."""
        if self._is_full or self._is_waiting or self._is_closing:
            return
        if self._is_resting or self._stop is not None:
            self._read_on_ahead()
            return
        if self.connection.is_behind:
            self.received(b"", is_more=True)
        else:
            self._pipe.resume_reading()


def _raise(_: ClientLink, error: Exception) -> None:
    raise error
