"""Which routing brokers an edge reports as unreachable, and when."""

from overlane.coordination.reachability import DOWN_MAX, NEVER_UP_MAX, Reachability
from overlane.core.units import SECOND

NEEDED = frozenset({"r1", "r2"})


def test_a_link_that_was_up_may_be_down_for_a_moment() -> None:
    found = Reachability()
    assert found.look(NEEDED, lambda _: True, 0) == ()
    assert found.look(NEEDED, lambda name: name == "r2", SECOND) == ()
    assert found.look(NEEDED, lambda name: name == "r2", SECOND + DOWN_MAX) == ("r1",)
    assert found.look(NEEDED, lambda _: True, 2 * SECOND) == ()
    assert found.look(NEEDED, lambda _: False, 3 * SECOND) == ()
    assert found.look(NEEDED, lambda _: False, 3 * SECOND + DOWN_MAX) == ("r1", "r2")


def test_a_link_that_was_never_up_may_take_longer() -> None:
    found = Reachability()
    assert found.look(NEEDED, lambda _: False, 0) == ()
    assert found.look(NEEDED, lambda _: False, NEVER_UP_MAX - 1) == ()
    assert found.look(NEEDED, lambda _: False, NEVER_UP_MAX) == ("r1", "r2")


def test_who_is_not_needed_any_more_is_not_missed_and_begins_anew() -> None:
    found = Reachability()
    found.look(NEEDED, lambda _: True, 0)
    found.look(NEEDED, lambda _: False, SECOND)
    assert found.look(frozenset(), lambda _: False, 2 * SECOND) == ()
    assert found.look(NEEDED, lambda _: False, 3 * SECOND) == ()
    assert found.look(NEEDED, lambda _: False, 3 * SECOND + DOWN_MAX) == ()
    assert found.look(NEEDED, lambda _: False, 3 * SECOND + NEVER_UP_MAX) == ("r1", "r2")
