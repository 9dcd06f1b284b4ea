"""A reliable parcel for which the first link has no room has not been sent: it goes when there is some, in order."""

from handwired import PULLED_AT_ONCE, Overlay

from overlane.core.events import Tick
from overlane.core.qos import QosClass
from overlane.core.units import MS

RELIABLE = QosClass(reliable=True)
QUEUE_BYTES = 64 * 1024
BODY = bytes(1024)
COUNT = 400
"""Several queues full."""


def line(links: tuple[str, ...] = ("a-b", "b-c"), **config: object) -> Overlay:
    net = Overlay(dict.fromkeys(links, 1), {"#": RELIABLE}, {"queue_bytes_max": QUEUE_BYTES, **config})
    net.subscribe(links[-1][-1], "#")
    net.run(500)
    return net


def body(number: int) -> bytes:
    return b"%06d" % number + BODY


def publish(net: Overlay, numbers: range) -> None:
    """Each in a turn of its own, none of which ends with anything pulled: the link takes nothing."""
    a = net.brokers["a"]
    for number in numbers:
        a.publish("t", body(number), net.now)
        effects = a.flush(net.now)
        net.effects["a"] += effects + a.durable(0, net.now)


def open_window(net: Overlay, bytes_in_all: int = 1 << 20) -> None:
    """Let so much be acknowledged that the window is no limit."""
    sent = 0
    while sent < bytes_in_all:
        net.publish("a", "warm", bytes(16 * 1024))
        net.run(200)
        sent += 16 * 1024


def dropped(net: Overlay) -> int:
    return net.brokers["a"].counters["queue_full_dropped"]


def got(net: Overlay, broker: str = "c") -> list[int]:
    return [int(found[:6]) for topic, found, _ in net.got(broker) if topic == "t"]


def test_what_finds_no_room_is_not_dropped_and_not_under_way() -> None:
    net = line()
    open_window(net)
    publish(net, range(COUNT))
    (flow,) = net.brokers["a"]._source.flows.values()
    send_window = flow.send_windows["c"]
    assert dropped(net) == 0
    assert send_window.waits_for_room
    assert send_window.in_flight <= net.brokers["a"].queue_bytes("b") <= QUEUE_BYTES
    assert send_window.owed_bytes - send_window.in_flight > QUEUE_BYTES


def test_it_goes_as_soon_as_the_queue_has_room_and_not_after_a_pause() -> None:
    net = line()
    open_window(net)
    publish(net, range(COUNT))
    a = net.brokers["a"]
    assert a.next_deadline() > net.now + 1, "there is no room, and nothing to wake up for"
    a.pull("b", QUEUE_BYTES // 2, net.now)
    assert a.next_deadline() <= net.now + 1
    before = a.queue_bytes("b")
    net.effects["a"] += a.handle(Tick(), net.now + 1) + a.flush(net.now + 1)
    assert a.queue_bytes("b") > before
    assert a.next_deadline() > net.now + 1


def test_all_of_it_arrives_in_order_once_and_without_waiting_for_anything_but_the_link() -> None:
    net = line()
    open_window(net)
    started = net.now
    publish(net, range(COUNT))
    net.turn("a", [])
    net.run(60)
    assert net.now - started < 100 * MS
    assert got(net) == list(range(COUNT))
    assert dropped(net) == 0
    net.run(10_000)
    assert got(net) == list(range(COUNT))
    assert sum(broker.counters["duplicates_dropped"] for broker in net.brokers.values()) == 0


def test_what_is_published_while_others_wait_goes_after_them() -> None:
    net = line()
    open_window(net)
    publish(net, range(COUNT))
    a = net.brokers["a"]
    a_chunks = a.pull("b", QUEUE_BYTES // 2, net.now)
    for lane, data in a_chunks:
        net._send(("a", "b", lane, data))
    publish(net, range(COUNT, COUNT + 20))
    net.turn("a", [])
    net.run(200)
    assert got(net) == list(range(COUNT + 20))


def test_a_destination_behind_another_link_does_not_wait() -> None:
    net = Overlay({"a-b": 1, "a-c": 1}, {"#": RELIABLE}, {"queue_bytes_max": QUEUE_BYTES})
    for name in "bc":
        net.subscribe(name, "#")
    net.run(500)
    open_window(net)
    a = net.brokers["a"]
    for number in range(COUNT):
        publish(net, range(number, number + 1))
        for lane, data in a.pull("c", PULLED_AT_ONCE, net.now):
            net._send(("a", "c", lane, data))
    (flow,) = a._source.flows.values()
    assert (flow.send_windows["b"].waits_for_room, flow.send_windows["c"].waits_for_room) == (True, False)
    net.turn("a", [])
    net.run(300)
    assert got(net, "b") == got(net, "c") == list(range(COUNT))
    assert dropped(net) == 0


def test_where_the_link_goes_what_waited_takes_another_way() -> None:
    net = line(("a-b", "a-d", "b-c", "c-d"))
    net.unsubscribe("d", "#")
    net.subscribe("c", "#")
    net.run(500)
    open_window(net)
    ((_, first),) = [link for link in net.path("a")[0] if link[0] == "a"]
    publish(net, range(COUNT))
    net.cut("a", first)
    net.run(2_000)
    assert sorted(got(net)) == list(range(COUNT))


def test_what_waits_for_a_broker_that_cannot_be_reached_does_not_ask_for_turns() -> None:
    net = line()
    open_window(net)
    publish(net, range(COUNT))
    net.cut("a", "b")
    a = net.brokers["a"]
    assert a.next_deadline() > net.now
    net.run(3_000)
    net.join("a", "b")
    net.run(5_000)
    assert got(net) == list(range(COUNT))


def test_a_parcel_held_back_by_the_window_leaves_when_it_is_durable_if_there_is_room_by_then() -> None:
    net = line(queue_bytes_max=1 << 20)
    publish(net, range(200))
    net.turn("a", [])
    net.slow_disks.add("a")
    net.publish("a", "t", body(200))
    net.run(1_000)
    assert got(net) == list(range(200))
    net.slow_disks.clear()
    net.turn("a", [])
    net.run(30)
    assert got(net) == list(range(201))
