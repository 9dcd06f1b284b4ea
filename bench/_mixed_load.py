"""A mixed load over raw sockets: many topics and sizes in random order, from one writer or many.

Every payload begins with a mark and a number: who wrote it, on which topic, and the how-manieth of that writer it is
(of a paced load, when it was sent). A reader finds the marks in what it has read without looking at packets, so one
process counts as fast as brokers write. All writers are in one process; each has a connection of its own and writes
whenever that takes something, so what holds a writer back is its broker.

Some of the messages may be of QoS 1 (`assured`): a writer then has no more of them unacknowledged than a few blocks
have, and the reader acknowledges what it gets. Packet identifiers are the two bytes ahead of the payload (MQTT 3.1.1).
"""

import re
import selectors
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from _crew import Gate
from _load import Latencies
from _wire import Form, Mqtt, Mqtt5, Wire

TOPICS = 1_000
SIZES = 16, 256
"""Of a payload in bytes, both included."""
BLOCK_MESSAGES = 400
"""A writer repeats a block of so many messages, of about 64 KiB, with numbers of their own."""
BLOCKS_IN_FLIGHT = 4
"""As many messages of QoS 1 as so many blocks have may be unacknowledged when another block is begun."""
PACED_FORMS = 4_000
"""Different messages of a paced load."""
SEND_BUFFER_BYTES = 256 * 1024
"""Of a writer: the kernel would take megabytes of each, and the end of a round would come late."""
READ_BYTES = 256 * 1024
QUIET_S = 3.0
"""A reader that has heard nothing for so long after the end has heard everything."""
DRAINED_WITHIN_S = 40.0
MARK = bytes.fromhex("f5a90d3be6721c84")
NUMBER_BYTES = 8
WRITER_SHIFT, TOPIC_SHIFT, COUNT_MASK = 48, 32, (1 << 32) - 1
ASSURED_SHIFT = 62
ASSURED = 1 << ASSURED_SHIFT
"""In a number: the message is of QoS 1."""
IDENTIFIERS = 0xFFFF
PUBACK = b"\x40\x02"
PUBACK_BYTES = 4
_marked = re.compile(re.escape(MARK) + b"(.{%d})" % NUMBER_BYTES, re.DOTALL)
_identified = re.compile(b"(..)" + re.escape(MARK) + b".{%d}" % (NUMBER_BYTES - 1) + b"[\x40-\x7f]", re.DOTALL)
"""Of QoS 1: the last byte of the number, which is in little-endian order, has the bit."""


def topic_of(number: int) -> str:
    return f"plant/{number % 20}/machine/{number}/state"


EVERYTHING = "plant/+/machine/+/state"


@dataclass(frozen=True, slots=True)
class Written:
    """Messages that each writer has handed to its connection."""

    counts: list[int]


@dataclass(frozen=True, slots=True)
class Read:
    counts: list[int]
    """Messages that have arrived, by writer."""
    per_second: float
    disorder: int
    """Messages that came after a later one of the same writer, topic and QoS, or twice."""


@dataclass(frozen=True, slots=True)
class Block:
    """Messages in memory, and where their numbers and packet identifiers are."""

    bytes: NDArray[np.uint8]
    ends: list[int]
    numbers_at: NDArray[np.int64]
    identifiers_at: NDArray[np.int64]


def _block(forms: list[Form], is_assured: NDArray[np.bool_]) -> Block:
    whole = bytearray()
    starts: list[int] = []
    ends: list[int] = []
    for form in forms:
        start = len(whole) + form.payload_at
        whole += form.message
        whole[start : start + len(MARK)] = MARK
        starts.append(start)
        ends.append(len(whole))
    payloads = np.array(starts)[:, None]
    return Block(
        np.frombuffer(whole, np.uint8),
        ends,
        payloads + len(MARK) + np.arange(NUMBER_BYTES),
        payloads[is_assured] - 2 + np.arange(2),
    )


