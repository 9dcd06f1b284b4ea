"""The stateful fuzzer: clients, a neighbour and users of the admin API who mean harm, one step after the other.

After every step all others are served as before, and the broker tells the truth of it (`target`). What is held open
stays open over steps: stalled clients, slow requests, a neighbour that answers pings.
"""

import contextlib
import socket
import time
from collections.abc import Iterator
from random import Random
from typing import ClassVar

from badbytes import BadBytes
from clientpackets import (
    CLIENTS,
    Connect,
    Packet,
    Properties,
    Publish,
    Subscribe,
    Text,
    connects,
    conversation,
    packets,
    text_of,
    varint,
    welcome,
)
from faithful import packet as framed
from frames import LIFE, Control, Frame, Neighbour, frames, many, wrong_frames
from fuzzing import Fuzzer
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from target import NAMES, Chain, Over

from overlane.core.wire.control_messages import Advert, InterestUpdate, LinkClaim
from unread import until_read

HELD_MAX = 40
SLOW_MAX = 120
REDIAL_S = 0.05
PATIENCE_S = 5.0
SAID_SHOWN = 400

PATHS = (
    *("/ready", "/health", "/status", "/clients", "/clients/nobody", "/subscriptions", "/topics", "/links", "/routes"),
    *(
        "/events",
        "/deliveries",
        "/metrics",
        "/openapi.json",
        "/glance",
        "/nothing",
        "/plan",
        "/streams",
        "/emulation/a",
    ),
)
QUERIES = (
    "",
    "?limit=0",
    "?limit=1000",
    "?limit=99999999",
    "?after=-1",
    "?after=" + "9" * 18,
    "?filter=%00",
    "?order=x",
    "?filter=a/%23/b",
)
brokers = st.sampled_from(NAMES)
versions = st.sampled_from((4, 5, 5))
lives = st.sampled_from((LIFE, LIFE, 1, (1 << 32) - 1))
"""Incarnations of the neighbour."""


def shown(value: object) -> str:
    told = repr(value)
    return told if len(told) <= SAID_SHOWN else f"{told[:SAID_SHOWN]}... ({len(told)} characters)"


