"""What can wait is not dropped at the first queue on its way: it waits before it, and whoever publishes can know."""

import gc
import sys
from types import FrameType

from handwired import PULLED_AT_ONCE, Overlay

from overlane.core.events import LinkDown
from overlane.core.flows.source import DRAFT_BYTES_MAX
from overlane.core.qos import QosClass
from overlane.core.routing.forwarding.message_losses import MessageCount, each_is_one
from overlane.core.units import MS, NEVER

BULK = QosClass()
URGENT = QosClass(deadline_ns=100 * MS)
QUEUE_BYTES = 256 * 1024
BODY = bytes(16 * 1024)


def line(count: MessageCount = each_is_one) -> Overlay:
    net = Overlay({"a-b": 1, "b-c": 1}, {"#": BULK}, count=count)
    net.subscribe("c", "#")
    net.run(500)
    return net


def send(net: Overlay, count: int, qos: QosClass = BULK, topic: str = "t") -> None:
    """Published at a, in one turn, while the link takes nothing."""
    broker = net.brokers["a"]
    for _ in range(count):
        broker.send(topic, BODY, net.now, 0, qos)
    net.effects["a"] += broker.flush(net.now)


def pull(net: Overlay, bytes_max: int = PULLED_AT_ONCE) -> int:
    """How many bytes the link takes from a."""
    return sum(len(data) for _, data in net.brokers["a"].pull("b", bytes_max, net.now))


def dropped(net: Overlay) -> int:
    return net.brokers["a"].counters["queue_full_dropped"]


def test_bulk_waits_before_a_full_queue_and_joins_it_when_there_is_room() -> None:
    net = line()
    send(net, 64)
    assert net.brokers["a"].queue_bytes("b") <= QUEUE_BYTES
    taken = 0
    while more := pull(net):
        taken += more
        net.effects["a"] += net.brokers["a"].flush(net.now)
    assert (taken > 64 * len(BODY), dropped(net)) == (True, 0)


def test_the_broker_asks_for_a_turn_as_soon_as_there_is_room_for_what_waits() -> None:
    net = line()
    send(net, 64)
    assert net.brokers["a"].next_deadline() > net.now + 1
    pull(net)
    assert net.brokers["a"].next_deadline() <= net.now + 1


def test_what_waits_arrives_all_and_in_order() -> None:
    net = line()
    for number in range(200):
        net.brokers["a"].send("t", b"%03d" % number + BODY, net.now, 0, BULK)
    net.turn("a", [])
    net.run(1_000)
    assert [body[:3] for body in net.bodies("c")] == [b"%03d" % number for number in range(200)]


def test_how_full_the_way_is_counts_what_waits_before_it() -> None:
    net = line()
    send(net, 1)
    assert net.brokers["a"].path_fullness("t", BULK) < 0.1
    send(net, 8)
    half = net.brokers["a"].path_fullness("t", BULK)
    send(net, 56)
    assert 0.4 < half < 0.7 < 1.0 < net.brokers["a"].path_fullness("t", BULK)
    while pull(net):
        net.effects["a"] += net.brokers["a"].flush(net.now)
    assert net.brokers["a"].path_fullness("t", BULK) == 0.0


def test_what_has_a_deadline_does_not_wait_behind_what_can() -> None:
    net = line()
    send(net, 64)
    send(net, 1, URGENT, "alarm")
    sent = [data for _, data in net.brokers["a"].pull("b", PULLED_AT_ONCE, net.now)]
    assert b"alarm" in next(data for data in sent if len(data) > len(BODY))


def test_what_waits_is_bounded_and_does_not_outlive_the_link() -> None:
    net = line()
    send(net, 2 * DRAFT_BYTES_MAX // len(BODY))
    assert dropped(net) > 0
    send(net, 64)
    assert net.brokers["a"].path_fullness("t", BULK) <= (DRAFT_BYTES_MAX + QUEUE_BYTES) / QUEUE_BYTES + 1
    net.handle("a", LinkDown("b"))
    net.effects["a"] += net.brokers["a"].flush(net.now)
    assert net.brokers["a"].path_fullness("t", BULK) == 0.0


def test_what_is_too_much_is_counted_in_messages() -> None:
    net = line(lambda flags, _: 1_000 if flags else 1)
    published = 2 * DRAFT_BYTES_MAX // len(BODY)
    send(net, published)
    before = dropped(net)
    net.brokers["a"].send("t", BODY, net.now, 1, BULK)
    net.effects["a"] += net.brokers["a"].flush(net.now)
    assert dropped(net) - before == 1_000
    net.turn("a", [])
    net.run(1_000)
    assert before + len(net.bodies("c")) == published


def test_what_waits_is_not_looked_at_again_each_turn() -> None:
    def calls_of_a_turn(messages: int) -> int:
        net = line()
        send(net, 64)
        for _ in range(messages):
            net.brokers["a"].send("t", b"", net.now, 0, BULK)
        net.brokers["a"].flush(net.now)
        calls = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        gc.collect()
        gc.disable()  # what it finds may be called, and has nothing to do with the turn
        sys.setprofile(count)
        net.brokers["a"].flush(net.now)
        sys.setprofile(None)
        gc.enable()
        return calls

    def fewest(messages: int) -> int:
        """What is remembered from earlier turns may be made again in one of them."""
        return min(calls_of_a_turn(messages) for _ in range(3))

    assert fewest(5_000) <= fewest(50)


def test_a_neighbour_can_be_left_unread_as_long_as_the_most_urgent_of_its_routes_has_time_to_spare() -> None:
    net = Overlay({"a-b": 1, "b-c": 1}, {"alarm": URGENT, "bulk": BULK})
    net.subscribe("c", "#")
    net.run(500)
    assert net.brokers["b"].patience_ns("a") == NEVER
    net.publish("a", "bulk", b"")
    net.run(100)
    assert net.brokers["b"].patience_ns("a") == NEVER
    net.publish("a", "alarm", b"")
    net.run(100)
    assert 20 * MS < net.brokers["b"].patience_ns("a") <= 25 * MS
    assert net.brokers["b"].patience_ns("c") == NEVER