class Writer:
    """One connection, and the block that it writes again and again.

    Of topic aliases, the first block makes as many known as the broker allows, and the others use them.
    """

    def __init__(self, wire: Wire, port: int, number: int, seed: int, assured: float = 0.0) -> None:
        self.connection = wire.connect(port, f"writer-{number}")
        luck = np.random.default_rng([seed, number])
        topics = luck.integers(0, TOPICS, BLOCK_MESSAGES)
        sizes = luck.integers(SIZES[0], SIZES[1] + 1, BLOCK_MESSAGES)
        is_assured = luck.random(BLOCK_MESSAGES) < assured
        surely = Mqtt().published_surely
        aliases = wire.aliases(self.connection) if isinstance(wire, Mqtt5) else None
        first, later = (
            [
                (surely if sure else aliases.published if aliases is not None else wire.published)(
                    topic_of(int(topic)), int(size)
                )
                for topic, size, sure in zip(topics, sizes, is_assured, strict=True)
            ]
            for _ in range(2)
        )
        self._first, self._later = _block(first, is_assured), _block(later, is_assured)
        self._at_hand = self._first
        self._correlates = isinstance(wire, Mqtt5) and wire.correlates
        self._assured = int(is_assured.sum())
        self._who = (number << WRITER_SHIFT) | (topics.astype(np.int64) << TOPIC_SHIFT) | (is_assured * ASSURED)
        self._blocks = 0
        self._sent_bytes = len(self._first.bytes)
        self._unacknowledged = 0.0
        self.waits = False
        """Whether it needs acknowledgements before it writes on."""
        self._view = memoryview(b"")
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.connection.setblocking(False)

    @property
    def count(self) -> int:
        """Messages that were handed over whole, or in part: those are finished before the end."""
        if not self._blocks:
            return 0
        before = (self._blocks - 1) * BLOCK_MESSAGES
        return before + int(np.searchsorted(self._at_hand.ends, self._sent_bytes)) + bool(self._sent_bytes)

    @property
    def blocks_done(self) -> int:
        return self._blocks - (self._sent_bytes < len(self._at_hand.bytes))

    def write(self) -> None:
        """As much as the connection takes, at most one block."""
        if self._sent_bytes == len(self._at_hand.bytes):
            if self._assured and not self._may_go_on():
                return
            block = self._at_hand = self._later if self._blocks else self._first
            numbers = self._who | (np.arange(BLOCK_MESSAGES) + self._blocks * BLOCK_MESSAGES)
            digits = numbers.view(np.uint8).reshape(BLOCK_MESSAGES, NUMBER_BYTES)
            block.bytes[block.numbers_at] = digits
            if self._correlates:
                block.bytes[block.numbers_at - len(MARK) - NUMBER_BYTES] = digits
            if self._assured:
                following = np.arange(self._assured) + self._blocks * self._assured
                identifiers = (following % IDENTIFIERS + 1).astype(">u2")
                block.bytes[block.identifiers_at] = identifiers.view(np.uint8).reshape(self._assured, 2)
                self._unacknowledged += self._assured
            self._view = memoryview(block.bytes.tobytes())
            self._blocks += 1
            self._sent_bytes = 0
        self._sent_bytes += self.connection.send(self._view[self._sent_bytes :])

    def _may_go_on(self) -> bool:
        """Read acknowledgements. A part of one counts with the next read: what is left over is less than one."""
        with suppress(BlockingIOError):
            self._unacknowledged -= len(self.connection.recv(READ_BYTES)) / PUBACK_BYTES
        self.waits = self._unacknowledged > BLOCKS_IN_FLIGHT * self._assured
        return not self.waits

    def finish(self) -> None:
        """Send the rest of a message that was sent in part, and let the broker read to the end."""
        self.connection.settimeout(DRAINED_WITHIN_S)
        if self._blocks and self._sent_bytes:
            whole = self._at_hand.ends[int(np.searchsorted(self._at_hand.ends, self._sent_bytes))]
            self.connection.sendall(self._view[self._sent_bytes : whole])
        self.connection.shutdown(socket.SHUT_WR)


