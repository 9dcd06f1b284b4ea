"""MQTT in a WebSocket, byte by byte: what is agreed on, what is refused, and that nothing is said behind the end."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import mqtt5
import pytest

from brokers import free_port
from overlane.mqtt.codec import codec5
from overlane.node.clients.websocket import STRANGER_BYTES_MAX
from waiting import WITHIN_S
from watched import WatchedBroker

REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)
CONNECT = codec5.write(mqtt5.ConnectPacket("web"))
CONNACK = 0x20
BINARY, TEXT, LAST, PING, CLOSE = 0x82, 0x81, 0x80, 0x89, 0x88
BEGUN, GOES_ON = 0x02, 0x00
"""A binary frame that others continue, and one of those that is not the last."""


class Web(WatchedBroker):
    def __init__(self, directory: Path) -> None:
        self.websocket_port = free_port()
        endpoints = f'websocket = "127.0.0.1:{self.websocket_port}"\n'
        super().__init__(directory, endpoints=endpoints)

    def refused(self, why: str) -> int:
        return int(self.get("/status")["refused"].get(why, 0))


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    broker = Web(tmp_path_factory.mktemp("web"))
    broker.start()
    try:
        yield broker
        assert "Traceback" not in broker.log
    finally:
        broker.kill()


class Browser:
    def __init__(self, web: Web) -> None:
        self.line = socket.create_connection(("127.0.0.1", web.websocket_port), WITHIN_S)
        self._unread = b""

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.line.close()

    def say(self, data: bytes) -> "Browser":
        self.line.sendall(data)
        return self

    def head(self) -> bytes:
        """The answer to the request, up to its first empty line."""
        while (end := self._unread.find(b"\r\n\r\n")) < 0:
            self._read()
        head, self._unread = self._unread[: end + 4], self._unread[end + 4 :]
        return head

    def frame(self) -> tuple[int, bytes]:
        """The first byte and the content of the next frame, which is short."""
        while len(self._unread) < 2 or len(self._unread) < 2 + self._unread[1]:
            self._read()
        end = 2 + self._unread[1]
        frame, self._unread = self._unread[:end], self._unread[end:]
        return frame[0], frame[2:]

    def rest(self) -> bytes:
        """All that comes until the broker closes."""
        try:
            while data := self.line.recv(65_536):
                self._unread += data
        except ConnectionResetError:
            pass
        return self._unread

    def _read(self) -> None:
        data = self.line.recv(65_536)
        assert data, f"closed after {self._unread!r}"
        self._unread += data


def frame(first: int, content: bytes = b"") -> bytes:
    is_short = len(content) < 126
    length = bytes((0x80 | len(content),)) if is_short else bytes((0x80 | 127,)) + len(content).to_bytes(8)
    return bytes((first,)) + length + bytes(4) + content


def greeted(web: Web) -> Browser:
    browser = Browser(web).say(REQUEST)
    head = browser.head()
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"\r\nsec-websocket-protocol: mqtt\r\n" in head.lower()  # MQTT-6.0.0-4
    return browser


def test_packets_may_be_cut_into_frames_in_any_way(web: Web) -> None:
    # MQTT-6.0.0-2
    with greeted(web) as browser:
        for byte in CONNECT[:-3]:
            browser.say(frame(BINARY, bytes((byte,))))
        browser.say(frame(BEGUN, CONNECT[-3:-1]) + frame(PING, b"?") + frame(LAST, CONNECT[-1:]))
        assert browser.frame() == (0x8A, b"?")
        first, content = browser.frame()
        assert (first, content[0]) == (BINARY, CONNACK)
        browser.say(frame(BINARY, b"\xc0\x00\xc0\x00"))
        assert browser.frame() == (BINARY, b"\xd0\x00\xd0\x00")


def test_a_client_in_a_hurry_may_send_frames_along_with_its_request(web: Web) -> None:
    with Browser(web).say(REQUEST + frame(BINARY, CONNECT)) as browser:
        assert browser.head().startswith(b"HTTP/1.1 101 ")
        assert browser.frame()[1][0] == CONNACK


def test_bad_frames_along_with_the_request_come_after_its_answer(web: Web) -> None:
    before = web.refused("malformed")
    with Browser(web).say(REQUEST + b"\xff\xff\xff") as browser:
        assert browser.head().startswith(b"HTTP/1.1 101 ")
        assert browser.frame()[0] == CLOSE
        assert browser.rest() == b""
    assert web.refused("malformed") == before + 1


def test_a_request_may_come_byte_by_byte(web: Web) -> None:
    with Browser(web) as browser:
        for byte in REQUEST:
            browser.say(bytes((byte,)))
        assert browser.head().startswith(b"HTTP/1.1 101 ")


def test_text_is_refused(web: Web) -> None:
    # MQTT-6.0.0-1
    with greeted(web) as browser:
        browser.say(frame(TEXT, CONNECT))
        first, content = browser.frame()
        assert (first, int.from_bytes(content[:2])) == (CLOSE, 1003)
        assert browser.rest() == b""


def test_who_does_not_ask_for_mqtt_is_refused(web: Web) -> None:
    with Browser(web).say(REQUEST.replace(b"Sec-WebSocket-Protocol: mqtt\r\n", b"")) as browser:
        assert browser.head().startswith(b"HTTP/1.1 400 ")
        assert b"subprotocol" in browser.rest()


@pytest.mark.parametrize(
    "said",
    [
        REQUEST[:-2] + b"x: " + b"y" * STRANGER_BYTES_MAX,
        REQUEST + bytes((BINARY, 0xFF)) + (2**19).to_bytes(8) + bytes(STRANGER_BYTES_MAX),
        REQUEST + frame(BEGUN, b"\x10") + frame(GOES_ON) * (STRANGER_BYTES_MAX // 6),
        REQUEST + frame(PING, b"?" * 100) * (STRANGER_BYTES_MAX // 100),
    ],
    ids=["a long request", "a long frame", "many pieces", "many pings"],
)
def test_a_stranger_cannot_make_the_broker_hold_much(web: Web, said: bytes) -> None:
    before = web.refused("packet too large")
    with Browser(web) as browser:
        with suppress(ConnectionResetError, BrokenPipeError):
            browser.say(said)
        browser.rest()
    assert web.refused("packet too large") == before + 1


def test_who_is_let_in_may_send_frames_as_large_as_packets(web: Web) -> None:
    large = codec5.write(mqtt5.PublishPacket("large", bytes(2**20 - 100), qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1))
    with greeted(web) as browser:
        browser.say(frame(BINARY, CONNECT))
        assert browser.frame()[1][0] == CONNACK
        browser.say(frame(BINARY, large))
        assert browser.frame()[1][0] == 0x40
