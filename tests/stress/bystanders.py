"""A process of well-behaved clients: messages go from one to the other, and somebody new connects now and then.

    python bystanders.py PORT

Says "ready". For every line of input it tells what it saw since the one before: at once, or if the line is a number
after so many round trips. It ends with an error when a message is lost, repeated or overdue.
"""

import json
import select
import socket
import sys
import time

PATIENCE_S = 30.0
PAUSE_S = 0.004
CONNECT_EVERY = 10
"""Round trips."""


def packet(first: int, body: bytes) -> bytes:
    assert len(body) < 0x80
    return bytes((first, len(body))) + body


def text(value: str) -> bytes:
    return len(value).to_bytes(2) + value.encode()


class Bystander:
    """A client of MQTT 3.1.1, or of 5."""

    def __init__(self, port: int, name: str, version: int) -> None:
        self._version = version
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""
        self._send(0x10, text("MQTT") + bytes((version, 2, 0, 0)) + self._none + text(name))
        answer = self.read(0x20)
        if answer[1]:
            raise SystemExit(f"a bystander was refused with {answer.hex(' ')}")

    def close(self) -> None:
        self._send(0xE0, b"")
        self._socket.close()

    def subscribe(self, topic: str) -> None:
        self._send(0x82, b"\0\1" + self._none + text(topic) + b"\1")
        if self.read(0x90)[-1] > 2:
            raise SystemExit("a bystander may not subscribe")

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        packet_id = b"\0\1" if qos else b""
        self._send(0x32 if qos else 0x30, text(topic) + packet_id + self._none + payload)

    def hear(self, topic: str) -> tuple[int, bytes]:
        """The QoS and payload of the next message, which is acknowledged."""
        body = self.read(0x30)
        qos, at = self._first >> 1 & 3, 2 + len(topic)
        if qos:
            self._send(0x40, body[at : at + 2])
            at += 2
        return qos, body[at + len(self._none) :]

    def read(self, kind: int) -> bytes:
        """The body of the next packet, which must be of this kind."""
        while len(self._unread) < 2 or len(self._unread) < 2 + self._unread[1]:
            data = self._socket.recv(4096)
            if not data:
                raise SystemExit("a bystander was cut off")
            self._unread += data
        end = 2 + self._unread[1]
        self._first, body, self._unread = self._unread[0], self._unread[2:end], self._unread[end:]
        if self._first & 0xF0 != kind:
            raise SystemExit(f"a bystander got {self._first:x} {body.hex(' ')}")
        return body

    @property
    def _none(self) -> bytes:
        """No properties."""
        return b"\0" if self._version == 5 else b""

    def _send(self, first: int, body: bytes) -> None:
        self._socket.sendall(packet(first, body))


class Watch:
    def __init__(self) -> None:
        self.round_trips_ms: list[float] = []
        self.connects_ms: list[float] = []

    def told(self) -> dict[str, float]:
        trips, connects = sorted(self.round_trips_ms), self.connects_ms
        self.round_trips_ms, self.connects_ms = [], []
        last = len(trips) - 1
        return {
            "round_trips": len(trips),
            "p50_ms": round(trips[last // 2], 3) if trips else 0.0,
            "p99_ms": round(trips[last * 99 // 100], 3) if trips else 0.0,
            "max_ms": round(trips[-1], 3) if trips else 0.0,
            "connects": len(connects),
            "connect_max_ms": round(max(connects, default=0.0), 3),
        }


def main(port: int) -> None:
    name = f"bystander-{time.time_ns():x}"
    speaker, listener = Bystander(port, f"{name}-s", 5), Bystander(port, f"{name}-l", 4)
    topic = f"beside/{name}"
    listener.subscribe(topic)
    watch, number, wanted = Watch(), 0, None
    print(json.dumps("ready"), flush=True)
    while True:
        number += 1
        qos = number % 2
        payload = b"%d" % number
        since = time.perf_counter()
        speaker.publish(topic, payload, qos)
        heard = listener.hear(topic)
        watch.round_trips_ms.append((time.perf_counter() - since) * 1000)
        if heard != (qos, payload):
            raise SystemExit(f"{heard} came instead of {(qos, payload)}")
        if qos:
            speaker.read(0x40)
        if number % CONNECT_EVERY == 0:
            since = time.perf_counter()
            guest = Bystander(port, f"{name}-{number}", 4 + number % 2)
            watch.connects_ms.append((time.perf_counter() - since) * 1000)
            guest.close()
        if wanted is not None:
            time.sleep(PAUSE_S)
        elif select.select([sys.stdin], [], [], PAUSE_S)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            wanted = 0 if line == "?\n" else int(line)
        if wanted is not None and len(watch.round_trips_ms) >= wanted:
            print(json.dumps(watch.told()), flush=True)
            wanted = None


if __name__ == "__main__":
    main(int(sys.argv[1]))
