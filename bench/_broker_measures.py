"""What bench/broker.py measures, one round at a time: each function has one broker do one thing, and returns figures.

Rates are counted where messages arrive. `lost` is the share of what was published that never arrived, `cpu` what the
broker's process took of the processors per message that arrived.
"""

import time

from _assured_load import Acknowledged, Assure, Keep, Kept
from _crew import Crew, of, perform
from _load import Counted, Latencies, Sent
from _peers import Running
from _turns import Extent, Figures, Measure

TOPIC = "plant/7/temperature"
SMALL_BYTES = 64
LARGE_BYTES = 1024
LATENCY_PER_SECOND = 5_000
SUBSCRIBERS = 100
COUNTING_PROCESSES = 2
CONNECTIONS = 1_000
SUBSCRIPTIONS = 10_000
FILTERS_EACH = 1_000
PUBLISHERS = 50
IN_FLIGHT = 20
"""Per publisher; what paho, the usual client library, has by default."""
WARM_S = 0.5
SETTLE_S = 1.0


def small(broker: Running, extent: Extent) -> Figures:
    return _stream(broker, SMALL_BYTES, extent)


def large(broker: Running, extent: Extent) -> Figures:
    return _stream(broker, LARGE_BYTES, extent)


def _stream(broker: Running, payload_bytes: int, extent: Extent) -> Figures:
    cpu_before_s = broker.cpu_s
    found = perform(
        [
            broker.load.count(broker.port, TOPIC, payload_bytes),
            broker.load.flood(broker.port, TOPIC, payload_bytes),
        ],
        WARM_S,
        extent.measured_s,
    )
    return delivered(found, broker.cpu_s - cpu_before_s)


def fanout(broker: Running, extent: Extent) -> Figures:
    cpu_before_s = broker.cpu_s
    each = SUBSCRIBERS // COUNTING_PROCESSES
    counting = [broker.load.count(broker.port, TOPIC, SMALL_BYTES, each) for _ in range(COUNTING_PROCESSES)]
    found = perform([*counting, broker.load.flood(broker.port, TOPIC, SMALL_BYTES)], WARM_S, extent.measured_s)
    return delivered(found, broker.cpu_s - cpu_before_s, SUBSCRIBERS)


def delivered(found: list[object], cpu_s: float, subscribers: int = 1) -> Figures:
    """Of what the roles of a stream have found, and what brokers took for it."""
    counted, (sent,) = of(Counted, found), of(Sent, found)
    arrived = sum(one.count for one in counted)
    return {
        "per_second": sum(one.per_second for one in counted),
        "lost": 1 - arrived / (sent.count * subscribers),
        "disorder": sum(one.disorder for one in counted),
        "cpu_ns": cpu_s * 1e9 / max(1, arrived),
    }


def latency(broker: Running, extent: Extent) -> Figures:
    cpu_before_s = broker.cpu_s
    found = perform(
        [
            broker.load.clock(broker.port, TOPIC, SMALL_BYTES),
            broker.load.pace(broker.port, TOPIC, SMALL_BYTES, LATENCY_PER_SECOND),
        ],
        WARM_S,
        extent.measured_s,
    )
    return on_time(found, broker.cpu_s - cpu_before_s)


def on_time(found: list[object], cpu_s: float) -> Figures:
    """Of what the roles of an even stream have found."""
    (latencies,), (sent,) = of(Latencies, found), of(Sent, found)
    p50, p99, p999 = latencies.percentiles_us([0.5, 0.99, 0.999])
    return {
        "p50_us": p50,
        "p99_us": p99,
        "p999_us": p999,
        "lost": 1 - latencies.count / sent.count,
        "disorder": latencies.disorder,
        "cpu_ns": cpu_s * 1e9 / sent.count,
    }


def connections(broker: Running, _: Extent) -> Figures:
    """Of a broker that has just started; one connection is opened first, for what is loaded only then."""
    _warm(broker)
    empty = _settled_bytes(broker)
    with Crew([broker.load.hold(broker.port, CONNECTIONS, 0)]):
        connected = _settled_bytes(broker)
    return {"empty_bytes": empty, "each_bytes": (connected - empty) / CONNECTIONS}


def subscriptions(broker: Running, _: Extent) -> Figures:
    _warm(broker)
    with Crew([broker.load.hold(broker.port, SUBSCRIPTIONS // FILTERS_EACH, FILTERS_EACH)]) as crew:
        empty = _settled_bytes(broker)
        crew.work(0, 0)
        subscribed = _settled_bytes(broker)
    return {"empty_bytes": empty, "each_bytes": (subscribed - empty) / SUBSCRIPTIONS}


def _warm(broker: Running) -> None:
    with Crew([broker.load.hold(broker.port, 1, 1)]) as crew:
        crew.work(0, 0)


def _settled_bytes(broker: Running) -> int:
    time.sleep(SETTLE_S)
    return broker.memory_bytes


def durable(broker: Running, extent: Extent) -> Figures:
    cpu_before_s = broker.cpu_s
    found = perform(
        [Keep(broker.port, SMALL_BYTES), Assure(broker.port, SMALL_BYTES, PUBLISHERS, IN_FLIGHT)],
        WARM_S,
        extent.measured_s,
    )
    return assured(found, broker.cpu_s - cpu_before_s)


def assured(found: list[object], cpu_s: float) -> Figures:
    """Of what the roles of a durable stream have found."""
    (acknowledged,), (kept,) = of(Acknowledged, found), of(Kept, found)
    return {
        "per_second": acknowledged.per_second,
        "delivered_per_second": kept.per_second,
        "lost": max(0, acknowledged.count - kept.count) / max(1, acknowledged.count),
        "unacknowledged": acknowledged.sent - acknowledged.count,
        "disorder": acknowledged.disorder + kept.repeated,
        "cpu_ns": cpu_s * 1e9 / max(1, acknowledged.count),
    }


MEASURES: dict[str, Measure[Running]] = {
    "small": Measure(f"Messages a second, {SMALL_BYTES} bytes, QoS 0, one publisher, one subscriber", small),
    "large": Measure("Messages a second, 1 KiB, QoS 0, one publisher, one subscriber", large),
    "latency": Measure(
        f"Latency in microseconds at {LATENCY_PER_SECOND:,} messages a second, 64 bytes", latency, at_once=True
    ),
    "fanout": Measure(f"Deliveries a second to {SUBSCRIBERS} subscribers, 64 bytes, QoS 0", fanout),
    "connections": Measure(
        f"Memory of the broker for {CONNECTIONS:,} idle connections", connections, fresh=True, repeated=False
    ),
    "subscriptions": Measure(
        f"Memory of the broker for {SUBSCRIPTIONS:,} subscriptions", subscriptions, fresh=True, repeated=False
    ),
    "durable": Measure(
        f"Acknowledged messages a second, QoS 1, {PUBLISHERS} publishers of {IN_FLIGHT} in flight, persistent session",
        durable,
    ),
}
