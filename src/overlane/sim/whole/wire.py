"""A client's connection to its broker: two streams of bytes that take time, break, and come in pieces.

Both directions keep their order. Bytes that are under way when the connection breaks are gone. Each end learns of a
break at a time of its own, so that a client may be back before its broker knows that it was gone. To the broker it is
a `client_link.Pipe`; what comes while the broker does not read waits.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol

from overlane.core.units import MS, NEVER, Nanos
from overlane.sim.engine import Engine
from overlane.sim.luck import between, chance

NOTICED_WITHIN: Nanos = 800 * MS


class BrokerEnd(Protocol):
    def received(self, data: bytes, is_more: bool = False) -> None: ...
    def lost(self) -> None: ...


class Wire:
    """`received` and `lost` are the client's end; the broker's is given by `open`."""

    def __init__(
        self,
        engine: Engine,
        luck: Random,
        latency_ns: Nanos,
        received: "Callable[[Wire, bytes], None]",
        lost: "Callable[[Wire], None]",
    ) -> None:
        self._engine = engine
        self._luck = luck
        self._latency_ns = latency_ns
        self._received = received
        self._lost = lost
        self._broker: BrokerEnd | None = None
        self._is_broken = False
        self._is_read = True
        self._unread: deque[bytes] = deque()
        self._up_until: Nanos = engine.now
        self._down_until: Nanos = engine.now
        self._unsent_bytes = 0

    def open(self, broker: BrokerEnd) -> None:
        self._broker = broker

    # The client's end

    def send(self, data: bytes) -> None:
        """Perhaps in two pieces: a packet need not come whole."""
        cut = between(self._luck, 1, len(data)) if chance(self._luck, 0.2) else len(data)
        for piece in (data[:cut], data[cut:]):
            if piece and not self._is_broken:
                delay = self._latency_ns + between(self._luck, 0, self._latency_ns)
                self._up_until = max(self._up_until, self._engine.now + delay)
                self._engine.at(self._up_until, self._arrive, piece)

    def _arrive(self, data: bytes) -> None:
        if not self._is_broken and self._broker is not None:
            self._unread.append(data)
            self._read()

    def _read(self) -> None:
        while self._is_read and self._unread and self._broker is not None and not self._is_broken:
            self._broker.received(self._unread.popleft(), is_more=bool(self._unread))

    def break_off(self, broker_knows: bool = False) -> None:
        """Something on the way has failed; `broker_knows`: it has, as it is gone itself."""
        if self._is_broken:
            return
        self._is_broken = True
        self._engine.at(self._engine.now + between(self._luck, 0, NOTICED_WITHIN), self._tell_client)
        if not broker_knows:
            self._engine.at(self._engine.now + between(self._luck, 0, NOTICED_WITHIN), self._tell_broker)

    def _tell_client(self, _: None) -> None:
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
        self._unsent_bytes -= len(data)
        if not self._is_broken:
            self._received(self, data)

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def pause_reading(self) -> None:
        self._is_read = False

    def resume_reading(self) -> None:
        self._is_read = True
        self._engine.at(self._engine.now, self._read_on)

    def _read_on(self, _: None) -> None:
        self._read()

    def can_write_eof(self) -> bool:
        return False

    def write_eof(self) -> None:
        raise AssertionError("this connection has no half close")

    def close(self) -> None:
        """After what was written, the end."""
        self._down_until = max(self._down_until, self._engine.now + self._latency_ns)
        self._engine.at(min(self._down_until, NEVER), self._closed)

    def _closed(self, _: None) -> None:
        if not self._is_broken:
            self._is_broken = True
            self._tell_broker(None)
            self._lost(self)

    def abort(self) -> None:
        self.break_off()
