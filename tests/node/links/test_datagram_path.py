"""The path of a link's datagrams: it is used when it is known to work, and left when it does not, without a clock."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire import frame_codec
from overlane.node.links.datagrams.in_flight import WINDOW_FIRST, WINDOW_MIN, InFlight
from overlane.node.links.datagrams.path import PROBE_LATEST, SMALL_BYTES, DatagramPath, PathState
from overlane.node.links.datagrams.seal import (
    FRAMES_BYTES_MAX,
    DatagramAck,
    DatagramRefusal,
    DatagramRefused,
    Opener,
    Sealer,
)

LATENCY: Nanos = 20 * MS
PING = frame_codec.ping(1)


def frames_of(size: int) -> bytes:
    return b"".join([(size - 4).to_bytes(4), b"\x06", bytes(size - 5)])


@dataclass
class Ends:
    """Two ends and the air between them: `passes` tells what of it arrives."""

    passes: Callable[[str, bytes], bool] = lambda _sender, _datagram: True
    latency_ns: Nanos = LATENCY
    now: Nanos = 0
    heard: dict[str, list[bytes]] = field(default_factory=lambda: {"a": [], "b": []})
    sent: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    _air: list[tuple[Nanos, str, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ends = {
            "a": DatagramPath(Sealer(2, None), Opener(None), 0, begins=True),
            "b": DatagramPath(Sealer(1, None), Opener(None), 0, begins=False),
        }

    def send(self, end: str, frames: bytes = PING) -> bool:
        if not self.ends[end].takes(len(frames), self.now):
            return False
        self._emit(end, self.ends[end].seal(frames, self.now, asks=True))
        return True

    def run(self, duration_ns: Nanos) -> None:
        until = self.now + duration_ns
        while True:
            due = min(end.next_deadline() for end in self.ends.values())
            due = min([due, *(arrival for arrival, _, _ in self._air)])
            if due > until:
                break
            self.now = max(self.now, due)
            for arrival, sender, datagram in [one for one in self._air if one[0] <= self.now]:
                self._air.remove((arrival, sender, datagram))
                receiver = "b" if sender == "a" else "a"
                frames, _ = self.ends[receiver].open(datagram, self.now)
                if frames:
                    self.heard[receiver].append(frames)
                self._tend()
            self._tend()
        self.now = until

    def _tend(self) -> None:
        for name, end in self.ends.items():
            if self.now >= end.next_deadline():
                for datagram in end.tick(self.now):
                    self._emit(name, datagram)

    def _emit(self, sender: str, datagram: bytes) -> None:
        self.sent[sender] += 1
        if self.passes(sender, datagram):
            self._air.append((self.now + self.latency_ns, sender, datagram))

    def state(self, end: str) -> PathState:
        return self.ends[end].state

    @property
    def states(self) -> tuple[PathState, PathState]:
        return self.ends["a"].state, self.ends["b"].state


def opened(**conditions: object) -> Ends:
    ends = Ends(**conditions)  # type: ignore[arg-type]
    ends.run(SECOND)
    assert ends.states == (PathState.OPEN, PathState.OPEN)
    return ends


def test_both_ends_open_once_a_probe_of_each_was_answered() -> None:
    ends = Ends()
    assert not ends.send("a")
    ends.run(2 * LATENCY)
    assert ends.states == (PathState.OPEN, PathState.PROBING)
    ends.run(2 * LATENCY)
    assert ends.states == (PathState.OPEN, PathState.OPEN)
    assert ends.ends["a"].frames_bytes_max == FRAMES_BYTES_MAX
    assert ends.ends["a"].flight.rtt_ns == 2 * LATENCY


def test_the_end_that_was_dialled_says_nothing_before_it_has_heard_the_other() -> None:
    ends = Ends(passes=lambda _sender, _datagram: False)
    ends.run(60 * SECOND)
    assert ends.sent["b"] == 0
    assert ends.sent["a"] <= 7 + 60 * SECOND // PROBE_LATEST
    assert ends.ends["b"].next_deadline() == NEVER


def test_an_idle_path_costs_nothing() -> None:
    ends = opened()
    before = dict(ends.sent)
    ends.run(600 * SECOND)
    assert ends.sent == before
    assert ends.states == (PathState.OPEN, PathState.OPEN)


def test_what_is_sent_arrives_and_what_came_is_told_within_a_moment() -> None:
    ends = opened()
    for number in range(5):
        assert ends.send("a", frame_codec.ping(number))
    before = ends.sent["b"]
    ends.run(200 * MS)
    assert ends.heard["b"] == [frame_codec.ping(number) for number in range(5)]
    assert ends.sent["b"] == before + 1
    assert ends.ends["a"].flight.bytes == 0


def test_an_answer_carries_what_came_with_it() -> None:
    ends = opened()
    ends.send("a")
    ends.run(LATENCY)
    before = ends.sent["b"]
    ends.send("b", frame_codec.pong(1))
    ends.run(50 * MS)
    assert ends.ends["a"].flight.bytes == 0
    assert ends.sent["b"] == before + 1


def test_a_path_that_swallows_everything_is_doubted_and_then_left_and_tried_again() -> None:
    is_black_hole = [False]
    ends = opened(passes=lambda _sender, _datagram: not is_black_hole[0])
    is_black_hole[0] = True
    for _ in range(8):
        assert ends.send("a")
        ends.run(50 * MS)
    assert ends.state("a") is PathState.DOUBTED
    assert ends.send("a"), "also over the path that is doubted, to see whether it works"
    ends.run(SECOND)
    assert ends.state("a") is PathState.PROBING
    assert not ends.send("a")
    is_black_hole[0] = False
    ends.run(PROBE_LATEST)
    assert ends.state("a") is PathState.OPEN


def test_what_the_path_may_have_swallowed_is_given_back_when_it_is_doubted() -> None:
    is_black_hole = [False]
    ends = opened(passes=lambda _sender, _datagram: not is_black_hole[0])
    for number in range(3):
        ends.send("a", frame_codec.ping(number))
        ends.run(10 * MS)
    ends.run(100 * MS)
    assert ends.ends["a"].take_unheard() == []
    is_black_hole[0] = True
    began_ns = ends.now
    for number in range(10, 18):
        ends.send("a", frame_codec.ping(number))
        ends.run(50 * MS)
    assert ends.state("a") is PathState.DOUBTED
    swallowed = ends.ends["a"].take_unheard()
    assert 4 <= len(swallowed) < 8, "what was sent after the doubt began went over the stream already"
    assert swallowed == [(frame_codec.ping(10 + one), began_ns + one * 50 * MS) for one in range(len(swallowed))]
    assert ends.ends["a"].take_unheard() == []


def test_doubt_ends_with_the_first_answer() -> None:
    is_black_hole = [False]
    ends = opened(passes=lambda _sender, _datagram: not is_black_hole[0])
    is_black_hole[0] = True
    for _ in range(8):
        ends.send("a")
        ends.run(50 * MS)
    assert ends.state("a") is PathState.DOUBTED
    is_black_hole[0] = False
    ends.send("a")
    ends.run(2 * LATENCY + 100 * MS)
    assert ends.state("a") is PathState.OPEN


def test_a_path_that_loses_much_is_not_doubted() -> None:
    sent = [0]

    def passes(_sender: str, _datagram: bytes) -> bool:
        sent[0] += 1
        return sent[0] % 3 != 0

    ends = opened(passes=passes)
    for _ in range(500):
        ends.send("a")
        ends.send("b")
        ends.run(10 * MS)
        assert PathState.PROBING not in ends.states
        assert ends.state("a") is PathState.OPEN
    flight = ends.ends["a"].flight
    assert flight.window_bytes == WINDOW_FIRST, "loss that is not of its making"
    assert 0.2 < flight.lost_count / (flight.lost_count + flight.came_count) < 0.5


def test_where_only_small_packets_pass_small_frames_do() -> None:
    ends = Ends(passes=lambda _sender, datagram: len(datagram) <= SMALL_BYTES)
    ends.run(2 * SECOND)
    assert ends.state("a") is PathState.OPEN
    assert not ends.send("a", frames_of(FRAMES_BYTES_MAX))
    assert ends.send("a", frames_of(ends.ends["a"].frames_bytes_max))


def test_where_large_packets_stop_passing_large_frames_do_not_take_the_path_until_they_pass_again() -> None:
    is_narrow = [False]
    ends = opened(passes=lambda _sender, datagram: not is_narrow[0] or len(datagram) <= SMALL_BYTES)
    is_narrow[0] = True
    for _ in range(20):
        ends.send("a", frames_of(FRAMES_BYTES_MAX))
        ends.send("a", PING)
        ends.run(50 * MS)
    assert ends.state("a") is PathState.OPEN
    assert not ends.send("a", frames_of(FRAMES_BYTES_MAX))
    assert ends.send("a", PING)
    is_narrow[0] = False
    ends.run(PROBE_LATEST + SECOND)
    assert ends.send("a", frames_of(FRAMES_BYTES_MAX))


def test_who_claims_to_have_heard_what_was_never_sent_is_not_believed() -> None:
    ends = opened()
    lying = Sealer(2, None)
    lying.number = 1_000
    with pytest.raises(DatagramRefused):
        ends.ends["a"].open(lying.seal(0, DatagramAck(99_999, 0, 0), PING), ends.now)
    assert ends.ends["a"].refused == {DatagramRefusal.MALFORMED: 1}


def test_the_window_grows_while_it_holds_up_and_nothing_queues() -> None:
    ends = opened()
    sent = 0
    for _ in range(20):
        while ends.send("a", frames_of(1_000)):
            sent += 1
        ends.run(2 * LATENCY)
    assert ends.ends["a"].flight.window_bytes > 4 * WINDOW_FIRST
    assert sent * 1_000 > 20 * WINDOW_FIRST


def test_the_window_shrinks_when_a_queue_grows_but_always_leaves_some_room() -> None:
    flight = InFlight()
    now: Nanos = 0
    for number in range(1, 400):
        now += 10 * MS
        flight.sent(number, 1_000, now)
        queued_ns = min(number, 200) * MS
        flight.told(DatagramAck(number, 0, (1 << 63) - 1), now + 20 * MS + queued_ns)
    assert flight.window_bytes == WINDOW_MIN
    assert flight.least_rtt_ns < 40 * MS


def test_what_is_never_answered_does_not_block_the_window_for_ever() -> None:
    flight = InFlight()
    number = 0
    while flight.find_room(1_000, 0):
        number += 1
        flight.sent(number, 1_000, 0)
    assert not flight.find_room(1_000, 0)
    flight.give_up(flight.next_given_up())
    assert flight.bytes == 0
    assert flight.lost_count == number
