"""The datagrams of one link to a neighbour: the path, driven by a socket and a timer.

The end that dialled takes the address of the neighbour from its connection. The other end learns it from received
datagrams. If authenticated datagrams come from another address, since a NAT assigns another port or the neighbour is
somewhere else now, it is challenged there, and the address counts when the challenge was answered (RFC 9000, 8.2): a
copy of a datagram that others send from elsewhere diverts nothing. On an emulated link a datagram arrives when the
emulation says, or is lost.
"""

import asyncio
from collections.abc import Callable

from overlane.core.units import MS, NEVER, SECOND, US, Nanos
from overlane.core.wire import frame_codec
from overlane.node.links.datagrams.path import DatagramPath, PathState
from overlane.node.links.datagrams.seal import DATAGRAM_BYTES_MAX, DatagramRefused, Opener, Sealer
from overlane.node.links.datagrams.sockets import Address, DatagramSocket
from overlane.node.links.emulation import Emulation
from overlane.node.links.greeting import DatagramSession
from overlane.node.links.pacing import Pace
from overlane.node.links.streams.window import StreamWindow

CHALLENGE_GAP: Nanos = 100 * MS
"""Another address is challenged no more often than this."""


class DatagramLink:
    """`hear` gets the frames that came; `go_on` is called when the path takes something again; `rescue` gets frames
    that are to be sent over the connection, since the path may have swallowed them; `failed` gets a fault of ours."""

    def __init__(
        self,
        socket: DatagramSocket,
        session: DatagramSession,
        address: Address | None,
        now: Callable[[], Nanos],
        hear: Callable[[bytes], None],
        go_on: Callable[[], None],
        rescue: Callable[[bytes], None],
        *,
        pace: Pace | None,
        emulation: Emulation | None,
        failed: Callable[[Exception], None],
        number: int = 0,
        dscp: int = 0,
    ) -> None:
        self.number = number
        """Of the path, among those of the link."""
        self._socket = socket
        self._session = session
        self._address = address
        self._now = now
        self._hear = hear
        self._go_on = go_on
        self._rescue = rescue
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Nanos = NEVER
        self._is_closed = False
        self._is_held_up = False
        self.pace = pace
        self.emulation = emulation
        self.dscp = dscp
        self.stream_window = StreamWindow()
        """Of the connection beside it."""
        self.sent = self.received = self.bytes_in = self.bytes_out = 0
        self._challenged_at: Address | None = None
        """An address from which something came, and which was challenged."""
        self._may_challenge_ns: Nanos = 0
        self.path = self._make_path()
        socket.enlist(session.ours + number, self._received)
        self._tend()

    def _make_path(self) -> DatagramPath:
        session = self._session
        return DatagramPath(
            Sealer(session.theirs, session.key_out),
            Opener(session.key_in),
            self._now(),
            begins=self._address is not None,
        )

    @property
    def local_host(self) -> str:
        return self._socket.host

    @property
    def port(self) -> int:
        """Of ours."""
        return self._socket.port

    @property
    def remote(self) -> Address | None:
        return self._address

    @property
    def is_usable(self) -> bool:
        return self.path.is_usable

    @property
    def is_doubted(self) -> bool:
        return self.path.state is PathState.DOUBTED

    def find_room(self) -> bool:
        """Whether the largest datagram would be taken."""
        self._is_held_up = not self.path.flight.find_room(DATAGRAM_BYTES_MAX, self._now())
        return not self._is_held_up

    def send(self, chunk: bytes) -> bool:
        """A chunk of the core's DATA lane; False if it has to take the stream."""
        if not frame_codec.is_urgent(chunk):
            return False
        now = self._now()
        if not self.path.takes(len(chunk), now):
            return False
        self._emit(self.path.seal(chunk, now, asks=not frame_codec.is_answer(chunk)), now)
        if frame_codec.carries_parcel(chunk):
            self.stream_window.urgent_sent(now)
        if self.path.next_deadline() < self._timer_at:
            self._arm(now)
        return True

    def close(self) -> None:
        self._is_closed = True
        self._socket.dismiss(self._session.ours + self.number)
        if self._timer is not None:
            self._timer.cancel()

    def _received(self, datagram: bytes, address: Address) -> None:
        try:
            self._take(datagram, address)
        except Exception as error:
            self._failed(error)

    def _take(self, datagram: bytes, address: Address) -> None:
        self.received += 1
        self.bytes_in += len(datagram)
        was_usable = self.is_usable
        flight, now = self.path.flight, self._now()
        measured_before = flight.latest
        try:
            frames, is_newest = self.path.open(datagram, now)
        except DatagramRefused:
            return
        if flight.latest is not measured_before:
            self.stream_window.measured(*flight.latest, flight.least_rtt_ns, now)
        if address != self._address and is_newest:
            self._follow(address, now)
        if self._challenged_at is not None and self.path.confirmed == self.path.challenged:
            self._address, self._challenged_at = self._challenged_at, None
        if frames:
            self._hear(frames)
        if not self._is_closed:
            self._tend()
            if (self.is_usable and not was_usable) or (self._is_held_up and self.find_room()):
                self._go_on()

    def keeps_link(self, _: Exception | None) -> bool:
        """Whether the link goes on although its connection has ended for this reason."""
        return False

    def _follow(self, address: Address, now: Nanos) -> None:
        """The neighbour may be at this address from now on."""
        if self._address is None:
            self._address = address
        elif now >= self._may_challenge_ns:
            self._may_challenge_ns = now + CHALLENGE_GAP
            self._challenged_at = address
            self._send(self.path.challenge(now), address, now)

    def _tend(self) -> None:
        now = self._now()
        if now >= self.path.next_deadline():
            for datagram in self.path.tick(now):
                self._emit(datagram, now)
            for frames, sent_ns in self.path.take_unheard():
                self._rescue(frame_codec.older(frames, (now - sent_ns) // US))
        self._arm(now)

    def _arm(self, now: Nanos) -> None:
        due = self.path.next_deadline()
        if self._timer is not None:
            if now < self._timer_at <= due:
                return  # it comes early enough
            self._timer.cancel()
        self._timer_at = due
        self._timer = None
        if due < NEVER:
            self._timer = self._loop.call_later(max(0, due - now) / SECOND, self._wake)

    def _wake(self) -> None:
        self._timer, self._timer_at = None, NEVER
        try:
            self._tend()
        except Exception as error:
            self._failed(error)

    def _emit(self, datagram: bytes, now: Nanos) -> None:
        if self._address is not None:
            self._send(datagram, self._address, now)

    def _send(self, datagram: bytes, address: Address, now: Nanos) -> None:
        self.sent += 1
        self.bytes_out += len(datagram)
        if self.emulation is None:
            self._socket.send(datagram, address, self.dscp)
            if self.pace is not None:
                self.pace.sent(len(datagram), now)
        elif (arrives_ns := self.emulation.datagram(len(datagram), now)) is not None:
            self._loop.call_later((arrives_ns - now) / SECOND, self._arrive, datagram, address)

    def _arrive(self, datagram: bytes, address: Address) -> None:
        if not self._is_closed:
            self._socket.send(datagram, address, self.dscp)
