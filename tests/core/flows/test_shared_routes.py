"""Topics of many sets of subscribers on few routes: brokers drop what they have not asked for, and count it.

The subscriptions, rates and mappings are those of Tables 2 to 4 of the IndiQoS report.
"""

from dataclasses import replace
from random import Random

import pytest
from handwired import Overlay
from hypothesis import given
from hypothesis import strategies as st

from overlane.core.config import Destinations, RouteKind
from overlane.core.events import Lane, PublishResult, SetChannels
from overlane.core.federation import Federation, Passage
from overlane.core.qos import QosClass
from overlane.core.requirements import Requirements
from overlane.core.units import MS

SUBSCRIBERS = {"a": "ADE", "b": "BC", "c": "AE", "d": "BCEF", "e": "DE", "f": "BCF", "g": "DE"}
RATES_BPS = (
    {"a": 800, "b": 80, "c": 500, "d": 20, "e": 600, "f": 100, "g": 1000},
    {"a": 20, "b": 30, "c": 1000, "d": 50, "e": 60, "f": 25, "g": 100},
)
SOLUTIONS = (
    {"ADE": "acdeg", "BCF": "bdf"},
    {"AE": "acdeg", "BCDF": "bdefg"},
)
MESSAGE_BITS = 40
SECONDS = 8
"""In these every rate is a whole number of messages."""
STAR = {"P-R": 1, **{f"{name}-R": 1 for name in "ABCDEF"}}

EFFORT = QosClass()
RELIABLE = QosClass(reliable=True)


def star(qos: QosClass = EFFORT, routes_max: int = 2, of: dict[str, object] | None = None) -> Overlay:
    """A publisher's broker P, and those of the subscribers, around R."""
    net = Overlay(STAR, {"#": qos}, {"routes_max": routes_max}, {"P": of or {}})
    for topic, names in SUBSCRIBERS.items():
        for name in names:
            net.subscribe(name, topic)
    net.run(3_000)
    return net


