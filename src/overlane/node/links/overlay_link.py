"""A connection to a neighbour: greeting, then frames of the core in both directions.

Little data is handed to the kernel in advance, so that the core can decide the order until the last moment.
TCP_NOTSENT_LOWAT limits what the kernel accepts beyond what it can send. More is pulled from the core only when the
transport is empty and, if the rate of the line is known, no sooner than the line can take it (`pacing`). On an emulated
link, data arrives when the emulation says.

If both ends have offered them, datagrams are used in addition to the connection (`datagrams.link`): for probes,
answers, and parcels with a deadline, if they fit and the path takes them. They are sent even while the connection is
blocked. They must not make a connection look alive that transfers nothing: from time to time one of them is sent over
the connection, and if only datagrams arrive, the connection is closed.

A link with several paths (`multipath.paths`) survives the connection: the stream continues over another one, which
takes a path that works (`streams.movable_transport`, `streams.move`).
"""

import asyncio
import logging
import secrets
from collections import deque
from typing import cast

from overlane.core.events import Lane
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire.frame_codec import is_urgent
from overlane.errors import ProtocolViolation
from overlane.membership.endpoint import Endpoint
from overlane.node.links.datagrams.link import DatagramLink
from overlane.node.links.emulation import Emulation
from overlane.node.links.greeting import CLIENT, NONCE_BYTES, Greeting
from overlane.node.links.link_host import LinkHost
from overlane.node.links.marking import mark
from overlane.node.links.multipath.paths import DatagramPaths
from overlane.node.links.pacing import Pace
from overlane.node.links.reading import READ_SLOWLY_BYTES, Reading
from overlane.node.links.streams.meter import LOOK_AGAIN_NS, StreamMeter
from overlane.node.links.streams.movable_transport import MovableTransport
from overlane.node.links.streams.tcp import NOTSENT_BYTES, STUCK_MS, tune

GREETING_S = 5.0
PULL_BYTES = 64 * 1024
PULL_SECURE_BYTES = 16 * 1024
"""With TLS what was pulled waits twice, encrypted and not, when the line takes no more: it is to be little."""
READ_BYTES = 64 * 1024
EMULATED_AHEAD_NS: Nanos = 2 * MS
"""An emulated link takes more only when it has less than this left to send."""

TELL_EVERY: Nanos = 2 * SECOND
"""A connection over which nothing was sent for so long gets a copy of what goes beside it."""
ALONE_MAX: Nanos = STUCK_MS * MS
"""How long datagrams may come without anything over the connection."""

URGENT_BYTES = 8 * 1024  # pulled at once for datagrams alone
BEHIND_BYTES_MAX = 64 * 1024
"""What is urgent but too large for a datagram may join so much that waits for the connection."""

_DATA = Lane.DATA
_buffer = memoryview(bytearray(READ_BYTES))
"""All links read into it: nothing stays in it between reads."""

log = logging.getLogger("overlane.link")


