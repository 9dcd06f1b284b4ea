"""Links that are not the same in both directions, and brokers with several uplinks, under virtual time."""

from stations import FakeStation, pair

from overlane.core.events import Lane
from overlane.core.units import MS, SECOND, Nanos
from overlane.network import Link as LinkSpec
from overlane.network import parse_network
from overlane.network.schema import Back, Uplink
from overlane.sim.engine import Engine
from overlane.sim.link import Link
from overlane.sim.world import World


def connected(spec: LinkSpec) -> tuple[Engine, FakeStation, FakeStation, Link]:
    engine, a, b, link = pair(spec)
    link.dial()
    engine.run_until(SECOND)
    return engine, a, b, link


def crossing(engine: Engine, sender: FakeStation, receiver: FakeStation) -> Nanos:
    receiver.frames.clear()
    sent = engine.now
    sender.send(Lane.DATA, b"hello")
    engine.run_until(sent + SECOND)
    ((arrived, _),) = receiver.frames
    return arrived - sent


def test_each_direction_has_its_own_latency_and_a_round_trip_has_both() -> None:
    spec = LinkSpec(ends=("b", "a"), latency_ns=10 * MS, back=Back(latency_ns=70 * MS))
    engine, a, b, _ = connected(spec)
    assert a.heard == [(80 * MS, "up b")]
    assert (crossing(engine, b, a), crossing(engine, a, b)) == (10 * MS, 70 * MS)


def test_a_slow_link_is_slow_in_both_directions_until_it_heals() -> None:
    engine, a, b, link = connected(LinkSpec(ends=("a", "b"), latency_ns=10 * MS, back=Back(latency_ns=70 * MS)))
    link.slow(100 * MS)
    assert (crossing(engine, a, b), crossing(engine, b, a)) == (100 * MS, 100 * MS)
    link.heal()
    assert (crossing(engine, a, b), crossing(engine, b, a)) == (10 * MS, 70 * MS)


def test_an_uplink_adds_its_latency_and_another_one_takes_over_with_a_new_connection() -> None:
    engine, a, b, link = pair(LinkSpec(ends=("a", "b"), latency_ns=10 * MS))
    link.use_uplink("a", Uplink(name="fibre", latency_ns=1 * MS))
    link.dial()
    engine.run_until(SECOND)
    assert (crossing(engine, a, b), crossing(engine, b, a)) == (11 * MS, 11 * MS)
    a.heard.clear()
    b.heard.clear()
    b.frames.clear()
    link.use_uplink("a", Uplink(name="radio", latency_ns=30 * MS))
    a.send(Lane.DATA, b"into the void")
    engine.run_until(engine.now + 2 * SECOND)
    assert a.heard == b.heard == []
    assert b.frames == []
    link.close("a")  # as a broker does that hears nothing
    engine.run_until(engine.now + 2 * SECOND)
    assert [what for _, what in a.heard] == ["up b"]
    assert [what for _, what in b.heard] == ["down a", "up a"]
    assert crossing(engine, a, b) == 40 * MS


def test_the_lower_rate_and_both_losses_count() -> None:
    _, _, _, link = connected(LinkSpec(ends=("a", "b"), latency_ns=0, loss=0.5, rate_bps=1_000_000))
    link.use_uplink("a", Uplink(name="radio", loss=0.5, rate_bps=2_000_000))
    assert {(one.loss, one.rate_bps) for one in link.conditions} == {(0.75, 1_000_000)}


TWO_UPLINKS = """
[simulation]
duration = "40s"
[brokers.a]
[brokers.b.uplinks.fibre]
[brokers.b.uplinks.radio]
latency = "30ms"
[[links]]
ends = ["a", "b"]
latency = "10ms"
[topics."t"]
reliability = "reliable"
[[publishers]]
broker = "a"
topic = "t"
rate = 10
[[subscribers]]
broker = "b"
topic = "t"
"""


def test_a_broker_goes_on_over_its_other_uplink_and_stays_there_when_the_first_is_back() -> None:
    events = '[[events]]\nat = "10s"\nunplug = ["b", "fibre"]\n[[events]]\nat = "20s"\nplug = ["b", "fibre"]\n'
    world = World(parse_network(TWO_UPLINKS + events))
    report = world.run()
    topic = report.topics["t"]
    assert (topic.expected, topic.lost, topic.duplicates) == (400, 0, 0)
    assert topic.latency_ms is not None
    assert topic.latency_ms.p50 == 40.0
    assert world.link("a", "b").latency_from("a") == 40 * MS


def test_without_any_uplink_a_broker_is_cut_off_until_one_is_back() -> None:
    events = "".join(
        f'[[events]]\nat = "{at}s"\n{what} = ["b", "{uplink}"]\n'
        for at, what, uplink in [(10, "unplug", "fibre"), (10, "unplug", "radio"), (20, "plug", "radio")]
    )
    world = World(parse_network(TWO_UPLINKS + events))
    topic = world.run().topics["t"]
    assert (topic.expected, topic.lost) == (400, 0)
    assert topic.latency_ms is not None
    assert topic.latency_ms.max > 9_000.0
