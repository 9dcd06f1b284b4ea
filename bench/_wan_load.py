"""The stream of bench/wan.py, one end of it in each process: `python _wan_load.py '{"role": ...}'`.

    publish   a message at every tick, numbered; what it owes is due by the clock, not by when the broker takes it
    hear      every message with the moment of its arrival
    pour      a TCP connection that takes what it can get, beside the brokers
    drain     the other end of it

Each says in lines of JSON on its output how far it is, and ends when its input does. All processes are on one machine
and read the same clock. They run in the namespace of their site, where the broker is on the loopback interface.
"""

import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO, TypeVar

import msgspec
import numpy as np

from _wire import Mqtt, Nats, packet

T = TypeVar("T")
STAMP = struct.Struct("<q")
"""The number of the message, in front of the padding."""
PATIENCE_S = 90.0
LAST_WORDS_S = 2.0
"""How long a subscriber listens on when told to end."""
POUR_BYTES = 64 * 1024


class Task(msgspec.Struct, frozen=True):
    role: str
    wire: str = ""
    """mqtt-0, mqtt-1 (the QoS), nats, zenoh; tcp or udp without a broker."""
    port: int = 0
    host: str = "127.0.0.1"
    topic: str = ""
    payload_bytes: int = 64
    per_second: float = 100.0
    is_urgent: bool = True
    result: str = ""
    real_time: int = 0
    """The priority to run with once it is ready; 0 is the usual one."""


class Mouth(Protocol):
    def say(self, payload: bytes) -> None: ...
    def close(self) -> None: ...


class Ear(Protocol):
    def listen(self, heard: Callable[[bytes], None]) -> None:
        """Until the input ends, and a little longer."""


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def publish(task: Task) -> None:
    mouth = patiently(lambda: _mouth(task))
    _hurry(task)
    interval_ns = round(1e9 / task.per_second)
    padding_bytes = task.payload_bytes - STAMP.size
    start_ns = time.monotonic_ns() + 50_000_000
    say(start_ns=start_ns, interval_ns=interval_ns)
    number = 0
    while not _is_over((start_ns + number * interval_ns - time.monotonic_ns()) / 1e9):
        while start_ns + number * interval_ns <= time.monotonic_ns():
            mouth.say(STAMP.pack(number) + os.urandom(padding_bytes))  # some systems would compress anything else
            number += 1
    say(sent=number)
    mouth.close()


def hear(task: Task) -> None:
    ear = patiently(lambda: _ear(task))
    numbers, arrived_ns = list[int](), list[int]()

    def heard(payload: bytes) -> None:
        arrived_ns.append(time.monotonic_ns())
        numbers.append(STAMP.unpack_from(payload)[0])
        if len(numbers) == 1:
            say(reached=True)

    _hurry(task)
    say(subscribed=True)
    ear.listen(heard)
    np.savez(Path(task.result), numbers=np.array(numbers, np.int64), arrived_ns=np.array(arrived_ns, np.int64))
    say(count=len(numbers))


def pour(task: Task) -> None:
    connection = patiently(lambda: socket.create_connection((task.host, task.port), timeout=5))
    connection.setblocking(False)
    block, sent = bytes(POUR_BYTES), 0
    say(poured=True)
    while True:
        readable, writable, _ = select.select([sys.stdin], [connection], [])
        if readable:
            break
        if writable:
            sent += connection.send(block)
    say(sent=sent)


def drain(task: Task) -> None:
    with socket.create_server((task.host, task.port)) as listening:
        say(subscribed=True)
        readable, _, _ = select.select([sys.stdin, listening], [], [])
        if listening not in readable:
            return
        connection = listening.accept()[0]
    count = 0
    while sys.stdin not in (readable := select.select([sys.stdin, connection], [], [])[0]):
        got = len(connection.recv(POUR_BYTES)) if readable else 0
        if not got:
            break
        count += got
    say(count=count)


# MQTT and NATS, over a socket to the broker of the site


@dataclass(slots=True)
class SocketMouth:
    connection: socket.socket
    form: Callable[[bytes], bytes]
    answers: Callable[[bytes], bytes]

    def say(self, payload: bytes) -> None:
        if select.select([self.connection], [], [], 0)[0] and (answer := self.answers(self.connection.recv(65536))):
            self.connection.sendall(answer)
        self.connection.sendall(self.form(payload))

    def close(self) -> None:
        time.sleep(0.2)
        self.connection.close()


@dataclass(slots=True)
class SocketEar:
    connection: socket.socket
    take: Callable[[bytearray, Callable[[bytes], None]], bytes]
    """Takes whole messages from the front of what was read; returns what is to be answered."""

    def listen(self, heard: Callable[[bytes], None]) -> None:
        buffer = bytearray()
        ends = float("inf")
        inputs: list[socket.socket | TextIO] = [self.connection, sys.stdin]
        while time.monotonic() < ends:
            readable, _, _ = select.select(inputs, [], [], min(0.2, max(0.0, ends - time.monotonic())))
            if sys.stdin in readable:
                inputs.remove(sys.stdin)
                ends = time.monotonic() + LAST_WORDS_S
            if self.connection in readable:
                got = self.connection.recv(256 * 1024)
                if not got:
                    say(closed=True)
                    return
                buffer += got
                if answer := self.take(buffer, heard):
                    self.connection.sendall(answer)


