"""A broker on the way that answers pings and notices, and forwards nothing: the source finds out, and goes around it.

a publishes, c reads. The quickest way is a-b-c; a-d-c takes longer.
"""

from collections.abc import Callable
from random import Random
from unittest.mock import patch

import pytest
from saboteurs import Blackhole, Drops, lying_about_latency

from overlane.core.broker import OverlayBroker
from overlane.core.events import Deliver, Effect, PathSuspected, PathTrusted, Reception
from overlane.core.units import MS, SECOND, Nanos
from overlane.network import Topic
from overlane.sim.host import Host
from overlane.sim.story import Story, topic

LINKS = {("a", "b"): 10 * MS, ("b", "c"): 10 * MS, ("a", "d"): 15 * MS, ("d", "c"): 15 * MS}
NOTICED_WITHIN: Nanos = 5 * SECOND

CLASSES = {
    "best effort": topic(),
    "best effort with a deadline": topic(100 * MS),
    "reliable": topic(reliability="reliable"),
    "reliable with a deadline": topic(100 * MS, reliability="reliable"),
}


def diamond(spec: Topic, rate_hz: float = 50, **more: object) -> Story:
    return Story(
        LINKS,
        {"t": spec},
        publishers=[("a", "t", rate_hz)],
        subscribers=[("c", "t")],
        **more,  # type: ignore[arg-type]
    )


def suspected(net: Story) -> list[tuple[str, tuple[str, ...]]]:
    """Who suspected whom."""
    return [
        (verdict.source, verdict.effect.hops)
        for verdict in net.world.run_log.path_verdicts
        if isinstance(verdict.effect, PathSuspected)
    ]


def trusted(net: Story) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (verdict.source, verdict.effect.hops)
        for verdict in net.world.run_log.path_verdicts
        if isinstance(verdict.effect, PathTrusted)
    ]


def half(seed: int) -> Drops:
    luck = Random(seed)
    return lambda _header: luck.random() < 0.5


@pytest.mark.parametrize("routing", ["single", "adaptive", "thrifty"])
@pytest.mark.parametrize("name", CLASSES)
def test_a_broker_that_forwards_nothing_is_gone_around(name: str, routing: str) -> None:
    net = diamond(CLASSES[name], routing=routing)
    net.run(3 * SECOND)
    assert net.path("t", "a", "c") == ["a", "b", "c"]
    Blackhole(net, "b")
    net.wait(lambda: net.path("t", "a", "c") == ["a", "d", "c"], NOTICED_WITHIN)
    assert suspected(net) == [("a", ("b",))]
    moved = net.now
    net.run(5 * SECOND)
    late = [one for one in net.losses("t") if one.published_at > moved]
    assert late == []
    if CLASSES[name].reliability == "reliable":
        assert net.lost("t") == 0
        assert net.in_order()
    assert net.route_moves("t")[-1].effect.cause == "what is sent over b does not arrive"


@pytest.mark.parametrize("name", CLASSES)
def test_a_broker_that_forwards_half_is_gone_around(name: str) -> None:
    net = diamond(CLASSES[name])
    net.run(3 * SECOND)
    Blackhole(net, "b", half(7), receipts=False)
    net.wait(lambda: net.path("t", "a", "c") == ["a", "d", "c"], 4 * NOTICED_WITHIN)
    assert suspected(net) == [("a", ("b",))]


def test_a_broker_that_swallows_receipts_alone_is_gone_around() -> None:
    net = diamond(CLASSES["reliable"])
    net.run(3 * SECOND)
    Blackhole(net, "b", lambda _header: False)
    net.wait(lambda: net.path("t", "a", "c") == ["a", "d", "c"], NOTICED_WITHIN)
    net.run(2 * SECOND)
    assert net.broker("a").counters["retained_bytes"] < 10_000
    assert net.lost("t") == 0


def test_a_broker_that_drops_what_follows_a_route_and_passes_what_carries_its_path_is_gone_around() -> None:
    net = diamond(CLASSES["best effort"])
    net.run(3 * SECOND)
    Blackhole(net, "b", detours=False, receipts=False)
    net.wait(lambda: net.path("t", "a", "c") == ["a", "d", "c"], NOTICED_WITHIN)


