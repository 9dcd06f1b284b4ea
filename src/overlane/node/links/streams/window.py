"""Stream window: how many bytes of a link's connection may be in transit while datagrams with a deadline are sent.

TCP detects a slow line when the queue in front of it is full. Urgent messages then wait in that queue for a tenth of a
second and longer, from the moment when bulk begins. If the network file has the rate of the line, no queue builds up
(`pacing.py`). If not, the connection gets no more than the line is measured to carry:

  queue     the round trip of a datagram, less its recent minimum
  grows     by a quarter if a datagram that was sent with the present window met a queue below QUEUE_MAX, and the
            window was the limit
  shrinks   if it met a longer one, to what the line carries in a round trip with a queue of QUEUE_GOAL: by Little's law
            the bytes in transit are rate x round trip

There is one step each time its effect has been measured, so that the queue cannot exceed QUEUE_MAX plus a quarter of
the bytes in transit. A queue while we send less than the window is not caused by us, and changes nothing.

Links with bulk only, and links that are not FAR, are left to TCP: the window applies while something urgent was sent
within URGENT_FOR. No I/O, no clock.
"""

from overlane.core.units import MS, NEVER, SECOND, Nanos

WINDOW_MIN, WINDOW_FIRST, WINDOW_MAX = 16 * 1024, 32 * 1024, 16 * 1024 * 1024
QUEUE_GOAL: Nanos = 5 * MS
QUEUE_MAX: Nanos = 10 * MS
"""A smaller value cannot be distinguished from the delays of a busy host or a radio link."""
URGENT_FOR: Nanos = 1 * SECOND
FAR: Nanos = 5 * MS
"""The least round trip of a wide area. Nearby lines are wide, and what a busy host does looks like their queues."""


class StreamWindow:
    def __init__(self) -> None:
        self.bytes = WINDOW_FIRST
        self._urgent_ns: Nanos = -NEVER
        self._held_up_ns: Nanos = -NEVER
        """When it was last too small for what was to be sent."""
        self._judged_from: Nanos = -NEVER
        """A datagram sent from then on finds the queue that the present window makes."""
        self.is_far = False
        """Whether the other end is: otherwise the window never holds."""

    def urgent_sent(self, now: Nanos) -> None:
        self._urgent_ns = now

    def holds(self, now: Nanos) -> bool:
        return now - self._urgent_ns < URGENT_FOR and self.is_far

    def room_bytes(self, under_way: int, now: Nanos) -> int:
        """How much more the connection may be given, where so much of it is not acknowledged."""
        room = self.bytes - under_way
        if room <= 0:
            self._held_up_ns = now
            return 0
        return room

    def measured(self, sent_ns: Nanos, rtt_ns: Nanos, least_ns: Nanos, now: Nanos) -> None:
        """A datagram that was sent then has had this round trip, where it takes `least_ns` without a queue."""
        self.is_far = least_ns >= FAR
        if sent_ns < self._judged_from or self._held_up_ns < sent_ns:
            return
        if rtt_ns - least_ns > QUEUE_MAX:
            self.bytes = max(WINDOW_MIN, self.bytes * (least_ns + QUEUE_GOAL) // rtt_ns)
            self._judged_from = now + rtt_ns  # what is under way beyond it has left by then
        else:
            self.bytes = min(WINDOW_MAX, self.bytes * 5 // 4)
            self._judged_from = now
