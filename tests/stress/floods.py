"""Clients that go too far: one never reads, another never stops; and one beside them that reads all there is."""

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import msgspec

KEEN = Path(__file__).parent / "keen.py"
PUBLISHER_SHIFT = 48
SMALL_BUFFER_BYTES = 4_096
BURST = 64
"""Messages written at once."""
PATIENCE_S = 60.0
IDS = 65_535
ACK_BYTES = 4

_number = Struct("!Q").pack_into
_id = Struct("!H").pack_into


def connected(port: int, client: str, *, buffer_bytes: int | None = None, clean: bool = True) -> socket.socket:
    """The line of a client of MQTT 3.1.1 that has been let in."""
    line = socket.socket()
    if buffer_bytes is not None:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    line.settimeout(PATIENCE_S)
    line.connect(("127.0.0.1", port))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    name = client.encode()
    head = b"\0\4MQTT\4" + bytes((2 if clean else 0, 0, 0)) + len(name).to_bytes(2) + name
    line.sendall(bytes((0x10, len(head))) + head)
    assert line.recv(4) == b"\x20\x02\0\0"
    return line


def subscribed(line: socket.socket, topic: str, qos: int) -> None:
    wanted = topic.encode()
    asked = b"\0\1" + len(wanted).to_bytes(2) + wanted + bytes((qos,))
    line.sendall(bytes((0x82, len(asked))) + asked)
    assert line.recv(5) == b"\x90\x03\0\1" + bytes((qos,))


class Heard(msgspec.Struct, frozen=True):
    """What a keen subscriber has heard of the publishers' messages."""

    count: int
    missing: int = 0
    backward: int = 0


class Keen:
    """A subscriber that reads everything, in a process of its own."""

    def __init__(self, port: int, client: str, topic: str, qos: int) -> None:
        command = [sys.executable, str(KEEN), str(port), client, topic, str(qos)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self) -> "Keen":
        assert self._hear() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def heard(self, wanted: int) -> Heard:
        """What it has heard, when that are so many messages or there are no more."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"%d\n" % wanted)
        self._process.stdin.flush()
        return msgspec.convert(self._hear(), Heard)

    def _hear(self) -> object:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        line = self._process.stdout.readline() if readable else b""
        if not line:
            self._process.kill()
            _, error = self._process.communicate()
            raise AssertionError(f"the keen subscriber came to harm: {error.decode()}")
        heard: object = json.loads(line)
        return heard


class Flood:
    """A publisher that writes as fast as the broker takes it. It reads acknowledgements only when told to."""

    def __init__(self, port: int, client: str, topic: str, qos: int, payload_bytes: int, publisher: int = 0) -> None:
        self.line = connected(port, client)
        self.sent = self._acknowledged_bytes = 0
        self._publisher = publisher << PUBLISHER_SHIFT
        self._qos = qos
        name = topic.encode()
        body = len(name).to_bytes(2) + name + (b"\0\0" if qos else b"") + bytes(payload_bytes)
        assert 0x80 <= len(body) < 0x4000
        length = bytes((len(body) & 0x7F | 0x80, len(body) >> 7))
        message = bytes((0x30 | qos << 1,)) + length + body
        self._message_bytes = len(message)
        self._payload_at = len(message) - payload_bytes
        self._burst = bytearray(message * BURST)

    def pour(self, messages: int) -> None:
        """So many more, or somewhat more than that; nothing is read."""
        for _ in range(-(-messages // BURST)):
            self.line.sendall(self._next())

    def settle(self, owed: int = 0) -> None:
        """Read acknowledgements until no more than so many are owed."""
        while self.sent - self._acknowledged_bytes // ACK_BYTES > owed:
            data = self.line.recv(65_536)
            assert data, "cut off"
            self._acknowledged_bytes += len(data)

    def pour_until_blocked(self, quiet_s: float = 2.0, bytes_max: int = 1 << 30) -> Iterator[int]:
        """Write without reading, until the broker takes no more for a while; how much it took, now and then."""
        taken_bytes, rest = 0, memoryview(b"")
        self.line.setblocking(False)
        taken_s = time.monotonic()
        while taken_bytes < bytes_max and time.monotonic() - taken_s < quiet_s:
            rest = rest or memoryview(bytes(self._next()))
            try:
                taken = self.line.send(rest)
            except BlockingIOError:
                select.select([], [self.line], [], 0.1)
                yield taken_bytes
                continue
            taken_s = time.monotonic()
            rest = rest[taken:]
            taken_bytes += taken
        self.line.settimeout(PATIENCE_S)

    def close(self) -> None:
        self.line.close()

    def _next(self) -> bytearray:
        burst, at = self._burst, self._payload_at
        for _ in range(BURST):
            _number(burst, at, self._publisher | self.sent)
            if self._qos:
                _id(burst, at - 2, self.sent % IDS + 1)
            self.sent += 1
            at += self._message_bytes
        return burst
