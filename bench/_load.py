"""Load over raw sockets: publishers and subscribers, each role in its own process.

There is no client library between broker and socket: its cost per message would be measured instead. Publishers at full
rate write blocks of messages prepared in memory, counting works on whole reads (`_tally`); together they move about ten
million small messages per second without a broker, far more than any broker here.
"""

import os
import selectors
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from _crew import Gate, Role, Window
from _tally import Tally, numbers
from _wire import Far, Wire

BLOCK_BYTES = 64 * 1024
"""What a flooding publisher hands to the kernel at once."""
QUIET_S = 0.7
"""A subscriber that has heard nothing for so long after the end has heard everything."""
WAKE_BYTES, WAKE_BYTES_OF_MANY = 16 * 1024, 4 * 1024
"""A counting subscriber is woken when so much is there. One that is woken for every message takes the processor from
the broker, and makes each of its writes dearer; on a machine of two cores that halves the rate of a broker that writes
message by message."""
NUMBER = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Sent:
    count: int


@dataclass(frozen=True, slots=True)
class Counted:
    count: int
    per_second: float
    """Within the measured part of the window, over all connections of the process."""
    disorder: int
    """Messages with a number not above that of the one before: repeated, or out of order."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """When each message was sent and when it arrived, in the order of arrival, as 64-bit numbers."""

    sent_ns: bytes
    arrived_ns: bytes
    measured_from_ns: int

    @property
    def times_ns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.frombuffer(self.sent_ns, np.int64), np.frombuffer(self.arrived_ns, np.int64)

    @property
    def count(self) -> int:
        return len(self.sent_ns) // NUMBER.size

    def percentiles_us(self, shares: Sequence[float]) -> list[float]:
        """Of what was sent within the measured part of the window."""
        sent_ns, arrived_ns = self.times_ns
        measured = sent_ns >= self.measured_from_ns
        ns = arrived_ns[measured] - sent_ns[measured]
        return [float(np.quantile(ns, share)) / 1e3 for share in shares] if len(ns) else [float("nan")] * len(shares)

    @property
    def disorder(self) -> int:
        """Messages not sent after the one that arrived before."""
        sent_ns, _ = self.times_ns
        return int((sent_ns[1:] <= sent_ns[:-1]).sum())


@dataclass(frozen=True, slots=True)
class Held:
    connections: int


class Load(Protocol):
    """The roles by which a broker is measured; `_zenoh_load` has the same ones for Zenoh."""

    def flood(self, port: int, topic: str, payload_bytes: int) -> Role: ...

    def count(self, port: int, topic: str, payload_bytes: int, connections: int = 1) -> Role: ...

    def pace(self, port: int, topic: str, payload_bytes: int, per_second: int) -> Role: ...

    def clock(self, port: int, topic: str, payload_bytes: int) -> Role: ...

    def hold(self, port: int, connections: int, filters_each: int) -> Role: ...

    def from_afar(self, port: int) -> "Load":
        """The same, with subscribers that wait until what is published at another broker reaches them."""


@dataclass(frozen=True, slots=True)
class SocketLoad:
    wire: Wire

    def flood(self, port: int, topic: str, payload_bytes: int) -> Role:
        return Flood(self.wire, port, topic, payload_bytes)

    def count(self, port: int, topic: str, payload_bytes: int, connections: int = 1) -> Role:
        return Count(self.wire, port, topic, payload_bytes, connections)

    def pace(self, port: int, topic: str, payload_bytes: int, per_second: int) -> Role:
        return Pace(self.wire, port, topic, payload_bytes, per_second)

    def clock(self, port: int, topic: str, payload_bytes: int) -> Role:
        return Clock(self.wire, port, topic, payload_bytes)

    def hold(self, port: int, connections: int, filters_each: int) -> Role:
        return Hold(self.wire, port, connections, filters_each)

    def from_afar(self, port: int) -> Load:
        return SocketLoad(Far(self.wire, port))


@dataclass(frozen=True, slots=True)
class Flood:
    """Publishes as fast as the broker takes it, numbers from 0."""

    wire: Wire
    port: int
    topic: str
    payload_bytes: int

    def __call__(self, gate: Gate) -> Sent:
        form = self.wire.published(self.topic, self.payload_bytes)
        rows = max(1, BLOCK_BYTES // form.size)
        block = np.tile(np.frombuffer(form.message, np.uint8), (rows, 1))
        column = block[:, form.payload_at : form.payload_at + 8]
        following = np.arange(rows, dtype=np.int64)
        with self.wire.connect(self.port, "publisher") as connection:
            window = gate.wait()
            connection.settimeout(None)
            sent = 0
            while time.monotonic() < window.end:
                column[:] = (following + sent).view(np.uint8).reshape(rows, 8)
                connection.sendall(block.data)
                sent += rows
            _let_go(connection)
        return Sent(sent)


@dataclass(frozen=True, slots=True)
class Count:
    """Subscribes once per connection, and counts what arrives until it is quiet."""

    wire: Wire
    port: int
    topic: str
    payload_bytes: int
    connections: int

    def __call__(self, gate: Gate) -> Counted:
        form = self.wire.delivered(self.topic, self.payload_bytes)
        tallies = dict[socket.socket, Tally]()
        for number in range(self.connections):
            connection = self.wire.connect(self.port, f"subscriber-{os.getpid()}-{number}")
            tallies[self.wire.subscribe(connection, [self.topic])] = Tally(form, self.wire.between)
        _wake_at(tallies, WAKE_BYTES if self.connections == 1 else WAKE_BYTES_OF_MANY)
        window = gate.wait()
        marks = self._read(tallies, window)
        for connection, tally in tallies.items():
            tally.check(connection)
            connection.close()
        (from_s, first), (to_s, last) = marks
        return Counted(
            sum(tally.count for tally in tallies.values()),
            (last - first) / (to_s - from_s),
            sum(tally.disorder for tally in tallies.values()),
        )

    def _read(self, tallies: dict[socket.socket, Tally], window: Window) -> list[tuple[float, int]]:
        """Reads until it is quiet; returns when the measured part began and ended, and how many had come by then."""
        moments = [window.measured_from, window.end]
        marks: list[tuple[float, int]] = []
        with selectors.DefaultSelector() as readable:
            for connection in tallies:
                connection.setblocking(False)
                readable.register(connection, selectors.EVENT_READ, connection)
            while True:
                ready = readable.select(QUIET_S)
                now = time.monotonic()
                if len(marks) < 2 and now >= moments[len(marks)]:
                    marks.append((now, sum(tally.count for tally in tallies.values())))
                    if len(marks) == 2:
                        _wake_at(tallies, 1)
                if not ready and len(marks) == 2:
                    return marks
                for key, _ in ready:
                    connection = key.data
                    if tallies[connection].read(connection) == 0:
                        readable.unregister(connection)
                        if not readable.get_map() and len(marks) < 2:
                            raise ConnectionError("the broker has closed the connection of the subscriber")
                if not readable.get_map():
                    return marks


@dataclass(frozen=True, slots=True)
class Pace:
    """Publishes at an even rate, one message at a time; the payload says when it was sent."""

    wire: Wire
    port: int
    topic: str
    payload_bytes: int
    per_second: int

    def __call__(self, gate: Gate) -> Sent:
        form = self.wire.published(self.topic, self.payload_bytes)
        message, at, interval_s = bytearray(form.message), form.payload_at, 1 / self.per_second
        with self.wire.connect(self.port, "publisher") as connection:
            window = gate.wait()
            sent = 0
            while (due := window.start + sent * interval_s) < window.end:
                ahead_s = due - time.monotonic()
                if ahead_s > 0:
                    time.sleep(ahead_s)
                NUMBER.pack_into(message, at, time.monotonic_ns())
                connection.sendall(message)
                sent += 1
            _let_go(connection)
        return Sent(sent)


@dataclass(frozen=True, slots=True)
class Clock:
    """Tells how long each message was under way."""

    wire: Wire
    port: int
    topic: str
    payload_bytes: int

    def __call__(self, gate: Gate) -> Latencies:
        form = self.wire.delivered(self.topic, self.payload_bytes)
        ask, answer = self.wire.between
        connection = self.wire.subscribe(self.wire.connect(self.port, "subscriber"), [self.topic])
        window = gate.wait()
        connection.settimeout(QUIET_S)
        reads: list[tuple[int, bytes]] = []
        rest = b""
        while True:
            try:
                got = connection.recv(64 * 1024)
            except TimeoutError:
                if time.monotonic() > window.end:
                    break
                continue
            now_ns = time.monotonic_ns()
            if not got:
                break
            if ask and ask in got:
                connection.sendall(answer)
                got = got.replace(ask, b"")
            whole = (len(rest) + len(got)) // form.size * form.size
            rest += got
            reads.append((now_ns, rest[:whole]))
            rest = rest[whole:]
        connection.close()
        return self._latencies(reads, window)

    def _latencies(self, reads: list[tuple[int, bytes]], window: Window) -> Latencies:
        form = self.wire.delivered(self.topic, self.payload_bytes)
        table = np.frombuffer(b"".join(bytes_read for _, bytes_read in reads), np.uint8).reshape(-1, form.size)
        sent_ns = numbers(table[:, form.payload_at : form.payload_at + 8])
        arrived_ns = np.repeat(
            np.array([now_ns for now_ns, _ in reads], np.int64), [len(one) // form.size for _, one in reads]
        )
        return Latencies(sent_ns.tobytes(), arrived_ns.tobytes(), int(window.measured_from * 1e9))


@dataclass(frozen=True, slots=True)
class Hold:
    """Opens connections, at the word go gives each its filters, and closes them at the next."""

    wire: Wire
    port: int
    connections: int
    filters_each: int

    def __call__(self, gate: Gate) -> Held:
        held = [self.wire.connect(self.port, f"idle-{number}") for number in range(self.connections)]
        gate.wait()
        for number, connection in enumerate(held):
            self.wire.subscribe(connection, filters_of(number, self.filters_each))
        gate.wait()
        for connection in held:
            connection.close()
        return Held(len(held))


def filters_of(number: int, count: int) -> list[str]:
    return [f"plant/{number}/machine/{which}/state" for which in range(count)]


def _wake_at(connections: Iterable[socket.socket], bytes_there: int) -> None:
    for connection in connections:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, bytes_there)


def _let_go(connection: socket.socket) -> None:
    """Lets the broker read to the end before the connection closes."""
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(5)
    try:
        while connection.recv(4096):
            pass
    except OSError:
        pass
