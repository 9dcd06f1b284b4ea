"""A description goes ahead of the parcels that need it, once; parcels that overtake it wait for it."""

import pytest
from handwired import Frame, Overlay

from overlane.core.links.link_health import LinkState
from overlane.core.links.neighbour import Neighbour
from overlane.core.qos import QosClass
from overlane.core.routing.forwarding.early_parcels import BYTES_MAX, PARCELS_MAX, WAIT_MAX, EarlyParcels
from overlane.core.units import MS, SECOND
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import Establish, NumberedEstablish, decode
from overlane.core.wire.frame_codec import FrameType

LINE = {"a-b": 10, "b-c": 10, "c-d": 10}
TOPICS = {"t": QosClass(deadline_ns=100 * MS), "r": QosClass(deadline_ns=SECOND, reliable=True)}


def line(control_delay_ms: int = 0) -> Overlay:
    net = Overlay(LINE, TOPICS)
    net.run(3_000)
    net.subscribe("d", "#")
    net.run(500)
    net.frames.clear()
    net.control_delay_ms = dict.fromkeys(LINE, control_delay_ms)
    return net


def is_description(data: bytes) -> bool:
    kind, body = frame_codec.split(data)[0][0]
    if kind == FrameType.CONTROL:
        return isinstance(decode(frame_codec.read_control(body)[1]), Establish | NumberedEstablish)
    return kind == FrameType.ROUTE


def descriptions(net: Overlay) -> list[str]:
    """On which links routes were described, and in which lane."""
    return [f"{one}{other} {lane.name.lower()}" for one, other, lane, data in net.frames if is_description(data)]


def test_a_new_route_is_described_once_on_each_link() -> None:
    net = line()
    net.publish("a", "t", b"1")
    net.run(5)
    net.publish("a", "t", b"2")
    net.run(400)
    assert net.bodies("d") == [b"1", b"2"]
    assert descriptions(net) == ["ab control", "bc control", "cd control"]


def test_parcels_that_overtake_the_description_wait_and_arrive_once_and_in_order() -> None:
    net = line(control_delay_ms=7)
    for body in (b"1", b"2", b"3"):
        net.publish("a", "t", body)
        net.publish("a", "r", body)
        net.run(1)
    net.run(400)
    assert sorted(net.got("d")) == sorted((topic, body, ("s",)) for topic in "tr" for body in (b"1", b"2", b"3"))
    assert [body for topic, body, _ in net.got("d") if topic == "r"] == [b"1", b"2", b"3"]
    assert {name: broker._losses.unroutable for name, broker in net.brokers.items()} == dict.fromkeys("abcd", 0)


def test_waiting_is_part_of_the_age_of_a_parcel_and_not_of_the_round_trip_of_its_link() -> None:
    net = line(control_delay_ms=40)
    net.publish("a", "t", b"late")  # 120 ms over three links: no longer in time at the last
    net.run(2_000)
    healths = [one.health for broker in net.brokers.values() for one in broker._links.neighbours.values()]
    assert {(health.latency_ns // MS, health.swing_ns, health.state) for health in healths} == {(10, 0, LinkState.UP)}


def test_on_a_link_that_loses_parcels_describe_their_route_until_it_is_acknowledged() -> None:
    net = line()
    net.brokers["b"]._links.neighbours["c"].health.lost(net.now)
    net.publish("a", "t", b"1")
    net.run(400)
    net.publish("a", "t", b"2")
    net.run(400)
    assert net.bodies("d") == [b"1", b"2"]
    assert descriptions(net) == ["ab control", "bc control", "bc data", "cd control"]


def test_a_hop_that_restarts_between_description_and_parcel_is_told_again() -> None:
    net = line()
    net.publish("a", "r", b"1")
    net.run(5)
    net.crash("b")
    net.run(100)
    net.restart("b")
    net.run(10_000)
    net.publish("a", "r", b"2")
    net.publish("a", "t", b"3")
    net.run(3_000)
    assert net.bodies("d") == [b"1", b"2", b"3"]


def test_a_route_that_a_hop_does_not_know_is_described_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    swallowed: list[Frame] = []

    def swallows(frame: Frame) -> bool:
        sender, receiver, _, data = frame
        is_first = not swallowed and (sender, receiver) == ("b", "c") and is_description(data)
        swallowed.extend([frame] * is_first)
        return is_first

    net = line()
    monkeypatch.setattr(Neighbour, "check_order", lambda _neighbour, _sequence: None)
    net.loses = swallows
    net.publish("a", "r", b"1")
    net.run(600)
    net.publish("a", "r", b"2")
    net.run(400)
    assert net.bodies("d") == [b"1", b"2"]


def test_what_waits_is_bounded_for_each_neighbour_and_given_up_in_the_end() -> None:
    early = EarlyParcels()
    assert all(early.add(b"unknown", "x", b"-", number) for number in range(PARCELS_MAX))
    assert not early.add(b"another", "x", b"-", PARCELS_MAX)
    assert early.add(b"another", "y", b"large" * (BYTES_MAX // 5), 0)
    assert not early.add(b"another", "y", b"large", 0)
    assert early.add(b"another", "z", b"z", 5)
    assert [one.peer for one in early.take(b"another")] == ["y", "z"]
    assert early.add(b"another", "y", b"large", WAIT_MAX)
    assert len(list(early.take_expired(WAIT_MAX + 10))) == 10
    assert all(early.add(b"more", "x", b"-", WAIT_MAX) for _ in range(10))
    assert len(list(early.take_expired(3 * WAIT_MAX))) == PARCELS_MAX + 1
    assert not early
