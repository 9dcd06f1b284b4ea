"""A client that is refused or ended learns why, though it is still sending; and it cannot hold its connection open."""

import socket
import ssl
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import mqtt5
import pytest

from brokers import free_port
from overlane.mqtt.codec import codec5
from overlane.mqtt.codec.framing import packet_end
from overlane.testbed.certificates import Authority
from overlane.turn.lingering import DISCARDED_BYTES_MAX
from waiting import WITHIN_S, eventually
from watched import Caller, WatchedBroker, let_in

TABLES = """
[limits]
packet = "64KiB"
connections = 1000
[security]
certificate = "{directory}/server.pem"
key = "{directory}/server.key"
"""
REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)
TOO_MUCH = 4 << 20
"""More than all buffers between the two ends take."""


class Reached:
    """A broker by TCP, TLS and WebSocket."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.authority.server()
        self.ports = {"mqtt_tls": free_port(), "websocket": free_port(), "websocket_tls": free_port()}
        endpoints = "".join(f'{name} = "127.0.0.1:{port}"\n' for name, port in self.ports.items())
        self.broker = WatchedBroker(directory, TABLES.format(directory=directory), endpoints)
        self.ports["mqtt"] = self.broker.port

    def line(self, listener: str) -> socket.socket:
        line = socket.create_connection(("127.0.0.1", self.ports[listener]), WITHIN_S)
        if listener.endswith("tls"):
            tls = ssl.create_default_context(cafile=self.authority.ca)
            line = tls.wrap_socket(line, server_hostname="localhost")
        if listener.startswith("websocket"):
            line.sendall(REQUEST)
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += line.recv(4096)
        return line


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reached]:
    found = Reached(tmp_path_factory.mktemp("reached"))
    found.broker.start()
    try:
        yield found
        assert "Traceback" not in found.broker.log
    finally:
        found.broker.kill()


def framed(listener: str, data: bytes) -> bytes:
    """As a WebSocket client says it, with a mask of zeros."""
    if not listener.startswith("websocket"):
        return data
    length = bytes((0x80 | len(data),)) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2)
    return b"\x82" + length + b"\0\0\0\0" + data


def last_packet(listener: str, line: socket.socket) -> mqtt5.Packet:
    """What the broker said last, read only when it has long ended the connection."""
    data = b""
    with suppress(TimeoutError, ssl.SSLError):
        while part := line.recv(65_536):
            data += part
            if listener.startswith("websocket") and b"\x88" in data:
                break
    packets: list[mqtt5.Packet] = []
    while data:
        if listener.startswith("websocket"):
            frame, data = data[2 : 2 + data[1]], data[2 + data[1] :]
            packets += [codec5.read(frame)] if frame[0] in (0x20, 0xE0) else []
        else:
            end = packet_end(data, 0)
            packets.append(codec5.read(data[:end]))
            data = data[end:]
    return packets[-1]


@pytest.mark.parametrize("listener", ["mqtt", "websocket"])
def test_a_client_that_is_still_sending_is_told_why_it_is_ended(reached: Reached, listener: str) -> None:
    assert_told_while_sending(reached, listener)


@pytest.mark.parametrize("listener", ["mqtt_tls", "websocket_tls"])
def test_a_client_by_tls_that_is_still_sending_is_told_too(reached: Reached, listener: str) -> None:
    """This shows nothing of lingering: TLS reads on by itself, until the client has answered its closing alert, or for
    half a minute. So it holds with and without; it is here because clients depend on it."""
    assert_told_while_sending(reached, listener)


def assert_told_while_sending(reached: Reached, listener: str) -> None:
    with reached.line(listener) as line:
        line.sendall(framed(listener, codec5.write(mqtt5.ConnectPacket("talker"))))
        eventually(lambda: line.recv(4096), "let in")
        line.sendall(framed(listener, b"\x00\x00"))  # no packet begins like this
        part = framed(listener, bytes(16_384))
        for _ in range(TOO_MUCH // 16_384):
            line.sendall(part)  # would fail after a reset
        line.settimeout(WITHIN_S)
        goodbye = last_packet(listener, line)
        assert isinstance(goodbye, mqtt5.DisconnectPacket), goodbye
        assert goodbye.reason_code == mqtt5.DisconnectReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize("listener", ["mqtt", "mqtt_tls", "websocket"])
@pytest.mark.parametrize("cut", [1, 3, 13, 14, 4_000])
def test_a_connect_that_is_too_large_is_answered(reached: Reached, listener: str, cut: int) -> None:
    connect = codec5.write(mqtt5.ConnectPacket("x" * 200, username="bob", password=bytes(20_000)))
    with reached.line(listener) as line:
        line.sendall(framed(listener, connect[:cut]))
        line.sendall(framed(listener, connect[cut:]))
        line.settimeout(WITHIN_S)
        answer = last_packet(listener, line)
        assert isinstance(answer, mqtt5.ConnAckPacket), answer
        assert answer.reason_code == mqtt5.ConnAckReasonCode.PACKET_TOO_LARGE
        assert answer.reason_str == f"a CONNECT of {len(connect)} bytes; at most 4096 are allowed"


def test_a_connect_of_3_1_1_that_is_too_large_is_answered(reached: Reached) -> None:
    body = b"\x00\x04MQTT\x04\x02\x00\x00\x40\x00" + b"x" * 0x4000
    with reached.line("mqtt") as line:
        line.sendall(b"\x10" + bytes((0x80 | len(body) & 0x7F, 0x80 | len(body) >> 7 & 0x7F, len(body) >> 14)) + body)
        assert line.recv(100) == b"\x20\x02\x00\x03"
        assert line.recv(100) == b""


def test_connections_that_come_too_fast_are_told_so(tmp_path: Path) -> None:
    broker = WatchedBroker(tmp_path, "[limits]\nconnections_per_second = 1\n")
    broker.start()
    try:

        def is_told() -> bool:
            with Caller(broker.port) as one, Caller(broker.port) as other:
                found = [one.connect("one").reason_code, other.connect("other").reason_code]
                return mqtt5.ConnAckReasonCode.CONNECTION_RATE_EXCEEDED in found

        eventually(is_told, "told that it is too fast")
    finally:
        broker.kill()


def test_nobody_holds_its_connection_open_by_going_on_sending(reached: Reached) -> None:
    broker = reached.broker
    with let_in(broker.port, "bystander") as bystander:
        with let_in(broker.port, "flooder") as flooder, let_in(broker.port, "dribbler") as dribbler:
            for one in (flooder, dribbler):
                one.write(b"\x00\x00")
            eventually(lambda: lingering(broker) == 2, "both linger", said=lambda: broker.log)
            sent = 0
            with suppress(OSError):
                while sent < 4 * DISCARDED_BYTES_MAX:
                    flooder.write(bytes(1 << 16))
                    sent += 1 << 16
            assert sent < 4 * DISCARDED_BYTES_MAX
            since = time.monotonic()
            with suppress(OSError):
                while time.monotonic() - since < WITHIN_S:
                    dribbler.write(b"\0")
                    time.sleep(0.1)
            assert time.monotonic() - since < WITHIN_S
        eventually(lambda: lingering(broker) == 0, "nobody lingers", said=lambda: broker.log)
        assert bystander.publish("t") == mqtt5.PubAckReasonCode.NO_MATCHING_SUBSCRIBERS


def lingering(broker: WatchedBroker) -> int:
    lines = broker.request("/metrics").body.decode().splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith("overlane_connections_lingering "))))


def test_secret_files_that_others_can_read_are_told_at_the_start(tmp_path: Path) -> None:
    Authority(tmp_path).server()
    (tmp_path / "token").write_text("a-token-of-many-letters\n")
    (tmp_path / "secret").write_text("a-secret-of-many-letters\n")
    (tmp_path / "users").write_text("")
    modes = {"server.key": 0o644, "token": 0o640, "secret": 0o600, "users": 0o604}
    for name, mode in modes.items():
        (tmp_path / name).chmod(mode)
    files = {"certificate": "server.pem", "key": "server.key", "admin_token": "token", "overlay_secret": "secret"}
    tables = "[security]\n" + "".join(f'{key} = "{tmp_path / name}"\n' for key, name in files.items())
    broker = WatchedBroker(tmp_path / "broker", f'{tables}users = "{tmp_path / "users"}"\nanonymous = true\n')
    broker.start()
    try:
        told = [line for line in broker.log.splitlines() if "others than its owner can read it" in line]
        assert len(told) == 3, told
        for name, mode in modes.items():
            is_told = any(f"{tmp_path / name} has mode {mode:04o}" in line for line in told)
            assert is_told is bool(mode & (stat.S_IRGRP | stat.S_IROTH)), told
    finally:
        broker.kill()
