"""The window of a connection beside urgent datagrams: on a line whose rate nobody has told, no long queue grows."""

from collections import deque
from dataclasses import dataclass, field

import pytest

from overlane.core.units import MS, SECOND, Nanos
from overlane.node.links.streams.window import FAR, URGENT_FOR, WINDOW_FIRST, WINDOW_MAX, WINDOW_MIN, StreamWindow

ONE_WAY: Nanos = 30 * MS
STEP: Nanos = 1 * MS
SEGMENT_BYTES = 1_460
URGENT_EVERY: Nanos = 10 * MS
TOLD_WITHIN: Nanos = 45 * MS
"""The other end tells what has come in so long: of several datagrams, the last."""


@dataclass
class Line:
    """A narrow line with a queue in front of it, bulk without end at one side, and a datagram every 10 ms."""

    bytes_per_ms: int
    others_bytes_per_ms: int = 0
    """What somebody else sends through the same queue."""
    window: StreamWindow = field(default_factory=StreamWindow)
    queue_bytes: int = 0
    waits_ns: list[Nanos] = field(default_factory=list)
    """What each datagram has waited."""
    acknowledged_bytes: int = 0
    _under_way_bytes: int = 0
    _under_way: deque[Nanos] = field(default_factory=deque)
    """When each segment is acknowledged."""
    _told: deque[tuple[Nanos, Nanos, Nanos]] = field(default_factory=deque)

    def run(self, since: Nanos, until: Nanos) -> None:
        for now in range(since, until, STEP):
            while self._under_way and self._under_way[0] <= now:
                self._under_way.popleft()
                self._under_way_bytes -= SEGMENT_BYTES
                self.acknowledged_bytes += SEGMENT_BYTES
            while self._told and self._told[0][0] <= now:
                _, sent_ns, rtt_ns = self._told.popleft()
                self.window.measured(sent_ns, rtt_ns, 2 * ONE_WAY, now)
            if now % URGENT_EVERY == 0:
                self.waits_ns.append(self.wait_ns)
                self.window.urgent_sent(now)
                rtt_ns = 2 * ONE_WAY + self.wait_ns
                if now % TOLD_WITHIN < URGENT_EVERY:
                    self._told.append((now + rtt_ns + TOLD_WITHIN, now, rtt_ns))
            while self.window.room_bytes(self._under_way_bytes, now):
                self.queue_bytes += SEGMENT_BYTES
                self._under_way_bytes += SEGMENT_BYTES
                self._under_way.append(now + self.wait_ns + 2 * ONE_WAY)
            self.queue_bytes = max(0, self.queue_bytes + self.others_bytes_per_ms - self.bytes_per_ms)

    @property
    def wait_ns(self) -> Nanos:
        return self.queue_bytes * MS // self.bytes_per_ms


@pytest.mark.parametrize("mbit", [10, 20, 100])
def test_when_bulk_begins_the_queue_stays_short(mbit: int) -> None:
    line = Line(mbit * 125)
    line.run(0, 10 * SECOND)
    assert max(line.waits_ns) <= 30 * MS


@pytest.mark.parametrize("mbit", [2, 10, 100])
def test_bulk_gets_nine_tenths_of_the_line_after_a_while(mbit: int) -> None:
    line = Line(mbit * 125)
    line.run(0, 5 * SECOND)
    before = line.acknowledged_bytes
    line.run(5 * SECOND, 10 * SECOND)
    assert line.acknowledged_bytes - before >= 0.9 * mbit * 125 * 5_000


def test_on_a_line_that_becomes_narrow_the_queue_is_short_again_within_a_second() -> None:
    line = Line(100 * 125)
    line.run(0, 5 * SECOND)
    line.bytes_per_ms = 20 * 125
    line.run(5 * SECOND, 6 * SECOND)
    line.waits_ns.clear()
    line.run(6 * SECOND, 9 * SECOND)
    assert max(line.waits_ns) <= 30 * MS


def test_a_queue_that_others_make_leaves_the_least_to_bulk() -> None:
    line = Line(10 * 125, others_bytes_per_ms=10 * 125, queue_bytes=100_000)
    line.run(0, 5 * SECOND)
    assert line.window.bytes == WINDOW_MIN
    assert line.acknowledged_bytes > 0


def test_a_queue_while_less_is_sent_than_may_be_changes_nothing() -> None:
    window = StreamWindow()
    assert window.room_bytes(1_000, 0) == WINDOW_FIRST - 1_000
    window.measured(1 * MS, 500 * MS, 60 * MS, 501 * MS)
    assert window.bytes == WINDOW_FIRST


def test_the_window_grows_to_its_bound_and_no_further() -> None:
    window = StreamWindow()
    for now in range(0, 100 * SECOND, SECOND):
        window.room_bytes(WINDOW_MAX, now + MS)
        window.measured(now, 60 * MS, 60 * MS, now + 60 * MS)
    assert window.bytes == WINDOW_MAX


def test_it_holds_as_long_as_something_urgent_is_sent() -> None:
    window = StreamWindow()
    window.measured(0, FAR, FAR, FAR)
    assert not window.holds(0)
    window.urgent_sent(0)
    assert window.holds(URGENT_FOR - 1)
    assert not window.holds(URGENT_FOR)


def test_it_does_not_hold_between_neighbours_that_are_near() -> None:
    window = StreamWindow()
    window.urgent_sent(0)
    assert not window.holds(0)
    window.measured(0, 100 * MS, FAR - 1, 100 * MS)
    assert not window.holds(0)
    window.measured(0, 100 * MS, FAR, 100 * MS)
    assert window.holds(0)
