"""What bridges between brokers get wrong, and an overlay must not: loops, duplicates, dead links, backlogs."""

import msgspec
import pytest

from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.network import Join
from overlane.sim.run_log import LinkMove
from overlane.sim.story import Story, link, network_of, topic

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
MODES = ["single", "multipath", "flood", "adaptive", "thrifty"]
RING = [f"ring-{number}" for number in range(6)]

# An edge with two uplinks into a core of two brokers, and a broker beyond.
UPLINKS = {
    ("edge", "core-1"): 10 * MS,
    ("edge", "core-2"): 12 * MS,
    ("core-1", "core-2"): 5 * MS,
    ("core-1", "far"): 10 * MS,
    ("core-2", "far"): 10 * MS,
}


def link_moves(net: Story, one: str, other: str) -> list[LinkMove]:
    """What became of a link since time zero, as its ends saw it."""
    return [move for move in net.world.run_log.link_moves if move.at >= 0 and {move.broker, move.peer} == {one, other}]


def finish(net: Story, within: Nanos = 2 * SECOND) -> None:
    net.silence()
    net.run(within)


# Loops and duplicates


@pytest.mark.parametrize("mode", MODES)
def test_a_ring_delivers_once_and_never_loops(mode: str) -> None:
    ends = list(zip(RING, [*RING[1:], RING[0]], strict=True))
    net = Story(
        dict.fromkeys(ends, 10 * MS),
        {"news": topic(500 * MS, routing=mode)},
        publishers=[("ring-0", "news", 20), ("ring-3", "news", 20)],
        subscribers=[(name, "news") for name in RING],
    )
    net.run(3 * SECOND)
    finish(net)
    assert net.delivered("news") == 6 * net.published("news")
    assert (net.late("news"), net.duplicates("news")) == (0, 0)
    assert net.sent_per_message() <= 2 * len(ends)
    sent = net.sent()
    net.run(10 * SECOND)
    assert net.sent() == sent


@pytest.mark.parametrize("mode", MODES)
def test_two_uplinks_into_the_same_core_do_not_duplicate(mode: str) -> None:
    net = Story(
        UPLINKS,
        {"news": topic(200 * MS, routing=mode), "orders": topic(5 * SECOND, routing=mode, reliability="reliable")},
        publishers=[("edge", "news", 20), ("far", "news", 20), ("edge", "orders", 20)],
        subscribers=[(name, name_of) for name in ("core-1", "core-2", "far", "edge") for name_of in ("news", "orders")],
    )
    net.run(2 * SECOND)
    net.cut("edge", "core-1")
    net.run(2 * SECOND)
    net.heal()
    net.run(6 * SECOND)
    finish(net)
    assert (net.duplicates("news"), net.duplicates("orders")) == (0, 0)
    assert net.delivered("orders") == 4 * net.published("orders")
    assert net.in_order()


# Links that only seem to be there


def test_a_link_that_is_up_but_passes_nothing_is_noticed_within_two_seconds_even_when_idle() -> None:
    net = Story({("a", "b"): 10 * MS}, {"news": 100 * MS})
    net.cut("a", "b")
    took = net.wait(lambda: "failed" in [move.state for move in link_moves(net, "a", "b")], within=5 * SECOND)
    suspected = next(move.at for move in link_moves(net, "a", "b") if move.state == "suspect")
    assert suspected < 600 * MS  # at the first ping that is not answered, nor its repeats
    assert took < 2 * SECOND


def test_under_traffic_a_link_that_passes_nothing_is_left_within_its_round_trip_and_a_little() -> None:
    net = Story(
        {("a", "b"): 10 * MS, ("a", "c"): 15 * MS, ("c", "b"): 15 * MS},
        {"news": 100 * MS},
        publishers=[("a", "news", 100)],
        subscribers=[("b", "news")],
    )
    net.run(2 * SECOND)
    net.cut("a", "b")
    took = net.wait(lambda: net.path("news", "a", "b") == ["a", "c", "b"], within=SECOND)
    assert took <= 100 * MS
    net.run(2 * SECOND)
    assert net.missed("news") == 0


