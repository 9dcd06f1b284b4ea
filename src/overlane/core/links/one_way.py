"""One way: how the time that a round trip takes is divided between the two directions of a link.

A queue at a shared link fills in one direction. Half of the round trip would take half of that queue for the latency of
either direction: what is sent into the queue is thought to be in time when it is late, and what comes back to be late.

Hop acknowledgements tell when a parcel came, by the clock of the receiver. Clocks differ by an unknown offset, but that
stays. So two round trips are compared: `skew` is by how much one took longer there than back, plus twice the offset.
The quickest round trip of the last half minute or so had the shortest queues; what the skew of another differs by is a
queue in one direction. It is never taken for more than the round trip is longer than the quickest: clocks that drift
cannot pretend a queue where there is none.

Ticks of 16 us, of which 16 bits are told: enough for queues of up to half a second.
"""

from overlane.core.units import SECOND, US, Nanos

TICK: Nanos = 16 * US
TICKS_MASK = 0xFFFF
SKEW_MASK = 2 * TICKS_MASK + 1
WINDOW: Nanos = 20 * SECOND

Quickest = tuple[Nanos, int]
"""A round trip, and its skew."""


def ticks_of(when: Nanos) -> int:
    """A time as hop acknowledgements tell it."""
    return when // TICK & TICKS_MASK


def skew_of(sent_ns: Nanos, came_ticks: int, answered_ns: Nanos) -> int:
    """How much longer a parcel took than its answer, plus twice the difference of the clocks: modulo 2^17 ticks."""
    return 2 * came_ticks - sent_ns // TICK - answered_ns // TICK & SKEW_MASK


class OneWayDelay:
    def __init__(self) -> None:
        self.lean_ns: Nanos = 0
        """By how much the direction away from here takes longer than half of the round trip."""
        self._quickest: Quickest | None = None
        self._quickest_before: Quickest | None = None
        """Of this window and of the one before it."""
        self._window_since: Nanos = 0

    def reset(self) -> None:
        """The link takes another path."""
        self.lean_ns, self._quickest, self._quickest_before = 0, None, None

    def observed(self, rtt_ns: Nanos, skew: int | None, now: Nanos, *, is_step: bool) -> None:
        """A round trip was measured; without a skew, what is known of the directions fades."""
        lean_ns = 0 if skew is None else self._lean(rtt_ns, skew, now)
        if is_step and skew is not None:
            self.lean_ns = lean_ns
        else:
            self.lean_ns += (lean_ns - self.lean_ns) >> 3

    def _lean(self, rtt_ns: Nanos, skew: int, now: Nanos) -> Nanos:
        if now - self._window_since > WINDOW:
            self._quickest_before, self._quickest, self._window_since = self._quickest, None, now
        if self._quickest is None or rtt_ns <= self._quickest[0]:
            self._quickest = rtt_ns, skew
        least_ns, usual = self._quickest
        if self._quickest_before is not None and self._quickest_before[0] < least_ns:
            least_ns, usual = self._quickest_before
        away = (skew - usual + TICKS_MASK + 1 & SKEW_MASK) - TICKS_MASK - 1
        queue_ns = (rtt_ns - least_ns) >> 1
        return max(-queue_ns, min(queue_ns, away * TICK >> 1))
