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


TOPIC_ALIAS_MAXIMUM = 0x22
TOPIC_ALIAS = 0x23
CORRELATION = bytes.fromhex("09 0008") + bytes(8)
_PROPERTY_BYTES = {0x11: 4, 0x13: 2, 0x21: 2, 0x22: 2, 0x24: 1, 0x25: 1, 0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1}
"""Of those properties of CONNACK that have a fixed size; those that have not are not sent by the brokers here."""


@dataclass(frozen=True, slots=True)
class Mqtt5(Mqtt):
    """MQTT 5, with these properties in each message, and with topic aliases where they are asked for.

    Messages that correlate have Correlation Data of eight bytes, right before the payload, for the load to fill in.
    """

    properties: bytes = b""
    has_aliases: bool = False
    correlates: bool = False

    def connect(self, port: int, client: str, *, clean: bool = True) -> socket.socket:
        connection = _connection(port)
        flags = 0x02 if clean else 0x00
        connection.sendall(packet(0x10, _text("MQTT") + bytes([5, flags, 0, 0, 0]) + _text(client)))
        head = connection.recv(2, socket.MSG_PEEK | socket.MSG_WAITALL)
        answer = connection.recv(2 + head[1], socket.MSG_PEEK | socket.MSG_WAITALL)
        if answer[0] != 0x20 or answer[3] != 0:
            raise ConnectionError(f"CONNECT was answered with {answer.hex(' ')}")
        if not self.has_aliases:
            read_exactly(connection, len(answer))
        return connection

    def aliases(self, connection: socket.socket) -> "Aliases":
        """Of a connection that was just opened: as many as the broker allows."""
        if not self.has_aliases:
            return Aliases(self, 0)
        head = connection.recv(2, socket.MSG_PEEK)
        answer = read_exactly(connection, 2 + head[1])
        at, allowed = 5, 0  # behind type, length, flags, reason and the length of the properties
        while at < len(answer):
            size = _PROPERTY_BYTES.get(answer[at])
            if size is None:  # a text
                size = 2 + int.from_bytes(answer[at + 1 : at + 3])
            elif answer[at] == TOPIC_ALIAS_MAXIMUM:
                allowed = int.from_bytes(answer[at + 1 : at + 3])
            at += 1 + size
        return Aliases(self, allowed)

    def subscribe(self, connection: socket.socket, filters: Sequence[str], *, qos: int = 0) -> socket.socket:
        if self.has_aliases:
            self.aliases(connection)  # reads what was left of the answer to CONNECT
        connection.sendall(packet(0x82, b"\0\1\0" + b"".join(_text(one) + bytes([qos]) for one in filters)))
        answer = read_exactly(connection, 5 + len(filters))
        if answer[0] != 0x90 or any(code > 2 for code in answer[-len(filters) :]):
            raise ConnectionError(f"SUBSCRIBE was answered with {answer[:16].hex(' ')}")
        return connection

    def published(self, topic: str, payload_bytes: int) -> Form:
        return self.with_properties(topic, self.properties, payload_bytes)

    def with_properties(self, topic: str, properties: bytes, payload_bytes: int) -> Form:
        if self.correlates:
            properties += CORRELATION
        whole = packet(0x30, _text(topic) + bytes([len(properties)]) + properties + bytes(payload_bytes))
        return Form(whole, len(whole) - payload_bytes)


class Aliases:
    """The topic aliases of one connection: the first message of a topic makes one known, later ones have it alone."""

    def __init__(self, mqtt: Mqtt5, allowed: int) -> None:
        self._mqtt = mqtt
        self._allowed = allowed
        self._known: dict[str, int] = {}

    def published(self, topic: str, payload_bytes: int) -> Form:
        alias = self._known.get(topic)
        is_known = alias is not None
        if alias is None:
            if len(self._known) == self._allowed:
                return self._mqtt.published(topic, payload_bytes)
            alias = self._known[topic] = len(self._known) + 1
        properties = self._mqtt.properties + bytes([TOPIC_ALIAS]) + alias.to_bytes(2)
        return self._mqtt.with_properties("" if is_known else topic, properties, payload_bytes)


@dataclass(frozen=True, slots=True)
class Nats:
    """The text protocol of NATS, without the verbose answers; with these headers in each message."""

    headers: bytes = b""

    @property
    def between(self) -> tuple[bytes, bytes]:
        return b"PING\r\n", b"PONG\r\n"

    def connect(self, port: int, client: str, *, clean: bool = True) -> socket.socket:
        del clean  # there are no sessions
        connection = _connection(port)
        while read_exactly(connection, 1) != b"\n":
            pass  # INFO {...}
        connection.sendall(
            b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"name":"%s"}\r\n' % client.encode()
        )
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
        if self.headers:
            sizes = len(self.headers), len(self.headers) + payload_bytes
            head = b"HPUB %s %d %d\r\n" % (_subject(topic), *sizes) + self.headers
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
