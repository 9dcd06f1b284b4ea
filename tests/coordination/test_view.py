"""What a broker makes of ZooKeeper's word: its links, and that they are steady."""

from overlane.coordination.records import Assigned, BrokerRecord
from overlane.coordination.topology import membership_for
from overlane.coordination.view import LINGER, Kept, OverlayView
from overlane.core.units import SECOND
from overlane.membership.endpoint import Endpoint
from overlane.membership.membership import Direction, Member, MemberLink, Membership, membership_of


def record(role: str, domain: str, port: int) -> BrokerRecord:
    return BrokerRecord(domain, role, port, (f"10.0.0.1:{port}",))  # type: ignore[arg-type]


MEMBERS = {
    "r1": record("routing", "core", 1),
    "r2": record("routing", "core", 2),
    "west-1": record("edge", "west", 3),
    "west-2": record("edge", "west", 4),
    "east-1": record("edge", "east", 5),
    "old": record("plain", "west", 6),
}


def ends(membership: Membership) -> set[tuple[str, str]]:
    return {link.ends for link in membership.links}


def dialled(membership: Membership) -> dict[str, tuple[Endpoint, ...]]:
    return {member.name: member.addresses for member in membership.members}


def test_an_edge_is_linked_with_routing_brokers_that_carry_its_bundles_and_with_its_domain() -> None:
    found = membership_for("west-1", MEMBERS["west-1"], MEMBERS, {"r2"})
    assert found.names() == {"r1", "r2", "west-1", "west-2"}
    assert ends(found) == {("r2", "west-1"), ("west-1", "west-2")}
    assert dialled(found)["r2"] == (Endpoint("10.0.0.1", 2),)
    assert dialled(found)["west-2"] == (Endpoint("10.0.0.1", 4),)


def test_a_routing_broker_is_linked_with_edges_alone_and_dials_none() -> None:
    found = membership_for("r1", MEMBERS["r1"], MEMBERS, set())
    assert found.names() == {"r1", "west-1", "west-2", "east-1"}
    assert ends(found) == {("r1", "west-1"), ("r1", "west-2"), ("east-1", "r1")}
    assert all(not addresses for name, addresses in dialled(found).items() if name != "r1")


def test_a_plain_broker_is_linked_as_its_file_says_and_finds_others_where_they_are_registered() -> None:
    link = MemberLink(ends=("old", "other"))
    file = membership_of([Member(name="old"), Member(name="other", addresses=(Endpoint("10.9.9.9", 9),))], [link])
    others = {**MEMBERS, "other": record("plain", "x", 7)}
    found = membership_for("old", MEMBERS["old"], others, set(), file)
    assert ends(found) == {("old", "other")}
    assert dialled(found)["other"] == (Endpoint("10.0.0.1", 7),)


def test_a_link_that_the_file_describes_is_as_it_says() -> None:
    link = MemberLink(ends=("r2", "west-1"), there=Direction(rate_bps=5))
    file = membership_of([Member(name="r2"), Member(name="west-1"), Member(name="z")], [link])
    found = membership_for("west-1", MEMBERS["west-1"], MEMBERS, {"r2"}, file)
    assert link in found.links
    assert "z" not in found.names()


def assigned(**homes: str) -> dict[int, Assigned]:
    return {int(bundle[1:]): Assigned(broker, 0, "") for bundle, broker in homes.items()}


def view(kept: Kept | None = None) -> OverlayView:
    made = OverlayView("west-1", MEMBERS["west-1"], kept)
    made.registered(MEMBERS, 0)
    made.assign(assigned(b1="r1", b2="r2"), 0)
    return made


def test_links_with_routing_brokers_follow_the_bundles_that_clients_use() -> None:
    found = view()
    assert ends(found.membership(0)) == {("west-1", "west-2")}
    found.use(frozenset({1}), 0)
    assert found.needed() == {"r1"}
    assert ends(found.membership(0)) == {("west-1", "west-2"), ("r1", "west-1")}


def test_an_edge_is_linked_with_the_standbys_of_its_bundles_too() -> None:
    found = view()
    found.assign({1: Assigned("r1", 0, "placed", "r2"), 2: Assigned("r2", 0, "placed")}, 0)
    found.use(frozenset({1}), 0)
    assert found.needed() == {"r1", "r2"}
    assert ends(found.membership(0)) == {("west-1", "west-2"), ("r1", "west-1"), ("r2", "west-1")}
    assert (found.assignment, found.standbys) == ({1: "r1", 2: "r2"}, {1: "r2"})