def publish(net: Overlay, rates_bps: dict[str, int]) -> None:
    """What the topics send in some seconds."""
    for topic, rate_bps in rates_bps.items():
        for number in range(rate_bps * SECONDS // MESSAGE_BITS):
            net.publish("P", topic, number.to_bytes(MESSAGE_BITS // 8))
        net.run(50)
    net.run(1_000)


def plan(solution: dict[str, str], qos: QosClass) -> dict[RouteKind, tuple[Destinations, ...]]:
    """All topics on the channels of a solution, which reach all who have asked."""
    found = {}
    for topic, names in SUBSCRIBERS.items():
        channels = [tuple(members) for members, topics in solution.items() if topic in topics]
        reached = {name for members in channels for name in members}
        apart = [(name,) for name in names if name not in reached]
        found[replace(qos, is_shared=True), tuple(names)] = (*channels, *apart)
    return found


def waste_bps(net: Overlay) -> float:
    return sum(broker.counters["unsolicited_bytes"] for broker in net.brokers.values()) * 8 / SECONDS


def apart_bps(net: Overlay) -> float:
    """What is sent to single brokers that a channel does not reach."""
    core = net.brokers["P"]
    sent = {one.destinations: one.sent_bytes for one in core.shared_demand()}
    routes = core.shared_routes().items()
    alone = sum(sent[kind[1]] * sum(len(way) == 1 for way in ways) for kind, ways in routes)
    return alone * 8 / SECONDS


def expected(rates_bps: dict[str, int]) -> dict[str, list[tuple[str, bytes]]]:
    return {
        name: [
            (topic, number.to_bytes(MESSAGE_BITS // 8))
            for topic, rate_bps in rates_bps.items()
            if name in SUBSCRIBERS[topic]
            for number in range(rate_bps * SECONDS // MESSAGE_BITS)
        ]
        for name in "ABCDEF"
    }


def received(net: Overlay) -> dict[str, list[tuple[str, bytes]]]:
    return {name: [(topic, body) for topic, body, _ in net.got(name)] for name in "ABCDEF"}


@pytest.mark.parametrize("qos", [EFFORT, RELIABLE], ids=["best effort", "reliable"])
@pytest.mark.parametrize(
    ("solution", "rates", "waste", "apart"),
    [(0, 0, 2220, 0), (0, 1, 1290, 0), (1, 0, 6700, 800), (1, 1, 825, 20)],
    ids=["table 3, set 1", "table 3, set 2", "table 4, set 1", "table 4, set 2"],
)
def test_the_waste_of_the_tables_is_what_brokers_drop(
    qos: QosClass, solution: int, rates: int, waste: int, apart: int
) -> None:
    """The report prints 2020 for the first, where its own table gives 2220. In table 4 no channel takes a to D: with
    what is sent there apart, the sums are the 7500 and 845 of the report."""
    net = star(qos)
    net.handle("P", SetChannels(plan(SOLUTIONS[solution], qos)))
    publish(net, RATES_BPS[rates])
    assert (waste_bps(net), apart_bps(net)) == (waste, apart)
    assert received(net) == expected(RATES_BPS[rates])


def test_without_a_limit_every_set_of_subscribers_has_a_route_and_nothing_is_wasted() -> None:
    net = star(routes_max=0)
    publish(net, RATES_BPS[1])
    assert len(net.brokers["P"].routes()) == len(set(SUBSCRIBERS.values()))
    assert (waste_bps(net), received(net)) == (0, expected(RATES_BPS[1]))


@pytest.mark.parametrize("qos", [EFFORT, RELIABLE], ids=["best effort", "reliable"])
def test_without_a_plan_the_first_sets_have_routes_and_others_get_their_messages_one_by_one(qos: QosClass) -> None:
    net = star(qos)
    publish(net, RATES_BPS[1])
    routes = {route.destinations for route in net.brokers["P"].routes()}
    assert {one for one in routes if len(one) > 1} == {("A", "D", "E"), ("B", "C")}
    assert (waste_bps(net), received(net)) == (0, expected(RATES_BPS[1]))


def test_routes_that_a_plan_does_not_use_end() -> None:
    net = star()
    publish(net, RATES_BPS[1])
    net.handle("P", SetChannels(plan(SOLUTIONS[1], EFFORT)))
    publish(net, RATES_BPS[1])
    net.run(15_000)
    assert {route.destinations for route in net.brokers["P"].routes()} == {("A", "E"), ("B", "C", "D", "F"), ("D",)}


def test_a_member_that_gets_a_message_over_two_channels_delivers_it_once() -> None:
    net = star()
    kind = replace(EFFORT, is_shared=True), ("A", "E")
    net.handle("P", SetChannels({kind: (("A", "B", "E"), ("A", "F"))}))
    net.publish("P", "c", b"1", b"2")
    net.run(1_000)
    assert [net.bodies(name) for name in "ABEF"] == [[b"1", b"2"], [], [b"1", b"2"], []]
    dropped = [net.brokers[name].counters["unsolicited_messages"] for name in "ABEF"]
    assert dropped == [2, 2, 0, 2]


def test_a_reliable_message_comes_though_a_channel_loses_its_link() -> None:
    net = star(RELIABLE)
    net.handle("P", SetChannels(plan(SOLUTIONS[0], RELIABLE)))
    net.publish("P", "d", b"1")
    net.run(500)
    net.cut("E", "R")
    net.publish("P", "d", b"2")
    net.run(2_000)
    net.join("E", "R")
    net.run(10_000)
    assert {name: net.bodies(name) for name in "BCEF"} == {name: [b"1", b"2"] for name in "BCEF"}
    assert net.brokers["P"].counters["retained_bytes"] == 0


def test_who_has_just_asked_gets_messages_in_order_beside_the_plan() -> None:
    net = star(RELIABLE)
    net.handle("P", SetChannels(plan(SOLUTIONS[1], RELIABLE)))
    net.publish("P", "c", b"1")
    net.subscribe("F", "c")
    net.run(500)
    net.publish("P", "c", b"2")
    net.publish("P", "c", b"3")
    net.run(2_000)
    assert [net.bodies(name)[-2:] for name in "AEF"] == [[b"2", b"3"]] * 3


def test_who_does_not_want_it_any_more_owes_nothing() -> None:
    net = star(RELIABLE)
    net.handle("P", SetChannels(plan(SOLUTIONS[0], RELIABLE)))
    net.publish("P", "a", b"0")
    net.run(500)
    net.control_delay_ms = {"E-R": 300}
    net.unsubscribe("E", "g")
    net.publish("P", "g", b"1")
    net.run(100)
    assert net.brokers["E"].counters["unsolicited_messages"] == 1
    net.run(10_000)
    assert (net.brokers["P"].counters["retained_bytes"], net.bodies("D"), net.bodies("E")) == (0, [b"0", b"1"], [b"0"])


@pytest.mark.parametrize(
    ("qos", "of"),
    [
        (QosClass(history=1), {}),
        (QosClass(requires=Requirements(avoid=("broker:Z",))), {}),
        (EFFORT, {"federation": Federation(leave=(Passage("*", ("#",)),))}),
    ],
    ids=["history", "trust", "rules for what may leave"],
)
def test_what_not_everybody_may_get_shares_no_routes(qos: QosClass, of: dict[str, object]) -> None:
    net = star(qos, of=of)
    publish(net, RATES_BPS[1])
    assert len({route.destinations for route in net.brokers["P"].routes()}) == len(set(SUBSCRIBERS.values()))


def test_a_plan_that_leaves_somebody_out_or_takes_too_many_routes_is_refused() -> None:
    net = star()
    shared = replace(EFFORT, is_shared=True)
    with pytest.raises(ValueError, match="leaves out some of A, E"):
        net.handle("P", SetChannels({(shared, ("A", "E")): (("A", "B"),)}))
    many: dict[RouteKind, tuple[Destinations, ...]] = {(shared, ("A", one)): (("A", one),) for one in "BCD"}
    with pytest.raises(ValueError, match="3 channels where 2 are allowed"):
        net.handle("P", SetChannels(many))


@given(
    wanted=st.dictionaries(st.sampled_from("abcde"), st.sets(st.sampled_from("ABCDEF"), min_size=1), min_size=1),
    later=st.dictionaries(st.sampled_from("abcde"), st.sets(st.sampled_from("ABCDEF"), min_size=1)),
    choices=st.randoms(use_true_random=False),
    reliable=st.booleans(),
)
def test_whatever_the_mapping_everybody_gets_what_he_asked_for_once_and_in_order(
    wanted: dict[str, set[str]], later: dict[str, set[str]], choices: Random, reliable: bool
) -> None:
    """Mappings and subscriptions change while messages are published."""
    qos = QosClass(reliable=reliable)
    net = Overlay(STAR, {"#": qos}, {"routes_max": 3})
    for topic, names in wanted.items():
        for name in sorted(names):
            net.subscribe(name, topic)
    net.run(3_000)
    sent = 0
    for round_number in range(4):
        if round_number == 2:
            for topic, names in later.items():
                for name in sorted(names):
                    net.subscribe(name, topic)
            net.run(500)
        net.handle("P", SetChannels(_any_plan(net, choices)))
        for topic in sorted(wanted):
            sent += 1
            net.publish("P", topic, sent.to_bytes(2))
            net.run(choices.choice((0, 1, 300)))
        net.run(500)
    net.run(5_000)
    per_round = len(wanted)
    for name in "ABCDEF":
        expected_here = [
            (topic, (round_number * per_round + place + 1).to_bytes(2))
            for round_number in range(4)
            for place, topic in enumerate(sorted(wanted))
            if name in wanted[topic] or (round_number >= 2 and name in later.get(topic, ()))
        ]
        got = [(topic, body) for topic, body, _ in net.got(name)]
        for topic in wanted:
            assert [one for one in got if one[0] == topic] == [one for one in expected_here if one[0] == topic]
    assert net.brokers["P"].counters["retained_bytes"] == 0


def _any_plan(net: Overlay, choices: Random) -> dict[RouteKind, tuple[Destinations, ...]]:
    """Three channels of some brokers; each kind takes some of them, and to the rest it is sent apart."""
    channels = [tuple(sorted(choices.sample("ABCDEF", choices.randint(2, 5)))) for _ in range(3)]
    found: dict[RouteKind, tuple[Destinations, ...]] = {}
    for demand in net.brokers["P"].shared_demand():
        taken = sorted({one for one in channels if choices.random() < 0.5})
        reached = {name for one in taken for name in one}
        apart = [(name,) for name in demand.destinations if name not in reached]
        if len(demand.destinations) > 1:
            found[demand.qos, demand.destinations] = (*taken, *apart)
    return found


def test_repairs_and_detours_are_for_nobody_who_has_not_asked() -> None:
    """With a deadline parcels are repaired, and sent around links that fail or lose."""
    branches = {"P-R": 1, "R-A": 1, "R-B": 1, "R-T": 1, "T-C": 1, "T-U": 1, "C-U": 1}
    net = Overlay(branches, {"#": QosClass(deadline_ns=400 * MS)}, {"routes_max": 1})
    for topic, names in (("topic-x", "AB"), ("topic-y", "BC")):
        for name in names:
            net.subscribe(name, topic)
    net.run(3_000)
    shared = QosClass(deadline_ns=400 * MS, is_shared=True)
    everybody = ("A", "B", "C")
    net.handle("P", SetChannels({(shared, ("A", "B")): (everybody,), (shared, ("B", "C")): (everybody,)}))
    net.loses = lambda frame: frame[:2] == ("T", "C") and frame[2] is Lane.DATA and b"topic-x" in frame[3]
    for number in range(200):
        net.publish("P", "topic-" + "xy"[number % 2], number.to_bytes(2))
        net.run(50)
    net.run(2_000)
    numbers = {name: [int.from_bytes(body) for body in net.bodies(name)] for name in everybody}
    assert numbers == {"A": [*range(0, 200, 2)], "B": [*range(200)], "C": [*range(1, 200, 2)]}
    assert sum(broker.counters["detours"] for broker in net.brokers.values()) > 0
    # What it drops is no flow of its own in which something is missing.
    assert net.brokers["C"].missing() == [("P", "topic-y", 0)]


def test_what_is_for_some_of_those_who_need_the_topic_shares_no_routes() -> None:
    """A message in a form of its own for some brokers, or without a reservation: others get another copy."""
    net = star()
    net.handle("P", SetChannels({(replace(EFFORT, is_shared=True), ("A", "E")): (("A", "D", "E"),)}))
    core = net.brokers["P"]
    for only in ("A", "E"):
        assert core.send("a", only.encode(), net.now, 0, QosClass(only=(only,))) is PublishResult.ACCEPTED
    assert core.send("c", b"all", net.now, 0, QosClass(reservation=-5)) is PublishResult.ACCEPTED
    net.turn("P", [])
    net.run(1_000)
    assert {name: net.bodies(name) for name in "ADE"} == {"A": [b"A", b"all"], "D": [], "E": [b"E", b"all"]}
    assert core.shared_demand() == []
