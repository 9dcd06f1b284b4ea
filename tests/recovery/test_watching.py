"""Watching: signs of life, silence that nobody contradicts, and the watcher's own lag."""

import pytest

from overlane.core.units import MS, NEVER
from overlane.recovery.hosts.watching import (
    ASKED_MAX,
    AskNeighbour,
    Back,
    Lost,
    Probe,
    Watcher,
    WatchSettings,
    WatchState,
)

SETTINGS = WatchSettings(silence=600 * MS, suspect=400 * MS)
NEIGHBOURS = ["denver", "boston", "miami"]
ASKED = [Probe(), *(AskNeighbour(name, 1) for name in NEIGHBOURS)]
SILENT = [Lost(is_dead=False)]


def suspicious_watcher() -> Watcher:
    watcher = Watcher(SETTINGS, 0)
    assert watcher.tick(NEIGHBOURS, 400 * MS) == ASKED
    return watcher


def test_every_frame_is_a_sign_of_life() -> None:
    watcher = Watcher(SETTINGS, 0)
    assert watcher.heard(300 * MS) == []
    assert watcher.tick(NEIGHBOURS, 400 * MS) == []
    assert watcher.next_deadline() == 700 * MS
    assert watcher.tick(NEIGHBOURS, 700 * MS) == ASKED


def test_a_silence_that_nobody_contradicts_is_reported_when_it_is_over() -> None:
    watcher = suspicious_watcher()
    assert watcher.answered("denver", 1, None, 420 * MS) == []
    assert watcher.tick(NEIGHBOURS, 599 * MS) == []
    assert watcher.tick(NEIGHBOURS, 600 * MS) == SILENT
    assert watcher.state is WatchState.SILENT


def test_a_neighbour_that_reaches_it_prevents_the_report_whatever_others_say() -> None:
    watcher = suspicious_watcher()
    assert watcher.answered("boston", 1, None, 410 * MS) == []
    assert watcher.answered("denver", 1, 100 * MS, 420 * MS) == []
    assert watcher.answered("miami", 1, None, 430 * MS) == []
    assert watcher.state is WatchState.ALIVE
    # Asked again when it has been silent to that neighbour for as long.
    assert watcher.next_deadline() == (320 + 400) * MS
    assert watcher.tick(NEIGHBOURS, 720 * MS) == [Probe(), *(AskNeighbour(name, 2) for name in NEIGHBOURS)]


def test_what_a_neighbour_has_heard_long_ago_does_not_contradict_the_silence() -> None:
    watcher = suspicious_watcher()
    assert watcher.answered("denver", 1, 2_000 * MS, 420 * MS) == []
    assert watcher.tick(NEIGHBOURS, 600 * MS) == SILENT


@pytest.mark.parametrize("failed", range(6))
def test_neighbours_that_have_failed_with_the_broker_cost_no_time(failed: int) -> None:
    watcher, neighbours = Watcher(SETTINGS, 0), [f"n{number}" for number in range(6)]
    asked = [effect for effect in watcher.tick(neighbours, 400 * MS) if isinstance(effect, AskNeighbour)]
    assert len(asked) == ASKED_MAX
    for effect in asked[failed:]:
        watcher.answered(effect.neighbour, 1, None, 410 * MS)
    assert watcher.tick(neighbours, 599 * MS) == []
    assert watcher.tick(neighbours, 600 * MS) == SILENT


def test_without_neighbours_the_own_opinion_counts() -> None:
    watcher = Watcher(SETTINGS, 0)
    assert watcher.tick([], 400 * MS) == [Probe()]
    assert watcher.tick([], 600 * MS) == SILENT


def test_answers_of_others_and_of_earlier_rounds_do_not_count() -> None:
    watcher = suspicious_watcher()
    assert watcher.answered("seattle", 1, 0, 410 * MS) == []
    assert watcher.answered("denver", 0, 0, 410 * MS) == []
    assert watcher.state is WatchState.ASKING


def test_an_answer_to_the_probe_ends_the_question() -> None:
    watcher = suspicious_watcher()
    assert watcher.heard(450 * MS) == []
    assert watcher.answered("denver", 1, None, 460 * MS) == []
    assert watcher.tick(NEIGHBOURS, 600 * MS) == []
    assert watcher.next_deadline() == 850 * MS


def test_silence_is_reported_again_while_it_lasts_and_then_its_end() -> None:
    watcher = Watcher(SETTINGS, 0)
    watcher.tick([], 400 * MS)
    assert watcher.tick([], 600 * MS) == SILENT
    assert watcher.tick(NEIGHBOURS, 1_199 * MS) == []
    assert watcher.tick(NEIGHBOURS, 1_200 * MS) == SILENT
    assert watcher.heard(1_300 * MS) == [Back()]
    assert watcher.heard(1_301 * MS) == []


def test_a_process_that_has_ended_is_reported_at_once_and_once() -> None:
    watcher = Watcher(SETTINGS, 0)
    assert watcher.connection_refused() == [Lost(is_dead=True)]
    assert watcher.connection_refused() == []
    assert watcher.next_deadline() == NEVER
    assert watcher.heard(5 * MS) == [Back()]


def test_the_own_lag_stretches_the_silence() -> None:
    watcher = Watcher(SETTINGS, 0)
    watcher.lagged(400 * MS, 350 * MS)
    assert watcher.tick(NEIGHBOURS, 799 * MS) == []
    assert watcher.tick(NEIGHBOURS, 800 * MS) == ASKED
    watcher.answered("denver", 1, None, 810 * MS)
    assert watcher.tick(NEIGHBOURS, 999 * MS) == []
    assert watcher.tick(NEIGHBOURS, 1_000 * MS) == SILENT


def test_the_own_lag_stretches_it_by_no_more_than_a_limit() -> None:
    watcher = Watcher(WatchSettings(lag_max=1_000 * MS), 0)
    for _ in range(20):
        watcher.lagged(400 * MS, 350 * MS)
    assert watcher.next_deadline() == 1_400 * MS


def test_a_watcher_that_was_stopped_asks_when_it_goes_on_and_gives_answers_their_time() -> None:
    watcher = suspicious_watcher()
    watcher.lagged(9_000 * MS, 9_500 * MS)
    assert watcher.tick(NEIGHBOURS, 9_500 * MS) == []
    assert watcher.answered("denver", 1, 100 * MS, 9_510 * MS) == []
    assert watcher.state is WatchState.ALIVE


@pytest.mark.parametrize("suspect", [600, 0])
def test_settings_in_a_wrong_order_are_refused(suspect: int) -> None:
    with pytest.raises(ValueError, match="probed before"):
        WatchSettings(silence=600 * MS, suspect=suspect * MS)