@pytest.mark.slow
def test_a_flapping_link_does_not_flap_routes() -> None:
    net = Story(
        {("a", "b"): 10 * MS, ("a", "c"): 15 * MS, ("c", "b"): 15 * MS},
        {"news": 100 * MS},
        publishers=[("a", "news", 50)],
        subscribers=[("b", "news")],
    )
    net.run(2 * SECOND)
    flaps = 15
    for _ in range(flaps):
        net.cut("a", "b")
        net.run(1 * SECOND)
        net.heal()
        net.run(2 * SECOND)
    assert len(net.route_moves("news")) <= 1 + flaps // 2
    late = [move for move in net.route_moves("news") if move.at > 30 * SECOND]
    assert len(late) <= 2
    assert net.missed("news") <= 3


def test_a_failover_never_drops_the_healthy_link() -> None:
    net = Story(
        UPLINKS,
        {"up": 100 * MS, "down": 100 * MS},
        publishers=[("edge", "up", 50), ("core-2", "down", 50)],
        subscribers=[("far", "up"), ("edge", "down")],
    )
    net.run(2 * SECOND)
    assert net.path("up", "edge", "far") == ["edge", "core-1", "far"]
    assert net.path("down", "core-2", "edge") == ["core-2", "edge"]
    net.cut("edge", "core-1")
    net.run(5 * SECOND)
    net.heal()
    net.run(10 * SECOND)
    assert link_moves(net, "edge", "core-2") == []
    assert [move for move in net.route_moves("down") if move.at > 2 * SECOND and move.source == "core-2"] == []
    assert net.missed("down") == 0


# Backlogs and comebacks


def after_an_outage() -> tuple[Story, int]:
    """A backlog that will cross a link of 4 Mbit/s into one of 1 Mbit/s; how many messages it holds."""
    net = Story(
        {("a", "b"): link(10 * MS, rate_bps=4_000_000), ("b", "c"): link(10 * MS, rate_bps=1_000_000)},
        {"alarms": 100 * MS, "files": topic(NEVER, reliability="reliable", lifespan_ns=HOUR)},
        subscribers=[("c", "alarms"), ("c", "files")],
    )
    net.start("a", "files", rate_hz=50, size_bytes=1_000)
    net.run(2 * SECOND)
    net.cut("a", "b")
    net.run(20 * SECOND)
    net.silence()
    net.heal()
    backlog = net.published("files") - net.delivered("files")
    assert backlog > 900
    return net, backlog


@pytest.mark.slow
def test_a_backlog_after_an_outage_neither_delays_urgent_traffic_nor_floods_the_far_side() -> None:
    net, backlog = after_an_outage()
    net.wait(lambda: net.delivered("files") > net.published("files") - backlog, within=10 * SECOND)
    net.start("a", "alarms", rate_hz=50)
    net.wait(lambda: net.delivered("files") == net.published("files"), within=MINUTE)
    finish(net)
    assert (net.late("alarms"), net.lost("alarms")) == (0, 0)
    assert net.published("alarms") > 200  # the backlog took its time
    assert net.world.watch.overfull == []
    assert net.duplicates("files") == 0
    assert net.in_order()


@pytest.mark.slow
def test_a_backlog_crosses_a_bottleneck_about_once() -> None:
    net, backlog = after_an_outage()
    sent = net.sent()
    net.wait(lambda: net.delivered("files") == net.published("files"), within=MINUTE)
    assert net.sent() - sent <= 1.5 * 2 * backlog  # two links


@pytest.mark.slow
def test_a_broker_that_returns_after_hours_catches_up_completely_in_order_and_once() -> None:
    net = Story(
        {("a", "b"): 10 * MS, ("b", "c"): 10 * MS},
        {"orders": topic(NEVER, reliability="reliable", lifespan_ns=12 * HOUR)},
        publishers=[("a", "orders", 0.1)],
        subscribers=[("c", "orders")],
        ping_interval_ns=5 * SECOND,
    )
    net.run(MINUTE)
    net.crash("c")
    net.run(4 * HOUR)
    waiting = net.published("orders") - net.delivered("orders")
    assert waiting > 1_400
    net.restart("c")
    net.wait(lambda: net.lost("orders") == 0, within=MINUTE)
    finish(net)
    assert net.delivered("orders") == net.published("orders")
    assert net.duplicates("orders") == 0
    assert net.in_order()


