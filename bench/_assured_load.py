"""Load at QoS 1 over raw sockets: publishers that wait for their acknowledgements, and a session that outlives its
connection and acknowledges all it gets.

Every publisher has a number of messages in flight, as client libraries do, on topics in random order, and sends the
next ones when some are acknowledged. Every message has a number of its own, so that after the run it is known which
arrived, and how often.
"""

import selectors
import socket
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from _crew import Gate, Window
from _tally import numbers
from _wire import Far, Form, Mqtt, packet

TOPICS = "assured/{:03d}"
TOPIC_COUNT = 1_000
FILTER = "assured/+"
PUBLISHER_STEP = 1 << 40
"""Between the first numbers of two publishers."""
RING = 4096
"""Messages a publisher has prepared, and packet identifiers it uses."""
PUBACK = 0x40
PUBACK_BYTES = 4
SOCKET_PATIENCE_S = 10.0
QUIET_S = 2.0
"""Longer than a disk takes on a bad day: only then is what has not come lost."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    sent: int
    count: int
    per_second: float
    disorder: int
    """Acknowledgements in another order than that of the messages."""


@dataclass(frozen=True, slots=True)
class Kept:
    count: int
    """Different messages that have arrived."""
    per_second: float
    repeated: int


class _Publisher:
    def __init__(self, number: int, port: int, payload_bytes: int) -> None:
        form: Form = Mqtt().published_surely(TOPICS.format(0), payload_bytes)
        self.connection = Mqtt().connect(port, f"assured-publisher-{number}")
        self.connection.settimeout(SOCKET_PATIENCE_S)
        self._ring = np.tile(np.frombuffer(form.message, np.uint8), (RING, 1))
        identifiers = np.arange(1, RING + 1, dtype=">u2").view(np.uint8).reshape(RING, 2)
        self._ring[:, form.payload_at - 2 : form.payload_at] = identifiers
        topics = np.random.default_rng(number).integers(0, TOPIC_COUNT, RING)
        names = "".join(map(TOPICS.format, topics.tolist())).encode()
        topic_at, topic_bytes = form.message.index(TOPICS.format(0).encode()), len(names) // RING
        self._ring[:, topic_at : topic_at + topic_bytes] = np.frombuffer(names, np.uint8).reshape(RING, topic_bytes)
        self._numbers = self._ring[:, form.payload_at : form.payload_at + 8]
        self._first = number * PUBLISHER_STEP
        self._rest = b""
        self.sent = 0
        self.acknowledged = 0
        self.disorder = 0

    def send(self, count: int) -> None:
        while count:
            at = self.sent % RING
            some = min(count, RING - at)
            following = np.arange(self.sent, self.sent + some, dtype=np.int64) + self._first
            self._numbers[at : at + some] = following.view(np.uint8).reshape(some, 8)
            self.connection.sendall(self._ring[at : at + some].data)
            self.sent += some
            count -= some

    def receive(self) -> int:
        """Reads acknowledgements, and returns how many."""
        got = self.connection.recv(64 * 1024)
        if not got:
            raise ConnectionError("the broker has closed the connection of a publisher")
        got = self._rest + got
        whole = len(got) // PUBACK_BYTES * PUBACK_BYTES
        self._rest = got[whole:]
        acks = np.frombuffer(got, np.uint8, whole).reshape(-1, PUBACK_BYTES)
        if (acks[:, 0] != PUBACK).any():
            raise ValueError("something else than PUBACK has arrived")
        identifiers = np.ascontiguousarray(acks[:, 2:]).view(">u2").ravel()
        expected = (np.arange(len(acks)) + self.acknowledged) % RING + 1
        self.disorder += int((identifiers != expected).sum())
        self.acknowledged += len(acks)
        return len(acks)


@dataclass(frozen=True, slots=True)
class Assure:
    """Publishes with many connections until the end of the window, then waits for what is in flight."""

    port: int
    payload_bytes: int
    publishers: int
    in_flight: int

    def __call__(self, gate: Gate) -> Acknowledged:
        publishers = [_Publisher(number, self.port, self.payload_bytes) for number in range(self.publishers)]
        window = gate.wait()
        marks = self._publish(publishers, window)
        for publisher in publishers:
            publisher.connection.close()
        (from_s, first), (to_s, last) = marks
        return Acknowledged(
            sum(one.sent for one in publishers),
            sum(one.acknowledged for one in publishers),
            (last - first) / (to_s - from_s),
            sum(one.disorder for one in publishers),
        )

    def _publish(self, publishers: list[_Publisher], window: Window) -> list[tuple[float, int]]:
        moments = [window.measured_from, window.end]
        marks: list[tuple[float, int]] = []
        with selectors.DefaultSelector() as readable:
            for publisher in publishers:
                readable.register(publisher.connection, selectors.EVENT_READ, publisher)
                publisher.send(self.in_flight)
            while True:
                ready = readable.select(QUIET_S)
                now = time.monotonic()
                if len(marks) < 2 and now >= moments[len(marks)]:
                    marks.append((now, sum(one.acknowledged for one in publishers)))
                over = len(marks) == 2
                if over and (not ready or all(one.acknowledged == one.sent for one in publishers)):
                    return marks
                for key, _ in ready:
                    publisher = key.data
                    count = publisher.receive()
                    if not over:
                        publisher.send(count)


@dataclass(slots=True)
class _Kept:
    """What has arrived on the session's connection."""

    form: Form
    rest: bytes = b""
    found: list[NDArray[np.int64]] = field(default_factory=list)
    count: int = 0

    def take(self, got: bytes) -> bytes:
        """Returns the acknowledgements."""
        got = self.rest + got
        rows = len(got) // self.form.size
        self.rest = got[rows * self.form.size :]
        table = np.frombuffer(got, np.uint8, rows * self.form.size).reshape(rows, self.form.size)
        if ((table[:, 0] & 0xF7) != self.form.message[0]).any():
            raise ValueError("something else than the messages of this run has arrived")
        at = self.form.payload_at
        self.found.append(numbers(table[:, at : at + 8]))
        self.count += rows
        acks = np.empty((rows, PUBACK_BYTES), np.uint8)
        acks[:, :2] = (PUBACK, 2)
        acks[:, 2:] = table[:, at - 2 : at]
        return acks.tobytes()


