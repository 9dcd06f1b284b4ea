"""Reserved trees: which links messages of a reserved flow take."""

from overlane.core.qos import QosClass
from overlane.core.routing.selection.reserved_trees import ReservedTrees

LINKS = frozenset({("a", "b"), ("b", "c"), ("b", "d")})


def trees() -> ReservedTrees:
    found = ReservedTrees("a")
    assert found.set(7, LINKS, {"c", "d"})
    return found


def test_a_route_is_the_part_of_the_tree_that_leads_to_its_destinations() -> None:
    assert trees().links(7, ["c"], LINKS) == frozenset({("a", "b"), ("b", "c")})
    assert trees().links(7, ["c", "d"], LINKS) == LINKS


def test_a_tree_with_a_broken_link_or_without_a_destination_is_not_used() -> None:
    assert trees().links(7, ["c"], LINKS - {("a", "b")}) is None
    assert trees().links(7, ["e"], LINKS) is None
    assert trees().links(8, ["c"], LINKS) is None


def test_who_has_not_asked_gets_messages_apart() -> None:
    reserved, rest = QosClass(reservation=7), QosClass(reservation=-7)
    assert trees().part_for(reserved, ("c", "e")) == (reserved, ("c",))
    assert trees().part_for(rest, ("c", "e")) == (QosClass(), ("e",))


def test_only_another_tree_is_a_change() -> None:
    found = trees()
    assert not found.set(7, LINKS, {"d", "c"})
    assert found.changes == 1
    assert found.set(7, (), ())
    assert found.links(7, ["c"], LINKS) is None
