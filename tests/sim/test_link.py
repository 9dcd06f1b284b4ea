"""Links, each between two stations that only send, receive and listen."""

import pytest
from stations import FakeStation, pair

from overlane.core.events import Lane
from overlane.core.units import MS, SECOND
from overlane.network import Link as LinkSpec
from overlane.sim.engine import Engine
from overlane.sim.line import SEND_BUFFER_BYTES_MIN
from overlane.sim.link import Link

CONTROL, DATA = Lane.CONTROL, Lane.DATA
START = 5 * SECOND


def connected(
    latency_ms: int = 10,
    jitter_ms: int = 0,
    loss: float = 0.0,
    rate_bps: int | None = None,
    is_stream: bool = False,
    seed: int = 1,
) -> tuple[Engine, FakeStation, FakeStation, Link]:
    """Stations a and b with an open connection, at the time START."""
    spec = LinkSpec(
        ends=("b", "a"),
        latency_ns=latency_ms * MS,
        jitter_ns=jitter_ms * MS,
        loss=loss,
        rate_bps=rate_bps,
        transport="stream" if is_stream else "datagram",
    )
    engine, a, b, link = pair(spec, seed)
    link.dial()
    engine.run_until(START)
    assert [what for _, what in a.heard + b.heard] == ["up b", "up a"]
    a.heard.clear()
    b.heard.clear()
    return engine, a, b, link


def numbered(count: int, size: int = 8) -> list[bytes]:
    return [number.to_bytes(size, "big") for number in range(count)]


def numbers(station: FakeStation) -> list[int]:
    return [int.from_bytes(data, "big") for _, data in station.frames]


def arrivals_ms(station: FakeStation) -> list[float]:
    return [(at - START) / MS for at, _ in station.frames]


# Opening and breaking


def test_a_connection_opens_after_one_round_trip_and_both_are_told() -> None:
    engine, a, b, link = pair(LinkSpec(ends=("a", "b"), latency_ns=10 * MS))
    link.dial()
    engine.run_until(SECOND)
    assert a.heard == [(20 * MS, "up b")]
    assert b.heard == [(20 * MS, "up a")]


def test_the_dialler_tries_until_the_other_broker_is_there() -> None:
    engine, a, b, link = pair(LinkSpec(ends=("a", "b"), latency_ns=10 * MS))
    b.is_alive = False
    link.dial()
    engine.run_until(20 * SECOND)
    assert a.heard == []
    b.is_alive = True
    engine.run_until(26 * SECOND)
    assert [what for _, what in a.heard] == ["up b"]


def test_the_dialler_tries_until_the_link_passes() -> None:
    engine, a, _, link = pair(LinkSpec(ends=("a", "b"), latency_ns=10 * MS))
    link.cut()
    link.dial()
    engine.run_until(20 * SECOND)
    assert a.heard == []
    link.heal()
    engine.run_until(26 * SECOND)
    assert [what for _, what in a.heard] == ["up b"]


@pytest.mark.parametrize("closer", ["a", "b"])
def test_the_other_end_learns_of_a_close_after_the_latency_and_the_link_opens_again(closer: str) -> None:
    engine, a, b, link = connected()
    link.close(closer)
    engine.run_until(START + SECOND)
    this, other = (a, b) if closer == "a" else (b, a)
    assert other.heard[0] == (START + 10 * MS, f"down {closer}")
    assert [what for _, what in other.heard] == [f"down {closer}", f"up {closer}"]
    assert [what for _, what in this.heard] == [f"up {other.name}"]
    assert 150 * MS <= this.heard[0][0] - START <= 300 * MS


def test_what_was_sent_before_a_close_arrives_before_the_news() -> None:
    engine, a, b, link = connected(jitter_ms=9, is_stream=True)
    a.send(DATA, *numbered(20))
    link.close("a")
    engine.run_until(START + 100 * MS)
    assert numbers(b) == list(range(20))
    assert b.heard[0][0] >= b.frames[-1][0]


def test_a_crash_breaks_the_connection_after_one_latency() -> None:
    engine, a, b, link = connected()
    a.is_alive = False
    link.hang_up("a")
    engine.run_until(START + 20 * SECOND)
    assert b.heard == [(START + 10 * MS, "down a")]
    a.is_alive = True
    link.dial()
    engine.run_until(START + 21 * SECOND)
    assert b.heard[1:] == [(START + 20 * SECOND + 20 * MS, "up a")]