@dataclass(frozen=True, slots=True)
class WriteMixed:
    """Publishes as fast as the broker takes it, from so many connections."""

    wire: Wire
    port: int
    writers: int
    assured: float = 0.0
    """The share of QoS 1."""
    seed: int = 1

    def __call__(self, gate: Gate) -> Written:
        writers = [Writer(self.wire, self.port, number, self.seed, self.assured) for number in range(self.writers)]
        window = gate.wait()
        with selectors.DefaultSelector() as writable:
            for writer in writers:
                writable.register(writer.connection, selectors.EVENT_WRITE, writer)
            while time.monotonic() < window.end:
                for key, _ in writable.select(0.05):
                    writer = key.data
                    writer.write()
                    wanted = selectors.EVENT_READ if writer.waits else selectors.EVENT_WRITE
                    if wanted != key.events:
                        writable.modify(writer.connection, wanted, writer)
        for writer in writers:
            writer.finish()
        for writer in writers:
            _read_to_the_end(writer.connection)
        return Written([writer.count for writer in writers])


def marks_in(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where marks are that have their numbers behind them, and these numbers. By numpy, in a third of the time of a
    regular expression: a reader that is slower than the broker would measure itself."""
    starts = len(data) - len(MARK) - NUMBER_BYTES + 1
    if starts <= 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    read = np.frombuffer(data, np.uint8)
    places = np.flatnonzero(read[:starts] == MARK[0])
    for offset in (1, 2):  # leaves nearly nothing else over
        places = places[read[places + offset] == MARK[offset]]
    eights = np.ndarray((len(data) - NUMBER_BYTES + 1,), np.int64, data, strides=(1,))
    places = places[eights[places] == int.from_bytes(MARK, "little", signed=True)]
    return places, eights[places + len(MARK)]


@dataclass(slots=True)
class Marks:
    """What was read, by writer."""

    writers: int
    counts: NDArray[np.int64] = field(init=False)
    disorder: int = 0
    _last: NDArray[np.int64] = field(init=False)
    _rest: bytes = b""

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.writers, np.int64)
        self._last = np.full(2 * self.writers * TOPICS, -1, np.int64)

    def take(self, data: bytes) -> int:
        """Count what is in some more bytes; how many messages began in them."""
        data = self._rest + data
        places, numbers = marks_in(data)
        if not len(places):
            self._rest = data[1 - len(MARK) - NUMBER_BYTES :]
            return 0
        end = int(places[-1]) + len(MARK) + NUMBER_BYTES
        self._rest = data[max(end, len(data) - len(MARK) - NUMBER_BYTES + 1) :]
        writers = (numbers & ~ASSURED) >> WRITER_SHIFT
        self.counts += np.bincount(writers, minlength=self.writers)
        lanes = 2 * (writers * TOPICS + ((numbers >> TOPIC_SHIFT) & 0xFFFF)) + (numbers >> ASSURED_SHIFT)
        order = np.argsort(lanes, kind="stable")
        lanes, counts = lanes[order], (numbers & COUNT_MASK)[order]
        is_first = np.concatenate(([True], lanes[1:] != lanes[:-1]))
        before = np.where(is_first, self._last[lanes], np.concatenate(([-1], counts[:-1])))
        self.disorder += int((counts <= before).sum())
        is_last = np.concatenate((is_first[1:], [True]))
        self._last[lanes[is_last]] = np.maximum(self._last[lanes[is_last]], counts[is_last])
        return len(places)


@dataclass(slots=True)
class Answers:
    """The acknowledgements of messages of QoS 1, found as marks are."""

    _rest: bytes = b""

    def to(self, data: bytes) -> bytes:
        data = self._rest + data
        answers: list[bytes] = []
        end = 0
        for found in _identified.finditer(data):
            answers.append(PUBACK + found[1])
            end = found.end()
        self._rest = data[max(end, len(data) - len(MARK) - NUMBER_BYTES - 1) :]
        return b"".join(answers)


@dataclass(frozen=True, slots=True)
class PaceMixed:
    """Publishes at an even rate, one message at a time, from all connections in turn."""

    wire: Wire
    port: int
    writers: int
    per_second: int
    seed: int = 1

    def __call__(self, gate: Gate) -> Written:
        luck = np.random.default_rng(self.seed)
        drawn = zip(luck.integers(0, TOPICS, PACED_FORMS), luck.integers(*SIZES, PACED_FORMS), strict=True)
        forms = [self.wire.published(topic_of(int(topic)), int(size)) for topic, size in drawn]
        messages = [(bytearray(form.message), form.payload_at) for form in forms]
        for message, at in messages:
            message[at : at + len(MARK)] = MARK
        connections = [self.wire.connect(self.port, f"pacer-{number}") for number in range(self.writers)]
        window = gate.wait()
        sent, interval_s = 0, 1 / self.per_second
        while (due := window.start + sent * interval_s) < window.end:
            ahead_s = due - time.monotonic()
            if ahead_s > 0:
                time.sleep(ahead_s)
            message, at = messages[sent % PACED_FORMS]
            at += len(MARK)
            message[at : at + NUMBER_BYTES] = time.monotonic_ns().to_bytes(NUMBER_BYTES, "little")
            connections[sent % self.writers].sendall(message)
            sent += 1
        for connection in connections:
            connection.shutdown(socket.SHUT_WR)
        for connection in connections:
            _read_to_the_end(connection)
        return Written([sent])


@dataclass(frozen=True, slots=True)
class ClockMixed:
    """Tells how long each message of a paced load was under way."""

    wire: Wire
    port: int

    def __call__(self, gate: Gate) -> Latencies:
        connection = self.wire.subscribe(self.wire.connect(self.port, "subscriber"), [EVERYTHING])
        ask, answer = self.wire.between
        window = gate.wait()
        connection.settimeout(QUIET_S)
        sent: list[bytes] = []
        arrived: list[int] = []
        rest = b""
        while True:
            try:
                data = connection.recv(READ_BYTES)
            except TimeoutError:
                if time.monotonic() > window.end:
                    break
                continue
            now_ns = time.monotonic_ns()
            if not data:
                break
            if ask and ask in data:
                connection.sendall(answer)
            data = rest + data
            end = 0
            for found in _marked.finditer(data):
                sent.append(found[1])
                arrived.append(now_ns)
                end = found.end()
            rest = data[max(end, len(data) - len(MARK) - NUMBER_BYTES + 1) :]
        connection.close()
        return Latencies(b"".join(sent), np.array(arrived, np.int64).tobytes(), int(window.measured_from * 1e9))


@dataclass(frozen=True, slots=True)
class ReadMixed:
    """Subscribes to everything of the run, and counts what arrives until it is quiet."""

    wire: Wire
    port: int
    writers: int
    qos: int = 0

    def __call__(self, gate: Gate) -> Read:
        connection = self.wire.connect(self.port, "subscriber")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        connection = self.wire.subscribe(connection, [EVERYTHING], qos=self.qos)
        answers = Answers()
        ask, answer = self.wire.between
        marks = Marks(self.writers)
        window = gate.wait()
        connection.settimeout(QUIET_S)
        counted = 0
        counted_to = window.measured_from
        while True:
            try:
                data = connection.recv(READ_BYTES)
            except TimeoutError:
                if time.monotonic() > window.end:
                    break
                continue
            if not data:
                break
            if ask and ask in data:
                connection.sendall(answer)
            if self.qos:
                connection.sendall(answers.to(data))
            came = marks.take(data)
            now = time.monotonic()
            if window.measured_from <= now <= window.end:
                counted += came
                counted_to = now
        connection.close()
        per_second = counted / max(1e-9, counted_to - window.measured_from)
        return Read(marks.counts.tolist(), per_second, marks.disorder)


def _read_to_the_end(connection: socket.socket) -> None:
    connection.settimeout(DRAINED_WITHIN_S)
    try:
        while connection.recv(4096):
            pass
    except OSError:
        pass
    connection.close()
