"""Measurements of bench/chain.py, one round at a time: messages are published at the first broker and received at the
last.

For the failure of a broker, it is first determined which of the two brokers in the middle of a square works while
messages pass. That one is killed while messages continue; the figure is the arrival of the first message that was sent
after it.
"""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from _assured_load import Assure, Keep
from _broker_measures import (
    IN_FLIGHT,
    LARGE_BYTES,
    LATENCY_PER_SECOND,
    PUBLISHERS,
    SMALL_BYTES,
    TOPIC,
    WARM_S,
    assured,
    delivered,
    on_time,
)
from _chain_peers import Joined
from _crew import Gate, LoadFailed, Role, of, perform
from _load import Latencies, Sent
from _peers import busy_ns, is_alive
from _turns import Extent, Figures, Measure
from _wire import Far, Mqtt

SPACING_MS = 10
WATCHED_S = 3.0
"""How long it is seen which broker is in use."""
RECOVERS_WITHIN_S = 12.0
MIDDLE = ("b", "c")


def small(row: Joined, extent: Extent) -> Figures:
    return _stream(row, SMALL_BYTES, extent)


def large(row: Joined, extent: Extent) -> Figures:
    return _stream(row, LARGE_BYTES, extent)


def _stream(row: Joined, payload_bytes: int, extent: Extent) -> Figures:
    cpu_before_s = row.cpu_s
    count = row.load.count(row.last.port, TOPIC, payload_bytes)
    flood = row.load.flood(row.first.port, TOPIC, payload_bytes)
    found = perform([count, flood], WARM_S, extent.measured_s)
    return delivered(found, row.cpu_s - cpu_before_s)


def latency(row: Joined, extent: Extent) -> Figures:
    cpu_before_s = row.cpu_s
    found = _paced(row, LATENCY_PER_SECOND, WARM_S, extent.measured_s)
    return on_time(found, row.cpu_s - cpu_before_s)


def durable(row: Joined, extent: Extent) -> Figures:
    cpu_before_s = row.cpu_s
    keep = Keep(row.last.port, SMALL_BYTES, Far(Mqtt(), row.first.port))
    found = perform(
        [keep, Assure(row.first.port, SMALL_BYTES, PUBLISHERS, IN_FLIGHT)],
        WARM_S,
        extent.measured_s,
    )
    return assured(found, row.cpu_s - cpu_before_s)


def _paced(brokers: Joined, per_second: int, warm_s: float, measured_s: float, *more: Role) -> list[object]:
    clock = brokers.load.clock(brokers.last.port, TOPIC, SMALL_BYTES)
    pace = brokers.load.pace(brokers.first.port, TOPIC, SMALL_BYTES, per_second)
    return perform([clock, pace, *more], warm_s, measured_s)


@dataclass(frozen=True, slots=True)
class Struck:
    at_ns: int
    dead_ns: int
    """From then on nothing passes through it: the kernel takes a moment to end a process, more so a busy one."""


@dataclass(frozen=True, slots=True)
class Strike:
    """Sees which of some processes works most before the measured part begins, and kills that one then."""

    pids: Sequence[int]

    def __call__(self, gate: Gate) -> Struck:
        window = gate.wait()
        before_ns = {pid: busy_ns(pid) for pid in self.pids}
        time.sleep(max(0.0, window.measured_from - time.monotonic()))
        spent_ns = {pid: busy_ns(pid) - before_ns[pid] for pid in self.pids}
        victim = max(self.pids, key=spent_ns.__getitem__)
        at_ns = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        while is_alive(victim):
            time.sleep(0)
        return Struck(at_ns, time.monotonic_ns())


def failover(square: Joined, _: Extent) -> Figures:
    middle = [pid for name in MIDDLE if (pid := square.brokers[name].pid) is not None]
    found = _paced(square, 1000 // SPACING_MS, WATCHED_S, RECOVERS_WITHIN_S, Strike(middle))
    (latencies,), (sent,), (struck,) = of(Latencies, found), of(Sent, found), of(Struck, found)
    return {**recovery(latencies, struck), "lost": sent.count - latencies.count, "disorder": latencies.disorder}


def recovery(latencies: Latencies, struck: Struck) -> Figures:
    """When the first message arrived that was sent after the broker's end, and the longest silence from then on."""
    sent_ns, arrived_ns = latencies.times_ns
    after = arrived_ns[sent_ns > struck.dead_ns]
    if not len(after):
        raise LoadFailed(f"nothing has arrived within {RECOVERS_WITHIN_S:g} s after the broker was killed")
    return {
        "first_ms": float(after.min() - struck.at_ns) / 1e6,
        "silence_ms": float(np.diff(np.sort(after), prepend=struck.at_ns).max()) / 1e6,
    }


MEASURES: dict[str, Measure[Joined]] = {
    "small": Measure(f"Messages a second through three brokers, {SMALL_BYTES} bytes, QoS 0", small),
    "large": Measure("Messages a second through three brokers, 1 KiB, QoS 0", large),
    "latency": Measure(
        f"Latency in microseconds through three brokers at {LATENCY_PER_SECOND:,} messages a second, 64 bytes",
        latency,
        at_once=True,
    ),
    "durable": Measure(
        f"QoS 1 through three brokers, {PUBLISHERS} publishers of {IN_FLIGHT} in flight, persistent session", durable
    ),
    "failover": Measure(
        f"A broker in use is killed in a square, a message every {SPACING_MS} ms: milliseconds to the first one after",
        failover,
        fresh=True,
    ),
}
