"""Stories: what they build, do and answer."""

from typing import Any

import pytest
from cities import five_cities

from overlane.core.units import MS, SECOND
from overlane.network import Broker
from overlane.sim.story import Story, link, network_of, topic

RELIABLE = topic(2 * SECOND, reliability="reliable")


def line_of_three(**more: Any) -> Story:
    return Story({("a", "b"): 10 * MS, ("b", "c"): 10 * MS}, {"news": RELIABLE}, **more)


def test_a_story_can_be_written_as_a_network() -> None:
    network = network_of(
        {("a", "b"): link(10 * MS, loss=0.1)},
        {"news": topic(60 * MS, routing="flood")},
        publishers=[("a", "news", 5)],
        subscribers=[("b", "news")],
        brokers={"b": Broker(name="", clock_offset_ns=5)},
        ping_interval_ns=250 * MS,
    )
    assert [(broker.name, broker.clock_offset_ns) for broker in network.brokers] == [("a", 0), ("b", 5)]
    assert (network.links[0].ends, network.links[0].loss) == (("a", "b"), 0.1)
    assert (network.topics[0].filter, network.topics[0].routing) == ("news", "flood")
    assert network.defaults.ping_interval_ns == 250 * MS


def test_a_story_begins_settled_at_time_zero() -> None:
    net = line_of_three()
    assert net.now == 0
    assert net.has_converged()


def test_messages_published_by_hand_are_judged_like_all_others() -> None:
    net = line_of_three()
    net.subscribe("c", "news")
    net.run(2 * SECOND)
    assert net.publish("a", "news", 3) == 3
    net.run(SECOND)
    assert (net.published("news"), net.delivered("news"), net.lost("news"), net.duplicates("news")) == (3, 3, 0, 0)
    assert net.sent_per_message() >= 2
    assert net.in_order()


def test_who_unsubscribes_gets_nothing_more() -> None:
    net = line_of_three()
    reader = net.subscribe("c", "news")
    net.run(2 * SECOND)
    net.unsubscribe(reader)
    net.run(2 * SECOND)
    net.publish("a", "news")
    net.run(SECOND)
    assert net.delivered("news") == net.lost("news") == 0


def test_a_path_is_named_by_its_brokers_and_gone_with_them() -> None:
    net = line_of_three(publishers=[("a", "news", 10)], subscribers=[("c", "news")])
    net.run(SECOND)
    assert net.path("news", "a", "c") == ["a", "b", "c"]
    net.crash("b")
    net.run(5 * SECOND)
    assert net.path("news", "a", "c") == []
    net.restart("b")
    assert net.wait(lambda: net.path("news", "a", "c") == ["a", "b", "c"], within=20 * SECOND) > 0


def test_waiting_for_what_does_not_come_says_so() -> None:
    net = line_of_three()
    with pytest.raises(AssertionError, match="still not so after 1 s"):
        net.wait(lambda: False, within=SECOND)


def test_five_cities_stand_as_in_the_example() -> None:
    net = five_cities({"alarms": 60 * MS})
    net.run(SECOND)
    assert net.path("alarms", "seattle", "washington") == ["seattle", "denver", "washington"]
    assert net.missed("alarms") == 0
