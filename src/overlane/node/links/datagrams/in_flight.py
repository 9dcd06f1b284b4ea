"""In flight: the datagrams in transit, their fate, and how many more the path can take.

The other end reports which numbers have arrived. From that:

  round trip    moving average and deviation as in TCP (RFC 6298); the minimum of the last ten to twenty seconds is the
                round trip of the path without a queue
  lost          a datagram that has not arrived although three later ones have, or for several round trips
  window        how many bytes may be in transit. It doubles with each round trip in which it was the limit, up to
                WINDOW_MAX. It shrinks by a quarter, once per round trip, if the round trip has grown by half of its
                minimum (a queue builds up), or if a datagram was lost while the window was the limit. Loss while we
                send less than the window is not caused by us, and sending less would not help: radio links and bursts
                of loss are what datagrams are for.

Frames without room in the window are not lost: they use the stream, whose congestion control is the kernel's. No I/O,
no clock.
"""

from itertools import islice
from typing import NamedTuple

from overlane.core.units import MS, NEVER, SECOND, US, Nanos
from overlane.node.links.datagrams.seal import DatagramAck

WINDOW_MIN, WINDOW_FIRST, WINDOW_MAX = 16 * 1024, 32 * 1024, 1024 * 1024
"""The least is a dozen datagrams in a round trip: deadlines are kept beside other people's bulk."""
OVERTAKEN_MAX = 3
GROWN_MIN: Nanos = 10 * MS
BASE_PERIOD: Nanos = 10 * SECOND
GIVEN_UP_MIN: Nanos = 500 * MS
ROUND_TRIP_FIRST: Nanos = 200 * MS


class _UnderWay(NamedTuple):
    size: int
    sent_ns: Nanos


class AckResult(NamedTuple):
    """The result of an acknowledgement: sizes of arrived and of lost datagrams, by number."""

    came: dict[int, int]
    lost: dict[int, int]


class InFlight:
    def __init__(self) -> None:
        self._under_way: dict[int, _UnderWay] = {}
        """In the order of sending."""
        self._bytes = 0
        self._held_up_ns: Nanos = -NEVER
        """When the window was last too small for what was to be sent."""
        self._may_shrink_at: Nanos = 0
        self._least: list[tuple[Nanos, Nanos]] = []
        """(since when, the least round trip) of this period and the one before."""
        self.window_bytes = WINDOW_FIRST
        self.rtt_ns: Nanos = ROUND_TRIP_FIRST
        self.deviation_ns: Nanos = ROUND_TRIP_FIRST // 2
        self.is_measured = False
        self.latest: tuple[Nanos, Nanos] = (0, 0)
        """When the datagram was sent that was measured last, and its round trip; (0, 0) before the first."""
        self.came_count = self.lost_count = 0

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def patience_ns(self) -> Nanos:
        """After so long an answer is overdue."""
        return self.rtt_ns + max(4 * self.deviation_ns, 2 * MS)

    def find_room(self, size: int, now: Nanos) -> bool:
        if self._bytes + size > self.window_bytes:
            self._held_up_ns = now
            return False
        return True

    def sent(self, number: int, size: int, now: Nanos) -> None:
        """A datagram that the other end will acknowledge."""
        self._under_way[number] = _UnderWay(size, now)
        self._bytes += size

    def told(self, came: DatagramAck, now: Nanos) -> AckResult:
        """The other end acknowledges datagrams."""
        found = AckResult({}, {})
        highest, delay_us, earlier = came
        for number in list(self._under_way):
            behind = highest - number
            if behind < 0:
                break
            if behind == 0:
                sent_ns = self._under_way[number].sent_ns
                self.latest = sent_ns, max(0, now - sent_ns - delay_us * US)
                self._measure(self.latest[1], now)
            if behind == 0 or (behind <= 64 and earlier >> (behind - 1) & 1):
                found.came[number] = self._take(number)
            elif behind >= OVERTAKEN_MAX:
                found.lost[number] = self._take(number)
        self.came_count += len(found.came)
        self.lost_count += len(found.lost)
        if found.came:
            self._adapt(sum(found.came.values()), bool(found.lost), now)
        return found

    def give_up(self, now: Nanos) -> None:
        """What had no answer for very long is lost."""
        until = now - max(GIVEN_UP_MIN, 4 * self.patience_ns)
        for number in [one for one, each in self._under_way.items() if each.sent_ns <= until]:
            self._take(number)
            self.lost_count += 1

    def next_given_up(self) -> Nanos:
        for oldest in self._under_way.values():
            return oldest.sent_ns + max(GIVEN_UP_MIN, 4 * self.patience_ns)
        return NEVER

    def sent_of(self, position: int) -> Nanos:
        """When the datagram at this position was sent, the oldest first; NEVER if there are not so many in transit."""
        for each in islice(self._under_way.values(), position, None):
            return each.sent_ns
        return NEVER

    @property
    def least_rtt_ns(self) -> Nanos:
        """What the path takes when nothing queues on it, as far as is known."""
        return min((least for _, least in self._least), default=self.rtt_ns)

    def _take(self, number: int) -> int:
        size = self._under_way.pop(number).size
        self._bytes -= size
        return size

    def _measure(self, rtt_ns: Nanos, now: Nanos) -> None:
        if self.is_measured:
            self.deviation_ns += (abs(rtt_ns - self.rtt_ns) - self.deviation_ns) >> 2
            self.rtt_ns += (rtt_ns - self.rtt_ns) >> 3
        else:
            self.is_measured = True
            self.rtt_ns, self.deviation_ns = rtt_ns, rtt_ns >> 1
        if not self._least or now - self._least[-1][0] >= BASE_PERIOD:
            self._least = [*self._least[-1:], (now, rtt_ns)]
        since, least = self._least[-1]
        self._least[-1] = since, min(least, rtt_ns)

    def _adapt(self, came_bytes: int, has_lost: bool, now: Nanos) -> None:
        least = self.least_rtt_ns
        is_queueing = self.rtt_ns - least > max(GROWN_MIN, least >> 1)
        is_held_up = now - self._held_up_ns <= self.patience_ns
        if is_queueing or (has_lost and is_held_up):
            if now >= self._may_shrink_at:
                self._may_shrink_at = now + self.rtt_ns
                self.window_bytes = max(WINDOW_MIN, self.window_bytes * 3 // 4)
        elif is_held_up:
            self.window_bytes = min(WINDOW_MAX, self.window_bytes + came_bytes)
