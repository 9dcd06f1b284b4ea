"""A membership is whole or cannot be made; a change between two of them alters what it names and nothing else."""

import random

import msgspec
import pytest

from overlane.membership.changes import NO_CHANGE, MembershipChange, apply_change, diff
from overlane.membership.endpoint import Endpoint
from overlane.membership.membership import (
    NOBODY,
    BadMembership,
    Direction,
    Emulated,
    Member,
    MemberLink,
    Membership,
    membership_of,
)
from overlane.membership.neighbours import NeighbourChanges, NeighbourConfig, neighbour_changes, neighbours_of
from overlane.network import parse_network
from overlane.network.members import members_of

HERE, THERE = Endpoint("10.0.0.1", 7001), Endpoint("10.0.0.2", 7001)
A, B, C = (Member(name=name) for name in "abc")
AB, BC = MemberLink(ends=("a", "b")), MemberLink(ends=("b", "c"))

FILE = """
[brokers.b]
overlay = "10.0.0.2:7001"
[brokers.a]
reach = ["a.example:1", "b.example:2"]
[brokers.c]
reach = []

[[links]]
ends = ["b", "a"]
latency = "5ms"
rate = "10Mbit"
failure = 0.1
back = { latency = "9ms", queue = "64KiB" }
[[links]]
ends = ["b", "c"]
latency = "1ms"
transport = "stream"
emulate = { latency = "7ms" }

[[events]]
at = "1s"
join = "c"
"""


@pytest.mark.parametrize(
    ("members", "links", "told"),
    [
        ((A, A), (), "member a: found twice"),
        ((B, A), (), "member a: found out of order"),
        ((A, B), (AB, AB), "link a-b: found twice"),
        ((A, B, C), (BC, AB), "link a-b: found out of order"),
        ((A,), (AB,), "link a-b: found no member b"),
        ((A,), (MemberLink(ends=("a", "a")),), "link a-a: found these ends"),
        ((A, B), (MemberLink(ends=("b", "a")),), "link b-a: found these ends"),
    ],
)
def test_a_membership_that_contradicts_itself_cannot_be_made(
    members: tuple[Member, ...], links: tuple[MemberLink, ...], told: str
) -> None:
    with pytest.raises(BadMembership, match=told):
        Membership(members, links)


def test_a_membership_is_checked_when_it_is_decoded_too() -> None:
    good = msgspec.json.encode(Membership((A, B), (AB,)))
    assert msgspec.json.decode(good, type=Membership) == Membership((A, B), (AB,))
    with pytest.raises(msgspec.ValidationError, match="found no member b"):
        msgspec.json.decode(good.replace(b'"name":"b"', b'"name":"x"'), type=Membership)
    with pytest.raises(msgspec.ValidationError, match="role"):
        msgspec.json.decode(good.replace(b'"plain"', b'"king"'), type=Membership)


def test_a_diff_tells_who_came_went_and_moved_and_which_links() -> None:
    moved, edge = Member(name="b", addresses=(HERE,)), Member(name="c", role="edge", domain="west")
    lossy = MemberLink(ends=("b", "c"), failure=0.1)
    joined = Member(name="d")
    new = membership_of((moved, edge, joined), (lossy, MemberLink(ends=("c", "d"))))
    assert diff(Membership((A, B, C), (AB, BC)), new) == MembershipChange(
        joined=(joined,),
        left=("a",),
        moved=(moved,),
        altered=(edge,),
        linked=(MemberLink(ends=("c", "d")),),
        unlinked=(("a", "b"),),
        relinked=(lossy,),
    )
    assert diff(new, new) == NO_CHANGE
    assert not diff(new, new)


@pytest.mark.parametrize("seed", range(200))
def test_a_diff_applied_to_the_old_gives_the_new(seed: int) -> None:
    luck = random.Random(seed)
    old, new = drawn(luck), drawn(luck)
    assert apply_change(old, diff(old, new)) == new, seed
    assert apply_change(NOBODY, diff(NOBODY, new)) == new, seed


def drawn(luck: random.Random) -> Membership:
    names = luck.sample("abcdef", luck.randint(0, 6))
    members = [
        Member(name=name, addresses=(luck.choice((HERE, THERE)),), domain=luck.choice(("", "west"))) for name in names
    ]
    pairs = [(one, other) for one in names for other in names if one < other and luck.random() < 0.5]
    return membership_of(members, [MemberLink(ends=pair, failure=luck.choice((0.0, 0.1))) for pair in pairs])


def test_a_change_of_one_source_leaves_alone_what_another_has_said() -> None:
    by_hand = MemberLink(ends=("a", "c"), failure=0.3)
    current = Membership((A, B, C), (AB, by_hand))
    change = diff(Membership((A, B), (AB,)), Membership((A, B), ()))
    assert apply_change(current, change) == Membership((A, B, C), (by_hand,))
    assert apply_change(current, MembershipChange(left=("c",))) == Membership((A, B), (AB,))


def test_the_membership_of_a_file() -> None:
    asked = Emulated(latency_ns=7_000_000)
    assert members_of(parse_network(FILE, "file")) == Membership(
        (
            Member(name="a", addresses=(Endpoint("a.example", 1), Endpoint("b.example", 2))),
            Member(name="b", addresses=(THERE,)),
            Member(name="c", is_expected=False),
        ),
        (
            MemberLink(
                ends=("a", "b"),
                there=Direction(queue_bytes=65_536, rate_bps=10_000_000),
                back=Direction(rate_bps=10_000_000),
                failure=0.1,
            ),
            MemberLink(
                ends=("b", "c"),
                there=Direction(emulated=asked),
                back=Direction(emulated=asked),
                failure=0.002,
                has_datagrams=False,
            ),
        ),
    )


def test_emulated_links_are_as_the_file_describes_them_each_way() -> None:
    there, back = members_of(parse_network(FILE, "file"), is_emulated=True).links[0].there, None
    assert there.emulated == Emulated(latency_ns=9_000_000, rate_bps=10_000_000)
    back = members_of(parse_network(FILE, "file"), is_emulated=True).links[0].back
    assert back.emulated == Emulated(latency_ns=5_000_000, rate_bps=10_000_000)


def test_the_neighbours_of_a_broker_and_what_has_changed() -> None:
    before = neighbours_of(members_of(parse_network(FILE, "file")), "b")
    assert before == {
        "a": NeighbourConfig(
            addresses=(Endpoint("a.example", 1), Endpoint("b.example", 2)), failure=0.1, rate_bps=10_000_000
        ),
        "c": NeighbourConfig(
            failure=0.002, has_datagrams=False, emulated=Emulated(latency_ns=7_000_000), is_expected=False
        ),
    }
    moved = NeighbourConfig(addresses=(HERE,))
    assert neighbour_changes(before, {"a": moved, "d": moved}) == NeighbourChanges(("c",), {"a": moved, "d": moved})
    assert neighbour_changes(before, before) == NeighbourChanges((), {})
    assert neighbours_of(NOBODY, "b") == {}
