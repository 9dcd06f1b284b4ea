"""Load for Zenoh, whose protocol is made for its own library: the roles of `_load` with its Python API.

The library itself is native; only a call per message is Python. Publishers block when a subscriber is slow rather than
drop, as TCP makes the others wait.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import zenoh

from _crew import Gate, Role
from _load import NUMBER, QUIET_S, Counted, Held, Latencies, Sent, filters_of
from _wire import PROBE_BYTES, PROBE_EVERY_S, PROBES_OVER_S, REACHED_WITHIN_S

SESSIONS_MAX = 20_000
"""Its router takes 1,000 by default."""
CALLS = 64
"""Between two looks at the clock."""


def configuration(mode: str, *, listen: int | None = None, connect: Sequence[int] = ()) -> zenoh.Config:
    config = zenoh.Config()
    config.insert_json5("mode", f'"{mode}"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("scouting/gossip/enabled", "false")
    config.insert_json5("transport/shared_memory/enabled", "false")  # all go by TCP; and its counters are few
    config.insert_json5("transport/unicast/max_sessions", str(SESSIONS_MAX))
    config.insert_json5("listen/endpoints", f'["tcp/127.0.0.1:{listen}"]' if listen else "[]")
    config.insert_json5("connect/endpoints", json.dumps([f"tcp/127.0.0.1:{port}" for port in connect]))
    return config


def client(port: int) -> zenoh.Session:
    return zenoh.open(configuration("client", connect=[port]))


@dataclass(frozen=True, slots=True)
class ZenohLoad:
    publishing_port: int | None = None
    """Where publishers are, if that is not where subscribers are."""

    def flood(self, port: int, topic: str, payload_bytes: int) -> Role:
        return Flood(port, topic, payload_bytes)

    def count(self, port: int, topic: str, payload_bytes: int, connections: int = 1) -> Role:
        return Count(port, topic, payload_bytes, connections, self.publishing_port)

    def pace(self, port: int, topic: str, payload_bytes: int, per_second: int) -> Role:
        return Pace(port, topic, payload_bytes, per_second)

    def clock(self, port: int, topic: str, payload_bytes: int) -> Role:
        return Clock(port, topic, payload_bytes, self.publishing_port)

    def hold(self, port: int, connections: int, filters_each: int) -> Role:
        return Hold(port, connections, filters_each)

    def from_afar(self, port: int) -> "ZenohLoad":
        return ZenohLoad(port)


@dataclass(frozen=True, slots=True)
class Flood:
    port: int
    topic: str
    payload_bytes: int

    def __call__(self, gate: Gate) -> Sent:
        with client(self.port) as session:
            publisher = session.declare_publisher(self.topic, congestion_control=zenoh.CongestionControl.BLOCK)
            payload, put = bytes(self.payload_bytes), publisher.put
            window = gate.wait()
            sent = 0
            while time.monotonic() < window.end:
                for _ in range(CALLS):
                    put(payload)
                sent += CALLS
            time.sleep(QUIET_S)  # what waits in the session is dropped when it closes
        return Sent(sent)


@dataclass(frozen=True, slots=True)
class Count:
    """Counts, but does not look into the payload: that would cost it more than counting."""

    port: int
    topic: str
    payload_bytes: int
    connections: int
    publishing_port: int | None

    def __call__(self, gate: Gate) -> Counted:
        counts = [0] * self.connections

        def count_for(session: zenoh.Session, number: int) -> None:
            def arrived(_: zenoh.Sample) -> None:
                counts[number] += 1

            session.declare_subscriber(self.topic, arrived)

        with ExitStack() as sessions:
            for number in range(self.connections):
                count_for(sessions.enter_context(client(self.port)), number)
            time.sleep(QUIET_S)  # declarations are not answered; they reach the router and the publisher meanwhile
            if self.publishing_port is not None:
                _wait_until_reached(self.publishing_port, self.topic, lambda: all(counts))
                counts[:] = [0] * self.connections
            return self._count(gate, counts)

    @staticmethod
    def _count(gate: Gate, counts: list[int]) -> Counted:
        window = gate.wait()
        time.sleep(max(0.0, window.measured_from - time.monotonic()))
        from_s, first = time.monotonic(), sum(counts)
        time.sleep(max(0.0, window.end - time.monotonic()))
        to_s, last = time.monotonic(), sum(counts)
        before = -1
        while before != sum(counts):
            before = sum(counts)
            time.sleep(QUIET_S)
        return Counted(sum(counts), (last - first) / (to_s - from_s), 0)


@dataclass(frozen=True, slots=True)
class Pace:
    port: int
    topic: str
    payload_bytes: int
    per_second: int

    def __call__(self, gate: Gate) -> Sent:
        with client(self.port) as session:
            publisher = session.declare_publisher(
                self.topic, congestion_control=zenoh.CongestionControl.BLOCK, express=True
            )
            padding, interval_s = bytes(self.payload_bytes - NUMBER.size), 1 / self.per_second
            window = gate.wait()
            sent = 0
            while (due := window.start + sent * interval_s) < window.end:
                ahead_s = due - time.monotonic()
                if ahead_s > 0:
                    time.sleep(ahead_s)
                publisher.put(NUMBER.pack(time.monotonic_ns()) + padding)
                sent += 1
            time.sleep(QUIET_S)
        return Sent(sent)


@dataclass(frozen=True, slots=True)
class Clock:
    port: int
    topic: str
    payload_bytes: int
    publishing_port: int | None

    def __call__(self, gate: Gate) -> Latencies:
        seen: list[tuple[int, bytes]] = []
        with client(self.port) as session:
            session.declare_subscriber(
                self.topic, lambda sample: seen.append((time.monotonic_ns(), sample.payload.to_bytes()))
            )
            time.sleep(QUIET_S)
            if self.publishing_port is not None:
                _wait_until_reached(self.publishing_port, self.topic, lambda: bool(seen))
                seen.clear()
            window = gate.wait()
            time.sleep(max(0.0, window.end - time.monotonic()) + QUIET_S)
        sent_ns = np.array([NUMBER.unpack_from(payload)[0] for _, payload in seen], np.int64)
        arrived_ns = np.array([moment for moment, _ in seen], np.int64)
        return Latencies(sent_ns.tobytes(), arrived_ns.tobytes(), int(window.measured_from * 1e9))


@dataclass(frozen=True, slots=True)
class Hold:
    port: int
    connections: int
    filters_each: int

    def __call__(self, gate: Gate) -> Held:
        with ExitStack() as sessions:
            held = [sessions.enter_context(client(self.port)) for _ in range(self.connections)]
            gate.wait()
            for number, session in enumerate(held):
                for one in filters_of(number, self.filters_each):
                    session.declare_subscriber(one, lambda _: None)
            time.sleep(QUIET_S)
            gate.wait()
        return Held(len(held))


def _wait_until_reached(publishing_port: int, topic: str, is_reached: Callable[[], bool]) -> None:
    """As `_wire.Far` does."""
    patience_ends = time.monotonic() + REACHED_WITHIN_S
    with client(publishing_port) as session:
        while not is_reached():
            if time.monotonic() > patience_ends:
                raise ConnectionError(f"nothing from the other router has arrived within {REACHED_WITHIN_S:g} s")
            session.put(topic, bytes(PROBE_BYTES))
            time.sleep(PROBE_EVERY_S)
    time.sleep(PROBES_OVER_S)
