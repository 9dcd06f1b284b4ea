"""What may leave a domain and what may enter it."""

import pytest
from handwired import Overlay

from overlane.core.events import RefusedAtBorder
from overlane.core.federation import OPEN, Federation, Passage, inner
from overlane.core.qos import QosClass

LINE = {"a-b": 10, "b-c": 10}


def overlay(**rules: Federation) -> Overlay:
    """Three brokers in a row; c subscribes to everything, and what a and b publish is reliable."""
    net = Overlay(
        LINE, {"#": QosClass(reliable=True, history=1)}, of={name: {"federation": rule} for name, rule in rules.items()}
    )
    net.run(3_000)
    return net


def published(net: Overlay) -> dict[str, list[bytes]]:
    """What arrives at c of two topics from two brokers."""
    net.subscribe("c", "#")
    net.run(500)
    for source in "ab":
        for topic in ("alarms/1", "private/1"):
            net.publish(source, topic, source.encode())
    net.run(1_000)
    arrived: dict[str, list[bytes]] = {}
    for topic, body, _ in net.got("c"):
        arrived.setdefault(topic, []).append(body)
    return {topic: sorted(bodies) for topic, bodies in arrived.items()}


def test_without_rules_everything_crosses() -> None:
    assert published(overlay()) == {"alarms/1": [b"a", b"b"], "private/1": [b"a", b"b"]}


def test_only_what_may_leave_leaves() -> None:
    net = overlay(a=Federation(leave=(Passage("*", ("alarms/#",)),)))
    assert published(net) == {"alarms/1": [b"a", b"b"], "private/1": [b"b"]}
    assert net.brokers["c"].counters["refused_at_border"] == 0


def test_what_may_leave_can_depend_on_where_it_goes() -> None:
    net = overlay(a=Federation(leave=(Passage("b", ("#",)),)))
    assert published(net) == {"alarms/1": [b"b"], "private/1": [b"b"]}


def test_only_what_may_enter_enters_whoever_sent_it() -> None:
    net = overlay(c=Federation(enter=(Passage("a", ("#",)), Passage("b", ("alarms/#",)))))
    assert published(net) == {"alarms/1": [b"a", b"b"], "private/1": [b"a"]}
    assert net.brokers["c"].counters["refused_at_border"] == 1


def test_operators_are_told_once_in_a_while_of_whom_messages_may_not_enter() -> None:
    net = overlay(c=Federation(enter=(Passage("a", ("#",)), Passage("b", ("alarms/#",)))))
    published(net)
    net.publish("b", "private/2", b"b")
    net.run(10_000)
    told = net.of("c", RefusedAtBorder)
    assert {(one.origin, one.topic) for one in told[:1]} == {("b", "private/1")}
    assert sum(one.messages for one in told) == 2
    assert {one.origin for one in told} == {"b"}


def test_a_broker_knows_who_gets_nothing_of_a_topic_because_it_may_not_leave() -> None:
    net = overlay(a=Federation(leave=(Passage("*", ("alarms/#",)), Passage("b", ("#",)))))
    for name in "bc":
        net.subscribe(name, "#")
    net.run(500)
    topics = ("alarms/1", "private/1")
    assert [net.brokers["a"].withheld_from(topic) for topic in topics] == [(), ("c",)]
    assert [net.brokers["b"].withheld_from(topic) for topic in topics] == [(), ()]


def test_a_transit_broker_carries_what_may_not_enter_its_own_domain() -> None:
    net = overlay(b=Federation(enter=(), leave=()))
    assert published(net) == {"alarms/1": [b"a"], "private/1": [b"a"]}


def test_a_filter_that_nothing_from_elsewhere_may_match_is_not_told() -> None:
    net = overlay(c=Federation(enter=(Passage("*", ("alarms/#",)),)))
    net.subscribe("c", "private/#")
    net.subscribe("c", "+/1")
    net.run(500)
    net.publish("a", "private/1", b"x")
    net.run(500)
    assert net.brokers["a"].carries("private/2") is True  # for its history, and because "+/1" might need others
    assert (net.got("c"), net.brokers["c"].counters["refused_at_border"]) == ([], 1)


def test_the_past_crosses_no_border_either() -> None:
    net = overlay(a=Federation(leave=(Passage("*", ("alarms/#",)),)))
    net.publish("a", "private/1", b"past")
    net.publish("a", "alarms/1", b"past")
    net.subscribe("c", "#")
    net.run(1_000)
    assert net.got("c") == [("alarms/1", b"past", ("s",))]


@pytest.mark.parametrize(
    ("topic", "known"),
    [
        ("alarms/1", "alarms/1"),
        ("$retained/alarms/1", "alarms/1"),
        ("$share/workers/denver/1f/alarms/1", "alarms/1"),
        ("$SYS/broker", "$SYS/broker"),
    ],
)
def test_names_of_the_overlay_are_judged_by_the_topic_behind_them(topic: str, known: str) -> None:
    assert inner(topic) == known


def test_an_open_border_asks_nothing() -> None:
    assert (OPEN.is_open, OPEN.may_leave("t", "b"), OPEN.may_enter("t", "b"), OPEN.may_ever_enter("#")) == (True,) * 4
