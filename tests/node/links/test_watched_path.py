"""A watched path: silence is noticed soon after it begins, and not where there is none."""

from random import Random

import pytest

from overlane.core.units import MS, SECOND, Nanos
from overlane.core.wire import frame_codec
from overlane.node.links.datagrams.path import PathState
from overlane.node.links.datagrams.seal import Opener, Sealer
from overlane.node.links.multipath.watched_path import (
    KEEP_EVERY,
    PathNotice,
    WatchedPath,
    decode_notice,
    encode_notice,
)

PING = frame_codec.ping(1)


class Air:
    """Two ends and the air between them."""

    def __init__(self, latency_ns: Nanos = 30 * MS, loss: float = 0.0, seed: int = 0) -> None:
        self.latency_ns = latency_ns
        self.loss = loss
        self.is_cut = False
        self.now: Nanos = 0
        self.bytes = 0
        self._luck = Random(seed)
        self._under_way: list[tuple[Nanos, str, bytes]] = []
        self.notices = {"a": PathNotice(0, frozenset()), "b": PathNotice(0, frozenset())}
        self.ends = {
            "a": WatchedPath(Sealer(512, None, 3), Opener(None, 3), 0, begins=True, notice=lambda: self.notices["a"]),
            "b": WatchedPath(Sealer(256, None, 3), Opener(None, 3), 0, begins=False, notice=lambda: self.notices["b"]),
        }

    def send(self) -> None:
        self._emit("a", self.ends["a"].seal(PING, self.now, asks=True))

    def run_until(self, until: Nanos) -> None:
        while True:
            deadlines = [end.next_deadline() for end in self.ends.values()]
            due = min([*deadlines, *(arrival for arrival, _, _ in self._under_way)])
            if due > until:
                break
            self.now = max(self.now, due)
            for one in [one for one in self._under_way if one[0] <= self.now]:
                self._under_way.remove(one)
                self.ends["b" if one[1] == "a" else "a"].open(one[2], self.now)
            for name, end in self.ends.items():
                for datagram in end.tick(self.now) if self.now >= end.next_deadline() else []:
                    self._emit(name, datagram)
        self.now = until

    def flow(self, until: Nanos, every_ns: Nanos = 10 * MS) -> None:
        while self.now < until:
            self.send()
            self.run_until(self.now + every_ns)

    def _emit(self, sender: str, datagram: bytes) -> None:
        self.bytes += len(datagram) + 28
        if not self.is_cut and self._luck.random() >= self.loss:
            self._under_way.append((self.now + self.latency_ns, sender, datagram))

    def cut(self) -> Nanos:
        self.is_cut = True
        self._under_way.clear()
        return self.now


def opened(**conditions: float) -> Air:
    air = Air(**conditions)  # type: ignore[arg-type]
    air.run_until(2 * SECOND)
    assert {end.state for end in air.ends.values()} == {PathState.OPEN}
    return air


def until_silent(air: Air, *, flows: bool, within_ns: Nanos = 3 * SECOND) -> Nanos:
    since, path = air.cut(), air.ends["a"]
    while not path.is_silent:
        assert air.now < since + within_ns
        air.flow(air.now + 10 * MS) if flows else air.run_until(air.now + MS)
    return air.now - since


def test_an_idle_path_is_kept_alive_and_measured_with_few_bytes() -> None:
    air = opened()
    before, path = air.bytes, air.ends["a"]
    air.run_until(air.now + 100 * SECOND)
    assert (path.state, path.is_silent, path.loss_millionths) == (PathState.OPEN, False, 0)
    assert abs(path.flight.rtt_ns - 60 * MS) < MS
    assert (air.bytes - before) / 100 < 600


def test_where_messages_flow_silence_is_noticed_within_a_round_trip_and_what_was_sent_is_known() -> None:
    air = opened()
    air.flow(air.now + SECOND)
    noticed_ns = until_silent(air, flows=True)
    assert noticed_ns <= 100 * MS
    unheard = air.ends["a"].take_all_unheard()
    assert len(unheard) >= noticed_ns // (10 * MS)
    assert min(sent_ns for _, sent_ns in unheard) <= air.now - noticed_ns


def test_on_an_idle_path_silence_is_noticed_after_two_probes() -> None:
    assert until_silent(opened(), flows=False) <= KEEP_EVERY + 2 * 100 * MS


def test_a_silent_path_is_given_up_after_a_second_and_found_again() -> None:
    air = opened()
    until_silent(air, flows=False)
    air.run_until(air.now + 3 * SECOND)
    assert (air.ends["a"].state, air.ends["a"].is_silent) == (PathState.PROBING, False)
    air.is_cut = False
    for end in air.ends.values():
        end.probe_now(air.now)
    air.run_until(air.now + 200 * MS)
    assert {end.state for end in air.ends.values()} == {PathState.OPEN}


def test_any_answer_ends_a_silence() -> None:
    air = opened()
    until_silent(air, flows=True)
    air.is_cut = False
    air.run_until(air.now + 200 * MS)
    assert not air.ends["a"].is_silent
    assert air.ends["a"].loss_millionths == 0


@pytest.mark.parametrize("seed", range(5))
def test_loss_is_measured(seed: int) -> None:
    print("seed", seed)
    air = opened(seed=seed)
    air.loss = 0.1
    air.flow(air.now + 20 * SECOND)
    assert 30_000 < air.ends["a"].loss_millionths < 250_000


def test_a_host_that_is_late_itself_does_not_judge() -> None:
    air = opened()
    air.flow(air.now + SECOND)
    path = air.ends["a"]
    late = path.next_deadline() + 300 * MS  # everything stood still, and the answers lie unread
    path.tick(late)
    assert not path.is_silent


def test_notices_tell_what_has_come_of_the_stream_and_which_paths_are_gone() -> None:
    air = opened()
    air.notices["a"] = PathNotice(1 << 40, frozenset({1, 7, 255}))
    air.ends["a"].tell_now()
    air.run_until(air.now + 40 * MS)
    assert air.ends["b"].told == air.notices["a"]


@pytest.mark.parametrize("notice", [PathNotice(0, frozenset()), PathNotice((1 << 64) - 1, frozenset(range(1, 60)))])
def test_a_notice_is_read_as_it_was_written(notice: PathNotice) -> None:
    assert decode_notice(encode_notice(notice)) == notice


@pytest.mark.parametrize("size", range(8))
def test_a_notice_that_is_too_short_is_none(size: int) -> None:
    assert decode_notice(bytes(size)) is None
