"""The bytes that the load of the benchmarks is made of: MQTT 3.1.1, NATS, and bare messages without a broker.

A `Wire` opens connections, subscribes, and says what one message looks like when it is published and when it is
delivered. All messages of a run have the same form, so a publisher writes many of them at once from memory that was
prepared, and a subscriber finds them in what it has read by their size alone; the first eight bytes of each payload
carry a number that tells whether they are all there.
"""

import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

HOST = "127.0.0.1"
PATIENCE_S = 20.0
"""For an answer to a handshake; nothing that is measured waits for it."""
FILTERS_PER_PACKET = 100
PROBE_BYTES = 8
PROBE_EVERY_S = 0.05
PROBES_OVER_S = 0.5
"""When nothing has come for so long, no probe is under way any more."""
REACHED_WITHIN_S = 40.0


@dataclass(frozen=True, slots=True)
class Form:
    """One message on the wire: its bytes, and where the payload starts in them."""

    message: bytes
    payload_at: int

    @property
    def size(self) -> int:
        return len(self.message)


class Wire(Protocol):
    """How to talk to a broker, in as much as a measurement needs it."""

    @property
    def between(self) -> tuple[bytes, bytes]:
        """What the broker may send between messages, and the answer it wants; empty if nothing."""

    def connect(self, port: int, client: str, *, clean: bool = True) -> socket.socket: ...

    def subscribe(self, connection: socket.socket, filters: Sequence[str], *, qos: int = 0) -> socket.socket:
        """Returns the connection on which messages arrive."""

    def published(self, topic: str, payload_bytes: int) -> Form: ...

    def delivered(self, topic: str, payload_bytes: int) -> Form: ...


@dataclass(frozen=True, slots=True)
class Mqtt:
    """MQTT 3.1.1, with keep-alive off."""

    @property
    def between(self) -> tuple[bytes, bytes]:
        return b"", b""

    def connect(self, port: int, client: str, *, clean: bool = True) -> socket.socket:
        connection = _connection(port)
        flags = 0x02 if clean else 0x00
        connection.sendall(packet(0x10, _text("MQTT") + bytes([4, flags, 0, 0]) + _text(client)))
        answer = read_exactly(connection, 4)
        if answer[0] != 0x20 or answer[3] != 0:
            raise ConnectionError(f"CONNECT was answered with {answer.hex(' ')}")
        return connection

    def subscribe(self, connection: socket.socket, filters: Sequence[str], *, qos: int = 0) -> socket.socket:
        for start in range(0, len(filters), FILTERS_PER_PACKET):
            some = filters[start : start + FILTERS_PER_PACKET]
            connection.sendall(packet(0x82, b"\0\1" + b"".join(_text(one) + bytes([qos]) for one in some)))
            answer = read_exactly(connection, len(packet(0x90, bytes(2 + len(some)))))
            if answer[0] != 0x90 or any(code > 2 for code in answer[-len(some) :]):
                raise ConnectionError(f"SUBSCRIBE was answered with {answer[:16].hex(' ')}")
        return connection

    def published(self, topic: str, payload_bytes: int) -> Form:
        whole = packet(0x30, _text(topic) + bytes(payload_bytes))
        return Form(whole, len(whole) - payload_bytes)

    def delivered(self, topic: str, payload_bytes: int) -> Form:
        return self.published(topic, payload_bytes)

    def published_surely(self, topic: str, payload_bytes: int) -> Form:
        """At QoS 1: the packet identifier is the two bytes before the payload."""
        whole = packet(0x32, _text(topic) + bytes(2 + payload_bytes))
        return Form(whole, len(whole) - payload_bytes)


@dataclass(frozen=True, slots=True)
class Nats:
    """The text protocol of NATS, without the verbose answers."""

    @property
    def between(self) -> tuple[bytes, bytes]:
        return b"PING\r\n", b"PONG\r\n"

    def connect(self, port: int, client: str, *, clean: bool = True) -> socket.socket:
        del clean  # there are no sessions
        connection = _connection(port)
        while read_exactly(connection, 1) != b"\n":
            pass  # INFO {...}
        connection.sendall(b'CONNECT {"verbose":false,"pedantic":false,"name":"%s"}\r\n' % client.encode())
        self._settled(connection)
        return connection

    def subscribe(self, connection: socket.socket, filters: Sequence[str], *, qos: int = 0) -> socket.socket:
        if qos:
            raise ValueError("NATS has no QoS")
        connection.sendall(
            b"".join(b"SUB %s %d\r\n" % (_subject(one), number) for number, one in enumerate(filters, 1))
        )
        self._settled(connection)
        return connection

    def published(self, topic: str, payload_bytes: int) -> Form:
        head = b"PUB %s %d\r\n" % (_subject(topic), payload_bytes)
        return Form(head + bytes(payload_bytes) + b"\r\n", len(head))

    def delivered(self, topic: str, payload_bytes: int) -> Form:
        head = b"MSG %s 1 %d\r\n" % (_subject(topic), payload_bytes)
        return Form(head + bytes(payload_bytes) + b"\r\n", len(head))

    @staticmethod
    def _settled(connection: socket.socket) -> None:
        connection.sendall(b"PING\r\n")
        answer = b""
        while not answer.endswith(b"PONG\r\n"):
            answer += read_exactly(connection, 1)
            if b"-ERR" in answer and answer.endswith(b"\r\n"):
                raise ConnectionError(answer.decode().strip())
            if answer.endswith(b"PING\r\n"):
                connection.sendall(b"PONG\r\n")


