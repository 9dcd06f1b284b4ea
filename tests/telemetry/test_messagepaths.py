"""The ways of messages: told where there is only one, and not guessed where there are more."""

from overlane.telemetry.message_paths import only_path, shortest_paths


def test_a_chain_of_links_is_a_path() -> None:
    assert only_path([("b", "c"), ("a", "b")], "a", "c") == ("a", "b", "c")


def test_a_link_beside_the_way_does_not_matter() -> None:
    assert only_path([("a", "b"), ("b", "c"), ("b", "d"), ("d", "e")], "a", "c") == ("a", "b", "c")


def test_where_two_ways_meet_neither_is_told() -> None:
    links = [("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"), ("d", "e")]
    assert only_path(links, "a", "e") is None
    assert only_path(links, "a", "b") == ("a", "b")


def test_links_that_lead_nowhere_or_in_a_circle_are_no_way() -> None:
    assert only_path([], "a", "b") is None
    assert only_path([("c", "b"), ("b", "c")], "a", "c") is None


def test_shortest_paths_are_those_of_fewest_hops_to_each_destination_that_is_reached() -> None:
    links = [("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"), ("d", "e"), ("a", "d")]
    assert shortest_paths(links, "a", ("e", "b", "z")) == (("a", "d", "e"), ("a", "b"))