class OverlayLink(asyncio.BufferedProtocol):
    """`dials`: the neighbour's name where we dial, "" where we are dialled."""

    def __init__(self, host: LinkHost, dials: str = "", dialled_at: Endpoint | None = None, moves: bytes = b"") -> None:
        self.dialled_at = dialled_at
        """The address, if we have dialled."""
        self._moves = moves
        """The id of the link that this connection is to continue, if we have dialled for that."""
        self.id = b""
        """Of the link: both ends know it, and nobody else."""
        self._greeting_bytes = 0
        """Received before the stream began."""
        self._host = host
        self._dials = dials
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._greeting: Greeting | None = None
        self._is_full = False
        self._pull_bytes = PULL_BYTES
        self._late: asyncio.TimerHandle | None = None
        self._emulation: Emulation | None = None
        self._under_way: deque[tuple[Nanos, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Nanos = 0
        self.reading = Reading(host, self)
        self._why = "closed by the neighbour"
        self.pace: Pace | None = None
        self.datagrams: DatagramLink | DatagramPaths | None = None
        self._meter = StreamMeter()
        self._told_ns: Nanos = 0
        """When something was last sent over the connection."""
        self._alone_from: Nanos = NEVER
        """Since when datagrams come, and nothing over the connection."""
        self.peer = dials
        self.instance = 0
        self.is_up = False
        self.opened_ns: Nanos = 0
        self.address = ""
        self._bytes_in = self._bytes_out = 0
        self.settled = asyncio.Event()
        """Set when the greeting has come to an end, one way or another."""

    @property
    def bytes_in(self) -> int:
        return self._bytes_in + (self.datagrams.bytes_in if self.datagrams is not None else 0)

    @property
    def bytes_out(self) -> int:
        return self._bytes_out + (self.datagrams.bytes_out if self.datagrams is not None else 0)

    @property
    def transport(self) -> asyncio.Transport | None:
        return self._transport

    @property
    def is_broken(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def has_tls(self) -> bool:
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    @property
    def was_dialled_by_us(self) -> bool:
        return bool(self._dials)

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Not 0 and 0: with TLS an empty buffer would be a full one, until something comes from the neighbour.
        self._transport.set_write_buffer_limits(1, 0)
        if self._transport.get_extra_info("ssl_object") is not None:
            self._pull_bytes = PULL_SECURE_BYTES
        tune(self._transport.get_extra_info("socket"))
        address = self._transport.get_extra_info("peername") or ("?", 0)
        self.address = f"{address[0]}:{address[1]}"
        self.opened_ns = self._host.now()
        credentials = self._host.credentials(self._transport)
        offer = None if self._moves else self._host.offer(self._transport)
        self._greeting = Greeting(credentials, secrets.token_bytes(NONCE_BYTES), self._dials, offer, self._moves)
        self._late = self._loop.call_later(GREETING_S, self.close, "no greeting was received")
        self._transport.write(self._greeting.opening())

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return _buffer[:READ_SLOWLY_BYTES] if self.reading.is_slow else _buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(_buffer[:nbytes])
        self._bytes_in += nbytes
        self._alone_from = NEVER
        try:
            self.reading.after_read(nbytes)
            if self._greeting is not None:
                data = self._greet(self._greeting, data)
            if data and self.is_up:
                self._host.received(self, data)
        except Exception as error:
            self._host.failed(self, error)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self.pump()
        self._host.sent()

    @property
    def stream_in(self) -> int:
        """Bytes of the stream that have come, over this connection and those that it continues."""
        return self._bytes_in - self._greeting_bytes

    def make_movable(self) -> MovableTransport | None:
        """Let the stream continue over another connection when the path of this one fails; None where it cannot."""
        if isinstance(self._transport, MovableTransport):
            return self._transport
        if self._transport is None or self._transport.is_closing() or self._emulation is not None:
            return None
        self._transport = MovableTransport(self._transport, self._bytes_out)
        return self._transport

    def moved(self, transport: asyncio.Transport, peer_has: int, data: bytes) -> None:
        """The stream continues over this connection; the neighbour has so much of it, and this came already."""
        movable = self._transport
        if not isinstance(movable, MovableTransport) or not movable.resume(transport, self, peer_has):
            transport.abort()
            self.close("the connection cannot be continued: what is missing is not kept")
            return
        address = transport.get_extra_info("peername") or ("?", 0)
        self.address = f"{address[0]}:{address[1]}"
        self.marked(self._host.dscp(self.peer))
        self._alone_from = NEVER
        self._bytes_in += len(data)
        if data:
            self._host.received(self, data)
        self.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.datagrams is not None and self.is_up and self.datagrams.keeps_link(exc):
            return
        for timer in (self._late, self._timer):
            if timer is not None:
                timer.cancel()
        self.reading.end()
        self._end_datagrams()
        self._transport = None
        self.settled.set()
        self._host.lost(self, str(exc) if exc is not None else self._why)

    def close(self, why: str, last_words: bytes = b"") -> None:
        self._why = why
        self.is_up = False  # or it would take what the core has for the connection that follows
        self._end_datagrams()
        if self._transport is not None:
            if last_words and not self._is_full and self._emulation is None:
                self._transport.write(self._meter.take_rest() + last_words)
            self._transport.close()
            self._loop.call_later(1.0, self._abort)

    def _end_datagrams(self) -> None:
        if self.datagrams is not None:
            self.datagrams.close()
            # What was counted must not grow less while the connection is being closed.
            self._bytes_in, self._bytes_out = self.bytes_in, self.bytes_out
            self.datagrams = None

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Greeting

    def _greet(self, greeting: Greeting, data: bytes) -> bytes:
        """What lies behind the greeting."""
        try:
            answer, rest = greeting.receive(data)
        except ProtocolViolation as violation:
            log.warning("%s: %s", self.address, violation.reason)
            self.close(violation.reason)
            return b""
        if answer and self._transport is not None:
            self._transport.write(answer)
        if not greeting.is_done:
            return b""
        self._greeting = None
        if self._late is not None:
            self._late.cancel()
        self.peer, self.instance = greeting.peer, greeting.instance
        self._greeting_bytes = self._bytes_in - len(rest)
        if greeting.moves and (transport := self._transport) is not None:
            self._transport = None
            self._host.moves(self, greeting.moves, transport, rest)
            self.settled.set()
            return b""
        self.id = greeting.link_id
        if greeting.purpose == CLIENT:
            self._hand_over(rest)
            return b""
        self._emulation = self._host.emulation(self.peer)
        self.pace = self._host.pace(self.peer)
        self.is_up = self._host.greeted(self)
        if self.is_up and self._transport is not None and (session := greeting.session) is not None:
            self.datagrams = self._host.datagrams(self, session, self._transport)
        if self.is_up and (dscp := self._host.dscp(self.peer)):
            self.marked(dscp)
        self.settled.set()
        return rest

    def _hand_over(self, rest: bytes) -> None:
        """It is no link, but the connection of a client that the neighbour passes on."""
        transport = self._transport
        self.settled.set()
        if transport is None:
            return
        if self._host.passed_in(self, transport, rest):
            self._transport = None
        else:
            self.close("clients of this neighbour are not taken here")

    def heard_beside(self) -> bool:
        """A datagram came. Whether the connection beside it can be believed to work, too; it is closed if not."""
        now = self._host.now()
        if now - self._alone_from > ALONE_MAX:
            self.close("nothing was received over the connection")
            return False
        self._alone_from = min(self._alone_from, now)
        return True

    def emulated(self, emulation: Emulation | None) -> None:
        """The conditions of the link are others from now on."""
        self._emulation = emulation
        if self._meter.rest and self._transport is not None:
            self._transport.write(self._meter.take_rest())
        if self.datagrams is not None:
            self.datagrams.emulation = emulation
        if emulation is None:
            while self._under_way and self._transport is not None:
                self._transport.write(self._under_way.popleft()[1])
        self._arrive()

    def paced(self, pace: Pace | None) -> None:
        """The rate of the line is another from now on."""
        self.pace = pace
        if self.datagrams is not None:
            self.datagrams.pace = pace

    def marked(self, dscp: int) -> None:
        """Packets carry this code point from now on."""
        if self._transport is not None:
            mark(self._transport.get_extra_info("socket"), dscp)
        if self.datagrams is not None:
            self.datagrams.dscp = dscp

    # Sending

    def pump(self) -> None:
        """Send what the core has, as long as it leaves."""
        try:
            if self._emulation is not None:
                self._pump_emulated(self._emulation)
                return
            transport = self._transport
            if transport is None:
                return
            datagrams = self.datagrams
            is_near = datagrams is None or not datagrams.stream_window.is_far
            if is_near and self.pace is None and not self._meter.rest:
                is_empty = self._pump_unmetered(transport, datagrams)
            else:
                is_empty = self._pump_metered(transport)
            if not is_empty and self.datagrams is not None:
                self._pump_urgent(self.datagrams)
        except Exception as error:
            # What was pulled and not sent is like what a broken connection loses.
            self._host.failed(self, error)

    def _pump_unmetered(self, transport: asyncio.Transport, datagrams: DatagramLink | DatagramPaths | None) -> bool:
        """Where nothing but the connection itself tells how much it is to be given; whether it has taken all."""
        bytes_max = self._pull_bytes
        while self.is_up and not self._is_full:
            if datagrams is None:
                data = self._host.pull(self.peer, bytes_max)
                size = pulled_bytes = len(data)
            else:
                data, pulled_bytes = self._pull(bytes_max)
                size = len(data)
                self._meter.under_way_bytes_max += size
            if size:
                self._bytes_out += size
                transport.write(data)
            if pulled_bytes < bytes_max:
                return True
        return False

    def _pump_metered(self, transport: asyncio.Transport) -> bool:
        meter, bytes_max = self._meter, self._pull_bytes
        while self.is_up and not self._is_full:
            if meter.rest and self.datagrams is not None:
                self._pump_urgent(self.datagrams)
            room_bytes = self._room_bytes(transport)
            if not room_bytes:
                return False
            if meter.rest:
                self._write(transport, meter.part(meter.take_rest(), room_bytes, bytes_max))
                continue
            data, pulled_bytes = self._pull(room_bytes)
            if data:
                self._write(transport, data if self.datagrams is None else meter.part(data, room_bytes, bytes_max))
            if pulled_bytes < room_bytes:
                return True
        return False

    def _room_bytes(self, transport: asyncio.Transport) -> int:
        """How much the connection may be given without making what is urgent wait; if nothing, it is asked again."""
        if self.pace is not None:
            return self._paced_bytes(self.pace, self._pull_bytes)
        datagrams = self.datagrams
        if datagrams is None or not datagrams.stream_window.is_far:
            return self._pull_bytes
        now = self._host.now()
        room_bytes = self._meter.room_bytes(datagrams.stream_window, transport, self._pull_bytes, now)
        if not room_bytes:
            self._wake_at(now + LOOK_AGAIN_NS)
        return room_bytes

    def _paced_bytes(self, pace: Pace, bytes_max: int) -> int:
        """How much of that the line takes now; if nothing, there is more when it does."""
        room_bytes = min(pace.room_bytes(self._host.now()), bytes_max)
        if not room_bytes:
            self._wake_at(pace.next_room)
        return room_bytes

    def _write(self, transport: asyncio.Transport, data: bytes) -> None:
        self._bytes_out += len(data)
        self._meter.under_way_bytes_max += len(data)
        transport.write(data)
        if self.pace is not None:
            self.pace.streamed(len(data), self._host.now())

    def _pull(self, bytes_max: int) -> tuple[bytes, int]:
        """What is for the connection, and how many bytes the core had in all."""
        datagrams = self.datagrams
        if datagrams is None or not datagrams.path.is_usable:
            data = self._host.pull(self.peer, bytes_max)
            return data, len(data)
        now = self._host.now()
        chunks = self._host.pull_apart(self.peer, bytes_max, now)
        if len(chunks) == 1 and not is_urgent(data := chunks[0][1]):
            self._told_ns = now
            return data, len(data)
        stream: list[bytes] = []
        pulled_bytes = 0
        for lane, data in chunks:
            pulled_bytes += len(data)
            is_due = now - self._told_ns > TELL_EVERY
            if lane is not _DATA or not datagrams.send(data) or datagrams.is_doubted or is_due:
                stream.append(data)
                self._told_ns = now
        return b"".join(stream), pulled_bytes

    def _pump_urgent(self, datagrams: DatagramLink | DatagramPaths) -> None:
        """The connection takes nothing more; what has a deadline need not wait for it."""
        transport = self._transport
        while self.is_up and transport is not None and datagrams.is_usable and datagrams.find_room():
            if transport.get_write_buffer_size() > BEHIND_BYTES_MAX or self._meter.is_full:
                return
            room_bytes = URGENT_BYTES if self.pace is None else self._paced_bytes(self.pace, URGENT_BYTES)
            if not room_bytes:
                return
            chunks = self._host.pull_urgent(self.peer, room_bytes)
            for _, data in chunks:
                if not datagrams.send(data) or datagrams.is_doubted:
                    self._write_behind(transport, data)
            if not chunks:
                return

    def _write_behind(self, transport: asyncio.Transport, frames: bytes) -> None:
        """Frames that nothing holds up but the rest of one that is on its way."""
        if not self._meter.joins(frames):
            self._write(transport, frames)

    def rescue(self, frames: bytes) -> None:
        """Send over the connection what datagrams may not have brought."""
        if self.is_up and self._transport is not None:
            if self._emulation is None:
                self._write_behind(self._transport, frames)
            else:
                self._send_emulated(frames, self._emulation)

    def _pump_emulated(self, emulation: Emulation) -> None:
        while self.is_up and self._transport is not None and not self._is_full:
            now = self._host.now()
            if emulation.backlog_ns(now) > EMULATED_AHEAD_NS:
                self._wake_at(now + emulation.backlog_ns(now) - EMULATED_AHEAD_NS // 2)
                return
            data, pulled_bytes = self._pull(emulation.bytes_in(EMULATED_AHEAD_NS, NOTSENT_BYTES))
            if not pulled_bytes:
                return
            if data:
                self._send_emulated(data, emulation)

    def _send_emulated(self, data: bytes, emulation: Emulation) -> None:
        self._bytes_out += len(data)
        self._under_way.append((emulation.arrival(len(data), self._host.now()), data))
        self._wake_at(self._under_way[0][0])

    def _wake_at(self, when: Nanos) -> None:
        if self._under_way:
            when = min(when, self._under_way[0][0])
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_later(max(0, when - self._host.now()) / SECOND, self._arrive)

    def _arrive(self) -> None:
        self._timer = None
        now = self._host.now()
        if self._emulation is not None and self._emulation.conditions.is_cut:
            self._under_way.clear()  # the core will notice that nothing passes
        while self._under_way and self._under_way[0][0] <= now and self._transport is not None:
            self._transport.write(self._under_way.popleft()[1])
        if self._under_way:
            self._wake_at(self._under_way[0][0])
        self.pump()
        self._host.sent()
