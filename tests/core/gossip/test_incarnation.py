"""Incarnations: the clock is never trusted alone, and who is known by a later life begins anew after it."""

import pytest
from handwired import Overlay
from hypothesis import given
from hypothesis import strategies as st

from overlane.core.events import Lane, LaterIncarnationKnown, NameConflict
from overlane.core.gossip.incarnation import (
    CLOCK_LEAP_MAX,
    CLOCK_MAX,
    INCARNATION_MAX,
    TOLD_LEAP_MAX,
    choose,
    next_after,
)
from overlane.core.wire.control_messages import Advert, ControlMessage, LinkClaim

NOW = 1_800_000_000
DAY = 86_400


@pytest.mark.parametrize(
    ("stored", "clock_s", "chosen", "is_told"),
    [
        (None, NOW, NOW, False),
        (NOW - DAY, NOW, NOW, False),
        (NOW, NOW - DAY, NOW + 1, False),
        (NOW, 7, NOW + 1, False),
        (5, NOW, NOW, False),
        (NOW, NOW + CLOCK_LEAP_MAX + 1, NOW + 1, True),
        (NOW, 1 << 40, NOW + 1, True),
        (None, 1 << 32, 1, True),
        (None, -5, 1, True),
        (INCARNATION_MAX, NOW, NOW, True),
        (1 << 33, NOW, NOW, True),
        (1 << 33, 1 << 33, 1, True),
    ],
)
def test_an_incarnation_follows_the_stored_one_and_a_plausible_clock(
    stored: int | None, clock_s: int, chosen: int, is_told: bool
) -> None:
    found, warning = choose(stored, clock_s)
    assert (found, bool(warning)) == (chosen, is_told)


@given(st.none() | st.integers(0, 1 << 40), st.lists(st.integers(-(1 << 34), 1 << 34), min_size=1, max_size=30))
def test_whatever_clocks_say_lives_grow_and_fit(stored: int | None, clocks: list[int]) -> None:
    for clock_s in clocks:
        chosen, _ = choose(stored, clock_s)
        assert 0 < chosen <= INCARNATION_MAX
        assert stored is None or stored >= INCARNATION_MAX or chosen > stored
        stored = chosen


def test_a_later_life_is_followed_by_another_but_nobody_can_use_the_numbers_up() -> None:
    assert next_after(NOW + DAY, NOW) == NOW + DAY + 1
    assert next_after(CLOCK_MAX, 1) == CLOCK_MAX + 1
    assert next_after(CLOCK_MAX + 1, 1) is None
    assert next_after(CLOCK_MAX + TOLD_LEAP_MAX, CLOCK_MAX) == CLOCK_MAX + TOLD_LEAP_MAX + 1
    assert next_after(INCARNATION_MAX, INCARNATION_MAX - 1) is None


LINE = {"a-b": 10, "b-c": 10, "c-d": 10}


def replaced(net: Overlay, name: str, incarnation: int) -> None:
    """Another host, with an empty store, and a clock that gives this incarnation."""
    net.crash(name)
    net.run(5_000)
    net.store[name] = {}
    net._incarnation = incarnation - 1
    net.restart(name)


def test_a_broker_without_its_store_and_with_a_clock_behind_is_told_which_life_to_begin() -> None:
    net = Overlay(LINE)
    net._incarnation = 1_000
    net.crash("d")
    net.restart("d")
    net.run(3_000)
    known = net.brokers["d"].incarnation
    replaced(net, "d", 7)
    net.run(10_000)
    (outlived,) = net.of("d", LaterIncarnationKnown)
    assert outlived == LaterIncarnationKnown(known + 1, "c")
    net.crash("d")
    net._incarnation = outlived.incarnation - 1
    net.restart("d")
    net.subscribe("d", "t")
    net.run(5_000)
    assert len(net.digests()) == 1
    assert not any(net.of(name, NameConflict) for name in net.brokers)
    net.publish("a", "t", b"x")
    net.run(1_000)
    assert net.bodies("d") == [b"x"]


def test_who_hears_of_its_own_past_does_not_begin_anew() -> None:
    net = Overlay(LINE)
    for _ in range(3):
        net.run(3_000)
        net.crash("d")
        net.restart("d")
    net.run(20_000)
    assert not net.of("d", LaterIncarnationKnown)


def test_who_claims_a_link_that_we_do_not_have_is_linked_with_another_of_our_name() -> None:
    net = Overlay({**LINE, "a-twin": 10})
    net.run(3_000)
    twin = [
        Advert("twin", net.brokers["twin"].incarnation, 1_000, [claim("a"), claim("d")], {}, 0),
        Advert("d", net.brokers["d"].incarnation + 5, 1, [claim("twin")], {}, 0),
    ]
    tell(net, "twin", "a", *twin)
    net.run(15_000)
    assert net.of("d", NameConflict)[0] == NameConflict("d", "twin says that it is linked with it")
    assert len(net.of("d", NameConflict)) == 1
    assert not net.of("d", LaterIncarnationKnown)
    assert net.brokers["d"].counters["name_conflicts"] >= 1


def claim(peer: str) -> LinkClaim:
    return LinkClaim(peer, 5_000, 10, 0, 0, 0)


def tell(net: Overlay, sender: str, receiver: str, *messages: ControlMessage) -> None:
    for message in messages:
        net.brokers[sender]._neighbours[receiver].send(message)
    net.turn(sender, [])
    # It would say that it is not so.
    net.loses = lambda frame: frame[:3] == (receiver, sender, Lane.CONTROL)
