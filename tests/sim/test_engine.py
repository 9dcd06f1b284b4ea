from overlane.sim import random_streams
from overlane.sim.clock import BASE_NS, SkewedClock
from overlane.sim.engine import Engine


def test_what_is_due_at_the_same_time_happens_in_the_order_it_was_put_in() -> None:
    engine = Engine()
    happened: list[str] = []
    for word in ("one", "two", "three"):
        engine.at(5, happened.append, word)
    engine.at(4, happened.append, "zero")
    engine.run_until(5)
    assert happened == ["zero", "one", "two", "three"]


def test_time_stands_at_each_event_and_then_at_the_end() -> None:
    engine = Engine(start=-10)
    times: list[int] = []
    engine.at(-3, lambda _: times.append(engine.now))
    engine.at(7, lambda _: times.append(engine.now))
    engine.run_until(20)
    assert (times, engine.now) == ([-3, 7], 20)


def test_what_an_event_starts_within_the_time_happens_too() -> None:
    engine = Engine()
    happened: list[int] = []

    def again(count: int) -> None:
        happened.append(engine.now)
        if count:
            engine.at(engine.now + 10, again, count - 1)

    engine.at(0, again, 9)
    engine.run_until(35)
    assert happened == [0, 10, 20, 30]


def test_time_never_runs_backwards() -> None:
    engine = Engine()
    times: list[int] = []
    engine.at(10, lambda _: engine.at(3, lambda _: times.append(engine.now)))
    engine.run_until(20)
    assert times == [10]


def test_streams_of_luck_are_independent_and_repeatable() -> None:
    first = [random_streams.stream(1, "line", "a", "b").random() for _ in range(3)]
    assert first == [random_streams.stream(1, "line", "a", "b").random() for _ in range(3)]
    assert first[0] != random_streams.stream(1, "line", "b", "a").random()
    assert first[0] != random_streams.stream(2, "line", "a", "b").random()


def test_the_luck_of_a_seed_is_the_same_everywhere() -> None:
    assert random_streams.between(random_streams.stream(7, "soak"), 0, 10**12) == 613468975349


def test_draws_keep_within_their_bounds() -> None:
    dice = random_streams.stream(3, "dice")
    assert {random_streams.between(dice, 1, 6) for _ in range(200)} == {1, 2, 3, 4, 5, 6}
    assert sorted(random_streams.some_of(dice, "abcd", 4)) == ["a", "b", "c", "d"]
    assert all(0.5 <= random_streams.share(dice, 0.5, 0.75) < 0.75 for _ in range(100))


def test_a_skewed_clock_reads_its_offset_and_drift() -> None:
    assert SkewedClock().read(12) == BASE_NS + 12
    assert SkewedClock(offset_ns=-5).read(12) == BASE_NS + 7
    assert SkewedClock(drift_ppm=100.0).read(1_000_000_000) == BASE_NS + 1_000_100_000


def test_a_timer_by_a_skewed_clock_comes_at_the_first_moment_that_is_not_too_early() -> None:
    for drift_ppm in (0.0, 250.0, -250.0, 0.001):
        clock = SkewedClock(offset_ns=123_456, drift_ppm=drift_ppm)
        for now in (-9_999_999_999, -1, 0, 1, 777_777_777, 10**12 + 1):
            reading = clock.read(now)
            due = clock.true_time(reading)
            assert clock.read(due) >= reading
            assert clock.read(due - 1) < reading
