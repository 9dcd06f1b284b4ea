"""Unrest: trouble that tells of other links, and trouble that tells of nothing but the link that has it."""

from test_route_plan import Map, drawn, qos

from overlane.core.routing.selection.trouble_history import FRESH_FOR, UNSETTLED_FOR
from overlane.core.units import MS

PAST_THE_DIRECT_LINK = {"ad": 10, "ab": 10, "bd": 10, "ac": 12, "cd": 12, "xy": 10, "yz": 10}
"""Two ways around, neither of which leaves time for a repair within 34 ms, and links elsewhere."""
ALARMS = qos("adaptive", 34)
FRESH_MS, UNSETTLED_MS = FRESH_FOR // MS, UNSETTLED_FOR // MS


def test_a_link_that_loses_alone_is_left_for_one_way_around() -> None:
    net = Map(**PAST_THE_DIRECT_LINK)
    route = net.route(ALARMS)
    assert drawn(route.plan) == "ad"
    net.lossy("ad", loss=0.1)
    net.after(0)
    assert drawn(route.plan) == "ab ac ad bd cd", "the other links of its brokers may lose as well"
    net.after(FRESH_MS)
    assert drawn(route.plan) == "ab bd", "they do not"


def test_that_the_same_link_relapses_is_nothing_fresh() -> None:
    net = Map(**PAST_THE_DIRECT_LINK)
    route = net.route(ALARMS)
    net.lossy("ad", loss=0.1)
    net.after(2 * FRESH_MS)
    net.well("ad")
    net.after(2 * FRESH_MS)
    assert drawn(route.plan) == "ad"
    net.lossy("ad", loss=0.1)
    net.after(0)
    assert drawn(route.plan) == "ab bd"


def test_where_two_links_lost_within_a_minute_a_third_may_too() -> None:
    net = Map(**PAST_THE_DIRECT_LINK)
    route = net.route(ALARMS)
    net.lossy("xy", loss=0.1)
    net.after(FRESH_MS)
    assert drawn(route.plan) == "ad", "one alone tells of nothing else"
    net.well("xy")
    net.after(UNSETTLED_MS // 2)
    net.lossy("yz", loss=0.1)
    net.after(FRESH_MS)
    assert drawn(route.plan) == "ab ad bd"
    net.well("yz")
    net.after(UNSETTLED_MS)
    assert drawn(route.plan) == "ad", "a minute later it is forgotten"


def test_links_that_lost_more_than_a_minute_apart_do_not_count_together() -> None:
    net = Map(**PAST_THE_DIRECT_LINK)
    route = net.route(ALARMS)
    for ends in ("xy", "yz"):
        net.lossy(ends, loss=0.1)
        net.after(FRESH_MS)
        net.well(ends)
        net.after(UNSETTLED_MS + FRESH_MS)
    assert (drawn(route.plan), route.version) == ("ad", 1)


def test_a_way_that_is_too_slow_makes_no_broker_doubtful() -> None:
    """Only where a link is in trouble may all that passes its brokers fail at once."""
    net = Map(ad=10, ab=10, bd=10, be=30, ed=30)
    route = net.route(ALARMS)
    net.lossy("ad", loss=0.1)
    net.after(2 * FRESH_MS)
    assert drawn(route.plan) == "ab bd"
