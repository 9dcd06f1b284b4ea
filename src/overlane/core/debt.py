"""A debt: what one destination of a flow has not acknowledged, and what it says of itself.

At most a window of it is under way: it grows with what is acknowledged, doubling at first, and halves when what was
sent does not come, so that neither a backlog nor a fast publisher floods the far side. What finds no room in the queue
of the first link is not under way: it waits until there is some (anteroom.py). Nor is what the destination holds
because its readers have no room; it is not sent again while it is believed to be there. From that, from how far its
readers are behind, and from what waits to be sent follows how long publishers rest.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from overlane.core.units import MS, NEVER, SECOND, Nanos

WINDOW_MIN = 16 * 1024
WINDOW_START = 64 * 1024
WINDOW_MAX = 4 << 20
UNSENT: Nanos = -NEVER
RESEND_MARGIN: Nanos = 100 * MS
RESEND_MAX: Nanos = 5 * SECOND
BELIEVED: Nanos = 2 * SECOND
"""How long a destination is believed to hold what it said it holds, and its readers to be as far behind."""
BACKLOG_BYTES = 4 << 20
"""What waits to be sent to one destination before publishers rest as long as they ever do for it."""
BEHIND_MOST = 1.3
"""Publishers rest longer for readers whose queues are full than at any other time, but not without end."""


@dataclass(slots=True)
class Debt:
    unacknowledged: dict[int, Nanos] = field(default_factory=dict)
    """By sequence, when it was last sent; UNSENT if it was not."""
    backoff: int = 0
    resend_at: Nanos = NEVER
    window: int = WINDOW_START
    threshold: int = WINDOW_MAX
    under_way: int = 0
    resent: set[int] = field(default_factory=set)
    round_trip_ns: Nanos = 0
    variation_ns: Nanos = 0
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
        return self.under_way >= self.window or self.waits_for_room

    def put_back(self, sequence: int, size: int) -> None:
        """It was to be sent, and has not left."""
        if self.unacknowledged.get(sequence, UNSENT) != UNSENT:
            self.unacknowledged[sequence] = UNSENT
            self.under_way = max(0, self.under_way - size)

    def hold(self, sizes: dict[int, int], now: Nanos) -> bool:
        """The destination holds these, and what else it held it holds no more; whether it holds any that it did not."""
        news = sizes.keys() - self.held.keys()
        for sequence in self.held.keys() - sizes.keys():
            if sequence in self.unacknowledged:
                self.under_way += self.held[sequence]
        for sequence in news:
            self.under_way = max(0, self.under_way - sizes[sequence])
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

    def crowding(self, topic: str, now: Nanos) -> float:
        """How far it is behind, or the readers of the topic there. One that cannot be reached is not waited for."""
        if not self.is_reachable:
            return 0.0
        waiting_bytes = self.owed_bytes - self.under_way - self.held_bytes
        crowding = min(1.0, waiting_bytes / BACKLOG_BYTES)
        percent, told_ns = self.behind.get(topic, (0, 0))
        if percent and now - told_ns < BELIEVED:
            crowding = max(crowding, min(BEHIND_MOST, percent / 100))
        return crowding

    def hear_behind(self, told: dict[str, int], now: Nanos) -> None:
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

    def patience_ns(self, path_ns: Nanos) -> Nanos:
        """When to send again, given the round trip of the path: that, or what acknowledgements really take."""
        measured = self.round_trip_ns + 4 * self.variation_ns
        return min(RESEND_MAX, max(path_ns, measured) + RESEND_MARGIN << min(self.backoff, 8))

    def arrived(self, size: int) -> None:
        self.under_way = max(0, self.under_way - size)
        grown = size if self.window < self.threshold else size * size // self.window + 1
        self.window = min(WINDOW_MAX, self.window + grown)

    def congested(self) -> None:
        self.threshold = max(WINDOW_MIN, self.window // 2)
        self.window = self.threshold
