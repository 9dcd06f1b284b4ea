"""A watched path: one of several paths of a link, measured all the time so that silence is noticed at once.

Beside what every datagram path does (`datagrams.path`):

  keep-alive   a path without other requests gets a small probe every KEEP_EVERY, which is answered at once
  answers      acknowledgements are delayed by PROMPT at most, so that what flows shows within that time that it arrives
  overdue      the oldest request has no answer in its time, and nothing has been heard for QUIET: the path is probed
               again, in a row
  silent       the second oldest request has no answer either. Any answer ends it
  loss         moving average over requests (1/32), without those of a silence

Keep-alives carry a notice: how much of the connection's stream has come, and which paths are gone at this end.

    +-----------+------------------------+
    | stream in | numbers of gone paths  |
    +-----------+------------------------+
      u64         u8 each

A host that is late itself has not read the answers: judging waits for as long as it was late. No I/O, no clock.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from overlane.core.units import MS, NEVER, Nanos
from overlane.node.links.datagrams.path import PROBE_FIRST, DatagramPath, PathState
from overlane.node.links.datagrams.seal import DatagramAck, DatagramKind, Opener, Sealer

KEEP_EVERY: Nanos = 500 * MS
"""A small probe and its answer are about 150 bytes with all headers: two ends cost an idle path 600 bytes a second."""
PROMPT: Nanos = 5 * MS
QUIET: Nanos = 25 * MS
MARGIN: Nanos = 10 * MS
"""What a busy host adds to a round trip without being late by its own clock."""
LATE_MIN: Nanos = 5 * MS
GONE_MAX = 64

_STREAM_IN = struct.Struct("!Q")
_KEEP = int(DatagramKind.PROBE | DatagramKind.NOTICE)


class PathNotice(NamedTuple):
    stream_in: int
    """Bytes of the stream that have come."""
    gone: frozenset[int]
    """Paths that the sender cannot use: their interface or address is gone."""


def encode_notice(notice: PathNotice) -> bytes:
    return _STREAM_IN.pack(notice.stream_in) + bytes(sorted(notice.gone)[:GONE_MAX])


def decode_notice(data: bytes) -> PathNotice | None:
    """None where it is too short to be one."""
    if len(data) < _STREAM_IN.size:
        return None
    return PathNotice(_STREAM_IN.unpack_from(data)[0], frozenset(data[_STREAM_IN.size :][:GONE_MAX]))


class WatchedPath(DatagramPath):
    """`notice`: what keep-alives tell now."""

    def __init__(
        self, sealer: Sealer, opener: Opener, now: Nanos, *, begins: bool, notice: Callable[[], PathNotice]
    ) -> None:
        super().__init__(sealer, opener, now, begins=begins)
        self._notice = notice
        self.is_silent = False
        self.heard_ns: Nanos = now
        """When an answer last came."""
        self.loss_millionths = 0
        self.told: PathNotice | None = None
        """The latest notice of the other end, and when it came."""
        self.told_ns: Nanos = 0
        self._asked_ns: Nanos = now
        """When something was last requested."""
        self._judges_from: Nanos = 0
        self._measures_from: Nanos = 0
        self._is_told_now = False

    # In

    def open(self, datagram: bytes, now: Nanos) -> tuple[bytes, bool]:
        opened = super().open(datagram, now)
        if self._tell_at > now + PROMPT and self._tell_at != NEVER:
            self._tell_at = now + PROMPT
        if self.state is PathState.PROBING and self._probe_at > now + PROBE_FIRST:
            self._probe_soon(now)  # the other end sends again: the path may work
        if (notice := self._opener.notice) and opened[1]:
            self.told, self.told_ns = decode_notice(notice), now
        self._opener.notice = b""
        return opened

    def _heard(self, came: DatagramAck, now: Nanos) -> None:
        before, lost_before = self.flight.came_count, self.flight.lost_count
        super()._heard(came, now)
        arrived = self.flight.came_count - before
        if not arrived:
            return
        self.heard_ns = now
        if self.is_silent:
            self.is_silent = False
            self._measures_from = now + 2 * self.flight.patience_ns
        if now < self._measures_from:
            return  # what was lost in the silence is still being reported
        for _ in range(min(arrived, 64)):
            self.loss_millionths -= self.loss_millionths >> 5
        for _ in range(min(self.flight.lost_count - lost_before, 64)):
            self.loss_millionths += (1_000_000 - self.loss_millionths) >> 5

    # Out

    def take_all_unheard(self) -> list[tuple[bytes, Nanos]]:
        """The path is left since it does not work: the frames that may be lost, and when each was sent."""
        taken, self._unheard = list(self._unheard.values()), {}
        return taken

    def tell_now(self) -> None:
        """Something is to be told without delay: the next tick, which is due now, sends a notice."""
        self._is_told_now = True

    def probe_now(self, now: Nanos) -> None:
        """The path may work again: ask at once."""
        if self.state is PathState.PROBING:
            self._probe_soon(now)

    def _note(self, number: int, size: int, now: Nanos) -> None:
        super()._note(number, size, now)
        self._asked_ns = now

    def _keep_alive(self, now: Nanos) -> bytes:
        datagram = self._sealer.seal(_KEEP, self._tell(now), encode_notice(self._notice()))
        self._note(self._sealer.number, len(datagram), now)
        return datagram

    # Time

    def next_deadline(self) -> Nanos:
        when = super().next_deadline()
        if self.state is PathState.PROBING:
            return when
        if self._is_told_now:
            return 0
        if not self.is_silent:
            when = min(when, max(self._overdue_at(1), self._judges_from))
        return min(when, self._keep_at())

    def tick(self, now: Nanos) -> list[bytes]:
        due = self.next_deadline()
        if due and now - due > LATE_MIN:
            self._judges_from = max(self._judges_from, now + min(now - due, 20 * LATE_MIN))
        datagrams = super().tick(now)
        if self.state is PathState.PROBING:
            self.is_silent = False
            return datagrams
        if not self.is_silent and now >= max(self._overdue_at(1), self._judges_from):
            self.is_silent = True
        if self._is_told_now or now >= self._keep_at():
            self._is_told_now = False
            datagrams.append(self._keep_alive(now))
        return datagrams

    def _overdue_at(self, position: int) -> Nanos:
        """When the request at this position, the oldest first, should have been answered."""
        sent_ns = self.flight.sent_of(position)
        if sent_ns == NEVER:
            return NEVER
        return max(sent_ns + self.flight.patience_ns + PROMPT + MARGIN, self.heard_ns + QUIET)

    def _keep_at(self) -> Nanos:
        """When the next keep-alive is due: soon while an answer is overdue."""
        again = max(self._overdue_at(0), self._asked_ns + PROMPT + MARGIN)
        return min(self._asked_ns + KEEP_EVERY, again)
