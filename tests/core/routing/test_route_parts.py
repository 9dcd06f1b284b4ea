"""What a next hop is told of a route."""

import random

from msgspec import structs

from overlane.core.routing.signalling.route_establishment import RouteTable, links_of
from overlane.core.routing.signalling.route_messages import Outbox
from overlane.core.routing.signalling.route_parts import part_for
from overlane.core.units import SECOND
from overlane.core.wire.control_messages import Establish, check
from overlane.core.wire.frame_codec import broker_id

NOW = 1_000 * SECOND
SEEDS = range(50)


def describe(links: list[tuple[int, int]], destinations: list[int], obsolete: list[int] | None = None) -> Establish:
    """A route of the broker b00."""
    names = [f"b{place:02}" for place in range(1 + max(place for link in links for place in link))]
    ahead_us = [10 * place for place in range(len(names))]
    flat = [place for link in links for place in link]
    return Establish("b00", 1, 1, 1, names, [], flat, obsolete or [], destinations, ahead_us, 0, 0, 1)


FORK = describe([(0, 1), (1, 2), (2, 3), (0, 4), (4, 5)], [2, 3, 5])


def test_a_next_hop_is_told_of_the_way_to_it_and_of_what_is_behind_it() -> None:
    first, other = part_for(FORK, "b01"), part_for(FORK, "b04")
    assert (first.brokers, first.added, first.destinations) == (
        ["b00", "b01", "b02", "b03"],
        [0, 1, 1, 2, 2, 3],
        [2, 3],
    )
    assert (other.brokers, other.added, other.destinations) == (["b00", "", "", "", "b04", "b05"], [0, 4, 4, 5], [5])
    assert (first.ahead_us, other.ahead_us) == ([0, 10, 20, 30], [0, 0, 0, 0, 40, 50])
    beyond = part_for(first, "b02")
    assert beyond == structs.replace(first, ahead_us=[0, 0, 20, 30])
    assert part_for(beyond, "b02") is beyond


def test_a_route_with_two_ways_into_a_broker_is_described_whole() -> None:
    diamond = describe([(0, 1), (0, 2), (1, 3), (2, 3)], [3])
    back = describe([(0, 1), (1, 2), (1, 0)], [2])
    assert all(part_for(message, "b01") is message for message in (diamond, back))


def test_a_change_that_makes_links_obsolete_is_described_whole() -> None:
    message = describe([(0, 1), (0, 2)], [1, 2], obsolete=[1, 2])
    assert part_for(message, "b01") is message


def test_a_route_in_a_circle_that_its_source_does_not_lead_to_is_passed_on_whole() -> None:
    circle = describe([(1, 2), (2, 1)], [2])
    assert check(circle) is circle
    assert part_for(circle, "b02") is circle
    outbox, _ = RouteTable("b01").establish("b00", circle, NOW)
    assert descriptions_in(outbox) == [("b02", circle)]


def test_all_brokers_find_the_same_next_hops_and_ways_back_in_their_parts_as_in_the_whole() -> None:
    for seed in SEEDS:
        luck = random.Random(seed)
        links = [(luck.randrange(place), place) for place in range(1, luck.randint(2, 20))]
        whole = describe(links, sorted(luck.sample(range(1, len(links) + 1), luck.randint(1, len(links)))))
        tables = {name: RouteTable(name) for name in whole.brokers}
        told = [("b00", whole)]
        for name, message in told:
            check(message)
            told += descriptions_in(tables[name].establish(None if name == "b00" else "b00", message, NOW)[0])
        entries = {name: table.entry(broker_id("b00"), 1, 1) for name, table in tables.items()}
        before = {whole.brokers[end]: whole.brokers[start] for start, end in links}
        for name, entry in entries.items():
            assert entry is not None, f"seed {seed}"
            place = whole.brokers.index(name)
            assert entry.deliver == (place in whole.destinations), f"seed {seed}"
            assert entry.ahead_ns == whole.ahead_us[place] * 1_000, f"seed {seed}"
            assert set(entry.next_hops) == {end for end, start in before.items() if start == name}, f"seed {seed}"
            if name == "b00":
                continue
            at, last_hop = name, before[name]
            ends = place, whole.brokers.index(last_hop)
            while at != "b00":
                assert (passed := entries[at]) is not None
                assert passed.way_back(*ends) == before[at], f"seed {seed}"
                at = before[at]
            assert (last_hop, name) in links_of(entry.message), f"seed {seed}"


def descriptions_in(outbox: Outbox) -> list[tuple[str, Establish]]:
    return [(hop, message) for hop, message in outbox if isinstance(message, Establish)]
