"""A reader that has no room, at another broker than its publishers: nothing is lost, nobody else waits, and the source
knows."""

from handwired import Overlay

from overlane.core.events import TAKEN, ReadersReady, Reception
from overlane.core.flows.arrival import HELD_BYTES_MAX
from overlane.core.flows.inflow import LOOK_AGAIN, TELL_AGAIN
from overlane.core.flows.outflow import Outflow
from overlane.core.flows.send_window import BACKLOG_BYTES, BELIEVED
from overlane.core.qos import QosClass
from overlane.core.units import MS, SECOND
from overlane.core.wire.parcel import Message

RELIABLE = QosClass(reliable=True, lifespan_ns=600 * SECOND)
NOW = 30 * SECOND


class Readers:
    """Take what is on topics that they have room for, and are behind with the others."""

    def __init__(self) -> None:
        self.full: set[str] = set()
        self.asked = 0

    def receive(self, messages: list[Message]) -> Reception:
        self.asked += 1
        behind = {topic: 100 for topic, _, _ in messages if topic in self.full}
        return Reception(not behind, behind)


def line(*full: str) -> tuple[Overlay, Readers]:
    """With readers at c, who have no room for what is on these topics."""
    net, readers = Overlay({"a-b": 1, "b-c": 1}, {"#": RELIABLE}), Readers()
    net.ask_readers("c", readers.receive)
    net.subscribe("c", "#")
    net.run(500)
    readers.full.update(full)
    return net, readers


def publish(net: Overlay, topic: str, body: bytes) -> None:
    """As by a driver that serves the local subscribers itself."""
    net.brokers["a"].send(topic, body, net.now, 0, RELIABLE)
    net.turn("a", [])


def backpressure(net: Overlay, topic: str) -> float:
    return net.brokers["a"].backpressure(topic, RELIABLE, net.now)


def retained_bytes(net: Overlay) -> int:
    return net.brokers["a"].counters["retained_bytes"]


def test_what_readers_have_no_room_for_is_neither_delivered_nor_acknowledged_until_they_have() -> None:
    net, readers = line("x")
    for number in range(20):
        publish(net, "x", b"%d" % number)
        net.run(10)
    net.run(5_000)
    assert (net.bodies("c"), retained_bytes(net) > 0) == ([], True)
    readers.full.clear()
    net.handle("c", ReadersReady())
    assert net.bodies("c") == [b"%d" % number for number in range(20)]
    net.run(1_000)
    assert retained_bytes(net) == 0