class Fuzz(RuleBasedStateMachine):
    chain: ClassVar[Chain]

    def __init__(self) -> None:
        super().__init__()
        if self.chain.harm is not None and not self.chain.shrinks:
            raise self.chain.harm  # what is repeated now would meet brokers to which less was done
        if time.monotonic() > self.chain.until_s:
            raise Over
        self.chain.begin()
        self._held: list[socket.socket] = []
        self._slow: list[socket.socket] = []
        self._neighbour: Neighbour | None = None

    def teardown(self) -> None:
        for one in (*self._held, *self._slow):
            one.close()
        if self._neighbour is not None:
            self._neighbour.close()

    # Clients

    @rule(broker=brokers, version=versions, connect=connects | welcome, said=st.lists(packets, max_size=4))
    def says(self, broker: str, version: int, connect: Connect, said: list[Packet]) -> None:
        self._send(broker, conversation(version, connect, said))
        self._step("says", broker, version, connect, said)

    @rule(
        broker=brokers,
        version=versions,
        connect=welcome,
        said=st.lists(packets, min_size=1, max_size=3),
        luck=st.integers(0, 999),
    )
    def says_spoilt(self, broker: str, version: int, connect: Connect, said: list[Packet], luck: int) -> None:
        whole = b"".join(one.encoded(version) for one in said)
        self._send(broker, connect.encoded(version) + BadBytes(Random(luck)).spoilt(whole))
        self._step("says spoilt", broker, version, connect, said, luck)

    @rule(broker=brokers, luck=st.integers(0, 99_999))
    def babbles(self, broker: str, luck: int) -> None:
        """Over TCP or a WebSocket."""
        fuzzer = Fuzzer(self.chain.mqtt_port(broker), self.chain.websocket_port(broker), luck)
        with contextlib.suppress(OSError):
            fuzzer.attack()
        self._step("babbles", broker, luck)

    @rule(broker=brokers, version=versions, connect=welcome, said=packets, share=st.sampled_from((0.1, 0.5, 0.99)))
    def stalls(self, broker: str, version: int, connect: Connect, said: Packet, share: float) -> None:
        """Half a packet, and then nothing."""
        whole = said.encoded(version)
        with self._connected(broker) as line, contextlib.suppress(OSError):
            line.sendall(connect.encoded(version) + whole[: int(len(whole) * share)])
            self._hold(self._held, line.dup(), HELD_MAX)
        self._step("stalls", broker, version, connect, said, share)

    @rule(broker=brokers, count=st.sampled_from((1, 255, 256, 257, 300)), by=st.sampled_from(("publish", "subscribe")))
    def wants_many_deadlines(self, broker: str, count: int, by: str) -> None:
        whole = Connect(CLIENTS[0]).encoded(5)
        for number in range(count):
            wanted = Properties(((text_of("overlane-deadline"), text_of(f"{number + 1}ms")),))
            if by == "publish":
                whole += Publish(text_of(f"fuzz/{number}"), 1, False, 1, wanted, number + 1).encoded(5)
            else:
                whole += Subscribe((text_of(f"fuzz/{number}"),), 1, wanted).encoded(5)
        self._send(broker, whole)
        self._step("wants many deadlines", broker, count, by)

    @rule(
        broker=brokers,
        count=st.sampled_from((1, 20, 200, 700)),
        size=st.sampled_from((100, 30_000, 65_000, 65_400, 65_535)),
        head=st.sampled_from(("", "$share/g/")),
    )
    def wants_long_filters(self, broker: str, count: int, size: int, head: str) -> None:
        """They stay as long as the client does: others hear of them."""
        with self._connected(broker) as line, contextlib.suppress(OSError):
            line.sendall(Connect(CLIENTS[1]).encoded(5))
            for number in range(count):
                line.sendall(Subscribe((Text(size, f"{head}long/{number}/"),), 1).encoded(5))
            until_read(line, PATIENCE_S)
            self._step("wants long filters", broker, count, size, head)

    @rule(broker=brokers, topic_bytes=st.integers(65_440, 65_535), qos=st.integers(0, 2), retain=st.booleans())
    def publishes_on_a_long_topic(self, broker: str, topic_bytes: int, qos: int, retain: bool) -> None:
        """While there is a shared group for it at another broker."""
        other = NAMES[(NAMES.index(broker) + 1) % len(NAMES)]
        with self._connected(other) as group, contextlib.suppress(OSError):
            group.sendall(
                conversation(5, Connect(CLIENTS[2]), [Subscribe((text_of("$share/" + "g" * 60 + "/long/#"),), 1)])
            )
            until_read(group, PATIENCE_S)
            self._step("subscribes for a long topic", other)
            self._send(
                broker, conversation(5, Connect(CLIENTS[3]), [Publish(Text(topic_bytes, "long/"), qos, retain, 10)])
            )
            self._step("publishes on a long topic", broker, topic_bytes, qos, retain)

    @rule(broker=brokers, size=st.sampled_from((4_000, 4_090, 4_096, 4_097, 5_000, 65_000)))
    def connects_with_much(self, broker: str, size: int) -> None:
        body = b"\0\4MQTT\5\2\0\0"
        pair = b"\x26" + b"\0\1a" + (size - 40).to_bytes(2) + bytes(size - 40)
        self._send(broker, framed(0x10, body + varint(len(pair)) + pair + b"\0\1m"))
        self._step("connects with much", broker, size)

    # The neighbour

    @rule(said=st.lists(frames, min_size=1, max_size=6), stays=st.booleans(), life=lives)
    def neighbour_says(self, said: list[Frame], stays: bool, life: int) -> None:
        self._neighbour_says(said, stays, life)
        self._step("neighbour says", said, stays, life)

    @rule(said=st.lists(frames, max_size=3), wrong=wrong_frames, life=lives)
    def neighbour_babbles(self, said: list[Frame], wrong: Frame, life: int) -> None:
        self._neighbour_says([*said, wrong], True, life)
        self._step("neighbour babbles", said, wrong, life)

    def _neighbour_says(self, said: list[Frame], stays: bool, life: int) -> None:
        with contextlib.suppress(OSError):
            neighbour = self._greeted(life)
            for frame in said:
                neighbour.say(frame)
            neighbour.wait_until_read(PATIENCE_S)
        if not stays:
            self._drop_neighbour()

    @rule(count=st.sampled_from((100, 4_000, 4_097, 5_000)), size=st.sampled_from((8, 64)))
    def neighbour_invents_brokers(self, count: int, size: int) -> None:
        with contextlib.suppress(OSError):
            neighbour = self._greeted(LIFE)
            for name in many(count, size):
                neighbour.say(Control(Advert(name, LIFE, 1, [LinkClaim("mallory", 1_000, 0, 0, 0, 0)], {}, 0)))
            neighbour.wait_until_read(PATIENCE_S)
        self._drop_neighbour()
        self._step("neighbour invents brokers", count, size)

    @rule(parts=st.sampled_from((1, 20, 100)), is_one_change=st.booleans())
    def neighbour_leaves_parts_unfinished(self, parts: int, is_one_change: bool) -> None:
        """Never the last one: of one change of what it needs, or of ever new ones."""
        with contextlib.suppress(OSError):
            neighbour = self._greeted(LIFE)
            for part in range(parts):
                wanted = [f"{part}/{number}".ljust(1_000, "x") for number in range(250)]
                change, place = (1_000, part) if is_one_change else (1_000 + part, 0)
                neighbour.say(Control(InterestUpdate("mallory", LIFE, change, -1, wanted, [], place, True)))
            neighbour.wait_until_read(PATIENCE_S)
        self._drop_neighbour()
        self._step("neighbour leaves parts unfinished", parts, is_one_change)

    def _greeted(self, life: int) -> Neighbour:
        self._drop_neighbour()
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._neighbour = Neighbour(int(self.chain.member("b").overlay.rpartition(":")[2]), life)
                return self._neighbour
            except OSError:  # the one before may not be gone yet
                if time.monotonic() > until_s:
                    raise
                time.sleep(REDIAL_S)

    def _drop_neighbour(self) -> None:
        if self._neighbour is not None:
            self._neighbour.close()
            self._neighbour = None

    # Users of the admin API

    @rule(
        broker=brokers,
        method=st.sampled_from(("GET", "GET", "POST", "PUT", "DELETE", "HEAD", "NONSENSE")),
        path=st.sampled_from(PATHS),
        query=st.sampled_from(QUERIES),
        body_bytes=st.sampled_from((0, 1, 100, 1 << 20, (16 << 20) + 1)),
        said_bytes=st.sampled_from((None, 0, 5, 1 << 40)),
    )
    def asks(self, broker: str, method: str, path: str, query: str, body_bytes: int, said_bytes: int | None) -> None:
        length = body_bytes if said_bytes is None else said_bytes
        head = f"{method} {path}{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n"
        with self._asking(broker) as line, contextlib.suppress(OSError):
            line.sendall(head.encode() + bytes(body_bytes))
            until_read(line, PATIENCE_S)
        self._step("asks", broker, method, path, query, body_bytes, said_bytes)

    @rule(
        broker=brokers,
        data=st.binary(max_size=60) | st.sampled_from((b"GET / HTTP/1.1\r\n", b"GET /")),
        more=st.sampled_from((b"x: y\r\n", b"x", b"\0")),
        times=st.sampled_from((0, 1, 5_000, 100_000)),
    )
    def asks_nonsense(self, broker: str, data: bytes, more: bytes, times: int) -> None:
        with self._asking(broker) as line, contextlib.suppress(OSError):
            line.sendall(data + more * times)
            until_read(line, PATIENCE_S)
        self._step("asks nonsense", broker, data, more, times)

    @rule(
        broker=brokers,
        count=st.sampled_from((1, 30, 110)),
        said=st.sampled_from(
            (b"", b"GET /ready HT", b"POST /plan HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nx")
        ),
    )
    def asks_slowly(self, broker: str, count: int, said: bytes) -> None:
        with contextlib.suppress(OSError):
            for _ in range(count):
                line = socket.create_connection(("127.0.0.1", self.chain.admin_ports[broker]), PATIENCE_S)
                self._hold(self._slow, line, SLOW_MAX)
                line.sendall(said)
        self._step("asks slowly", broker, count, said)

    # How

    def _step(self, *what: object) -> None:
        self.chain.check(" ".join(map(shown, what)))

    def _send(self, broker: str, data: bytes) -> None:
        """Over a connection of its own, until the broker has read it."""
        with self._connected(broker) as line, contextlib.suppress(OSError):
            line.sendall(data)
            until_read(line, PATIENCE_S)

    @contextlib.contextmanager
    def _connected(self, broker: str) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.chain.mqtt_port(broker)), PATIENCE_S) as line:
            yield line

    @contextlib.contextmanager
    def _asking(self, broker: str) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.chain.admin_ports[broker]), PATIENCE_S) as line:
            yield line

    @staticmethod
    def _hold(held: list[socket.socket], line: socket.socket, most: int) -> None:
        held.append(line)
        if len(held) > most:
            held.pop(0).close()