@dataclass(frozen=True, slots=True)
class Bare:
    """No broker: the subscriber listens, the publisher connects to it. What the load itself can do."""

    @property
    def between(self) -> tuple[bytes, bytes]:
        return b"", b""

    def connect(self, port: int, client: str, *, clean: bool = True) -> socket.socket:
        del clean
        if client.startswith("subscriber"):
            return socket.create_server((HOST, port))
        patience_ends = time.monotonic() + PATIENCE_S
        while True:
            try:
                return _connection(port)
            except ConnectionRefusedError:
                if time.monotonic() > patience_ends:
                    raise
                time.sleep(0.02)

    def subscribe(self, connection: socket.socket, filters: Sequence[str], *, qos: int = 0) -> socket.socket:
        del filters, qos
        connection.settimeout(PATIENCE_S)
        with connection:
            return connection.accept()[0]

    def published(self, topic: str, payload_bytes: int) -> Form:
        return Mqtt().published(topic, payload_bytes)

    def delivered(self, topic: str, payload_bytes: int) -> Form:
        return Mqtt().published(topic, payload_bytes)


@dataclass(frozen=True, slots=True)
class Far:
    """Subscribers here, publishers at another broker: who has subscribed waits until what is published there arrives.

    A first message that arrives proves that the brokers are connected and that the subscription is known where it has
    to be. Nothing of it is left when the connection is handed over.
    """

    wire: Wire
    publishing_port: int

    @property
    def between(self) -> tuple[bytes, bytes]:
        return self.wire.between

    def connect(self, port: int, client: str, *, clean: bool = True) -> socket.socket:
        return self.wire.connect(port, client, clean=clean)

    def subscribe(self, connection: socket.socket, filters: Sequence[str], *, qos: int = 0) -> socket.socket:
        connection = self.wire.subscribe(connection, filters, qos=qos)
        probe = self.wire.published(filters[0].replace("+", "probe"), PROBE_BYTES).message
        patience_s = connection.gettimeout()
        patience_ends = time.monotonic() + REACHED_WITHIN_S
        connection.settimeout(PROBE_EVERY_S)
        with self.wire.connect(self.publishing_port, "probing") as publishing:
            while not self._is_anything_there(connection):
                if time.monotonic() > patience_ends:
                    raise ConnectionError(f"nothing from the other broker has arrived within {REACHED_WITHIN_S:g} s")
                publishing.sendall(probe)
        connection.settimeout(PROBES_OVER_S)
        while self._is_anything_there(connection):
            pass
        connection.settimeout(patience_s)
        return connection

    def _is_anything_there(self, connection: socket.socket) -> bool:
        ask, answer = self.between
        try:
            got = connection.recv(64 * 1024)
        except TimeoutError:
            return False
        if not got:
            raise ConnectionError("the broker has closed the connection")
        if ask and ask in got:
            connection.sendall(answer)
            got = got.replace(ask, b"")
        return bool(got)

    def published(self, topic: str, payload_bytes: int) -> Form:
        return self.wire.published(topic, payload_bytes)

    def delivered(self, topic: str, payload_bytes: int) -> Form:
        return self.wire.delivered(topic, payload_bytes)


def packet(first: int, body: bytes) -> bytes:
    """An MQTT packet: type and flags, the length of the rest in groups of seven bits, the rest."""
    length, left = bytearray(), len(body)
    while True:
        left, group = left >> 7, left & 0x7F
        length.append(group | (0x80 if left else 0))
        if not left:
            return bytes([first]) + bytes(length) + body


def read_exactly(connection: socket.socket, wanted_bytes: int) -> bytes:
    found = b""
    while len(found) < wanted_bytes:
        more = connection.recv(wanted_bytes - len(found))
        if not more:
            raise ConnectionError("the broker has closed the connection")
        found += more
    return found


def _connection(port: int) -> socket.socket:
    connection = socket.create_connection((HOST, port), timeout=PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _subject(topic: str) -> bytes:
    return topic.replace("/", ".").replace("#", ">").replace("+", "*").encode()
