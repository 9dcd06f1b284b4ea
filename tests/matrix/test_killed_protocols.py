"""A broker that is killed under load: what it has confirmed to publishers of NATS (verbose) and HTTP is not lost.

Each publisher sends numbers, and notes those that are confirmed: by `+OK`, or by 204. A session of MQTT that has
subscribed before gets all of them. AMQP has the same test (`tests/amqp/test_amqp_killed.py`).
"""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from brokers import Overlane, free_port
from waiting import eventually

pytestmark = pytest.mark.slow

KILLS = 3
CONFIRMED_BETWEEN = 60
AT_ONCE = 20
WITHIN_S = 120.0

Send = Callable[[int, range, Callable[[int], None]], None]
"""Sends numbers over one connection, and tells each that is confirmed; OSError when the connection is lost."""


def send_nats(port: int, numbers: range, confirmed: Callable[[int], None]) -> None:
    with closing(socket.create_connection(("127.0.0.1", port), 10)) as connection, connection.makefile("rb") as answers:
        connection.sendall(b'CONNECT {"verbose":true,"pedantic":false}\r\n')
        if not answers.readline().startswith(b"INFO") or answers.readline() != b"+OK\r\n":
            raise ConnectionError("not connected")
        connection.sendall(b"".join(b"PUB ledger %d\r\n%d\r\n" % (len(str(one)), one) for one in numbers))
        for number in numbers:
            if answers.readline() != b"+OK\r\n":
                raise ConnectionError("not confirmed")
            confirmed(number)


def send_http(port: int, numbers: range, confirmed: Callable[[int], None]) -> None:
    with closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        for number in numbers:
            try:
                connection.request("POST", "/topics/ledger", str(number).encode())
                status = connection.getresponse().status
            except HTTPException as error:
                raise ConnectionError(str(error)) from None
            if status != 204:
                raise ConnectionError(f"status {status}")
            confirmed(number)


class Writer(threading.Thread):
    def __init__(self, send: Send, port: int) -> None:
        super().__init__(daemon=True)
        self._send, self._port = send, port
        self.confirmed: list[int] = []
        self.ends = False

    def has_confirmed(self, count: int) -> bool:
        return len(self.confirmed) >= count

    def run(self) -> None:
        next_number = 0
        while not self.ends:
            numbers = range(next_number, next_number + AT_ONCE)
            next_number = numbers.stop  # nobody knows what became of those that were not confirmed
            try:
                self._send(self._port, numbers, self.confirmed.append)
            except OSError:
                time.sleep(0.05)  # the broker is being started again


class Reader:
    """A session of MQTT that outlives its connections."""

    def __init__(self, port: int) -> None:
        self.got: list[int] = []
        self.granted = 0
        self._port = port
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2, "reader", clean_session=False, protocol=MQTTProtocolVersion.MQTTv311
        )
        self._client.on_message = self._take
        self._client.on_subscribe = self._subscribed

    def _take(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        self.got.append(int(message.payload))

    def _subscribed(self, *_: object) -> None:
        self.granted += 1

    def come(self) -> None:
        self._client.connect("127.0.0.1", self._port)
        self._client.loop_start()
        self._client.subscribe("ledger", 1)
        eventually(lambda: self.granted, "SUBACK", WITHIN_S)

    def go(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.mark.parametrize(("kind", "send"), [("nats", send_nats), ("http", send_http)])
def test_nothing_confirmed_is_lost_when_the_broker_is_killed(tmp_path: Path, kind: str, send: Send) -> None:
    port = free_port()
    broker = Overlane(tmp_path, "[telemetry]\nenabled = false\n", f'{kind} = "127.0.0.1:{port}"\n')
    broker.start()
    reader, writer = Reader(broker.port), Writer(send, port)
    try:
        reader.come()
        reader.go()
        writer.start()
        for kill in range(1, KILLS + 1):
            wanted = kill * CONFIRMED_BETWEEN
            eventually(partial(writer.has_confirmed, wanted), f"{wanted} confirmed", WITHIN_S)
            broker.kill()
            broker.start()
        writer.ends = True
        writer.join(60)
        reader.come()
        eventually(lambda: set(writer.confirmed) <= set(reader.got), "all that was confirmed", WITHIN_S)
        first = list(dict.fromkeys(reader.got))
        assert first == sorted(first)
    finally:
        writer.ends = True
        reader.go()
        broker.kill()
