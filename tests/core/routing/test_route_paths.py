"""The paths in a route, for people."""

from itertools import permutations

from overlane.core.routing.paths import PATHS_MAX, paths_in

NAMES = [f"b{number:02}" for number in range(14)]
EVERYWHERE = list(permutations(NAMES, 2))


def test_paths_of_fewer_hops_come_first_and_none_visits_a_broker_twice() -> None:
    links = [("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"), ("b", "c"), ("c", "b"), ("a", "d")]
    assert paths_in(links, "a", "d") == [
        ("a", "d"),
        ("a", "b", "d"),
        ("a", "c", "d"),
        ("a", "b", "c", "d"),
        ("a", "c", "b", "d"),
    ]


def test_of_a_flooded_route_the_shortest_few_are_found_and_no_more_is_looked_for() -> None:
    shown = paths_in(EVERYWHERE, "b00", "b13", 4)
    assert shown == [("b00", "b13"), *[("b00", name, "b13") for name in NAMES[1:4]]]
    assert len(paths_in(EVERYWHERE, "b00", "b13")) == PATHS_MAX


def test_a_destination_that_no_link_leads_to_is_given_up() -> None:
    assert paths_in(EVERYWHERE, "b00", "nowhere") == []  # to look at all paths would take years
