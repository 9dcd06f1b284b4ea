"""The two directions of a link are told apart by hop acknowledgements."""

import pytest

from overlane.core.links.hop_acknowledgements import HopAckGenerator, UnacknowledgedParcels
from overlane.core.links.link_health import LinkHealth
from overlane.core.units import MS, SECOND, US, Nanos
from overlane.core.wire import frame_codec


class Line:
    """A link whose other end has a clock of its own."""

    def __init__(self, there_ms: int, back_ms: int, offset_ns: Nanos = 0, drift_ppm: int = 0) -> None:
        self.there_ns, self.back_ns = there_ms * MS, back_ms * MS
        self.offset_ns, self.drift_ppm = offset_ns, drift_ppm
        self.now: Nanos = 1_000 * SECOND
        self.health = LinkHealth(SECOND)
        self.health.connected(self.now)
        self._sent = UnacknowledgedParcels[str]()
        self._came = HopAckGenerator()

    def send(self, count: int = 1, delay_ms: int = 0) -> None:
        for _ in range(count):
            sent_ns = self.now
            number = self._sent.add("parcel", True, sent_ns)
            came_ns = sent_ns + self.there_ns
            clock_ns = came_ns + self.offset_ns + came_ns * self.drift_ppm // 1_000_000
            self._came.came(number, True, clock_ns)
            frame = frame_codec.hop_ack(*self._came.take(clock_ns + delay_ms * MS))
            read = frame_codec.read_hop_ack(frame_codec.split(frame)[0][0][1])
            self.now = came_ns + delay_ms * MS + self.back_ns
            told = self._sent.handle_hop_ack(read, self.now)
            assert told.rtt_ns is not None
            self.health.observed(told.rtt_ns, self.now, told.late, told.skew)
            self.now += 5 * MS

    def latencies_ms(self) -> tuple[int, int]:
        return round(self.health.latency_ns / MS), round(self.health.incoming_latency_ns / MS)


OFFSETS = (0, 123_456_789 * US, -77 * SECOND, 524 * MS)


@pytest.mark.parametrize("offset_ns", OFFSETS)
def test_a_queue_in_one_direction_counts_in_that_direction(offset_ns: Nanos) -> None:
    line = Line(20, 20, offset_ns)
    line.send(20)
    assert line.latencies_ms() == (20, 20)
    line.there_ns += 60 * MS
    line.send(2)
    assert line.latencies_ms() == (80, 20)
    line.there_ns -= 60 * MS
    line.send(1)
    assert line.latencies_ms() == (20, 20)
    line.back_ns += 60 * MS
    line.send(2)
    assert line.latencies_ms() == (20, 80)


@pytest.mark.parametrize("offset_ns", OFFSETS)
def test_what_slows_both_directions_counts_in_both(offset_ns: Nanos) -> None:
    line = Line(20, 20, offset_ns)
    line.send(20)
    line.there_ns, line.back_ns = 70 * MS, 70 * MS
    line.send(2, delay_ms=10)
    assert line.latencies_ms() == (70, 70)


def test_a_delayed_acknowledgement_is_no_queue() -> None:
    line = Line(20, 20)
    line.send(20)
    line.send(20, delay_ms=35)
    assert line.latencies_ms() == (20, 20)


def test_clocks_that_drift_pretend_no_queue() -> None:
    line = Line(20, 20, drift_ppm=500)
    line.send(4_000)
    assert line.now > 1_060 * SECOND
    assert line.latencies_ms() == (20, 20)


def test_another_path_starts_without_a_queue() -> None:
    line = Line(20, 20)
    line.send(20)
    line.there_ns += 60 * MS
    line.send(2)
    line.health.path_changed(40 * MS, line.now)
    assert line.latencies_ms() == (20, 20)


def test_what_is_known_of_the_directions_fades_when_only_pings_are_answered() -> None:
    line = Line(20, 20)
    line.send(20)
    line.there_ns += 60 * MS
    line.send(2)
    for _ in range(60):
        line.health.observed(100 * MS, line.now)
    assert line.latencies_ms() == (50, 50)
