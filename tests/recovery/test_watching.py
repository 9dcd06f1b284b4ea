"""Watching: signs of life, silence that neighbours confirm, and the watcher's own lag."""

from overlane.core.units import MS, NEVER
from overlane.recovery.watching import AskNeighbour, Back, Lost, Watcher, WatchSettings, WatchState

SETTINGS = WatchSettings(silence=900 * MS, answer_within=100 * MS)
NEIGHBOURS = ["denver", "boston", "miami"]
ASKED = [AskNeighbour("denver", 1), AskNeighbour("boston", 1)]


def silent_watcher() -> Watcher:
    watcher = Watcher(SETTINGS, 0)
    assert watcher.tick(NEIGHBOURS, 900 * MS) == ASKED
    return watcher


def test_every_frame_is_a_sign_of_life() -> None:
    watcher = Watcher(SETTINGS, 0)
    assert watcher.heard(800 * MS) == []
    assert watcher.tick(NEIGHBOURS, 900 * MS) == []
    assert watcher.next_deadline() == 1_700 * MS
    assert watcher.tick(NEIGHBOURS, 1_700 * MS) == ASKED


def test_silence_is_reported_when_two_neighbours_confirm_it() -> None:
    watcher = silent_watcher()
    assert watcher.answered("denver", 1, 2_000 * MS, 920 * MS) == []
    assert watcher.answered("boston", 1, None, 930 * MS) == [Lost(is_dead=False)]
    assert watcher.state is WatchState.SILENT


def test_a_neighbour_that_has_heard_it_prevents_the_report() -> None:
    watcher = silent_watcher()
    assert watcher.answered("denver", 1, 300 * MS, 920 * MS) == []
    assert watcher.answered("boston", 1, None, 930 * MS) == []
    assert watcher.state is WatchState.ALIVE
    # Asked again when it has been silent to that neighbour for as long.
    assert watcher.next_deadline() == (920 + 600) * MS
    assert watcher.tick(NEIGHBOURS, 1_520 * MS) == [AskNeighbour("denver", 2), AskNeighbour("boston", 2)]


def test_instead_of_a_neighbour_that_does_not_answer_the_next_is_asked() -> None:
    watcher = silent_watcher()
    assert watcher.answered("denver", 1, None, 920 * MS) == []
    assert watcher.tick(NEIGHBOURS, 999 * MS) == []
    assert watcher.tick(NEIGHBOURS, 1_000 * MS) == [AskNeighbour("miami", 1)]
    assert watcher.answered("miami", 1, None, 1_020 * MS) == [Lost(is_dead=False)]


def test_one_confirmation_is_enough_where_nobody_else_answers() -> None:
    watcher = silent_watcher()
    watcher.answered("denver", 1, None, 920 * MS)
    watcher.tick(NEIGHBOURS, 1_000 * MS)
    assert watcher.tick(NEIGHBOURS, 1_100 * MS) == [Lost(is_dead=False)]


def test_a_watcher_that_nobody_answers_is_probably_cut_off_itself_and_waits_longer() -> None:
    watcher = silent_watcher()
    assert watcher.tick(NEIGHBOURS, 1_000 * MS) == [AskNeighbour("miami", 1)]
    assert watcher.tick(NEIGHBOURS, 1_100 * MS) == []
    assert watcher.next_deadline() == 3_000 * MS
    assert watcher.tick(NEIGHBOURS, 3_000 * MS) == [Lost(is_dead=False)]


def test_without_neighbours_the_own_opinion_counts() -> None:
    assert Watcher(SETTINGS, 0).tick([], 900 * MS) == [Lost(is_dead=False)]


def test_one_neighbour_is_enough_where_there_is_no_other() -> None:
    watcher = Watcher(SETTINGS, 0)
    assert watcher.tick(["denver"], 900 * MS) == [AskNeighbour("denver", 1)]
    assert watcher.answered("denver", 1, None, 910 * MS) == []
    assert watcher.next_deadline() == 910 * MS
    assert watcher.tick(["denver"], 910 * MS) == [Lost(is_dead=False)]


def test_answers_of_others_and_of_earlier_rounds_do_not_count() -> None:
    watcher = silent_watcher()
    assert watcher.answered("miami", 1, None, 910 * MS) == []
    assert watcher.answered("denver", 0, 0, 910 * MS) == []
    assert watcher.answered("denver", 1, None, 920 * MS) == []
    assert watcher.answered("denver", 1, None, 920 * MS) == []
    assert watcher.state is WatchState.ASKING


def test_a_frame_ends_the_question() -> None:
    watcher = silent_watcher()
    assert watcher.heard(950 * MS) == []
    assert watcher.answered("denver", 1, None, 960 * MS) == []
    assert watcher.tick(NEIGHBOURS, 1_000 * MS) == []


def test_silence_is_reported_again_while_it_lasts_and_then_its_end() -> None:
    watcher = Watcher(SETTINGS, 0)
    assert watcher.tick([], 1_000 * MS) == [Lost(is_dead=False)]
    assert watcher.tick(NEIGHBOURS, 1_899 * MS) == []
    assert watcher.tick(NEIGHBOURS, 1_900 * MS) == [Lost(is_dead=False)]
    assert watcher.heard(2_000 * MS) == [Back()]
    assert watcher.heard(2_001 * MS) == []


def test_a_process_that_has_ended_is_reported_at_once_and_once() -> None:
    watcher = Watcher(SETTINGS, 0)
    assert watcher.connection_refused() == [Lost(is_dead=True)]
    assert watcher.connection_refused() == []
    assert watcher.next_deadline() == NEVER
    assert watcher.heard(5 * MS) == [Back()]


def test_the_own_lag_stretches_the_silence() -> None:
    watcher = Watcher(SETTINGS, 0)
    watcher.lagged(400 * MS, 850 * MS)
    assert watcher.tick(NEIGHBOURS, 1_299 * MS) == []
    assert watcher.tick(NEIGHBOURS, 1_300 * MS) == ASKED


def test_the_own_lag_stretches_it_by_no_more_than_a_limit() -> None:
    watcher = Watcher(WatchSettings(silence=900 * MS, lag_max=1_000 * MS), 0)
    for _ in range(20):
        watcher.lagged(400 * MS, 850 * MS)
    assert watcher.next_deadline() == 1_900 * MS


def test_lag_while_neighbours_are_asked_gives_their_answers_time() -> None:
    watcher = silent_watcher()
    watcher.lagged(3_000 * MS, 3_900 * MS)
    assert watcher.tick(NEIGHBOURS, 3_900 * MS) == []
    assert watcher.answered("denver", 1, 100 * MS, 3_910 * MS) == []
    assert watcher.state is WatchState.ALIVE


def test_a_neighbour_is_told_how_long_ago_it_was_heard() -> None:
    watcher = Watcher(SETTINGS, 0)
    watcher.heard(100 * MS)
    assert watcher.heard_ago(350 * MS) == 250 * MS
