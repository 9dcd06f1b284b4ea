"""Lingering close: a connection that the broker ends is still read for a while, and its data discarded.

A kernel answers data for a closed socket with a reset, and a reset discards what the client has not read yet: the
CONNACK or DISCONNECT with the reason. So the sending side is shut down first (TCP: FIN; WebSocket: a close frame; TLS
has no half-close), and the connection is closed when

    the client has closed its side, or has sent nothing for QUIET_S, or more than DISCARDED_BYTES_MAX in total,
    or at the end of the time that the client link gives a connection that is being closed

At most LINGERING_MAX connections linger: any more are closed at once.
"""

from typing import Protocol

from overlane.turn.timers import LoopTimers

QUIET_S = 1.0
DISCARDED_BYTES_MAX = 16 << 20
LINGERING_MAX = 256


class HalfClosing(Protocol):
    def can_write_eof(self) -> bool: ...
    def write_eof(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


class Lingering:
    """All connections of a broker that linger."""

    def __init__(self, timers: LoopTimers) -> None:
        self._timers = timers
        self._drains: set[Drain] = set()

    def __len__(self) -> int:
        return len(self._drains)

    def begin(self, pipe: HalfClosing) -> "Drain | None":
        """All that is to be sent was handed over. None if it is closed at once, because too many linger."""
        if len(self._drains) >= LINGERING_MAX:
            pipe.close()
            return None
        if pipe.can_write_eof():
            pipe.write_eof()
        drain = Drain(self._timers, pipe, self._drains)
        self._drains.add(drain)
        pipe.resume_reading()
        return drain


class Drain:
    """What still comes over one connection."""

    __slots__ = ("_all", "_bytes", "_is_heard", "_pipe", "_timer", "_timers")

    def __init__(self, timers: LoopTimers, pipe: HalfClosing, all_of_them: "set[Drain]") -> None:
        self._timers = timers
        self._pipe = pipe
        self._all = all_of_them
        self._bytes = 0
        self._is_heard = False
        self._timer = timers.call_later(QUIET_S, self._look)

    def discard(self, count: int) -> None:
        self._is_heard = True
        self._bytes += count
        if self._bytes > DISCARDED_BYTES_MAX:
            self._end()

    def cancel(self) -> None:
        """The connection is gone."""
        self._timer.cancel()
        self._all.discard(self)

    def _look(self) -> None:
        if not self._is_heard:
            self._end()
            return
        self._is_heard = False
        self._timer = self._timers.call_later(QUIET_S, self._look)

    def _end(self) -> None:
        self.cancel()
        self._pipe.close()
