"""The send window of one destination of a flow: what it has not acknowledged, and how much may be in flight to it.

The window limits the bytes in flight. It grows with every acknowledgement, first exponentially and above a threshold
linearly, and is halved when parcels are lost, so that neither a backlog nor a fast publisher floods the destination
(RFC 5681). Not in flight are:

  - parcels that found no room in the queue of the first link: they wait there (waiting_for_link.py);
  - parcels that the destination holds, because its readers have no room or an earlier parcel is missing. They are not
    sent again as long as the destination is believed to hold them (`BELIEVED`).

A parcel counts as lost, and is sent again at once, when one that was sent well after it has arrived (RFC 8985).
Otherwise it is sent again after a timeout that follows the round-trip time and doubles without progress. Publishers
are slowed down by the bytes that wait to be sent and by how far readers at the destination are behind.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from overlane.core.units import MS, NEVER, SECOND, Nanos

WINDOW_MIN = 16 * 1024
WINDOW_START = 64 * 1024
WINDOW_MAX = 4 << 20
UNSENT: Nanos = -NEVER
RESEND_MARGIN: Nanos = 100 * MS
REORDER_MIN: Nanos = 10 * MS
RESEND_MAX: Nanos = 5 * SECOND
BELIEVED: Nanos = 2 * SECOND
"""How long a destination is believed to hold what it said it holds, and its readers to be as far behind."""
BACKLOG_BYTES = 4 << 20
"""What waits to be sent to one destination before publishers rest as long as they ever do for it."""
BEHIND_MOST = 1.3
"""Publishers rest longer for readers whose queues are full than at any other time, but not without end."""


@dataclass(slots=True)
class SendWindow:
    unacknowledged: dict[int, Nanos] = field(default_factory=dict)
    """By sequence, when it was last sent; UNSENT if it was not."""
    backoff: int = 0
    tries: int = 0
    """How often the oldest was sent again since something was acknowledged."""
    resend_at: Nanos = NEVER
    window: int = WINDOW_START
    threshold: int = WINDOW_MAX
    in_flight: int = 0
    resent: set[int] = field(default_factory=set)
    round_trip_ns: Nanos = 0
    variation_ns: Nanos = 0
    come_sent_ns: Nanos = UNSENT
    """When the latest of those that are known to have come was sent."""
    slowed_ns: Nanos = UNSENT
    """When the window was last made smaller for something that others had overtaken."""
    is_reachable: bool = True
    waits_for_room: bool = False
    """Whether the next parcel found no room in the queue of the first link."""
    owed_bytes: int = 0
    """Of all that is not acknowledged."""
    held: dict[int, int] = field(default_factory=dict)
    """What the destination holds without having handed it on, with its size; none of it is counted as under way."""
    held_bytes: int = 0
    told_ns: Nanos = 0
    """When it last said so."""
    behind: dict[str, tuple[int, Nanos]] = field(default_factory=dict)
    """Topics whose readers there fall behind, in per cent of their queues, and when that was told."""

    @property
    def is_full(self) -> bool:
        """Whether no more should be sent for now."""
        return self.in_flight >= self.window or self.waits_for_room

    def put_back(self, sequence: int, size: int) -> None:
        """It was to be sent, and has not left."""
        if self.unacknowledged.get(sequence, UNSENT) != UNSENT:
            self.unacknowledged[sequence] = UNSENT
            self.in_flight = max(0, self.in_flight - size)

    def hold(self, sizes: dict[int, int], now: Nanos) -> bool:
        """The destination holds these, and what else it held it holds no more; whether it holds any that it did not."""
        news = sizes.keys() - self.held.keys()
        for sequence in self.held.keys() - sizes.keys():
            if sequence in self.unacknowledged:
                self.in_flight += self.held[sequence]
        for sequence in news:
            self.in_flight = max(0, self.in_flight - sizes[sequence])
        self.resent |= news  # its acknowledgement will tell nothing of the way
        self.held, self.held_bytes, self.told_ns = sizes, sum(sizes.values()), now
        return bool(news)

    def let_go(self, sequence: int) -> bool:
        """Whether the destination held it; it is not counted as held any more."""
        size = self.held.pop(sequence, None)
        if size is None:
            return False
        self.held_bytes -= size
        return True

    def is_held(self, sequence: int, now: Nanos) -> bool:
        return sequence in self.held and now - self.told_ns < BELIEVED

    def backpressure(self, topic: str, now: Nanos) -> float:
        """How far it is behind, or the readers of the topic there. One that cannot be reached is not waited for."""
        if not self.is_reachable:
            return 0.0
        waiting_bytes = self.owed_bytes - self.in_flight - self.held_bytes
        backpressure = min(1.0, waiting_bytes / BACKLOG_BYTES)
        percent, told_ns = self.behind.get(topic, (0, 0))
        if percent and now - told_ns < BELIEVED:
            backpressure = max(backpressure, min(BEHIND_MOST, percent / 100))
        return backpressure

    def update_behind(self, told: dict[str, int], now: Nanos) -> None:
        """How far readers are behind; of who is not mentioned the last word counts, for a while."""
        if told or self.behind:
            fresh = {topic: one for topic, one in self.behind.items() if now - one[1] < BELIEVED}
            fresh |= {topic: (percent, now) for topic, percent in told.items()}
            self.behind = {topic: one for topic, one in fresh.items() if one[0]}

    def measure(self, sequences: Iterable[int], now: Nanos) -> None:
        """How long acknowledgements take, by the last parcel that was sent but once (Karn)."""
        for sequence in reversed(list(sequences)):
            sent_ns = self.unacknowledged[sequence]
            if sent_ns != UNSENT and sequence not in self.resent:
                sample = now - sent_ns
                if not self.round_trip_ns:
                    self.round_trip_ns, self.variation_ns = sample, sample >> 1
                self.variation_ns += (abs(sample - self.round_trip_ns) - self.variation_ns) >> 2
                self.round_trip_ns += (sample - self.round_trip_ns) >> 3
                return

    def note_arrived(self, sequences: Iterable[int]) -> None:
        """These have come, and if they were sent but once, as they were sent."""
        for sequence in sequences:
            if sequence not in self.resent:
                self.come_sent_ns = max(self.come_sent_ns, self.unacknowledged.get(sequence, UNSENT))

    def is_overtaken(self, sent_ns: Nanos) -> bool:
        """Whether something came that was sent so long after this that this must be lost."""
        return sent_ns + max(REORDER_MIN, self.round_trip_ns >> 2) <= self.come_sent_ns

    def patience_ns(self, path_ns: Nanos) -> Nanos:
        """When to send again, given the round trip of the path: that, or what acknowledgements really take."""
        measured = self.round_trip_ns + 4 * self.variation_ns
        return min(RESEND_MAX, max(path_ns, measured) + RESEND_MARGIN << min(self.backoff, 8))

    def arrived(self, size: int) -> None:
        self.in_flight = max(0, self.in_flight - size)
        grown = size if self.window < self.threshold else size * size // self.window + 1
        self.window = min(WINDOW_MAX, self.window + grown)

    def overtaken(self, now: Nanos) -> None:
        """Something was lost; however much that is, it is one sign of congestion within a round trip."""
        if now - self.slowed_ns > self.round_trip_ns:
            self.slowed_ns = now
            self.congested()

    def congested(self) -> None:
        self.threshold = max(WINDOW_MIN, self.window // 2)
        self.window = self.threshold
