"""What bench/mixed.py measures, one round at a time: a flood that counts, then an even stream that is timed.

Brokers are one, or three in a row: messages go in at the first and come out at the last.
"""

from dataclasses import dataclass

import numpy as np

from _chain_peers import Joined
from _crew import LoadFailed, Role, of, perform
from _load import Latencies, SocketLoad
from _mixed_load import SIZES, TOPICS, ClockMixed, PaceMixed, Read, ReadMixed, WriteMixed, Written
from _turns import Extent, Figures, Measure
from _wire import Far, Mqtt, Mqtt5, Nats, Wire

WRITERS = 100
ASSURED = 0.2
WARM_S = 0.5
PER_SECOND = 2_000
"""Of the even stream: what every system here has time for on two cores."""
PACED_S = 1.0

CONTENT_TYPE = bytes.fromhex("03 0010") + b"application/json"
USER_PROPERTY = bytes.fromhex("26 0004") + b"unit" + bytes.fromhex("0006") + b"kelvin"
HEADERS = b"NATS/1.0\r\nContent-Type: application/json\r\nunit: kelvin\r\nId: 01234567\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Kind:
    """What messages are like; NATS has none of what it leaves out, and sends plain ones."""

    mqtt: Wire
    nats: Wire = Nats()  # noqa: RUF009 - it is frozen
    assured: float = 0.0


PLAIN = Kind(Mqtt())
WITH_PROPERTIES = Kind(Mqtt5(CONTENT_TYPE + USER_PROPERTY, correlates=True), Nats(HEADERS))
WITH_ALIASES = Kind(Mqtt5(has_aliases=True))
PARTLY_ASSURED = Kind(Mqtt(), assured=ASSURED)


@dataclass(frozen=True, slots=True)
class Mixed:
    kind: Kind
    writers: int

    def __call__(self, brokers: Joined, extent: Extent) -> Figures:
        load = brokers.last.load
        if not isinstance(load, SocketLoad):
            raise LoadFailed("the mixed load is made for sockets")
        wire = self.kind.nats if isinstance(load.wire, Nats) else self.kind.mqtt
        share = 0.0 if isinstance(load.wire, Nats) else self.kind.assured
        into, out_of = brokers.first.port, brokers.last.port
        far = Far(wire, into)
        cpu_before_s = brokers.cpu_s
        roles: list[Role] = [
            ReadMixed(far, out_of, self.writers, 1 if share else 0),
            WriteMixed(wire, into, self.writers, share),
        ]
        found = perform(roles, WARM_S, extent.measured_s)
        cpu_s, memory = brokers.cpu_s - cpu_before_s, brokers.memory_bytes
        paced = perform([ClockMixed(far, out_of), PaceMixed(wire, into, self.writers, PER_SECOND)], WARM_S, PACED_S)
        (read,), (written,), (latencies,) = of(Read, found), of(Written, found), of(Latencies, paced)
        p50_us, p99_us = latencies.percentiles_us([0.5, 0.99])
        return {
            **flood_figures(read, written, cpu_s),
            "p50_us": p50_us,
            "p99_us": p99_us,
            "memory_bytes": memory,
        }


def flood_figures(read: Read, written: Written, cpu_s: float) -> Figures:
    """`lost_worst`: of the writer that has lost the greatest share. `least_share`: what the writer that got least
    through has delivered, of what one has on average. `cpu_ns`: of all brokers, per message that arrived."""
    sent, came = np.array(written.counts), np.array(read.counts)
    return {
        "per_second": read.per_second,
        "lost": 1 - came.sum() / max(1, sent.sum()),
        "lost_messages": float((sent - came).sum()),
        "lost_worst": float((1 - came / np.maximum(1, sent)).max()),
        "least_share": float(came.min() / max(1e-9, came.mean())),
        "disorder": read.disorder,
        "cpu_ns": cpu_s * 1e9 / max(1, int(came.sum())),
    }


_LOADS = {
    "1": (Mixed(PLAIN, 1), "QoS 0, one writer"),
    "100": (Mixed(PLAIN, WRITERS), f"QoS 0, {WRITERS} writers"),
    "properties": (Mixed(WITH_PROPERTIES, 1), "QoS 0, MQTT 5 with properties, one writer"),
    "aliases": (Mixed(WITH_ALIASES, 1), "QoS 0, MQTT 5 with topic aliases, one writer"),
    "qos1": (Mixed(PARTLY_ASSURED, 1), f"{ASSURED:.0%} of QoS 1, one writer"),
    "qos1-100": (Mixed(PARTLY_ASSURED, WRITERS), f"{ASSURED:.0%} of QoS 1, {WRITERS} writers"),
}
ONE, CHAIN = "one", "chain"
MEASURES: dict[str, Measure[Joined]] = {
    f"{place}-{name}": Measure(f"{told}: {TOPICS:,} topics, {SIZES[0]}-{SIZES[1]} bytes, {text}", measure)
    for place, told in ((ONE, "One broker"), (CHAIN, "Three brokers in a row"))
    for name, (measure, text) in _LOADS.items()
}