def test_readers_that_do_not_speak_up_are_asked_again_after_a_while() -> None:
    net, readers = line("x")
    publish(net, "x", b"1")
    net.run(1_000)
    readers.full.clear()
    net.run(LOOK_AGAIN // MS)
    assert net.bodies("c") == [b"1"]


def test_other_topics_of_the_same_flow_do_not_wait() -> None:
    net, _ = line("x")
    publish(net, "x", bytes(200_000))
    net.run(100)
    for number in range(50):
        publish(net, "x", bytes(20_000))
        publish(net, "y", b"%d" % number)
        net.run(20)
    assert net.bodies("c") == [b"%d" % number for number in range(50)]


def test_messages_of_one_turn_part_once_the_readers_of_some_are_known_to_be_behind() -> None:
    net, _ = line("x")
    publish(net, "x", b"first")
    net.run(200)
    for topic in ("x", "y", "x", "y"):
        net.brokers["a"].send(topic, topic.encode(), net.now, 0, RELIABLE)
    net.turn("a", [])
    net.run(200)
    assert net.bodies("c") == [b"y", b"y"]


def test_what_is_held_at_the_destination_is_not_sent_again_and_again() -> None:
    net, _ = line("x")
    for _ in range(10):
        publish(net, "x", bytes(10_000))
        net.run(10)
    net.run(500)
    before = len(net.frames)
    net.run(10_000)
    sent_again = [frame for frame in net.frames[before:] if frame[:2] == ("a", "b") and len(frame[3]) > 10_000]
    assert sent_again == []


def test_what_was_held_by_a_broker_that_died_is_sent_again() -> None:
    net, _ = line("x")
    publish(net, "x", b"1")
    net.run(1_000)
    net.crash("c")
    net.restart("c")
    net.run(10_000)
    assert (net.bodies("c"), retained_bytes(net)) == ([b"1"], 0)


def test_what_is_held_is_bounded_and_the_rest_comes_when_there_is_room() -> None:
    net, readers = line("x")
    bodies = [b"%03d" % number + bytes(50_000) for number in range(2 * HELD_BYTES_MAX // 50_000)]
    for body in bodies:
        publish(net, "x", body)
        net.run(5)
    net.run(2_000)
    inflow = next(iter(net.brokers["c"]._inflows._flows.values()))
    assert 0 < inflow.held_bytes <= HELD_BYTES_MAX
    readers.full.clear()
    net.run(60_000)
    assert [body[:3] for body in net.bodies("c")] == [body[:3] for body in bodies]
    assert retained_bytes(net) == 0


def test_publishers_learn_how_far_readers_elsewhere_are_behind_and_when_they_have_caught_up() -> None:
    net, readers = line()
    publish(net, "x", b"")
    publish(net, "y", b"")
    net.run(200)
    assert (backpressure(net, "x"), backpressure(net, "y")) == (0.0, 0.0)
    readers.full.add("x")
    publish(net, "x", b"")
    net.run(200)
    assert (backpressure(net, "x"), backpressure(net, "y")) == (1.0, 0.0)
    net.run(5_000)
    assert backpressure(net, "x") == 1.0
    readers.full.clear()
    net.run(2 * TELL_AGAIN // MS)
    assert backpressure(net, "x") == 0.0


def test_readers_are_not_asked_over_and_over_while_parcels_pile_up() -> None:
    net, readers = line("x")
    for _ in range(200):
        publish(net, "x", b"")
    net.run(10)
    assert readers.asked <= 5


# What waits at the source


def flow(size: int, count: int) -> Outflow:
    one = Outflow((7, 1), RELIABLE, ("b",))
    for _ in range(count):
        one.seal((("t",), (0,), (bytes(size),)), 0, (), False, NOW).is_saved = True
    return one


def test_publishers_rest_by_what_waits_to_be_sent_to_a_destination_that_can_be_reached() -> None:
    one = flow(64_000, BACKLOG_BYTES // 64_000 // 2)
    assert 0.4 < one.backpressure("t", NOW) < 0.6
    one.send_windows["b"].is_reachable = False
    assert one.backpressure("t", NOW) == 0.0


def test_what_a_destination_holds_takes_no_room_in_the_window_until_it_is_not_believed_any_more() -> None:
    one = flow(1_000, 10)
    send_window = one.send_windows["b"]
    in_flight = send_window.in_flight
    assert one.held("b", 1, 0b111, {"t": 100}, NOW)
    assert send_window.in_flight < in_flight
    later = NOW + BELIEVED - 1
    assert [parcel.sequence for parcel in one.due_for_resend("b", 0, later, False)] == list(range(4, 11))
    assert [parcel.sequence for parcel in one.due_for_resend("b", 0, later + 1, False)][:3] == [1, 2, 3]
    assert send_window.in_flight == in_flight


def test_all_is_even_when_what_was_held_is_acknowledged() -> None:
    one = flow(1_000, 10)
    one.held("b", 1, 0b111, {"t": 100}, NOW)
    one.held("b", 1, 0b001, {"t": 0}, NOW)
    one.acknowledge("b", 11, 0, NOW)
    send_window = one.send_windows["b"]
    assert (send_window.in_flight, send_window.owed_bytes, send_window.held, send_window.held_bytes) == (0, 0, {}, 0)
    assert (one.retained_bytes, one.backpressure("t", NOW)) == (0, 0.0)


def test_what_arrives_before_it_is_known_how_a_parcel_was_received_waits_for_that() -> None:
    net, _ = line()
    del net.readers["c"]  # nobody answers
    for body in (b"1", b"2"):
        publish(net, "x", body)
        net.run(20)
    assert net.bodies("c") == [b"1"]
    net.turn("c", net.brokers["c"].delivered(TAKEN, net.now))
    assert net.bodies("c") == [b"1", b"2"]