def test_a_cut_tells_nobody() -> None:
    engine, a, b, link = connected()
    link.cut()
    engine.run_until(START + 100 * SECOND)
    assert a.heard == b.heard == []


def test_an_end_that_could_not_hear_of_the_close_hears_of_it_after_healing() -> None:
    engine, a, b, link = connected()
    link.cut()
    link.close("b")
    engine.run_until(START + 10 * SECOND)
    assert a.heard == []
    link.heal()
    engine.run_until(START + 20 * SECOND)
    assert a.heard[0] == (START + 10 * SECOND + 20 * MS, "down b")
    assert [what for _, what in a.heard] == ["down b", "up b"]
    assert [what for _, what in b.heard] == ["up a"]


def test_an_end_that_believes_in_a_dead_connection_is_told_down_before_up() -> None:
    engine, _, b, link = connected()
    link.cut()
    link.close("a")
    engine.run_until(START + 10 * SECOND)
    link.heal()
    engine.run_until(START + 20 * SECOND)
    assert [what for _, what in b.heard] == ["down a", "up a"]


# Datagrams


def test_datagrams_take_the_latency() -> None:
    engine, a, b, _ = connected()
    a.send(DATA, *numbered(3))
    engine.run_until(START + SECOND)
    assert arrivals_ms(b) == [10, 10, 10]
    assert numbers(b) == [0, 1, 2]


def test_jitter_spreads_datagrams_around_the_latency_and_lets_them_overtake() -> None:
    engine, a, b, _ = connected(jitter_ms=4)
    a.send(DATA, *numbered(500))
    engine.run_until(START + SECOND)
    times = arrivals_ms(b)
    assert 6 <= min(times) < 6.5
    assert 13.5 < max(times) <= 14
    assert numbers(b) != sorted(numbers(b)) == list(range(500))


def test_loss_loses_its_share_of_datagrams() -> None:
    engine, a, b, _ = connected(loss=0.3)
    a.send(DATA, *numbered(2_000))
    engine.run_until(START + SECOND)
    assert 1_300 < len(b.frames) < 1_500


def test_a_cut_loses_datagrams_sent_during_it_and_those_in_flight() -> None:
    engine, a, b, link = connected()
    a.send(DATA, *numbered(3))
    engine.run_until(START + 5 * MS)
    link.cut()
    a.send(DATA, *numbered(3))
    engine.run_until(START + SECOND)
    link.heal()
    a.send(DATA, b"after")
    engine.run_until(START + 2 * SECOND)
    assert [data for _, data in b.frames] == [b"after"]


def test_datagrams_of_a_broken_connection_do_not_arrive_on_the_next() -> None:
    engine, a, b, link = connected()
    link.slow(SECOND)
    a.send(DATA, b"old")
    link.heal()
    link.close("b")
    engine.run_until(START + 500 * MS)
    assert [what for _, what in b.heard] == ["up a"]
    engine.run_until(START + 5 * SECOND)
    assert b.frames == []


def test_one_links_luck_does_not_depend_on_what_another_direction_carries() -> None:
    def lost(with_traffic_back: bool) -> list[int]:
        engine, a, b, _ = connected(loss=0.3)
        if with_traffic_back:
            b.send(DATA, *numbered(100))
        a.send(DATA, *numbered(100))
        engine.run_until(START + SECOND)
        return numbers(b)

    assert lost(with_traffic_back=True) == lost(with_traffic_back=False)


# Streams


@pytest.mark.parametrize(("lane", "is_stream"), [(CONTROL, False), (CONTROL, True), (DATA, True)])
def test_a_stream_arrives_whole_and_in_order_despite_loss_and_jitter(lane: Lane, is_stream: bool) -> None:
    engine, a, b, _ = connected(loss=0.2, jitter_ms=5, is_stream=is_stream)
    for frame in numbered(500):
        a.send(lane, frame)
        engine.run_until(engine.now + MS)
    engine.run_until(START + 100 * SECOND)
    assert numbers(b) == list(range(500))


