"""A client's connection to its broker: two streams of bytes that take time, break, and come in pieces.

Both directions keep their order. Bytes in transit when the connection breaks are lost. Each end detects a break at a
different time, so a client may reconnect before its broker has detected the break. For the broker it is a
`client_link.Pipe`; bytes that arrive while the broker does not read wait.

A silent client neither sends nor reads, nor detects the end of the connection, until the silence ends.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol

from overlane.core.units import MS, NEVER, Nanos
from overlane.sim.engine import Engine
from overlane.sim.random_streams import between, chance
from overlane.sim.whole.contact import Contact

NOTICED_WITHIN: Nanos = 800 * MS


class BrokerEnd(Protocol):
    def received(self, data: bytes, is_more: bool = False) -> None: ...
    def lost(self) -> None: ...


class Wire:
    """`received` and `lost` are the client's end; the broker's is given by `open`. What happens is noted in `contact`.

    `owed`: how many requests of the client have no answer.
    """

    def __init__(
        self,
        engine: Engine,
        luck: Random,
        latency_ns: Nanos,
        contact: Contact,
        received: "Callable[[Wire, bytes], None]",
        lost: "Callable[[Wire], None]",
        owed: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._luck = luck
        self._latency_ns = latency_ns
        self.contact = contact
        self._received = received
        self._lost = lost
        self._owed = owed
        self._broker: BrokerEnd | None = None
        self._is_broken = False
        self._is_read = True
        self._unread: deque[tuple[bytes, bool]] = deque()
        """Bytes that the broker has not taken yet, and whether DISCONNECT ends with them."""
        self._is_silent = False
        self._held_up: list[tuple[bytes, bool]] = []
        self._held_down: list[bytes] = []
        self._has_lost = False
        """Whether the client has yet to learn that the connection has ended."""
        self._up_until: Nanos = engine.now
        self._down_until: Nanos = engine.now
        self._unsent_bytes = 0

    def open(self, broker: BrokerEnd) -> None:
        self._broker = broker

    # The client's end

    def send(self, data: bytes, is_goodbye: bool = False) -> None:
        """Perhaps in two pieces: a packet need not come whole."""
        if self._is_silent:
            self._held_up.append((data, is_goodbye))
            return
        cut = between(self._luck, 1, len(data)) if chance(self._luck, 0.2) else len(data)
        for piece, is_last in ((data[:cut], cut == len(data)), (data[cut:], True)):
            if piece and not self._is_broken:
                delay = self._latency_ns + between(self._luck, 0, self._latency_ns)
                self._up_until = max(self._up_until, self._engine.now + delay)
                self._engine.at(self._up_until, self._arrive, (piece, is_goodbye and is_last))

    def _arrive(self, entry: tuple[bytes, bool]) -> None:
        if not self._is_broken and self._broker is not None:
            self._unread.append(entry)
            self._read()

    def _read(self) -> None:
        """All that has come is read at once, as from a socket."""
        if self._is_read and self._unread and self._broker is not None and not self._is_broken:
            data = b"".join(piece for piece, _ in self._unread)
            is_goodbye = self._unread[-1][1]
            self._unread.clear()
            self.contact.hear(self._engine.now)
            if is_goodbye:
                self.contact.goodbye_ns = self._engine.now
            self._broker.received(data)

    @property
    def is_silent(self) -> bool:
        return self._is_silent

    @property
    def arrives_ns(self) -> Nanos:
        """When all that was sent by now has reached the broker."""
        return max(self._up_until, self._engine.now)

    def fall_silent(self) -> None:
        self._is_silent = self.contact.was_silent = True

    def wake_up(self) -> None:
        """What it had meant to say leaves before what it answers now."""
        self._is_silent = False
        said, self._held_up = self._held_up, []
        for data, is_goodbye in said:
            self.send(data, is_goodbye)
        came, self._held_down = self._held_down, []
        for data in came:
            self._hand_over(data)
        if self._has_lost:
            self._lost(self)

    def break_off(self, broker_knows: bool = False) -> None:
        """Something on the way has failed; `broker_knows`: it has, as it is gone itself."""
        if self._is_broken:
            return
        self._end()
        self._engine.at(self._engine.now + between(self._luck, 0, NOTICED_WITHIN), self._tell_client)
        if not broker_knows:
            self._engine.at(self._engine.now + between(self._luck, 0, NOTICED_WITHIN), self._tell_broker)

    def _end(self) -> None:
        self._is_broken = True
        self.contact.ended_ns = min(self.contact.ended_ns, self._engine.now)

    def _tell_client(self, _: None) -> None:
        if self._is_silent:
            self._has_lost = True
        else:
            self._lost(self)

    def _tell_broker(self, _: None) -> None:
        if self._broker is not None:
            self._broker.lost()

    def forget_broker(self) -> None:
        """Its process is gone."""
        self._broker = None
        self.break_off(broker_knows=True)

    # The broker's end (client_link.Pipe)

    def write(self, data: bytes) -> None:
        if self._is_broken:
            return
        self._unsent_bytes += len(data)
        delay = self._latency_ns + between(self._luck, 0, self._latency_ns)
        self._down_until = max(self._down_until, self._engine.now + delay)
        self._engine.at(self._down_until, self._hand_over, data)

    def _hand_over(self, data: bytes) -> None:
        """A silent client reads what has come when it wakes up."""
        if self._is_silent:
            self._held_down.append(data)
            return
        self._unsent_bytes -= len(data)
        if not self._is_broken or self.contact.closed_ns < NEVER:
            self._received(self, data)

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def pause_reading(self) -> None:
        self._is_read = False

    def resume_reading(self) -> None:
        if not self._is_read:
            self.contact.heard_ns = self._engine.now
        self._is_read = True
        self._engine.at(self._engine.now, self._read_on)

    def _read_on(self, _: None) -> None:
        self._read()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """The client closes its side when it has read to the end."""
        self.close()

    def close(self) -> None:
        """After what was written, the end."""
        self._note_close()
        self._down_until = max(self._down_until, self._engine.now + self._latency_ns)
        self._engine.at(self._down_until, self._closed)

    def _note_close(self) -> None:
        if self.contact.closed_ns == NEVER and not self._is_broken:
            self.contact.closed_ns = self._engine.now
            self.contact.silence_ns = self._engine.now - self.contact.heard_ns
            self.contact.owed_at_close = self._owed()

    def _closed(self, _: None) -> None:
        if not self._is_broken:
            self._end()
            self._tell_broker(None)
            self._tell_client(None)

    def abort(self) -> None:
        self._note_close()
        self.break_off()
