"""Strict order end to end: one publisher's reliable messages on a topic, whatever becomes of their class, of their
readers, of the brokers and of the parcels on the way. What a parcel waits for, and what it does not wait for."""

from random import Random

import pytest
from handwired import Frame, Overlay

from examples import seeds
from overlane.core.events import PublishResult
from overlane.core.qos import Order, QosClass, Routing
from overlane.core.units import MS, SECOND
from overlane.core.wire import frame_codec
from overlane.core.wire.frame_codec import FrameType

DIAMOND = {"a-b": 10, "b-d": 10, "a-c": 15, "c-d": 15}
STRICT = QosClass(100 * MS, reliable=True)
LINE = {"a-b": 10, "b-c": 10}


def overlay(links: dict[str, int] = LINE, **topics: QosClass) -> Overlay:
    net = Overlay(links, topics)
    net.run(3_000)
    return net


def parcels(frame: Frame) -> bool:
    return any(kind in (FrameType.PARCEL, FrameType.DETOUR) for kind, _ in frame_codec.split(frame[3])[0])


def send(net: Overlay, broker: str, qos: QosClass, topic: str, *numbers: int) -> None:
    """Without ending the turn."""
    for number in numbers:
        assert net.brokers[broker].send(topic, b"%d" % number, net.now, 0, qos) is PublishResult.ACCEPTED


def heard(net: Overlay, broker: str, topic: str) -> list[int]:
    """The numbers of reliable messages, each when it came first."""
    return list(dict.fromkeys(int(body) for name, body, _ in net.got(broker) if name == topic and body != b"lossy"))


# Ways in which order was lost


def test_a_late_message_still_comes_before_those_that_follow_it() -> None:
    net = overlay(t=STRICT)
    net.subscribe("c", "t")
    net.run(500)
    net.loses = lambda frame: parcels(frame) and b"first" in frame[3]
    net.publish("a", "t", b"first")
    net.run(10)
    net.publish("a", "t", b"second")
    net.run(3_000)
    assert net.bodies("c") == []
    net.loses = lambda _: False
    net.run(6_000)
    assert net.bodies("c") == [b"first", b"second"]


def test_where_the_deadline_is_chosen_over_order_a_message_does_not_wait_beyond_it() -> None:
    net = overlay(t=QosClass(100 * MS, reliable=True, order=Order.DEADLINE))
    net.subscribe("c", "t")
    net.run(500)
    net.loses = lambda frame: parcels(frame) and b"first" in frame[3]
    net.publish("a", "t", b"first")
    net.run(10)
    net.publish("a", "t", b"second")
    net.run(100)
    assert net.bodies("c") == [b"second"]
    net.loses = lambda _: False
    net.run(6_000)
    assert net.bodies("c") == [b"second", b"first"]


def test_messages_of_one_turn_in_different_classes_keep_their_order() -> None:
    net = overlay()
    net.subscribe("c", "#")
    net.run(500)
    other = QosClass(200 * MS, reliable=True)
    send(net, "a", other, "u", 0)
    for number in range(6):
        send(net, "a", (STRICT, other)[number % 2], "t", number)
    net.turn("a", [])
    net.run(2_000)
    assert heard(net, "c", "t") == list(range(6))


def test_a_best_effort_message_between_two_reliable_ones_does_not_part_them() -> None:
    net = overlay()
    net.subscribe("c", "t")
    net.run(500)
    net.loses = lambda frame: parcels(frame) and b"1000" in frame[3]
    send(net, "a", STRICT, "t", 1000)
    net.turn("a", [])
    assert net.brokers["a"].send("t", b"lossy", net.now, 0, QosClass()) is PublishResult.ACCEPTED
    net.turn("a", [])
    net.run(300)
    send(net, "a", STRICT, "t", 2000)
    net.turn("a", [])
    net.run(1_000)
    assert heard(net, "c", "t") == []
    net.loses = lambda _: False
    net.run(6_000)
    assert heard(net, "c", "t") == [1000, 2000]


def test_a_reliable_message_does_not_wait_for_ever_for_a_best_effort_one_that_was_lost() -> None:
    net = overlay()
    net.subscribe("c", "t")
    net.run(500)
    net.loses = lambda frame: parcels(frame) and b"lossy" in frame[3]
    assert net.brokers["a"].send("t", b"lossy", net.now, 0, QosClass()) is PublishResult.ACCEPTED
    net.turn("a", [])
    send(net, "a", QosClass(reliable=True), "t", 1)
    net.turn("a", [])
    net.run(500)
    assert heard(net, "c", "t") == [1]