def test_a_loss_costs_a_stream_a_retransmission_and_holds_up_what_is_behind() -> None:
    engine, a, b, _ = connected(loss=0.2, is_stream=True)
    for frame in numbered(100):
        a.send(DATA, frame)
        engine.run_until(engine.now + MS)
    engine.run_until(START + 100 * SECOND)
    delays = [at - sent for sent, at in enumerate(arrivals_ms(b))]
    # On time; one retransmission after max(1.5 round trips, a round trip and 10 ms); a second one after a timeout.
    assert {delay for delay in delays if delay == 10}
    assert {delay for delay in delays if delay == 10 + 30}
    assert {delay for delay in delays if delay == 10 + 30 + 200}
    held_up = [number for number in range(1, 100) if arrivals_ms(b)[number] == arrivals_ms(b)[number - 1]]
    assert held_up


def test_a_stream_waits_out_a_cut_and_arrives_some_time_after_healing() -> None:
    engine, a, b, link = connected()
    a.send(CONTROL, b"in flight")
    engine.run_until(START + 5 * MS)
    link.cut()
    a.send(CONTROL, b"during")
    engine.run_until(START + 700 * MS)
    link.heal()
    a.send(CONTROL, b"behind")
    engine.run_until(START + 3 * SECOND)
    # The sender's kernel tries at 205, 605, 1405 ms: the line passes again at the third.
    assert b.frames == [(START + 1_415 * MS, data) for data in (b"in flight", b"during", b"behind")]


def test_a_stream_loses_what_it_had_when_the_connection_breaks_during_a_cut() -> None:
    engine, a, b, link = connected()
    link.cut()
    a.send(CONTROL, b"lost")
    link.close("a")
    link.heal()
    engine.run_until(START + 3 * SECOND)
    a.send(CONTROL, b"new")
    engine.run_until(START + 6 * SECOND)
    assert [data for _, data in b.frames] == [b"new"]


def test_a_stream_that_cannot_get_a_frame_across_breaks_the_connection() -> None:
    engine, a, b, link = connected()
    link.lose(0.9)
    a.send(CONTROL, *numbered(3))
    engine.run_until(START + 5 * SECOND - 1)
    assert a.heard == b.heard == []
    engine.run_until(START + 5 * SECOND + 10 * MS)
    assert a.heard == [(START + 5 * SECOND, "down b")]
    assert b.heard == [(START + 5 * SECOND + 10 * MS, "down a")]
    link.heal()
    engine.run_until(START + 20 * SECOND)
    assert [what for _, what in a.heard] == ["down b", "up b"]


def test_a_link_that_loses_everything_is_as_good_as_cut() -> None:
    engine, a, b, link = connected()
    link.lose(1.0)
    a.send(CONTROL, b"control")
    a.send(DATA, b"data")
    engine.run_until(START + 10 * SECOND)
    assert b.frames == []
    link.heal()
    engine.run_until(START + 60 * SECOND)
    assert [data for _, data in b.frames] == [b"control"]


# Latency and rate


def test_a_slow_link_takes_longer_until_it_heals() -> None:
    engine, a, b, link = connected()
    link.slow(80 * MS)
    a.send(DATA, b"slow")
    engine.run_until(START + 100 * MS)
    link.heal()
    a.send(DATA, b"fast")
    engine.run_until(START + SECOND)
    assert arrivals_ms(b) == [80, 110]


def test_a_rate_sends_one_frame_after_the_other() -> None:
    engine, a, b, _ = connected(rate_bps=1_000_000)
    a.send(DATA, *numbered(3, size=125))
    engine.run_until(START + SECOND)
    assert arrivals_ms(b) == [11, 12, 13]


def test_the_send_buffer_leaves_the_order_to_the_broker() -> None:
    engine, a, b, _ = connected(rate_bps=1_000_000)
    a.send(DATA, *numbered(100, size=125))
    assert 100 - a.waiting() == SEND_BUFFER_BYTES_MIN // 125
    engine.run_until(START + 50 * MS)
    assert 100 - 50 - 12 <= a.waiting() <= 100 - 50 - 6  # 50 are on the wire, the buffer is at least half full
    engine.run_until(START + SECOND)
    assert arrivals_ms(b) == [11 + number for number in range(100)]


def test_without_a_rate_everything_leaves_at_once() -> None:
    engine, a, b, _ = connected()
    a.send(DATA, *numbered(1_000, size=1_000))
    assert a.waiting() == 0
    engine.run_until(START + SECOND)
    assert set(arrivals_ms(b)) == {10}