def test_the_link_with_the_former_routing_broker_stays_for_a_while_after_a_move() -> None:
    found = view()
    found.use(frozenset({1}), 0)
    found.assign(assigned(b1="r2", b2="r2"), SECOND)
    assert found.needed() == {"r2"}
    assert ends(found.membership(2 * SECOND)) >= {("r1", "west-1"), ("r2", "west-1")}
    assert found.next_deadline() == SECOND + LINGER
    assert ("r1", "west-1") not in ends(found.membership(SECOND + LINGER))


def test_a_broker_whose_registration_is_gone_stays_a_neighbour_for_a_while() -> None:
    found = view()
    found.registered({name: one for name, one in MEMBERS.items() if name != "west-2"}, SECOND)
    assert ("west-1", "west-2") in ends(found.membership(2 * SECOND))
    assert ("west-1", "west-2") not in ends(found.membership(SECOND + LINGER))


def test_a_routing_broker_stays_a_neighbour_as_long_as_a_bundle_is_assigned_to_it() -> None:
    found = view()
    found.use(frozenset({1}), 0)
    found.registered({name: one for name, one in MEMBERS.items() if name != "r1"}, SECOND)
    assert ("r1", "west-1") in ends(found.membership(1_000 * SECOND))
    found.assign(assigned(b1="r2", b2="r2"), 1_000 * SECOND)
    assert ("r1", "west-1") not in ends(found.membership(1_100 * SECOND))


def test_a_broker_that_registers_elsewhere_is_dialled_there() -> None:
    found = view()
    found.registered({**MEMBERS, "r1": record("routing", "core", 77)}, SECOND)
    assert dialled(found.membership(SECOND))["r1"] == (Endpoint("10.0.0.1", 77),)


def test_what_was_kept_gives_the_same_overlay_without_zookeeper() -> None:
    before = view()
    before.use(frozenset({1}), 0)
    after = OverlayView("west-1", MEMBERS["west-1"], before.kept())
    after.use(frozenset({1}), 0)
    assert after.membership(0) == before.membership(0)
    assert after.assignment == {1: "r1", 2: "r2"}


def test_an_edge_dials_those_that_it_wants_direct_links_with_and_tells_which_cannot_be_dialled() -> None:
    view = OverlayView("west-1", MEMBERS["west-1"])
    view.registered({**MEMBERS, "nat-1": BrokerRecord("home", "edge", 9, ())}, 0)
    assert view.want_direct(("east-1", "nat-1")) == ["nat-1"]
    found = view.membership(0)
    assert {link.ends for link in found.links if link.is_direct} == {("east-1", "west-1"), ("nat-1", "west-1")}
    assert dialled(found)["east-1"] == (Endpoint("10.0.0.1", 5),)
    assert view.want_direct(()) == []
    assert ends(view.membership(0)) == {("west-1", "west-2")}


def test_an_edge_accepts_direct_links_of_registered_edges_alone_for_as_long_as_they_are_up() -> None:
    view = OverlayView("west-1", MEMBERS["west-1"])
    view.registered(MEMBERS, 0)
    assert not view.accept_direct("stranger", 0)
    assert not view.accept_direct("old", 0)
    assert not view.accept_direct("r1", 0)
    assert view.accept_direct("east-1", 0)
    found = view.membership(0)
    assert ("east-1", "west-1") in ends(found)
    assert dialled(found)["east-1"] == ()
    view.note_up("east-1", 10 * SECOND)
    assert ("east-1", "west-1") in ends(view.membership(9 * SECOND + LINGER))
    assert view.next_deadline() == 10 * SECOND + LINGER
    assert ("east-1", "west-1") not in ends(view.membership(10 * SECOND + LINGER))
    assert view.accepted() == []


def test_a_routing_broker_accepts_no_direct_links() -> None:
    view = OverlayView("r1", MEMBERS["r1"])
    view.registered(MEMBERS, 0)
    assert not view.accept_direct("east-1", 0)
    assert not view.accept_direct("r2", 0)
