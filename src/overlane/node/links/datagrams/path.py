"""The datagram path of a link: whether it works, its properties, and what both ends report to each other.

    PROBING   probes only: with growing pauses, of full size, now and then a small one. The end that dialled
              begins, so that it works from behind NAT; the other end probes when it has received one.
        | a probe was answered
    OPEN      frames are sent on it, up to the size of the largest probe that was answered
        | several were sent since anything was received, and some time has passed
    DOUBTED   frames are sent on it and on the stream as well, including those sent since anything was received;
              the receiver drops duplicates
        | a response: OPEN again              | none for DOUBTED_FOR: PROBING

Acknowledgements that the other end requests are added to the next datagram, or sent alone after TOLD_WITHIN. If only
small datagrams pass (a path with a smaller MTU that reports no error), large frames use the stream until a large probe
is answered again.

No I/O and no clock: datagrams go in and come out, and `tick` is due at `next_deadline`.
"""

from collections import Counter
from enum import Enum

from overlane.core.units import MS, NEVER, SECOND, US, Nanos
from overlane.node.links.datagrams.in_flight import InFlight
from overlane.node.links.datagrams.seal import (
    DATAGRAM_BYTES_MAX,
    FRAMES_BYTES_MAX,
    DatagramAck,
    DatagramKind,
    DatagramRefusal,
    DatagramRefused,
    Opener,
    Sealer,
)

SMALL_BYTES = 548
"""A datagram that passes where 576 bytes in a packet do (RFC 791)."""
_SMALL_FRAMES = FRAMES_BYTES_MAX - (DATAGRAM_BYTES_MAX - SMALL_BYTES)
LARGE_LOST_MAX = 5
"""So many large ones in a row, and no large one came: the path does not take them."""
TOLD_WITHIN: Nanos = 45 * MS
"""A little longer than the core puts a notice off: then that carries it."""
TOLD_EACH = 16
SILENT_MIN = 4
SILENT_EXTRA: Nanos = 20 * MS
DOUBTED_FOR: Nanos = 1 * SECOND
PROBE_FIRST: Nanos = 100 * MS
PROBE_LATEST: Nanos = 10 * SECOND

_ASKS, _PROBE = int(DatagramKind.ASKS), int(DatagramKind.PROBE)


class PathState(Enum):
    PROBING = "probing"
    OPEN = "open"
    DOUBTED = "doubted"


