"""Requirements of classes: links and brokers that must not be used are not, by nothing that carries messages; what
routes do not reach of loss and resiliency is reported."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from handwired import Overlay

from overlane.core.config import SourceRoute
from overlane.core.events import RequirementChanged, SetConfig
from overlane.core.qos import QosClass, Routing
from overlane.core.requirements import NOBODY, Places, Requirements, Unmet
from overlane.core.units import MS, NEVER

DIAMOND = {"a-b": 10, "b-d": 10, "a-c": 30, "c-d": 30}
DOMAINS = {"a": "home", "b": "east", "c": "west", "d": "home"}
ROUTINGS = [routing.value for routing in Routing]
SECRET = b"secret-"


def links_of(net: Overlay) -> set[tuple[str, str]]:
    """The links that bytes of a message have passed."""
    return {(sender, receiver) for sender, receiver, _, data in net.frames if SECRET in data}


def started(requires: Requirements, routing: str, **more: object) -> Overlay:
    """Of a diamond: a publishes, d subscribes."""
    encrypted = more.pop("encrypted", ())
    assert isinstance(encrypted, tuple)
    qos = QosClass(deadline_ns=200 * MS, routing=Routing(routing), requires=requires, **more)  # type: ignore[arg-type]
    net = Overlay(DIAMOND, {"t": qos}, {"domains": DOMAINS}, encrypted=encrypted)
    net.run(3_000)
    net.subscribe("d", "t")
    net.run(300)
    return net


def unmet(net: Overlay) -> list[tuple[str, str, bool]]:
    return [(one.unmet.destination, one.unmet.requirement, one.is_met) for one in net.of("a", RequirementChanged)]


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(
    "requires",
    [
        Requirements(avoid=("broker:b",)),
        Requirements(avoid=("domain:east",)),
        Requirements(through=("domain:west",)),
        Requirements(through=("broker:c", "broker:d")),
        Requirements(encrypted=True),
    ],
    ids=str,
)
def test_every_way_of_routing_keeps_to_what_is_allowed(requires: Requirements, routing: str) -> None:
    net = started(requires, routing, encrypted=("a-c", "c-d"))
    for _ in range(5):
        net.publish("a", "t", SECRET + b"1")
        net.run(100)
    assert len(net.bodies("d")) == 5
    assert links_of(net) == {("a", "c"), ("c", "d")}
    assert unmet(net) == []


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(
    ("requires", "names"),
    [
        (Requirements(avoid=("broker:b", "broker:c")), ["avoid"]),
        (Requirements(avoid=("broker:d",)), ["avoid"]),
        (Requirements(through=("broker:x",)), ["through"]),
        (Requirements(encrypted=True, avoid=("broker:b",)), ["encrypted"]),
        (Requirements(encrypted=True, avoid=("broker:b", "broker:c")), ["encrypted", "avoid"]),
    ],
    ids=str,
)
def test_where_no_path_is_allowed_nothing_is_sent_and_the_reason_is_reported(
    requires: Requirements, names: list[str], routing: str
) -> None:
    net = started(requires, routing)
    net.publish("a", "t", SECRET + b"1")
    net.run(2_000)
    assert (net.bodies("d"), links_of(net)) == ([], set())
    assert sorted(unmet(net)) == sorted(("d", name, False) for name in names)
    (route,) = net.brokers["a"].routes()
    assert route.unmet == tuple(Unmet("d", name) for name in names)


def test_a_reliable_message_waits_until_a_path_is_allowed() -> None:
    net = started(Requirements(encrypted=True), "adaptive", reliable=True)
    net.publish("a", "t", SECRET + b"1")
    net.run(1_000)
    assert net.bodies("d") == []
    net.encrypted = {("a", "c"), ("c", "d")}
    for ends in (("a", "c"), ("c", "d")):
        net.cut(*ends)
        net.join(*ends)
    net.run(3_000)
    assert net.bodies("d") == [SECRET + b"1"]
    assert links_of(net) == {("a", "c"), ("c", "d")}
    assert unmet(net) == [("d", "encrypted", False), ("d", "encrypted", True)]


def test_a_hop_does_not_wait_for_the_source_to_hear_that_its_link_has_lost_tls() -> None:
    every = tuple(DIAMOND)
    net = started(Requirements(encrypted=True), "adaptive", encrypted=every)
    net.publish("a", "t", SECRET + b"1")
    net.run(50)
    assert links_of(net) == {("a", "b"), ("b", "d")}
    net.frames.clear()
    net.encrypted.discard(("b", "d"))
    net.publish("a", "t", SECRET + b"2")  # under way to b while the link behind it is replaced
    net.cut("b", "d")
    net.join("b", "d")
    net.run(30)
    assert ("b", "d") not in links_of(net)
    net.run(1_000)
    net.publish("a", "t", SECRET + b"3")
    net.run(200)
    assert links_of(net) == {("a", "b"), ("a", "c"), ("c", "d")}
    assert SECRET + b"3" in net.bodies("d")


def test_a_changed_configuration_moves_routes_at_once() -> None:
    net = started(Requirements(avoid=("domain:east",)), "single")
    net.publish("a", "t", SECRET + b"1")
    net.run(100)
    assert links_of(net) == {("a", "c"), ("c", "d")}
    a = net.brokers["a"]
    moved = {**DOMAINS, "b": "west", "c": "east"}
    net.handle("a", SetConfig(replace(a.config, domains=moved)))
    net.run(100)
    net.frames.clear()
    net.publish("a", "t", SECRET + b"2")
    net.run(100)
    assert links_of(net) == {("a", "b"), ("b", "d")}


def test_a_broker_whose_domain_nobody_knows_is_in_every_domain_to_avoid() -> None:
    places = Places({"a": "home", "b": ""})
    for requires, allowed in (
        (Requirements(avoid=("domain:east",)), {"a": True, "b": True, "x": False}),
        (Requirements(avoid=("domain:b",)), {"a": True, "b": False, "x": False}),
        (Requirements(avoid=("broker:a",)), {"a": False, "b": True, "x": True}),
        (Requirements(), {"a": True, "b": True, "x": True}),
    ):
        assert {name: places.may_receive(name, requires) for name in "abx"} == allowed
    assert not places.may_pass("x", Requirements(through=("domain:home",)))
    assert places.may_pass("x", Requirements(through=("broker:x",)))


def test_a_tightened_requirement_is_what_both_ask_for() -> None:
    mine = Requirements(False, ("broker:a", "domain:x"), ("broker:b",), 0.1, 0.9)
    yours = Requirements(True, ("domain:x",), ("broker:c",), 0.2, 0.99)
    both = Requirements(True, ("domain:x",), ("broker:b", "broker:c"), 0.1, 0.99)
    assert mine.tightened(yours) == yours.tightened(mine) == both
    assert mine.tightened(Requirements()) == mine
    assert mine.tightened(Requirements(through=("broker:z",))).through == (NOBODY,)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_that_carries_messages_leaves_what_is_allowed_whatever_fails(seed: int) -> None:
    """Random networks, all ways of routing, links that lose, break, and come back with or without TLS: every frame with
    bytes of a message is on an encrypted link, and reaches no broker that is to be avoided."""
    random = Random(seed)
    names = "abcdefg"
    latency = {f"{one}-{other}": random.randint(2, 30) for one, other in pairwise(names)}
    for _ in range(8):
        one, other = sorted(random.sample(names, 2))
        latency[f"{one}-{other}"] = random.randint(2, 60)
    latency["a-g"] = 70
    encrypted = [ends for ends in latency if ends == "a-g" or random.random() < 0.9]
    bad = random.choice("bcdef")
    topics = {
        f"t/{routing.value}/{kind}": QosClass(
            deadline_ns=150 * MS if random.random() < 0.7 else NEVER,
            reliable=kind == "reliable",
            routing=routing,
            requires=Requirements(encrypted=True, avoid=(f"broker:{bad}",)),
        )
        for routing in Routing
        for kind in ("plain", "reliable")
    }
    net = Overlay(latency, topics, {"domains": dict.fromkeys(names, "")}, encrypted=encrypted)
    lossy = {tuple(ends.split("-")) for ends in random.sample(sorted(latency), 3)}
    net.loses = lambda frame: frame[2] == 1 and tuple(sorted(frame[:2])) in lossy and random.random() < 0.3
    net.run(3_000)
    for name in (bad, "g", "f"):
        net.subscribe(name, "t/#")
    net.run(500)
    checked = 0
    for number in range(15):
        net.frames.clear()
        open_links = set(net.latency_ns) - net.encrypted
        for topic in topics:
            net.publish("a", topic, SECRET + f"{number}".encode())
        net.run(random.randint(1, 60))
        for sender, receiver, _, data in net.frames:
            if SECRET in data:
                checked += 1
                assert receiver != bad, f"seed {seed}"
                assert tuple(sorted((sender, receiver))) not in open_links, f"seed {seed}"
        if random.random() < 0.3:
            ends = random.choice(sorted(net.latency_ns))
            if ends in net.up:
                net.cut(*ends)
            (net.encrypted.discard if random.random() < 0.5 else net.encrypted.add)(ends)
            net.join(*ends)
    assert checked
    assert not [body for body in net.bodies(bad) if SECRET in body]


# Quality


def route_of(net: Overlay) -> SourceRoute:
    (route,) = net.brokers["a"].routes()
    return route


@pytest.mark.parametrize("routing", ["single", "adaptive", "thrifty", "multipath"])
def test_a_path_that_loses_too_much_is_left_for_one_that_does_not(routing: str) -> None:
    random = Random(7)
    net = started(Requirements(loss_max=0.05), routing)
    net.loses = lambda frame: frame[2] == 1 and set(frame[:2]) == {"a", "b"} and random.random() < 0.4
    for number in range(200):
        net.publish("a", "t", SECRET + f"{number}".encode())
        net.run(50)
    assert {("a", "c"), ("c", "d")} <= set(route_of(net).links)
    loss, _ = route_of(net).quality["d"]
    assert loss <= 0.05
    assert route_of(net).unmet == ()


def test_what_no_route_reaches_is_reported_once_and_the_nearest_is_used() -> None:
    risks = {"link_failure": dict.fromkeys("abcd", 0.1), "domains": DOMAINS}
    qos = QosClass(routing=Routing.MULTIPATH, requires=Requirements(resiliency_min=0.999))
    net = Overlay(DIAMOND, {"t": qos}, risks)
    net.run(3_000)
    net.subscribe("d", "t")
    net.run(300)
    for _ in range(3):
        net.publish("a", "t", SECRET)
        net.run(1_500)
    assert len(net.bodies("d")) == 3
    (reported,) = net.of("a", RequirementChanged)
    assert reported.unmet.requirement == "resiliency_min"
    assert reported.unmet.wanted == 0.999
    # Two paths of two links, each up with 0.9: 1 - (1 - 0.81)^2
    assert reported.unmet.found == pytest.approx(0.9639, abs=1e-4)
    assert len(route_of(net).links) == 4


def test_a_single_path_is_the_one_that_is_resilient_enough() -> None:
    of = {
        "a": {"link_failure": {"b": 0.2, "c": 0.001}},
        "b": {"link_failure": {"a": 0.2, "d": 0.001}},
        "c": {"link_failure": {"a": 0.001, "d": 0.001}},
        "d": {"link_failure": {"b": 0.001, "c": 0.001}},
    }
    qos = QosClass(routing=Routing.SINGLE, requires=Requirements(resiliency_min=0.99))
    net = Overlay(DIAMOND, {"t": qos}, of=of)
    net.run(3_000)
    net.subscribe("d", "t")
    net.run(300)
    net.publish("a", "t", SECRET)
    net.run(300)
    assert (route_of(net).links, route_of(net).unmet) == ((("a", "c"), ("c", "d")), ())
