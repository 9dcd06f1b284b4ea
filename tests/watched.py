"""A broker as a process that is watched from outside, and a client that says and reads one packet at a time."""

import http.client
import json
import os
import signal
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import mqtt5

from brokers import Overlane
from overlane.mqtt.codec import codec5
from overlane.mqtt.codec.framing import packet_end
from waiting import WITHIN_S, eventually

Packet = TypeVar("Packet", bound=mqtt5.Packet)


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class WatchedBroker(Overlane):
    def __init__(self, directory: Path, tables: str = "", endpoints: str = "", options: tuple[str, ...] = ()) -> None:
        super().__init__(directory, tables, endpoints)
        self._options = options

    def command(self) -> list[str]:
        return [*super().command(), *self._options]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_for_log(self, text: str) -> str:
        """The last line with this text, when there is one."""

        def look() -> str:
            return next((line for line in reversed(self.log.splitlines()) if text in line), "")

        return eventually(look, f"{text!r} in the log", said=lambda: self.log)

    def request(self, path: str, method: str = "GET", **headers: str) -> Answer:
        host, _, port = self.admin.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=WITHIN_S)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answer = self.request(path)
        assert answer.status == 200, answer
        return answer.json

    def reload(self) -> str:
        """Let it read its file again; what it says to that."""
        before = len(self._said())
        os.kill(self.pid, signal.SIGHUP)
        return eventually(lambda: self._said()[before:], "it says something of its file", said=lambda: self.log)[0]

    def _said(self) -> list[str]:
        return [line for line in self.log.splitlines() if "reloaded" in line or "configuration unchanged" in line]

    def terminate(self) -> Callable[[], int]:
        """Tell it to end; what waits for its exit status."""
        process = self._process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        self._process = None
        return lambda: process.wait(WITHIN_S)


class Caller:
    """A client of MQTT 5."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), WITHIN_S)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
        self._unread = b""

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    @property
    def certificate(self) -> bytes | None:
        assert isinstance(self._socket, ssl.SSLSocket)
        return self._socket.getpeercert(binary_form=True)

    def send(self, *packets: mqtt5.Packet) -> None:
        self.write(b"".join(codec5.write(one) for one in packets))

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def write_until_blocked(self, data: bytes, quiet_s: float = 1.0) -> None:
        """The same again and again, until the broker has taken nothing for a while."""
        self._socket.settimeout(quiet_s)
        with suppress(TimeoutError):
            while True:
                self._socket.sendall(data)
        self._socket.settimeout(WITHIN_S)

    def read(self, kind: type[Packet]) -> Packet:
        """The next packet, which must be of this kind."""
        packet = self.next()
        assert isinstance(packet, kind), packet
        return packet

    def next(self) -> mqtt5.Packet:
        """The next packet, whatever it is."""
        while not 0 < (end := packet_end(self._unread, 0)) <= len(self._unread):
            data = self._socket.recv(65_536)
            assert data, "the broker has closed the connection"
            self._unread += data
        packet, self._unread = codec5.read(self._unread[:end]), self._unread[end:]
        return packet

    def is_closed(self) -> bool:
        """Whether the broker has closed the connection, and said nothing more."""
        try:
            return not self._unread and self._socket.recv(65_536) == b""
        except ConnectionResetError:
            return True

    # What clients do

    def connect(
        self, client_id: str, user: str | None = None, password: bytes | None = None, expiry_s: int = 0
    ) -> mqtt5.ConnAckPacket:
        self.send(mqtt5.ConnectPacket(client_id, username=user, password=password, session_expiry_interval=expiry_s))
        return self.read(mqtt5.ConnAckPacket)

    def subscribe(self, topic_filter: str, qos: int = 0) -> mqtt5.SubAckReasonCode:
        wanted = mqtt5.TopicFilter(topic_filter, max_qos=mqtt5.QoS(qos), retain_as_published=False)
        self.send(mqtt5.SubscribePacket(1, [wanted]))
        return self.read(mqtt5.SubAckPacket).reason_codes[0]

    def publish(self, topic: str, payload: bytes = b"x", qos: int = 1, retain: bool = False) -> mqtt5.PubAckReasonCode:
        self.send(mqtt5.PublishPacket(topic, payload, qos=mqtt5.QoS(qos), retain=retain, packet_id=7 if qos else None))
        return self.read(mqtt5.PubAckPacket).reason_code if qos else mqtt5.PubAckReasonCode.SUCCESS


def let_in(port: int, client_id: str, **options: Any) -> Caller:
    """A client that is connected."""
    caller = Caller(port)
    answer = caller.connect(client_id, **options)
    assert answer.reason_code == mqtt5.ConnAckReasonCode.SUCCESS, answer
    return caller
