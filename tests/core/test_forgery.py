"""A neighbour that speaks in the name of others: what they say themselves prevails."""

import pytest
from handwired import Overlay

from overlane.core.events import Close
from overlane.core.gossip import LEAP_MAX
from overlane.core.messages import Advert, Interest, Message
from overlane.core.qos import QosClass

LINE = {"a-b": 10, "b-c": 10, "c-d": 10, "a-liar": 10}
FAR = (1 << 63) - 1


def settled() -> Overlay:
    net = Overlay(LINE, {"t": QosClass(reliable=True)})
    net.subscribe("d", "t")
    net.run(3_000)
    assert len(net.digests()) == 1
    return net


def incarnation(net: Overlay, name: str) -> int:
    return net.brokers[name]._table.version_of(name)[0]


def lie(net: Overlay, message: Message) -> None:
    """The liar tells it to a."""
    net.brokers["liar"]._neighbours["a"].send(message)
    net.turn("liar", [])
    net.run(3_000)


def arrives(net: Overlay) -> bool:
    net.publish("a", "t", b"x")
    net.run(1_000)
    return net.bodies("d") == [b"x"]


@pytest.mark.parametrize("sequence", [1_000, LEAP_MAX - 1, LEAP_MAX + 1_000, FAR])
@pytest.mark.parametrize("victim", ["b", "d"])
def test_a_map_from_the_future_in_the_name_of_another_is_soon_set_right(victim: str, sequence: int) -> None:
    net = settled()
    lie(net, Advert(victim, incarnation(net, victim), sequence, [], {}, 0))
    assert {name: broker._table.map for name, broker in net.brokers.items() if name != "liar"}.keys() == set("abcd")
    honest = {net.brokers[name].map_digest() for name in "abcd"}
    assert len(honest) == 1
    assert arrives(net)
    assert not any(net.of(name, Close) for name in "abcd")


@pytest.mark.parametrize("sequence", [1_000, LEAP_MAX + 1_000, FAR])
def test_needs_from_the_future_in_the_name_of_another_are_soon_set_right(sequence: int) -> None:
    net = settled()
    lie(net, Interest("d", incarnation(net, "d"), sequence, -1, [], []))
    assert arrives(net)
    net.subscribe("d", "t", "another")
    net.unsubscribe("d", "t")
    net.run(1_000)
    net.publish("a", "t", b"y")
    net.run(1_000)
    assert net.bodies("d") == [b"x", b"y"]


@pytest.mark.parametrize("victim", ["b", "d"])
def test_a_broker_that_is_said_to_have_left_is_soon_there_again_with_all_that_it_needs(victim: str) -> None:
    net = settled()
    net.subscribe("b", "u")
    net.run(1_000)
    lie(net, Advert(victim, incarnation(net, victim), 1_000, [], {}, 0, True))
    assert len({net.brokers[name].map_digest() for name in "abcd"}) == 1
    assert arrives(net)
    net.publish("a", "u", b"u")
    net.run(1_000)
    assert net.bodies("b") == [b"u"]


def test_a_later_life_of_a_neighbour_is_not_believed_while_it_is_here() -> None:
    net = settled()
    before = net.brokers["a"].map_digest()
    lie(net, Advert("b", incarnation(net, "b") + 1, 1, [], {}, 0))
    lie(net, Advert("b", incarnation(net, "b") + 1, 2, [], {}, 0, True))
    assert net.brokers["a"].map_digest() == before
    assert arrives(net)


def test_a_neighbour_that_was_restarted_is_believed() -> None:
    net = settled()
    net.crash("b")
    net.run(1_000)
    net.restart("b")
    net.run(5_000)
    assert len({net.brokers[name].map_digest() for name in "abcd"}) == 1
    assert arrives(net)