def test_a_reader_that_left_and_came_back_gets_what_was_under_way_first() -> None:
    net = overlay({"a-b": 10, "a-c": 10}, t=STRICT)
    net.subscribe("b", "t", "here")
    net.subscribe("c", "t")
    net.run(500)
    net.loses = lambda frame: parcels(frame) and b"first" in frame[3] and frame[1] == "c"
    net.publish("a", "t", b"first")
    net.run(50)
    net.unsubscribe("c", "t")
    net.run(100)
    net.publish("a", "t", b"second")
    net.run(50)
    net.subscribe("c", "t")
    net.run(100)
    net.publish("a", "t", b"third")
    net.run(500)
    net.loses = lambda _: False
    net.run(10_000)
    assert net.bodies("c") == [b"first", b"third"]
    assert net.bodies("b") == [b"first", b"second", b"third"]


# What is not waited for


def test_a_hole_of_one_topic_does_not_hold_up_others_of_its_flow() -> None:
    net = Overlay(LINE, {"+": STRICT})
    net.run(3_000)
    net.subscribe("c", "+")
    net.run(500)
    net.loses = lambda frame: parcels(frame) and b"lost" in frame[3]
    net.publish("a", "u", b"lost")
    for number in range(5):
        net.run(10)
        net.publish("a", "t", b"%d" % number)
    net.publish("a", "u", b"later")
    net.run(200)
    assert net.bodies("c") == [b"%d" % number for number in range(5)]


def test_what_is_missing_is_sent_again_as_soon_as_something_sent_well_after_it_has_come() -> None:
    net = overlay(t=QosClass(1 * SECOND, reliable=True, routing=Routing.SINGLE))
    net.subscribe("c", "t")
    net.run(500)
    lost: list[Frame] = []

    def loses_once(frame: Frame) -> bool:
        if parcels(frame) and b"first" in frame[3] and not lost:
            lost.append(frame)
        return frame in lost

    net.loses = loses_once
    net.publish("a", "t", b"first")
    net.run(15)
    net.publish("a", "t", b"second")
    # 20 ms there, 20 ms for the receipt back, 20 ms there again: no timer is as quick.
    net.run(65)
    assert net.bodies("c") == [b"first", b"second"]


# Anything


CLASSES = (
    STRICT,
    QosClass(60 * MS, reliable=True),
    QosClass(reliable=True),
    QosClass(400 * MS, reliable=True, history=2),
)


@pytest.mark.parametrize("seed", range(seeds(12)))
def test_order_is_kept_whatever_happens(seed: int) -> None:
    """Classes change from message to message, best effort comes between, readers come and go, parcels are lost, links
    are cut, and brokers crash: the source, the destination, one on the way."""
    luck = Random(seed)
    net = overlay(DIAMOND, t1=CLASSES[seed % 4])
    net.subscribe("d", "+")
    net.run(500)
    share = luck.choice((0.0, 0.1, 0.4))
    net.loses = lambda frame: parcels(frame) and luck.random() < share
    numbers = dict.fromkeys(("t0", "t1", "t2"), 0)
    replayable: dict[str, set[int]] = {topic: set() for topic in numbers}
    """What a reader that comes late is given from the history may come after what is published meanwhile."""
    down: list[str] = []
    for _ in range(80):
        for _ in range(luck.randrange(4)):
            topic = luck.choice(sorted(numbers))
            if luck.random() < 0.2:
                net.brokers["a"].send(topic, b"lossy", net.now, 0, QosClass())
            qos = luck.choice(CLASSES[: luck.randrange(1, 5)])
            send(net, "a", qos, topic, numbers[topic])
            if qos.history:
                replayable[topic].add(numbers[topic])
            numbers[topic] += 1
        net.turn("a", [])
        net.run(luck.randrange(40))
        event = luck.random()
        if event < 0.05:
            net.subscribe("b", luck.choice(("+", "t1")), "other")
        elif event < 0.1:
            net.unsubscribe("b", luck.choice(("+", "t1")), "other")
        elif event < 0.14 and not down:
            down.append(luck.choice("abcd"))
            net.crash(down[0])
            net.run(luck.randrange(300))
            net.restart(down.pop())
        elif event < 0.2:
            ends = luck.choice(sorted(net.up))
            net.cut(*ends)
            net.run(luck.randrange(200))
            net.join(*ends)
    net.loses = lambda _: False
    net.run(60_000)
    for topic, count in numbers.items():
        assert heard(net, "d", topic) == list(range(count)), (seed, topic)
        at_b = [number for number in heard(net, "b", topic) if number not in replayable[topic]]
        assert at_b == sorted(at_b), (seed, topic)
