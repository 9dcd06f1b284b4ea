"""Clients that dawdle: they connect and say nothing, stop in the middle, or say a byte now and then."""

import selectors
import socket
import ssl
import time
from collections import Counter
from contextlib import suppress

import mqtt5

from overlane.mqtt.codec import codec5

CONNECT = codec5.write(mqtt5.ConnectPacket("dawdler-" + "x" * 100))
REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)
FRAME_BEGUN = bytes((0x82, 0xFE, 0x04, 0x00, 0, 0, 0, 0)) + CONNECT
"""A frame of 1,024 bytes of which not all come."""


def client_hello() -> bytes:
    """How a TLS client begins."""
    written = ssl.MemoryBIO()
    context = ssl.create_default_context()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), written, server_hostname="localhost").do_handshake()
    return written.read()


class Dawdler:
    """Says `first` at once, and then a byte of `then` each time it is its turn."""

    def __init__(self, kind: str, port: int, first: bytes, then: bytes = b"") -> None:
        self.kind = kind
        self.line = socket.create_connection(("127.0.0.1", port), 30)
        self.since_s = time.monotonic()
        self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.line.sendall(first)
        self.line.setblocking(False)
        self._then = then
        self.lasted_s: float | None = None
        """How long it took the broker to lose its patience."""

    def say_a_byte(self) -> None:
        if self._then and self.lasted_s is None:
            with suppress(OSError):
                self.line.send(self._then[:1])
            self._then = self._then[1:]

    def look(self) -> None:
        """Whether the broker has cut it off."""
        try:
            is_cut = self.line.recv(65_536) == b""
        except BlockingIOError:
            return
        except OSError:
            is_cut = True
        if is_cut:
            self.lasted_s = time.monotonic() - self.since_s
            self.line.close()


class Crowd:
    def __init__(self) -> None:
        self.dawdlers: list[Dawdler] = []
        self._selector = selectors.DefaultSelector()

    def add(self, dawdler: Dawdler) -> None:
        self.dawdlers.append(dawdler)
        self._selector.register(dawdler.line, selectors.EVENT_READ, dawdler)

    def watch(self, until_s: float, every_s: float = 0.2) -> None:
        """Let them dawdle until all are cut off, or it is that late."""
        while len(self._selector.get_map()) and time.monotonic() < until_s:
            turn_ends_s = time.monotonic() + every_s
            while (left_s := turn_ends_s - time.monotonic()) > 0 and len(self._selector.get_map()):
                for key, _ in self._selector.select(left_s):
                    line, dawdler = key.fileobj, key.data
                    dawdler.look()
                    if dawdler.lasted_s is not None:
                        self._selector.unregister(line)
            for dawdler in self.dawdlers:
                dawdler.say_a_byte()

    def left(self) -> Counter[str]:
        """Those whom nobody has cut off, by their kind."""
        return Counter(one.kind for one in self.dawdlers if one.lasted_s is None)

    def close(self) -> None:
        for dawdler in self.dawdlers:
            dawdler.line.close()
        self._selector.close()
