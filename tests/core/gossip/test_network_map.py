"""The network map: which links count, for whom, and how long they take."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overlane.core.gossip.network_map import NetworkMap, draw, matter_of
from overlane.core.links.link_health import LinkState
from overlane.core.units import MS, US
from overlane.core.wire.control_messages import Advert, LinkClaim
from overlane.planning.network import BrokerNode, Link, Network


def claim(peer: str, latency_ms: int = 10, state: LinkState = LinkState.UP, risk: int = 0) -> LinkClaim:
    return LinkClaim(peer, latency_ms * 1000, 100, 0, risk, int(state))


def advert(broker: str, *links: LinkClaim, left: bool = False, sequence: int = 1) -> Advert:
    return Advert(broker, 1, sequence, list(links), {}, 0, left)


def links(network: Network) -> set[tuple[str, str]]:
    names = network.names
    return {(names[one], names[end]) for one, steps in enumerate(network.steps) for end, _ in steps}


def test_a_link_counts_only_while_both_ends_claim_it() -> None:
    made = NetworkMap([advert("a", claim("b"), claim("c")), advert("b", claim("a", 20)), advert("c")])
    assert made.claims == {("a", "b"): claim("b"), ("b", "a"): claim("a", 20)}
    assert made.network(suspects=True) == Network.build(
        [BrokerNode("a"), BrokerNode("b"), BrokerNode("c")], [Link(("a", "b"), 10 * MS, 20 * MS)]
    )


@pytest.mark.parametrize("ends", [("UP", "FAILED"), ("FAILED", "UP"), ("SUSPECT", "FAILED")])
def test_a_link_that_one_end_calls_failed_does_not_count(ends: tuple[str, str]) -> None:
    forth, back = (LinkState[end] for end in ends)
    made = NetworkMap([advert("a", claim("b", state=forth)), advert("b", claim("a", state=back))])
    assert (made.claims, links(made.network(suspects=True))) == ({}, set())


@pytest.mark.parametrize("ends", [("UP", "SUSPECT"), ("SUSPECT", "UP"), ("SUSPECT", "SUSPECT")])
def test_a_link_that_one_end_suspects_is_absent_from_the_clean_map_alone(ends: tuple[str, str]) -> None:
    forth, back = (LinkState[end] for end in ends)
    made = NetworkMap(
        [
            advert("a", claim("b", state=forth), claim("c")),
            advert("b", claim("a", state=back)),
            advert("c", claim("a")),
        ]
    )
    assert made.suspects == {("a", "b"), ("b", "a")}
    assert links(made.network(suspects=False)) == {("a", "c"), ("c", "a")}
    assert links(made.network(suspects=True)) == {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")}


def test_while_nothing_is_suspect_there_is_one_map() -> None:
    made = NetworkMap([advert("a", claim("b")), advert("b", claim("a"))])
    assert made.network(suspects=False) is made.network(suspects=True)


def test_a_broker_that_left_is_not_on_the_map() -> None:
    made = NetworkMap([advert("a", claim("b")), advert("b", claim("a"), left=True)])
    assert (made.network(suspects=True).names, made.claims) == (("a",), {})


def test_how_long_a_class_waits_in_a_broker_is_part_of_its_map() -> None:
    slow = Advert("b", 1, 1, [claim("a")], {"60000": 3_000}, 1_000)
    made = NetworkMap([advert("a", claim("b")), slow])
    assert made.network(suspects=True, label="60000").processing_ns == (0, 3 * MS)
    assert made.network(suspects=True, label="70000").processing_ns == (0, 0)
    assert made.latencies("a", "abz", suspects=True, label="60000") == {"a": 0, "b": 13 * MS}
    assert made.network(suspects=True).broker_failure == (0.0, 0.001)


def test_the_way_between_two_brokers_takes_suspect_links_only_where_nothing_else_leads() -> None:
    suspect = LinkState.SUSPECT
    made = NetworkMap(
        [
            advert("a", claim("b", 5, suspect), claim("c", 10)),
            advert("b", claim("a", 5), claim("c", 10), claim("d", 5)),
            advert("c", claim("a", 10), claim("b", 10)),
            advert("d", claim("b", 5, suspect)),
            advert("e"),
        ]
    )
    assert made.quickest_path("a", "b") == (("a", "c", "b"), 20 * MS)
    assert made.quickest_path("a", "d") == (("a", "b", "d"), 10 * MS)
    assert (made.quickest_path("a", "e"), made.quickest_path("z", "a"), made.quickest_path("a", "z")) == (
        None,
        None,
        None,
    )
    assert made.latencies("z", "ab", suspects=True) == {}
    assert made.tree("z", suspects=True) is None


def test_adverts_that_differ_in_number_alone_draw_the_same_map() -> None:
    first, second = advert("a", claim("b")), advert("a", claim("b"), sequence=9)
    assert matter_of(first) == matter_of(second)
    assert draw((matter_of(first),)) is draw((matter_of(second),))


NAMES = "abcde"
CLAIMED = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda ends: ends[0] != ends[1]),
    st.tuples(st.integers(0, 50), st.sampled_from(LinkState), st.integers(0, 1_000_000)),
)


@settings(deadline=None)
@given(CLAIMED, st.booleans())
def test_the_map_is_the_one_that_the_checked_way_builds(
    claimed: dict[tuple[str, str], tuple[int, LinkState, int]], suspects: bool
) -> None:
    made = NetworkMap(
        Advert(name, 1, 1, [claim(end, *claimed[start, end]) for start, end in sorted(claimed) if start == name], {}, 0)
        for name in NAMES
    )
    worst = LinkState.SUSPECT if suspects else LinkState.UP
    both = [
        Link(
            (one, other),
            claimed[one, other][0] * 1000 * US,
            claimed[other, one][0] * 1000 * US,
            max(claimed[one, other][2], claimed[other, one][2]) / 1_000_000,
        )
        for one, other in claimed
        if one < other and (other, one) in claimed and max(claimed[one, other][1], claimed[other, one][1]) <= worst
    ]
    assert made.network(suspects=suspects) == Network.build(map(BrokerNode, NAMES), both)
