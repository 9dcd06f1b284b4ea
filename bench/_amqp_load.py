"""The load of bench/amqp.py: clients of AMQP 1.0 over raw sockets, which send and take as fast as they can.

The writer sends messages that are not settled, as far as it has credit, and counts the outcomes. The reader gives
credit and accepts what came with every read in one frame. Both run as processes of their own.
"""

import socket
import time

from overlane.amqp.codec import composites
from overlane.amqp.codec.framing import PROTOCOL, PROTOCOL_BYTES, SASL_FRAME, SASL_PROTOCOL, Framer, frame_of
from overlane.amqp.codec.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Disposition,
    Flow,
    Open,
    SaslInit,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)

WINDOW = 2**31 - 1
CREDIT = 1_000
READ_BYTES = 256 * 1024
TRANSFER = b"\x00\x53\x14"


class Client:
    """Opened, with a session on channel 0."""

    def __init__(self, port: int, container: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.framer = Framer(1 << 20)
        self.socket.sendall(SASL_PROTOCOL + frame_of(0, SaslInit("PLAIN", b"\0guest\0guest"), SASL_FRAME))
        self._header()
        self.wait(SaslOutcome)
        self.socket.sendall(PROTOCOL + frame_of(0, Open(container, max_frame_size=65_536, channel_max=0)))
        self._header()
        self.wait(Open)
        self.say(Begin(None, 0, WINDOW, WINDOW))
        self.wait(Begin)

    def _header(self) -> None:
        while self.framer.waiting_bytes < PROTOCOL_BYTES:
            self.framer.feed(self.socket.recv(PROTOCOL_BYTES - self.framer.waiting_bytes))
        self.framer.take_protocol()

    def say(self, performative: object) -> None:
        self.socket.sendall(frame_of(0, performative))

    def read(self) -> list[bytes]:
        """The bodies of the frames that one read has made whole."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("closed by the broker")
        self.framer.feed(data)
        found = []
        while (taken := self.framer.take_frame()) is not None:
            if taken[2]:
                found.append(taken[2])
        return found

    def wait(self, kind: type) -> object:
        while True:
            for body in self.read():
                performative, _ = composites.read(body, 0)
                if isinstance(performative, kind):
                    return performative


def write(port: int, address: str, seconds: float, rate: float, size_bytes: int) -> dict[str, float]:
    """`rate`: messages a second, 0 for as many as possible. How many were sent and accepted, and the time it took."""
    client = Client(port, "writer")
    client.say(Attach("w", 0, SENDER, 0, 0, Source("writer"), Target(address), initial_delivery_count=0))
    credit, sent, accepted = 0, 0, 0
    begun = time.monotonic()
    filler = bytes(size_bytes - 8)
    client.socket.settimeout(0.001 if rate else 5.0)
    while True:
        now = time.monotonic()
        is_over = now - begun >= seconds
        due = credit if not rate else min(credit, int((now - begun) * rate) - sent)
        if due > 0 and not is_over:
            pieces = []
            for number in range(sent, sent + due):
                stamp = time.monotonic_ns().to_bytes(8)
                payload = b"\x00\x53\x75\xb0" + size_bytes.to_bytes(4) + stamp + filler
                body = composites.write(Transfer(0, number, number.to_bytes(4), 0, False)) + payload
                pieces.append((8 + len(body)).to_bytes(4) + b"\x02\x00\x00\x00" + body)
            client.socket.sendall(b"".join(pieces))
            sent += due
            credit -= due
        if is_over and accepted >= sent:
            return {"sent": sent, "accepted": accepted, "seconds": time.monotonic() - begun}
        try:
            bodies = client.read()
        except TimeoutError:
            if is_over and time.monotonic() - begun > seconds + 10:
                return {"sent": sent, "accepted": accepted, "seconds": time.monotonic() - begun}
            continue
        for body in bodies:
            performative, _ = composites.read(body, 0)
            if isinstance(performative, Flow) and performative.handle is not None:
                credit = (performative.delivery_count or 0) + (performative.link_credit or 0) - sent
            elif isinstance(performative, Disposition):
                last = performative.first if performative.last is None else performative.last
                accepted = max(accepted, last + 1)


def read(port: int, address: str, seconds: float, size_bytes: int) -> dict[str, float]:
    """How many came, and how old they were."""
    client = Client(port, "reader")
    client.say(Attach("r", 0, RECEIVER, 0, 0, Source(address), Target("reader")))
    client.wait(Attach)
    client.say(Flow(0, WINDOW, 0, WINDOW, 0, 0, CREDIT))
    got, ages = 0, list[int]()
    until = time.monotonic() + seconds
    client.socket.settimeout(0.2)
    while time.monotonic() < until:
        try:
            bodies = client.read()
        except TimeoutError:
            continue
        now = time.monotonic_ns()
        before = got
        for body in bodies:
            if body.startswith(TRANSFER):
                got += 1
                begin = len(body) - size_bytes
                ages.append(now - int.from_bytes(body[begin : begin + 8]))
        if got > before:
            client.socket.sendall(
                frame_of(0, Disposition(RECEIVER, before, got - 1, True, Accepted()))
                + frame_of(0, Flow(got, WINDOW, 0, WINDOW, 0, got, CREDIT))
            )
    ages.sort()
    return {
        "got": got,
        "p50_ms": ages[len(ages) // 2] / 1e6 if ages else 0.0,
        "p99_ms": ages[len(ages) * 99 // 100] / 1e6 if ages else 0.0,
    }