@dataclass(frozen=True, slots=True)
class Keep:
    """A persistent session that takes part in the run from its start, and is removed after it."""

    port: int
    payload_bytes: int
    mqtt: Mqtt | Far = Mqtt()  # noqa: RUF009 - it is frozen

    def __call__(self, gate: Gate) -> Kept:
        name, mqtt = "assured-subscriber", self.mqtt
        mqtt.connect(self.port, name).close()
        connection = mqtt.subscribe(mqtt.connect(self.port, name, clean=False), [FILTER], qos=1)
        kept = _Kept(Mqtt().published_surely(TOPICS.format(0), self.payload_bytes))
        window = gate.wait()
        marks = self._read(connection, kept, window)
        connection.sendall(packet(0xE0, b""))
        connection.close()
        mqtt.connect(self.port, name).close()
        (from_s, first), (to_s, last) = marks
        different = len(np.unique(np.concatenate(kept.found))) if kept.found else 0
        return Kept(different, (last - first) / (to_s - from_s), kept.count - different)

    @staticmethod
    def _read(connection: socket.socket, kept: _Kept, window: Window) -> list[tuple[float, int]]:
        moments = [window.measured_from, window.end]
        marks: list[tuple[float, int]] = []
        connection.settimeout(QUIET_S)
        while True:
            try:
                got = connection.recv(256 * 1024)
            except TimeoutError:
                got = b""
            now = time.monotonic()
            if len(marks) < 2 and now >= moments[len(marks)]:
                marks.append((now, kept.count))
            if got:
                connection.sendall(kept.take(got))
            elif len(marks) == 2:
                return marks
