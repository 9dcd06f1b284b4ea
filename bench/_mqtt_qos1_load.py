"""The MQTT side of bench/amqp.py: clients of MQTT 3.1.1 over raw sockets that publish and subscribe with QoS 1.

The writer keeps as many messages unacknowledged as a broker takes by default. The reader acknowledges what came with
every read in one go.
"""

import socket
import time

WINDOW = 100
READ_BYTES = 256 * 1024
CONNACK, PUBLISH, PUBACK, SUBACK = 0x20, 0x30, 0x40, 0x90


class Client:
    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        body = b"\x00\x04MQTT\x04\x02\x00\x00" + len(name).to_bytes(2) + name.encode()
        self.socket.sendall(bytes((0x10, len(body))) + body)
        self.wait(CONNACK)

    def read(self) -> list[bytes]:
        """The packets that one read has made whole; they are shorter than 16 KiB."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("closed by the broker")
        data, at, found = self._data + data, 0, []
        while at + 2 < len(data):
            length, body = data[at + 1], at + 2
            if length > 0x7F:
                length, body = (length & 0x7F) + (data[at + 2] << 7), at + 3
            if body + length > len(data):
                break
            found.append(data[at : body + length])
            at = body + length
        if at + 2 == len(data) and data[at + 1] == 0:
            at, found = len(data), [*found, data[at:]]
        self._data = data[at:]
        return found

    def wait(self, kind: int) -> None:
        while not any(packet[0] & 0xF0 == kind for packet in self.read()):
            pass


def write_mqtt(port: int, topic: str, seconds: float, rate: float, size_bytes: int) -> dict[str, float]:
    """`rate`: messages a second, 0 for as many as possible. How many were sent and accepted, and the time it took."""
    client = Client(port, "writer")
    name = len(topic).to_bytes(2) + topic.encode()
    length = len(name) + 2 + size_bytes
    head = b"\x32" + (bytes((length,)) if length < 0x80 else bytes((length & 0x7F | 0x80, length >> 7))) + name
    filler = bytes(size_bytes - 8)
    sent = accepted = 0
    begun = time.monotonic()
    client.socket.settimeout(0.001 if rate else 5.0)
    while True:
        now = time.monotonic()
        is_over = now - begun >= seconds
        due = WINDOW - (sent - accepted)
        if rate:
            due = min(due, int((now - begun) * rate) - sent)
        if due > 0 and not is_over:
            pieces = [
                head + (number % 0xFFFF + 1).to_bytes(2) + time.monotonic_ns().to_bytes(8) + filler
                for number in range(sent, sent + due)
            ]
            client.socket.sendall(b"".join(pieces))
            sent += due
        if is_over and (accepted >= sent or now - begun > seconds + 10):
            return {"sent": sent, "accepted": accepted, "seconds": time.monotonic() - begun}
        try:
            accepted += sum(packet[0] == PUBACK for packet in client.read())
        except TimeoutError:
            continue


def read_mqtt(port: int, topic: str, seconds: float, size_bytes: int) -> dict[str, float]:
    """How many came, and how old they were."""
    client = Client(port, "reader")
    body = b"\x00\x01" + len(topic).to_bytes(2) + topic.encode() + b"\x01"
    client.socket.sendall(bytes((0x82, len(body))) + body)
    client.wait(SUBACK)
    got, ages = 0, list[int]()
    until = time.monotonic() + seconds
    client.socket.settimeout(0.2)
    while time.monotonic() < until:
        try:
            packets = client.read()
        except TimeoutError:
            continue
        now, acknowledged = time.monotonic_ns(), []
        for packet in packets:
            if packet[0] & 0xF0 == PUBLISH:
                got += 1
                begin = len(packet) - size_bytes
                ages.append(now - int.from_bytes(packet[begin : begin + 8]))
                acknowledged.append(b"\x40\x02" + packet[begin - 2 : begin])
        if acknowledged:
            client.socket.sendall(b"".join(acknowledged))
    ages.sort()
    return {
        "got": got,
        "p50_ms": ages[len(ages) // 2] / 1e6 if ages else 0.0,
        "p99_ms": ages[len(ages) * 99 // 100] / 1e6 if ages else 0.0,
    }
