"""What was published arrives, or is counted as lost by its cause, in messages."""

from handwired import PULLED_AT_ONCE, Overlay

from overlane.core.events import LinkDown
from overlane.core.qos import QosClass
from overlane.core.routing.forwarding.message_losses import MessageLosses
from overlane.core.units import MS
from overlane.mqtt.runs import count, pack_run

BULK = QosClass()
URGENT = QosClass(deadline_ns=100 * MS)
IN_A_RUN = 40
CAUSES = [f"{name}_dropped" for name in MessageLosses.__slots__ if name != "count"]


def line(topics: dict[str, QosClass] | None = None) -> Overlay:
    net = Overlay({"a-b": 1, "b-c": 1}, topics or {"#": BULK}, count=count)
    net.subscribe("c", "#")
    net.run(500)
    return net


def send(net: Overlay, runs: int, qos: QosClass = BULK) -> int:
    """Runs of messages published at a, while its link takes nothing; how many messages they are."""
    flags, body = pack_run(bytes(16 * 1024), IN_A_RUN, False)
    for _ in range(runs):
        net.brokers["a"].send("t", body, net.now, flags, qos)
    net.effects["a"] += net.brokers["a"].flush(net.now)
    return runs * IN_A_RUN


def lost(net: Overlay) -> dict[str, int]:
    counts = {name: sum(broker.counters[name] for broker in net.brokers.values()) for name in CAUSES}
    return {name: count for name, count in counts.items() if count}


def arrived(net: Overlay) -> int:
    return IN_A_RUN * len(net.bodies("c"))


def test_what_waited_for_a_link_that_is_lost_is_counted() -> None:
    net = line()
    sent = send(net, 8)
    net.handle("a", LinkDown("b"))
    net.run(100)
    assert lost(net) == {"link_lost_dropped": sent}


def test_what_has_no_way_is_counted() -> None:
    net = line()
    net.handle("a", LinkDown("b"))
    sent = send(net, 8)
    net.run(100)
    assert lost(net) == {"unroutable_dropped": sent}


def test_what_cannot_be_in_time_any_more_is_counted() -> None:
    net = line({"#": URGENT})
    sent = send(net, 8, URGENT)
    net.brokers["a"].pull("b", PULLED_AT_ONCE, net.now + 2 * URGENT.deadline_ns)
    assert lost(net) == {"expired_dropped": sent}


def test_all_of_an_overload_arrives_or_is_counted_once() -> None:
    net = line({"#": URGENT})
    sent = send(net, 40, URGENT)  # 640 KiB before a queue of 256
    net.turn("a", [])
    net.run(1_000)
    assert arrived(net) > 0
    assert arrived(net) + sum(lost(net).values()) == sent
