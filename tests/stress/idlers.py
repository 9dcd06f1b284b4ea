"""Thousands of clients that are connected and do nothing, as cheap as they can be: a socket each, in one process."""

import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import mqtt5

from overlane.mqtt.codec import codec5, codec311

BATCH = 500
OF_ONE_ADDRESS = 5_000
"""Ports are taken by those of earlier tests for a while, too."""
PATIENCE_S = 60.0
FILES_KEPT = 300
IP_BIND_ADDRESS_NO_PORT = 24
GOODBYE = b"\xe0\x00"


def most(wanted: int) -> int:
    """So many, or as many as this process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard - FILES_KEPT)


@contextmanager
def room_for(files: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files + FILES_KEPT), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Idlers:
    """Half of them speak 3.1.1. Every one has subscribed to a topic of its own, and to the one of all."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.lines: list[socket.socket] = []

    def come(self, count: int) -> None:
        while count > 0:
            self._come(min(BATCH, count))
            count -= BATCH

    def _come(self, count: int) -> None:
        lines: list[socket.socket] = []
        for _ in range(count):
            number = len(self.lines) + len(lines)
            line = socket.socket()
            line.settimeout(PATIENCE_S)
            line.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            line.bind((f"127.0.0.{2 + number // OF_ONE_ADDRESS}", 0))
            line.connect(("127.0.0.1", self._port))
            write = codec5.write if number % 2 else codec311.write
            keep_alive_s = 0 if number % 3 else 3_600
            line.sendall(write(mqtt5.ConnectPacket(f"idler-{number}", clean_start=True, keep_alive=keep_alive_s)))
            lines.append(line)
        for line in lines:
            answer = line.recv(100)
            assert answer[:1] == b"\x20", answer
            assert answer[3] == 0, answer
        self.lines += lines

    def subscribe(self, topic: str) -> None:
        for number, line in enumerate(self.lines):
            write = codec5.write if number % 2 else codec311.write
            wanted = mqtt5.TopicFilter(topic, max_qos=mqtt5.QoS.AT_MOST_ONCE, retain_as_published=False)
            line.sendall(write(mqtt5.SubscribePacket(1, [wanted])))
        for line in self.lines:
            answer = line.recv(100)
            assert answer[0] == 0x90, answer

    def hear(self, payload: bytes) -> None:
        """Every one of them gets a message with this payload."""
        for line in self.lines:
            heard = line.recv(1_000)
            assert heard[0] == 0x30, heard
            assert heard.endswith(payload), heard

    def go(self, *, politely: bool) -> None:
        for line in self.lines:
            if politely:
                line.sendall(GOODBYE)
            else:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            line.close()
        self.lines = []
