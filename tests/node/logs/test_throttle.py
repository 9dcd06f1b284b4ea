"""A throttle: few are told, all are counted."""

from overlane.node.logs.throttle import Throttle


def test_so_many_of_a_kind_pass_in_a_period_and_the_rest_are_counted() -> None:
    throttle: Throttle[str] = Throttle(2, 100)
    assert [throttle.passes("a", now) for now in (0, 1, 2, 3)] == [True, True, False, False]
    assert throttle.due(99) == []
    assert throttle.due(100) == [("a", 2)]
    assert throttle.due(101) == []


def test_kinds_do_not_hold_each_other() -> None:
    throttle: Throttle[str] = Throttle(1, 100)
    assert throttle.passes("a", 0)
    assert throttle.passes("b", 0)
    assert not throttle.passes("a", 1)


def test_after_its_period_a_kind_passes_again() -> None:
    throttle: Throttle[str] = Throttle(1, 100)
    assert throttle.passes("a", 0)
    assert throttle.due(100) == []
    assert throttle.passes("a", 100)
