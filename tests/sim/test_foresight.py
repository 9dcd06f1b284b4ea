"""What history says of links moves routes before anything happens, and back again."""

from overlane.core.units import MS, SECOND
from overlane.sim.story import Story, topic

DIRECT = ["a", "b"]
AROUND = ["a", "c", "b"]
OTHER_WAY = ["a", "d", "b"]
LINKS = {
    ("a", "b"): 10 * MS,
    ("a", "c"): 8 * MS,
    ("c", "b"): 8 * MS,
    ("a", "d"): 12 * MS,
    ("d", "b"): 12 * MS,
}


def overlay(routing: str = "adaptive", deadline_ms: int = 60) -> Story:
    net = Story(
        LINKS,
        {"alarms": topic(deadline_ms * MS, routing=routing, paths=2)},
        publishers=[("a", "alarms", 50)],
        subscribers=[("b", "alarms")],
    )
    net.run(2 * SECOND)
    return net


def test_a_link_that_is_often_down_is_not_relied_on_where_another_way_is_in_time() -> None:
    net = overlay()
    assert net.paths("alarms", "a", "b") == [DIRECT]

    net.foresee("a", "b", 0.05)
    net.run(2 * SECOND)

    assert AROUND in net.paths("alarms", "a", "b")
    assert net.route_moves("alarms")[-1].effect.cause == "link a-b often down"


def test_a_broken_link_that_was_often_down_costs_less_than_one_that_was_not() -> None:
    missed = []
    for failure in (0.0, 0.05):
        net = overlay(deadline_ms=20)
        net.foresee("a", "b", failure)
        net.run(2 * SECOND)
        net.cut("a", "b")
        net.run(3 * SECOND)
        missed.append(net.missed("alarms"))
    assert missed[1] == 0 < missed[0]


def test_a_link_that_is_seldom_down_stays_in_use() -> None:
    net = overlay()
    net.foresee("a", "b", 0.004)
    net.run(2 * SECOND)
    assert net.paths("alarms", "a", "b") == [DIRECT]


def test_where_no_other_way_is_in_time_a_bad_history_changes_nothing() -> None:
    net = overlay(deadline_ms=15)
    net.foresee("a", "b", 0.05)
    net.run(2 * SECOND)
    assert DIRECT in net.paths("alarms", "a", "b")
    assert net.missed("alarms") == 0


def test_a_better_history_brings_the_route_back() -> None:
    net = overlay()
    net.foresee("a", "b", 0.05)
    net.run(2 * SECOND)
    net.foresee("a", "b", 0.001)
    net.run(3 * SECOND)
    assert net.paths("alarms", "a", "b") == [DIRECT]


def test_two_paths_leave_a_link_whose_history_got_worse() -> None:
    net = overlay("multipath")
    assert net.paths("alarms", "a", "b") == [DIRECT, AROUND]

    net.foresee("a", "c", 0.05)
    net.run(3 * SECOND)

    assert net.paths("alarms", "a", "b") == [DIRECT, OTHER_WAY]


def test_a_route_moves_once_however_often_the_same_is_foreseen() -> None:
    net = overlay()
    before = len(net.route_moves("alarms"))
    for _ in range(5):
        net.foresee("a", "b", 0.05)
        net.run(2 * SECOND)
    assert len(net.route_moves("alarms")) == before + 1