def test_a_single_reliable_message_arrives_before_anybody_is_accused() -> None:
    net = Story(LINKS, {"t": CLASSES["reliable"]}, subscribers=[("c", "t")])
    writer = net.world.add_hand_publisher("a", "t")
    Blackhole(net, "b")
    writer.publish()
    net.wait(lambda: net.delivered("t") == 1, 2 * SECOND)


def test_only_the_topics_that_a_broker_drops_go_around_it() -> None:
    net = Story(
        LINKS,
        {"t": topic(), "u": topic(200 * MS)},
        publishers=[("a", "t", 50), ("a", "u", 50)],
        subscribers=[("c", "t"), ("c", "u")],
    )
    net.run(3 * SECOND)
    Blackhole(net, "b", lambda header: bool(header.deadline_us), receipts=False)
    net.wait(lambda: net.path("u", "a", "c") == ["a", "d", "c"], NOTICED_WITHIN)
    net.run(5 * SECOND)
    assert net.path("t", "a", "c") == ["a", "b", "c"]
    assert net.lost("t") == 0


def test_of_two_brokers_in_a_row_the_one_that_works_for_others_is_not_suspect() -> None:
    links = {("a", "b"): 5 * MS, ("b", "e"): 5 * MS, ("e", "c"): 5 * MS, ("a", "d"): 10 * MS, ("d", "e"): 10 * MS}
    net = Story(links, {"t": topic()}, publishers=[("a", "t", 50)], subscribers=[("c", "t")])
    net.run(3 * SECOND)
    assert net.path("t", "a", "c") == ["a", "b", "e", "c"]
    Blackhole(net, "b")
    net.wait(lambda: net.path("t", "a", "c") == ["a", "d", "e", "c"], NOTICED_WITHIN)
    assert suspected(net) == [("a", ("b",))]


@pytest.mark.parametrize("routing", ["multipath", "flood"])
def test_a_dead_path_is_seen_although_copies_arrive_over_another(routing: str) -> None:
    net = diamond(topic(100 * MS), routing=routing)
    net.run(3 * SECOND)
    Blackhole(net, "b")
    net.wait(lambda: suspected(net) == [("a", ("b",))], NOTICED_WITHIN)
    assert net.lost("t") == 0


def test_with_no_other_path_nothing_is_blamed_and_nothing_flaps() -> None:
    net = Story(
        {("a", "b"): 10 * MS, ("b", "c"): 10 * MS},
        {"t": topic(reliability="reliable")},
        publishers=[("a", "t", 50)],
        subscribers=[("c", "t")],
    )
    net.run(3 * SECOND)
    hole = Blackhole(net, "b")
    moves = len(net.route_moves())
    net.run(10 * SECOND)
    assert suspected(net) == []
    assert len(net.route_moves()) == moves
    hole.heal()
    net.run(8 * SECOND)
    assert net.lost("t") == 0


def test_nobody_is_blamed_for_a_destination_that_confirms_nothing() -> None:
    net = diamond(CLASSES["best effort"])
    net.run(3 * SECOND)
    moves = len(net.route_moves())
    with patch.object(net.broker("c")._forwarding, "post", lambda _receipt: None):
        net.run(20 * SECOND)
    assert suspected(net) == []
    assert len(net.route_moves()) == moves


def test_trust_returns_after_a_back_off_when_copies_are_confirmed_and_traffic_with_it() -> None:
    net = diamond(CLASSES["best effort with a deadline"])
    net.run(3 * SECOND)
    hole = Blackhole(net, "b")
    net.wait(lambda: net.path("t", "a", "c") == ["a", "d", "c"], NOTICED_WITHIN)
    hole.heal()
    net.run(2 * SECOND)
    lost = net.lost("t")
    net.run(23 * SECOND)
    assert net.path("t", "a", "c") == ["a", "d", "c"]
    net.wait(lambda: trusted(net) == [("a", ("b",))], 10 * SECOND)
    net.run(3 * SECOND)
    assert net.path("t", "a", "c") == ["a", "b", "c"]
    assert net.lost("t") == lost