class DatagramPath:
    def __init__(self, sealer: Sealer, opener: Opener, now: Nanos, *, begins: bool) -> None:
        self._sealer = sealer
        self._opener = opener
        self.flight = InFlight()
        self.state = PathState.PROBING
        self.frames_bytes_max = 0
        """How large frames may be; what is larger takes the stream."""
        self.refused: Counter[DatagramRefusal] = Counter()
        self._probes: dict[int, int] = {}
        """The size of each probe that was not answered."""
        self._probe_at: Nanos = now if begins else NEVER
        self._pause_ns = PROBE_FIRST
        self._probes_sent = 0
        self._large_lost = 0
        self._asked_since: Nanos = NEVER
        """When the first request was sent since the last response."""
        self._asked = 0
        self._unheard: dict[int, tuple[bytes, Nanos]] = {}
        """Frames that are unacknowledged, as are all later ones, and when they were sent."""
        self._doubted_at: Nanos = NEVER
        self.challenged = self.confirmed = 0
        """Numbers of the latest challenge, and of the latest probe that was answered."""
        # Acknowledgements for the other end
        self._tell_at: Nanos = NEVER
        self._untold = 0
        self._came_ns: Nanos = now

    @property
    def is_usable(self) -> bool:
        return self.state is not PathState.PROBING

    # Out

    def takes(self, size: int, now: Nanos) -> bool:
        """Whether frames of so many bytes can go over it now."""
        return size <= self.frames_bytes_max and self.is_usable and self.flight.find_room(size, now)

    def seal(self, frames: bytes, now: Nanos, *, asks: bool) -> bytes:
        """The datagram that carries the frames. `asks`: it probes the path, so it requests an acknowledgement."""
        datagram = self._sealer.seal(_ASKS if asks else 0, self._tell(now), frames)
        if asks:
            self._note(self._sealer.number, len(datagram), now)
            if self.state is PathState.OPEN:
                self._unheard[self._sealer.number] = frames, now
        return datagram

    def take_unheard(self) -> list[tuple[bytes, Nanos]]:
        """Where the path is doubted: the frames that may all be lost, and when each was sent."""
        if self.state is PathState.OPEN:
            return []
        taken, self._unheard = list(self._unheard.values()), {}
        return taken

    def challenge(self, now: Nanos) -> bytes:
        """A probe for an address from which something came: when `confirmed` is its number, the other end is there."""
        datagram = self._sealer.seal(_PROBE, None, size_bytes=SMALL_BYTES)
        self.challenged = self._sealer.number
        self._probes[self.challenged] = SMALL_BYTES
        self._note(self.challenged, SMALL_BYTES, now)
        return datagram

    def _note(self, number: int, size: int, now: Nanos) -> None:
        self.flight.sent(number, size, now)
        if not self._asked:
            self._asked_since = now
        self._asked += 1

    def _tell(self, now: Nanos) -> DatagramAck | None:
        if not self._untold:
            return None
        self._untold, self._tell_at = 0, NEVER
        return DatagramAck(self._opener.highest, (now - self._came_ns) // US, self._opener.earlier)

    # In

    def open(self, datagram: bytes, now: Nanos) -> tuple[bytes, bool]:
        """The frames, and whether no later datagram has come before; DatagramRefused, and counted."""
        try:
            opened = self._opener.open(datagram)
        except DatagramRefused as refused:
            self.refused[refused.refusal] += 1
            raise
        if opened.came is not None and opened.came.highest > self._sealer.number:
            self.refused[DatagramRefusal.MALFORMED] += 1
            raise DatagramRefused(DatagramRefusal.MALFORMED)
        if self._probe_at == NEVER and self.state is PathState.PROBING:
            self._probe_at = now
        if opened.is_newest:
            self._came_ns = now
        if opened.kind & (_ASKS | _PROBE):
            self._untold += 1
            is_soon = opened.kind & _PROBE or self._untold >= TOLD_EACH
            self._tell_at = min(self._tell_at, now if is_soon else now + TOLD_WITHIN)
        if opened.came is not None:
            self._heard(opened.came, now)
        return opened.frames, opened.is_newest

    def _heard(self, came: DatagramAck, now: Nanos) -> None:
        told = self.flight.told(came, now)
        if not told.came:
            return
        self._asked, self._asked_since = 0, NEVER
        for number in [one for one in self._unheard if one <= came.highest]:
            del self._unheard[number]
        for number, size in told.came.items():
            if number in self._probes:
                self.confirmed = number
                self._answered(self._probes.pop(number))
            elif size > SMALL_BYTES:
                self._large_lost = 0
        if self.state is PathState.DOUBTED:
            self.state = PathState.OPEN
        for number, size in told.lost.items():
            if self._probes.pop(number, None) is None and size > SMALL_BYTES:
                self._large_lost += 1
        if self._large_lost >= LARGE_LOST_MAX and self.frames_bytes_max > _SMALL_FRAMES:
            self.frames_bytes_max = _SMALL_FRAMES
            self._probe_soon(now)

    def _answered(self, size: int) -> None:
        is_large = size > SMALL_BYTES
        self.frames_bytes_max = max(self.frames_bytes_max, FRAMES_BYTES_MAX if is_large else _SMALL_FRAMES)
        self.state = PathState.OPEN
        if is_large:
            self._probe_at, self._pause_ns, self._probes_sent, self._large_lost = NEVER, PROBE_FIRST, 0, 0

    # Time

    def next_deadline(self) -> Nanos:
        when = min(self._probe_at, self._tell_at, self.flight.next_given_up())
        if self.state is PathState.OPEN and self._asked >= SILENT_MIN:
            when = min(when, self._silent_at())
        elif self.state is PathState.DOUBTED:
            when = min(when, self._doubted_at + DOUBTED_FOR)
        return when

    def tick(self, now: Nanos) -> list[bytes]:
        """What is to be sent now."""
        self.flight.give_up(now)
        if self.state is PathState.OPEN and self._asked >= SILENT_MIN and now >= self._silent_at():
            self.state, self._doubted_at = PathState.DOUBTED, now
        if self.state is PathState.DOUBTED and now >= self._doubted_at + DOUBTED_FOR:
            self.state, self.frames_bytes_max = PathState.PROBING, 0
            self._probe_soon(now)
        datagrams = []
        if now >= self._tell_at:
            datagrams.append(self._sealer.seal(0, self._tell(now)))
        if now >= self._probe_at:
            datagrams.append(self._probe(now))
        return datagrams

    def _silent_at(self) -> Nanos:
        return self._asked_since + 2 * self.flight.patience_ns + TOLD_WITHIN + SILENT_EXTRA

    def _probe_soon(self, now: Nanos) -> None:
        self._probe_at, self._pause_ns, self._probes_sent = now, PROBE_FIRST, 0

    def _probe(self, now: Nanos) -> bytes:
        """Every third is small, unless it is known that small ones pass."""
        self._probes_sent += 1
        is_small = self._probes_sent % 3 == 0 and self.state is PathState.PROBING
        size = SMALL_BYTES if is_small else DATAGRAM_BYTES_MAX
        datagram = self._sealer.seal(_PROBE, None, size_bytes=size)  # it tells nothing, since it may be too large
        self._probes[self._sealer.number] = size
        while len(self._probes) > 16:
            del self._probes[next(iter(self._probes))]
        self._note(self._sealer.number, size, now)
        self._probe_at = now + self._pause_ns
        self._pause_ns = min(PROBE_LATEST, 2 * self._pause_ns)
        return datagram
