"""Link health: what silence, delay and loss mean, link by link."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.core.links.link_health import (
    ATTEMPTS_PER_CYCLE,
    HOLD_MAX,
    HOLD_MIN,
    MEMORY_MAX,
    MEMORY_MIN,
    RELAPSE_WITHIN,
    STANDBY_MARGIN,
    TROUBLE_LOSS,
    LinkHealth,
    LinkState,
)
from overlane.core.units import MS, NEVER, SECOND, Nanos

INTERVAL = 500 * MS
START = 7_000 * SECOND

Fate = Callable[[Nanos], Nanos | None]
"""After how long a ping sent at a time is answered, or None."""


class Line:
    """A link that is driven by its own deadlines."""

    def __init__(self, fate: Fate) -> None:
        self.health = LinkHealth(INTERVAL)
        self.now: Nanos = START
        self.fate = fate
        self.pings: list[Nanos] = []
        self.states: list[tuple[Nanos, LinkState]] = []
        self._answers: list[tuple[Nanos, int]] = []
        self.health.connected(self.now)

    def run(self, duration: Nanos) -> None:
        end = self.now + duration
        while not self.health.dead:
            answer = min(self._answers, default=(NEVER, 0))
            when = min(self.health.next_deadline(), answer[0])
            if when > end:
                break
            self.now = max(self.now, when)
            if answer[0] <= self.now:
                self._answers.remove(answer)
                self.health.answered(answer[1], self.now)
            self._tick()
        self.now = max(self.now, end)

    def _tick(self) -> None:
        token = self.health.tick(self.now)
        assert self.health.dead or self.health.next_deadline() > self.now
        if token is not None:
            self.pings.append(self.now)
            delay = self.fate(self.now)
            if delay is not None:
                self._answers.append((self.now + delay, token))
        if not self.states or self.states[-1][1] is not self.health.state:
            self.states.append((self.now, self.health.state))

    def was(self) -> list[LinkState]:
        return [state for _, state in self.states]


def steady(delay_ms: int) -> Fate:
    return lambda _: delay_ms * MS


def mute(_: Nanos) -> None:
    return None


UP, SUSPECT, FAILED = LinkState


def test_a_link_that_answers_stays_up_and_is_pinged_once_a_cycle() -> None:
    line = Line(steady(20))
    line.run(60 * SECOND)
    assert line.was() == [UP]
    assert line.pings == [START + cycle * INTERVAL for cycle in range(121)]
    assert (line.health.rtt_ns, line.health.latency_ns, line.health.loss_millionths) == (20 * MS, 10 * MS, 0)


def test_a_lost_ping_is_repeated_within_its_cycle() -> None:
    line = Line(steady(20))
    line.run(10 * SECOND - 1)
    line.fate = lambda at: None if at == START + 10 * SECOND else 20 * MS
    line.run(INTERVAL)
    first, second = line.pings[-2:]
    assert first == START + 10 * SECOND
    assert 20 * MS < second - first == line.health.patience_ns < INTERVAL
    assert line.was() == [UP]


def test_no_more_pings_go_out_in_a_cycle_than_its_attempts() -> None:
    line = Line(steady(20))
    line.run(10 * SECOND - 1)
    line.fate = mute
    line.run(INTERVAL)
    assert sum(at >= START + 10 * SECOND for at in line.pings) == ATTEMPTS_PER_CYCLE


def test_three_silent_cycles_are_death_and_not_earlier() -> None:
    line = Line(steady(20))
    line.run(10 * SECOND - 1)
    line.fate = mute
    line.run(3 * INTERVAL)
    assert not line.health.dead
    line.run(1)
    assert line.health.dead


def test_a_connection_on_which_nothing_ever_passes_is_dead_after_three_cycles() -> None:
    line = Line(mute)
    line.run(10 * SECOND)
    assert line.health.dead
    assert line.pings[-1] < START + 3 * INTERVAL


def test_one_answer_in_three_cycles_keeps_a_link_alive() -> None:
    line = Line(steady(20))
    line.run(10 * SECOND)
    line.fate = lambda at: 20 * MS if (at - START) // INTERVAL % 3 == 0 else None
    line.run(60 * SECOND)
    assert not line.health.dead


def test_a_broken_connection_is_a_failed_link_that_asks_for_no_time() -> None:
    line = Line(steady(20))
    line.run(SECOND)
    line.health.broken(line.now)
    assert (line.health.state, line.health.next_deadline()) == (FAILED, NEVER)
    assert line.health.tick(line.now + SECOND) is None


def suspected(health: LinkHealth, now: Nanos) -> int:
    """After how many silent probes the link is suspect."""
    probes = 0
    while health.state is UP:
        health.silent(now)
        probes += 1
    return probes


def test_a_few_silent_probes_make_a_clean_link_suspect_and_many_more_a_lossy_one() -> None:
    probes = []
    for loss in (0, 50_000, 100_000, 200_000, 300_000, 500_000):
        health = LinkHealth(INTERVAL)
        health.connected(START)
        health.loss_millionths = loss
        probes.append(suspected(health, START))
    assert 2 <= probes[0] <= 3
    assert probes == sorted(probes)
    assert probes[-1] >= 5 * probes[0]


def test_a_clean_link_that_falls_silent_is_suspect_long_before_it_is_dead() -> None:
    line = Line(steady(20))
    line.run(10 * SECOND - 1)
    line.fate = mute
    line.run(INTERVAL)
    assert line.was() == [UP, SUSPECT]
    assert line.states[-1][0] - (START + 10 * SECOND) < 5 * 20 * MS


def test_one_silent_probe_is_no_suspicion() -> None:
    line = Line(steady(20))
    line.run(10 * SECOND)
    line.health.silent(line.now)
    line.run(SECOND)
    assert line.was() == [UP]


def test_a_link_that_became_slow_is_adopted_at_once_and_not_taken_for_lossy() -> None:
    line = Line(steady(20))
    line.run(10 * SECOND)
    line.fate = steady(200)
    line.run(2 * SECOND)
    assert line.health.rtt_ns == 200 * MS
    assert line.health.loss_millionths == 0
    assert line.health.state is UP
    assert line.health.risky_until < line.now


def test_one_late_answer_among_many_changes_little() -> None:
    health = LinkHealth(INTERVAL)
    health.connected(START)
    for _ in range(50):
        health.observed(20 * MS, START)
    health.observed(90 * MS, START)
    assert health.rtt_ns == 20 * MS
    health.observed(90 * MS, START)
    assert health.rtt_ns == 90 * MS


def test_one_answer_that_comes_early_is_believed() -> None:
    health = LinkHealth(INTERVAL)
    health.connected(START)
    for _ in range(50):
        health.observed(90 * MS, START)
    health.observed(20 * MS, START)
    assert (health.rtt_ns, health.swing_ns) == (20 * MS, 0)


def test_a_link_that_became_slower_is_asked_again_at_once() -> None:
    line = Line(steady(100))
    line.run(10 * SECOND - 1)
    line.fate = steady(105)  # outside the band, but not overdue
    line.run(300 * MS)
    assert [at - START - 10 * SECOND for at in line.pings[-2:]] == [0, 105 * MS]
    assert line.health.rtt_ns == 105 * MS


def test_a_link_that_is_asked_is_pinged_once_and_keeps_a_ping_for_silence() -> None:
    line = Line(steady(20))
    line.run(10 * SECOND - 1)
    before = len(line.pings)
    for _ in range(40):
        line.run(10 * MS)
        line.health.ask(line.now + 1)
    assert 1 < len(line.pings) - before < ATTEMPTS_PER_CYCLE


def test_the_first_suspicion_ends_with_the_first_answer() -> None:
    line = Line(steady(20))
    line.run(10 * SECOND)
    suspected(line.health, line.now)
    line.run(INTERVAL + 20 * MS)
    assert line.health.state is UP


def test_the_hold_doubles_with_each_relapse() -> None:
    line = LinkHealth(INTERVAL)
    line.connected(START)
    now = START
    found = []
    for _ in range(10):
        suspected(line, now)
        line.observed(20 * MS, now)
        began = now
        while line.state is SUSPECT:
            now += 10 * MS
            line.observed(20 * MS, now)
        found.append(now - began)
    assert found == [0, *(min(HOLD_MAX, HOLD_MIN << relapse) for relapse in range(9))]


def test_a_flapping_link_stays_suspect() -> None:
    line = Line(lambda at: 20 * MS if (at - START) // (2 * SECOND) % 2 == 0 else None)
    line.health.lost(START)
    line.run(120 * SECOND)
    last_minute = [state for at, state in line.states if at >= START + 60 * SECOND]
    assert last_minute in ([], [SUSPECT])
    assert line.health.state is SUSPECT


def test_a_relapse_after_a_quiet_time_is_a_first_suspicion_again() -> None:
    health = LinkHealth(INTERVAL)
    health.connected(START)
    for now in (START, START + SECOND, START + 2 * SECOND + RELAPSE_WITHIN):
        suspected(health, now)
        health.observed(20 * MS, now)
        health.observed(20 * MS, now + HOLD_MIN)
    assert health.state is UP
    much_later = now + RELAPSE_WITHIN + HOLD_MIN
    suspected(health, much_later)
    health.observed(20 * MS, much_later)
    assert health.state is UP


def test_a_link_that_failed_comes_back_on_probation() -> None:
    line = Line(steady(20))
    line.run(SECOND)
    line.health.broken(line.now)
    line.health.connected(line.now)
    reconnected = line.now
    line.run(SECOND)
    assert line.health.state is UP
    assert line.states[-1][0] - reconnected >= HOLD_MIN
    assert line.was() == [UP, SUSPECT, UP]


def test_the_memory_of_trouble_outlasts_it_and_longer_each_time() -> None:
    health = LinkHealth(INTERVAL)
    health.connected(START)
    remembered = []
    now = START
    for _ in range(7):
        health.broken(now)
        remembered.append(health.risky_until - now)
        health.connected(now)
        now += SECOND
    assert remembered == [min(MEMORY_MAX, MEMORY_MIN << times) for times in range(7)]


def test_loss_beyond_the_limit_is_trouble_and_is_remembered() -> None:
    health = LinkHealth(INTERVAL)
    health.connected(START)
    health.lost(START)
    assert (health.loss_millionths < TROUBLE_LOSS, health.risky_until) == (True, -NEVER)
    health.lost(START)
    assert (health.loss_millionths >= TROUBLE_LOSS, health.risky_until) == (True, START + MEMORY_MIN)
    health.came(64)
    health.came(64)
    assert (health.loss_millionths < 1_000, health.risky_until) == (True, START + MEMORY_MIN)


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("seed", range(5))
def test_the_loss_estimate_is_around_the_true_rate(rate: float, seed: int) -> None:
    luck = Random(seed)
    line = Line(lambda _: None if luck.random() < rate else 20 * MS)
    estimates = []
    for _ in range(400):
        line.run(INTERVAL)
        if line.health.dead:
            line.health.connected(line.now)
        estimates.append(line.health.loss_millionths / 1_000_000)
    mean = sum(estimates[50:]) / len(estimates[50:])
    assert rate * 0.6 - 0.01 < mean < rate * 1.4 + 0.02


@examples(60)
@given(
    st.lists(st.one_of(st.none(), st.integers(1, 1_500)), min_size=1, max_size=40),
    st.lists(st.tuples(st.sampled_from(["silent", "lost", "came", "observed"]), st.integers(0, 700)), max_size=20),
)
def test_whatever_happens_the_next_deadline_is_never_in_the_past(
    fates: list[int | None], events: list[tuple[str, int]]
) -> None:
    line = Line(lambda at: None if (fate := fates[at // MS % len(fates)]) is None else fate * MS)
    for event, after_ms in events:
        line.run(after_ms * MS)
        if line.health.dead:
            line.health.broken(line.now)
            line.health.connected(line.now)
        match event:
            case "silent":
                line.health.silent(line.now)
            case "lost":
                line.health.lost(line.now)
            case "came":
                line.health.came(3)
            case _:
                line.health.observed(after_ms * MS, line.now, late=after_ms % 2 == 0)
    line.run(5 * SECOND)  # `Line` checks every tick
    assert len(line.pings) <= (line.now - START) // INTERVAL * ATTEMPTS_PER_CYCLE + 2 * ATTEMPTS_PER_CYCLE + len(events)


def test_a_link_slower_than_the_first_guess_has_not_risen() -> None:
    line = Line(lambda _: 400 * MS)
    line.run(5 * SECOND)
    assert (line.health.rtt_ns, line.health.swing_ns, line.health.state) == (400 * MS, 0, LinkState.UP)


def test_a_link_that_notices_tell_of_is_not_pinged_and_one_they_no_longer_tell_of_is() -> None:
    line = Line(steady(20))
    line.run(SECOND - 1)
    pings = len(line.pings)
    for _ in range(100):
        line.health.observed(20 * MS, line.now)
        line.health.attested(line.now)
        line.run(50 * MS)
    assert len(line.pings) == pings
    line.run(2 * SECOND)
    assert len(line.pings) >= pings + 3
    assert (line.was(), line.health.dead) == ([UP], False)


def test_cycles_without_a_ping_are_not_missed_and_silence_after_them_is_found_out_as_ever() -> None:
    line = Line(steady(20))
    line.run(SECOND)
    for _ in range(20):
        line.health.observed(20 * MS, line.now)
        line.health.attested(line.now)
        line.run(50 * MS)
    line.fate = mute
    silent_from = line.now
    while not line.health.dead:
        line.run(INTERVAL // 4)
    assert 3 * INTERVAL < line.now - silent_from <= 5 * INTERVAL


def test_a_parcel_without_notice_is_asked_about_though_the_cycle_has_no_ping() -> None:
    line = Line(steady(20))
    line.run(SECOND - 1)
    line.health.observed(20 * MS, line.now)
    line.health.attested(line.now)
    line.run(10 * MS)
    pings = len(line.pings)
    line.health.silent(line.now)
    line.run(1 * MS)
    assert len(line.pings) == pings + 1


def test_a_rise_that_stays_is_remembered_as_a_swing() -> None:
    line = Line(lambda at: 20 * MS if at < START + 10 * SECOND else 100 * MS)
    line.run(20 * SECOND)
    assert line.health.swing_ns == 40 * MS
    assert line.health.swings_until > line.now


def test_a_rise_that_is_over_within_a_second_is_no_swing() -> None:
    busy_at = START + 10 * SECOND
    line = Line(lambda at: 100 * MS if busy_at <= at < busy_at + 500 * MS else 20 * MS)
    line.run(9 * SECOND)
    assert line.health.swings_until < line.now
    line.run(2 * SECOND + 900 * MS)
    assert line.health.rtt_ns == 20 * MS
    assert line.health.swings_until < line.now


def test_a_moment_of_delay_leaves_the_swing_before_it_remembered() -> None:
    rose_at, busy_at = START + 10 * SECOND, START + 30 * SECOND

    def fate(at: Nanos) -> Nanos:
        if busy_at <= at < busy_at + 500 * MS:
            return 400 * MS
        return 20 * MS if at < rose_at else 100 * MS

    line = Line(fate)
    line.run(28 * SECOND)
    before = line.health.swing_ns, line.health.swings_until
    line.run(5 * SECOND)
    assert (line.health.swing_ns, line.health.swings_until) == before == (40 * MS, before[1])


def test_another_path_is_no_trouble_and_its_round_trip_is_known_at_once() -> None:
    line = Line(steady(20))
    line.run(10 * SECOND)
    line.fate = steady(80)
    line.health.silent(line.now)
    line.health.path_changed(80 * MS, line.now)
    assert line.health.latency_ns == 40 * MS
    line.run(10 * SECOND)
    assert line.was() == [UP]
    assert (line.health.latency_ns, line.health.swing_ns, line.health.loss_millionths) == (40 * MS, 0, 0)
    assert line.health.risky_until < line.now


def test_pings_over_the_old_path_measure_nothing_when_they_are_answered_late() -> None:
    line = Line(steady(20))
    line.run(10 * SECOND)
    token = line.health.tick(line.health.next_deadline())
    assert token is not None
    line.health.path_changed(80 * MS, line.now)
    line.health.answered(token, line.now + 150 * MS)
    assert line.health.latency_ns == 40 * MS


@pytest.mark.parametrize(("standby_ns", "probes"), [(0, 3), (80 * MS, 100)])
def test_a_link_with_another_path_is_not_suspected_before_that_could_take_over(standby_ns: Nanos, probes: int) -> None:
    line = Line(steady(20))
    line.run(10 * SECOND)
    health, now = line.health, line.now
    health.standby_ns = standby_ns
    for _ in range(probes):
        health.silent(now)
    assert health.state is (UP if standby_ns else SUSPECT)
    health.silent(now + standby_ns + STANDBY_MARGIN)
    assert health.state is SUSPECT


def test_answers_to_what_went_over_two_paths_end_a_silence() -> None:
    line = Line(steady(20))
    line.run(10 * SECOND)
    for _ in range(2):
        line.health.silent(line.now)
    line.health.answers(line.now)
    line.health.silent(line.now)
    assert line.health.state is UP