def test_a_broker_that_stays_deaf_is_probed_less_and_less_and_costs_no_message() -> None:
    net = diamond(CLASSES["best effort with a deadline"], rate_hz=10)
    net.run(3 * SECOND)
    hole = Blackhole(net, "b")
    net.wait(lambda: net.path("t", "a", "c") == ["a", "d", "c"], NOTICED_WITHIN)
    net.run(2 * SECOND)
    lost, swallowed = net.lost("t"), []
    for _ in range(4):
        before = hole.swallowed
        net.run(60 * SECOND)
        swallowed.append(hole.swallowed - before)
    assert net.lost("t") == lost
    assert len(suspected(net)) == 1
    assert 0 < sum(swallowed) < 40


def test_a_broker_that_claims_less_latency_than_its_links_have_is_left_for_a_quicker_one() -> None:
    """b claims 1 ms for a link of 60 ms: by the claims the way over it meets the deadline of 50 ms."""
    links = {**LINKS, ("b", "c"): 60 * MS}
    with lying_about_latency("b", 1000):
        net = Story(links, {"t": topic(50 * MS)}, publishers=[("a", "t", 50)], subscribers=[("c", "t")])
        net.run(1 * SECOND)
        assert net.path("t", "a", "c") == ["a", "b", "c"]
        net.wait(lambda: net.path("t", "a", "c") == ["a", "d", "c"], 15 * SECOND)
        net.run(5 * SECOND)
        late = net.late("t")
        net.run(20 * SECOND)
        assert net.late("t") == late
    assert suspected(net) == []


HONEST: dict[str, Callable[[Story], None]] = {
    "a slow link": lambda net: net.slow("b", "c", to=300 * MS),
    "a link that loses a third": lambda net: net.lose("b", "c", 0.33),
    "a link that is cut": lambda net: net.cut("b", "c"),
    "a broker that is down": lambda net: net.crash("b"),
    "a destination that is down": lambda net: net.crash("c"),
    "a partition": lambda net: net.partition("c"),
}


@pytest.mark.parametrize("trouble", HONEST)
@pytest.mark.parametrize("name", CLASSES)
def test_nobody_is_blamed_for_trouble_that_the_map_tells(name: str, trouble: str) -> None:
    net = diamond(CLASSES[name])
    net.run(3 * SECOND)
    HONEST[trouble](net)
    net.run(10 * SECOND)
    net.heal()
    for broker in ("b", "c"):
        if not net.world.hosts[broker].is_alive:
            net.restart(broker)
    net.run(10 * SECOND)
    assert suspected(net) == []


def take_nothing(host: Host[OverlayBroker]) -> None:
    """From now on readers there have no room for anything."""
    core, carry_out = host.core, host._carry_out
    core._sink.asks_readers = True

    def receive(effect: Effect) -> None:
        if isinstance(effect, Deliver) and effect.reliable:
            for following in core.delivered(Reception(False, {"t": 100}), host._clock.read(host._engine.now)):
                receive(following)
        else:
            carry_out(effect)

    host._carry_out = receive  # type: ignore[method-assign]


def test_nobody_is_blamed_for_readers_that_take_nothing() -> None:
    net = diamond(CLASSES["reliable"])
    net.run(3 * SECOND)
    take_nothing(net.world.hosts["c"])
    net.run(15 * SECOND)
    assert suspected(net) == []


def test_what_it_costs_is_a_confirmation_per_route_and_second() -> None:
    def control_bytes(rate_hz: float) -> int:
        net = diamond(CLASSES["best effort"], rate_hz=rate_hz)
        net.run(60 * SECOND)
        return net.world.counter("control_bytes_sent")

    asked = {"rate": control_bytes(100), "idle": control_bytes(0.01)}
    per_second = (asked["rate"] - asked["idle"]) / 60
    assert per_second < 150  # two hops, about sixty bytes each