def test_a_source_that_returns_after_hours_still_sends_what_it_had() -> None:
    net = Story(
        {("a", "b"): 10 * MS, ("b", "c"): 10 * MS},
        {"orders": topic(NEVER, reliability="reliable", lifespan_ns=12 * HOUR)},
        subscribers=[("c", "orders")],
        ping_interval_ns=5 * SECOND,
    )
    net.crash("b")
    net.run(MINUTE)
    assert net.publish("a", "orders", count=100) == 100
    net.crash("a")
    net.run(3 * HOUR)
    net.restart("b")
    net.restart("a")
    net.wait(lambda: net.delivered("orders") == 100, within=MINUTE)
    finish(net)
    assert net.duplicates("orders") == 0
    assert net.in_order()


# Ways


def test_a_transit_path_that_is_faster_than_the_direct_link_is_used() -> None:
    net = Story(
        {("a", "c"): 80 * MS, ("a", "b"): 20 * MS, ("b", "c"): 20 * MS},
        {"news": 60 * MS},
        publishers=[("a", "news", 50)],
        subscribers=[("c", "news")],
    )
    net.run(2 * SECOND)
    assert net.paths("news", "a", "c") == [["a", "b", "c"]]
    finish(net)
    assert (net.late("news"), net.lost("news")) == (0, 0)


# Coming and going


def test_a_broker_that_joins_subscribes_and_is_served() -> None:
    network = network_of(
        {("a", "b"): 10 * MS, ("b", "new"): 10 * MS, ("a", "new"): 40 * MS},
        {"news": 100 * MS},
        publishers=[("a", "news", 50)],
        subscribers=[("b", "news")],
    )
    net = Story(like=msgspec.structs.replace(network, events=(Join(2 * SECOND, "new"),)))
    net.run(1 * SECOND)
    assert not net.host("new").is_alive
    net.run(2 * SECOND)
    before = net.delivered("news")
    net.subscribe("new", "news")
    net.wait(lambda: net.path("news", "a", "new") == ["a", "b", "new"], within=6 * SECOND)
    net.run(3 * SECOND)
    finish(net)
    assert net.delivered("news") > before + 2 * 100
    assert (net.late("news"), net.lost("news"), net.duplicates("news")) == (0, 0, 0)
    assert net.has_converged()


def test_a_broker_that_leaves_is_not_waited_for() -> None:
    net = Story(
        {("a", "b"): 10 * MS, ("b", "c"): 10 * MS, ("b", "d"): 10 * MS},
        {"orders": topic(NEVER, reliability="reliable", lifespan_ns=HOUR)},
        publishers=[("a", "orders", 50)],
        subscribers=[("c", "orders"), ("d", "orders")],
    )
    net.run(2 * SECOND)
    net.leave("c")
    net.run(3 * SECOND)
    assert net.path("orders", "a", "d") == ["a", "b", "d"]
    assert net.path("orders", "a", "c") == []
    finish(net)
    assert net.broker("a").counters["retained_bytes"] == 0
    assert net.lost("orders") == 0
    assert net.duplicates("orders") == 0


@pytest.mark.parametrize(("history", "expected"), [(5, 5), ("all", 20)])
def test_a_late_subscriber_gets_history(history: int | str, expected: int) -> None:
    net = Story(
        {("a", "b"): 10 * MS, ("b", "c"): 10 * MS},
        {"prices": topic(NEVER, reliability="reliable", history=history, lifespan_ns=HOUR)},
        subscribers=[("b", "prices")],
    )
    net.publish("a", "prices", count=20)
    net.run(MINUTE)
    assert net.delivered("prices") == 20
    net.subscribe("c", "prices")
    net.run(2 * SECOND)
    assert net.replayed("prices") == expected
    net.publish("a", "prices")
    net.run(2 * SECOND)
    assert (net.delivered("prices"), net.duplicates("prices")) == (22, 0)
    assert net.in_order()
