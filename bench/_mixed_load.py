"""A mixed load over raw sockets: many topics and sizes in random order, from one writer or many.

Every payload begins with a mark and a number: who wrote it, on which topic, and the how-manieth of that writer it is. A
reader finds the marks in what it has read without looking at packets, so one process counts as fast as brokers write.
All writers are in one process; each has a connection of its own and writes whenever that takes something, so what
holds a writer back is its broker.
"""

import re
import selectors
import socket
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from _crew import Gate
from _wire import Wire

TOPICS = 1_000
SIZES = 16, 256
"""Of a payload in bytes, both included."""
BLOCK_MESSAGES = 400
"""A writer repeats a block of so many messages, of about 64 KiB, with numbers of their own."""
SEND_BUFFER_BYTES = 256 * 1024
"""Of a writer: the kernel would take megabytes of each, and the end of a round would come late."""
READ_BYTES = 256 * 1024
QUIET_S = 3.0
"""A reader that has heard nothing for so long after the end has heard everything."""
DRAINED_WITHIN_S = 40.0
MARK = bytes.fromhex("f5a90d3be6721c84")
NUMBER_BYTES = 8
WRITER_SHIFT, TOPIC_SHIFT, COUNT_MASK = 48, 32, (1 << 32) - 1
_marked = re.compile(re.escape(MARK) + b"(.{%d})" % NUMBER_BYTES, re.DOTALL)


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
    """Messages that came after a later one of the same writer and topic, or twice."""


class Writer:
    """One connection, and the block that it writes again and again."""

    def __init__(self, wire: Wire, port: int, number: int, seed: int) -> None:
        luck = np.random.default_rng([seed, number])
        topics = luck.integers(0, TOPICS, BLOCK_MESSAGES)
        sizes = luck.integers(SIZES[0], SIZES[1] + 1, BLOCK_MESSAGES)
        block = bytearray()
        at: list[int] = []
        self._ends: list[int] = []
        for topic, size in zip(topics, sizes, strict=True):
            form = wire.published(topic_of(int(topic)), int(size))
            start = len(block) + form.payload_at
            block += form.message
            block[start : start + len(MARK)] = MARK
            at.append(start + len(MARK))
            self._ends.append(len(block))
        self._block = np.frombuffer(block, np.uint8)
        self._places = np.array(at)[:, None] + np.arange(NUMBER_BYTES)
        self._who = (number << WRITER_SHIFT) | (topics.astype(np.int64) << TOPIC_SHIFT)
        self._blocks = 0
        self._sent_bytes = len(block)
        self._view = memoryview(b"")
        self.connection = wire.connect(port, f"writer-{number}")
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.connection.setblocking(False)

    @property
    def count(self) -> int:
        """Messages that were handed over whole, or in part: those are finished before the end."""
        if not self._blocks:
            return 0
        before = (self._blocks - 1) * BLOCK_MESSAGES
        return before + int(np.searchsorted(self._ends, self._sent_bytes)) + bool(self._sent_bytes)

    @property
    def blocks_done(self) -> int:
        return self._blocks - (self._sent_bytes < len(self._block))

    def write(self) -> None:
        """As much as the connection takes, at most one block."""
        if self._sent_bytes == len(self._block):
            numbers = self._who | (np.arange(BLOCK_MESSAGES) + self._blocks * BLOCK_MESSAGES)
            self._block[self._places] = numbers.view(np.uint8).reshape(BLOCK_MESSAGES, NUMBER_BYTES)
            self._view = memoryview(self._block.tobytes())
            self._blocks += 1
            self._sent_bytes = 0
        self._sent_bytes += self.connection.send(self._view[self._sent_bytes :])

    def finish(self) -> None:
        """Send the rest of a message that was sent in part, and let the broker read to the end."""
        self.connection.settimeout(DRAINED_WITHIN_S)
        if self._blocks and self._sent_bytes:
            whole = self._ends[int(np.searchsorted(self._ends, self._sent_bytes))]
            self.connection.sendall(self._view[self._sent_bytes : whole])
        self.connection.shutdown(socket.SHUT_WR)


@dataclass(frozen=True, slots=True)
class WriteMixed:
    """Publishes as fast as the broker takes it, from so many connections."""

    wire: Wire
    port: int
    writers: int
    seed: int = 1

    def __call__(self, gate: Gate) -> Written:
        writers = [Writer(self.wire, self.port, number, self.seed) for number in range(self.writers)]
        window = gate.wait()
        with selectors.DefaultSelector() as writable:
            for writer in writers:
                writable.register(writer.connection, selectors.EVENT_WRITE, writer)
            while time.monotonic() < window.end:
                for key, _ in writable.select(0.05):
                    key.data.write()
        for writer in writers:
            writer.finish()
        for writer in writers:
            _read_to_the_end(writer.connection)
        return Written([writer.count for writer in writers])


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
        self._last = np.full(self.writers * TOPICS, -1, np.int64)

    def take(self, data: bytes) -> int:
        """Count what is in some more bytes; how many messages began in them."""
        data = self._rest + data
        found = _marked.findall(data)
        if not found:
            self._rest = data[1 - len(MARK) - NUMBER_BYTES :]
            return 0
        end = data.rfind(MARK + found[-1]) + len(MARK) + NUMBER_BYTES
        self._rest = data[max(end, len(data) - len(MARK) - NUMBER_BYTES + 1) :]
        numbers = np.frombuffer(b"".join(found), np.int64)
        writers = numbers >> WRITER_SHIFT
        self.counts += np.bincount(writers, minlength=self.writers)
        lanes = writers * TOPICS + ((numbers >> TOPIC_SHIFT) & 0xFFFF)
        order = np.argsort(lanes, kind="stable")
        lanes, counts = lanes[order], (numbers & COUNT_MASK)[order]
        is_first = np.concatenate(([True], lanes[1:] != lanes[:-1]))
        before = np.where(is_first, self._last[lanes], np.concatenate(([-1], counts[:-1])))
        self.disorder += int((counts <= before).sum())
        is_last = np.concatenate((is_first[1:], [True]))
        self._last[lanes[is_last]] = np.maximum(self._last[lanes[is_last]], counts[is_last])
        return len(found)


@dataclass(frozen=True, slots=True)
class ReadMixed:
    """Subscribes to everything of the run, and counts what arrives until it is quiet."""

    wire: Wire
    port: int
    writers: int

    def __call__(self, gate: Gate) -> Read:
        connection = self.wire.connect(self.port, "subscriber")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        connection = self.wire.subscribe(connection, [EVERYTHING])
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
