"""Parcels that come and leave alone: quicker than others, and no different for it."""

from random import Random

import pytest
from handwired import Overlay

from overlane.core.broker import OverlayBroker
from overlane.core.events import Deliver, Lane, LinkDown
from overlane.core.qos import QosClass
from overlane.core.units import MS, US, Nanos
from overlane.core.wire.frame_codec import FRAME_OVERHEAD, NO_ROUTE, PARCEL_BYTES, read_parcel

ROOM = 1 << 20
ROW = {"a-b": 10, "b-c": 10}


def row(**config: object) -> Overlay:
    net = Overlay(ROW, {"urgent": QosClass(200 * MS)}, config)
    net.run(3_000)
    for topic in ("t", "urgent"):
        net.subscribe("c", topic)
    net.run(500)
    for topic in ("t", "urgent"):
        net.publish("a", topic, b"first")
    net.run(1_000)
    assert sorted(net.bodies("c")) == [b"first", b"first"]
    return net


def sent(broker: OverlayBroker, peer: str, now: Nanos) -> bytes:
    """What a broker has for a neighbour, no turn ended."""
    assert broker.ready() in ([], [peer])
    return b"".join(data for lane, data in broker.pull(peer, ROOM, now) if lane is Lane.DATA)


def published(net: Overlay, body: bytes, topic: str = "t") -> bytes:
    """A parcel of one message, as it leaves a."""
    net.brokers["a"].publish(topic, body, net.now)
    net.brokers["a"].flush(net.now)
    return sent(net.brokers["a"], "b", net.now)


def age_us(frame: bytes) -> int:
    return read_parcel(memoryview(frame)[FRAME_OVERHEAD:], NO_ROUTE)[0].age_us


def test_a_lone_parcel_passes_without_a_turn_and_is_older_by_the_link_and_by_its_stay() -> None:
    net, now = row(), 0
    frame, now = published(net, b"x"), net.now
    b, c = net.brokers["b"], net.brokers["c"]
    assert b.receive("a", frame, now) == []
    assert b.is_quiescent
    onward = sent(b, "c", now + 3 * MS)
    link_us = b.link_views()[0].latency_ns // US
    assert age_us(onward) == age_us(frame) + link_us + 3_000
    assert onward[PARCEL_BYTES:] == frame[PARCEL_BYTES:]
    (deliver,) = c.receive("b", onward, now + 13 * MS)
    assert isinstance(deliver, Deliver)
    assert deliver.messages == [("t", 0, b"x")]
    assert deliver.age_ns == (age_us(onward) + c.link_views()[0].latency_ns // US) * US


def test_what_comes_while_a_parcel_waits_leaves_after_it() -> None:
    net = row()
    frames = [published(net, body) for body in (b"x", b"y", b"z")]
    b, c = net.brokers["b"], net.brokers["c"]
    for frame in frames:
        b.receive("a", frame, net.now)
    assert b.queue_bytes("c") == sum(map(len, frames))
    effects = c.receive("b", sent(b, "c", net.now + 1 * MS), net.now + 11 * MS)
    assert [effect.messages[0][2] for effect in effects if isinstance(effect, Deliver)] == [b"x", b"y", b"z"]
    assert {effect.age_ns for effect in effects if isinstance(effect, Deliver)} == {21 * MS}
    assert b.queue_bytes("c") == 0


def test_what_is_urgent_overtakes_a_parcel_that_waits_alone() -> None:
    net = row()
    single, urgent = published(net, b"x"), published(net, b"!", "urgent")
    b, c = net.brokers["b"], net.brokers["c"]
    for frame in (single, urgent):
        b.receive("a", frame, net.now)
    effects = c.receive("b", sent(b, "c", net.now), net.now)
    assert [effect.messages[0][2] for effect in effects if isinstance(effect, Deliver)] == [b"!", b"x"]


def test_the_same_parcel_passes_once_and_is_delivered_once() -> None:
    net = row()
    frame = published(net, b"x")
    b, c = net.brokers["b"], net.brokers["c"]
    b.receive("a", frame, net.now)
    onward = sent(b, "c", net.now)
    b.receive("a", frame, net.now)
    assert sent(b, "c", net.now) == b""
    assert len(c.receive("b", onward, net.now)) == 1
    assert c.receive("b", onward, net.now) == []
    assert (b.counters["duplicates_dropped"], c.counters["duplicates_dropped"]) == (1, 1)


def test_a_parcel_that_waited_alone_is_gone_with_its_link() -> None:
    net = row()
    b = net.brokers["b"]
    b.receive("a", published(net, b"x"), net.now)
    b.handle(LinkDown("c"), net.now)
    b.flush(net.now)
    assert b.queue_bytes("c") == 0
    assert b.ready() in ([], ["a"])


def test_a_lone_parcel_that_is_not_the_next_waits_for_those_before_it() -> None:
    net = row()
    first, second = published(net, b"x"), published(net, b"y")
    c = net.brokers["c"]
    assert c.receive("b", second, net.now) == []
    effects = c.receive("b", first, net.now)
    assert [effect.messages[0][2] for effect in effects if isinstance(effect, Deliver)] == [b"x", b"y"]


def test_a_lone_parcel_with_a_broken_inside_is_its_origins_fault() -> None:
    net = row()
    frame = published(net, b"x")
    c = net.brokers["c"]
    broken = frame[: PARCEL_BYTES + 12]  # its topic is not all there
    assert c.receive("b", (len(broken) - 4).to_bytes(4) + broken[4:], net.now) == []
    assert (c.counters["violations"], c.link_views()[0].state.name.lower()) == (1, "up")


@pytest.mark.parametrize("seed", range(8))
def test_what_goes_straight_arrives_as_what_takes_the_long_way(seed: int) -> None:
    print("seed", seed)
    straight, long = row(), row()
    for broker in long.brokers.values():
        broker._cut_through.try_forward = lambda *_: False  # type: ignore[method-assign]
        broker._cut_through.free_next_hop = lambda _: None  # type: ignore[method-assign,assignment]
    for net in (straight, long):
        luck = Random(seed)
        for number in range(60):
            bodies = [b"%d.%d" % (number, more) for more in range(luck.choice((1, 1, 1, 3)))]
            net.publish("a", luck.choice(("t", "t", "urgent")), *bodies)
            net.run(luck.choice((0, 0, 1, 7, 40)))
        net.run(1_000)
    assert straight.of("c", Deliver) == long.of("c", Deliver)
    assert [broker.counters for broker in straight.brokers.values()] == [
        broker.counters for broker in long.brokers.values()
    ]
    assert straight.frames == long.frames