def take_mqtt(buffer: bytearray, heard: Callable[[bytes], None]) -> bytes:
    answer = b""
    while (size := _mqtt_size(buffer)) is not None and len(buffer) >= size[1]:
        head, end = size
        if buffer[0] >> 4 == 3:
            at = head + 2 + int.from_bytes(buffer[head : head + 2])
            if buffer[0] & 0x06:
                answer += packet(0x40, bytes(buffer[at : at + 2]))
                at += 2
            heard(bytes(buffer[at:end]))
        del buffer[:end]
    return answer


def _mqtt_size(buffer: bytearray) -> tuple[int, int] | None:
    """Where the body of the first packet starts and ends."""
    length = 0
    for at in range(1, min(5, len(buffer))):
        length |= (buffer[at] & 0x7F) << 7 * (at - 1)
        if not buffer[at] & 0x80:
            return at + 1, at + 1 + length
    return None


def take_nats(buffer: bytearray, heard: Callable[[bytes], None]) -> bytes:
    answer = b""
    while (line_ends := buffer.find(b"\r\n")) >= 0:
        line, end = bytes(buffer[:line_ends]), line_ends + 2
        if line.startswith(b"MSG "):
            end += int(line.rsplit(b" ", 1)[1]) + 2
            if len(buffer) < end:
                break
            heard(bytes(buffer[line_ends + 2 : end - 2]))
        elif line == b"PING":
            answer += b"PONG\r\n"
        del buffer[:end]
    return answer


def take_bare(payload_bytes: int) -> Callable[[bytearray, Callable[[bytes], None]], bytes]:
    def take(buffer: bytearray, heard: Callable[[bytes], None]) -> bytes:
        while len(buffer) >= payload_bytes:
            heard(bytes(buffer[:payload_bytes]))
            del buffer[:payload_bytes]
        return b""

    return take


def _mouth(task: Task) -> Mouth:
    match task.wire:
        case "mqtt-0" | "mqtt-1":
            connection = Mqtt().connect(task.port, f"publisher-{os.getpid()}")
            return SocketMouth(connection, _mqtt_form(task), lambda _: b"")
        case "nats":
            head = Nats().published(task.topic, task.payload_bytes).message.partition(b"\r\n")[0] + b"\r\n"
            connection = Nats().connect(task.port, "publisher")
            return SocketMouth(
                connection, lambda payload: head + payload + b"\r\n", lambda got: b"PONG\r\n" * got.count(b"PING\r\n")
            )
        case "tcp":
            connection = socket.create_connection((task.host, task.port), timeout=PATIENCE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return SocketMouth(connection, lambda payload: payload, lambda _: b"")
        case "udp":
            connection = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            connection.connect((task.host, task.port))
            return SocketMouth(connection, lambda payload: payload, lambda _: b"")
        case "zenoh":
            from _wan_zenoh import ZenohMouth

            return ZenohMouth(task.port, task.topic, is_urgent=task.is_urgent)
        case _:
            raise ValueError(f"no wire {task.wire!r}")


def _mqtt_form(task: Task) -> Callable[[bytes], bytes]:
    qos = int(task.wire[-1])
    topic = struct.pack(">H", len(task.topic)) + task.topic.encode()
    count = 0

    def form(payload: bytes) -> bytes:
        nonlocal count
        count += 1
        identifier = struct.pack(">H", count % 65535 + 1) if qos else b""
        return packet(0x30 | qos << 1, topic + identifier + payload)

    return form


def _ear(task: Task) -> Ear:
    match task.wire:
        case "mqtt-0" | "mqtt-1":
            mqtt = Mqtt()
            connection = mqtt.connect(task.port, f"subscriber-{os.getpid()}")
            return SocketEar(mqtt.subscribe(connection, [task.topic], qos=int(task.wire[-1])), take_mqtt)
        case "nats":
            nats = Nats()
            return SocketEar(nats.subscribe(nats.connect(task.port, "subscriber"), [task.topic]), take_nats)
        case "tcp":
            with socket.create_server((task.host, task.port)) as listening:
                say(listening=True)
                listening.settimeout(PATIENCE_S)
                return SocketEar(listening.accept()[0], take_bare(task.payload_bytes))
        case "udp":
            connection = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            connection.bind((task.host, task.port))
            say(listening=True)
            return SocketEar(connection, take_bare(task.payload_bytes))
        case "zenoh":
            from _wan_zenoh import ZenohEar

            return ZenohEar(task.port, task.topic, LAST_WORDS_S)
        case _:
            raise ValueError(f"no wire {task.wire!r}")


def patiently(attempt: Callable[[], T]) -> T:
    patience_ends = time.monotonic() + PATIENCE_S
    while True:
        try:
            return attempt()
        except OSError:
            if time.monotonic() > patience_ends:
                raise
            time.sleep(0.1)


def _hurry(task: Task) -> None:
    if task.real_time:
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(task.real_time))


def _is_over(after_s: float) -> bool:
    """Waits so long, unless the input ends before."""
    return bool(select.select([sys.stdin], [], [], max(0.0, after_s))[0])


ROLES = {"publish": publish, "hear": hear, "pour": pour, "drain": drain}


def main() -> None:
    task = msgspec.json.decode(sys.argv[1], type=Task)
    try:
        ROLES[task.role](task)
    except (OSError, ValueError) as error:
        say(failed=f"{task.role}: {type(error).__name__}: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
