"""Publishers and readers with persistent sessions, which keep a history of all they did for the checker.

They are the clients of tests/stress/faithful.py, which have nothing of the broker's in them, with several lanes for
each publisher, and for brokers that also refuse, close and stop answering.
"""

import asyncio
import math
import time
from collections import Counter
from contextlib import suppress

from checker import Delivery, Lane, Reader
from faithful import FOR_EVER, IDS, PAUSE_S, REFUSED, Faithful, text

FILTER = "+/+/+"
WINDOW = 20
"""QoS 1 and 2 messages of a publisher that are not acknowledged yet."""
TICK_S = 0.02


def payload_of(topic: str, number: int) -> bytes:
    """Anybody can tell what it has to be."""
    filler = 5_000 if number % 50 == 49 else number % 64
    return b"%s|%d|" % (topic.encode(), number) + bytes((number % 251,)) * filler


class Violation(Exception):
    """The broker did what MQTT does not allow."""


class Persistent(Faithful):
    """`outcomes` counts how connections ended; `wrong` tells what a broker must never do."""

    def __init__(self, port: int, client: str, version: int) -> None:
        super().__init__(port, client, version)
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.is_away = False
        self.since_s = 0.0
        """What the times of the history count from, by the monotonic clock."""

    @property
    def _now_s(self) -> float:
        return time.monotonic() - self.since_s

    async def stay(self) -> None:
        while True:
            while self.is_away:
                await asyncio.sleep(PAUSE_S)
            try:
                self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
                try:
                    await self._introduce()
                    self.is_connected = True
                    while True:
                        await self._hear(*await self._packet())
                finally:
                    self.is_connected = False
                    self._writer.close()
                    self._lost()
            except (OSError, asyncio.IncompleteReadError) as ended:
                self.outcomes[type(ended).__name__] += 1
            except Violation as violation:
                self.wrong.append(f"{self.client}: {violation}")
            self._left()
            await asyncio.sleep(PAUSE_S)

    async def _introduce(self) -> None:
        properties = FOR_EVER if self.version == 5 else b""
        self._write(0x10, text("MQTT") + bytes((self.version, 0, 0, 0)) + properties + text(self.client))
        kind, body = await self._packet()
        if kind != 0x20:
            raise Violation(f"CONNECT was answered with {kind:x} {body[:20].hex(' ')}")
        if body[1]:
            self.outcomes[f"refused {body[1]:x}"] += 1
            raise ConnectionRefusedError
        if self.generation and not body[0]:
            self.wrong.append(f"{self.client}: its session is lost")
            self._forgotten()
        self.generation += 1
        self._returned()

    def leave(self, politely: bool) -> None:
        """Be away until told otherwise."""
        self.is_away = True
        if self.is_connected:
            if politely:
                self._write(0xE0, b"")
            with suppress(OSError):
                self._writer.close()

    def _forgotten(self) -> None:
        """The session is not what it was."""

    def _lost(self) -> None:
        """The connection is."""

    def _closed_with(self, body: bytes) -> None:
        self.outcomes[f"disconnect {body[0] if body else 0:x}"] += 1
        raise ConnectionResetError


class Publisher(Persistent):
    """Publishes on its lanes in turn, `rate` messages a second on each."""

    def __init__(self, port: int, client: str, version: int, lanes: list[Lane], rate: float) -> None:
        super().__init__(port, client, version)
        self.lanes = lanes
        self.is_stopped = False
        self._every_s = 1 / rate
        self._next_id = 0
        self._owed: dict[int, tuple[Lane, int]] = {}
        """By packet identifier, in the order in which they were first sent."""
        self._released: dict[int, tuple[Lane, int]] = {}
        """Those of which only the end of the exchange is owed."""

    @property
    def is_settled(self) -> bool:
        return not self._owed and not self._released

    @property
    def unsettled(self) -> str:
        return f"{self.client}: {len(self._owed)} not acknowledged, {len(self._released)} not completed"

    def say(self, topic: str) -> None:
        """At QoS 0, and in no lane."""
        if self.is_connected:
            self._write(0x30, text(topic) + self._none)

    async def publish(self) -> None:
        """Until stopped."""
        due_s = [time.monotonic() + self._every_s * place / len(self.lanes) for place in range(len(self.lanes))]
        while not self.is_stopped:
            now_s = time.monotonic()
            for place, lane in enumerate(self.lanes):
                if due_s[place] <= now_s:
                    self._try(lane)
                    # Whoever could not publish for a while does not make up for it.
                    due_s[place] = max(due_s[place] + self._every_s, now_s - self._every_s)
            await asyncio.sleep(TICK_S)

    def _try(self, lane: Lane) -> None:
        if not self.is_connected or (lane.qos and len(self._owed) + len(self._released) >= WINDOW):
            return
        number = lane.published
        lane.published += 1
        if not lane.qos:
            lane.sent_s[number] = self._now_s
            self._send(0, lane, number, again=False)
            return
        while (packet_id := self._next_id % IDS + 1) in self._owed or packet_id in self._released:
            self._next_id += 1
        self._next_id += 1
        self._owed[packet_id] = lane, number
        self._send(packet_id, lane, number, again=False)

    def _returned(self) -> None:
        for packet_id in self._released:
            self._write(0x62, packet_id.to_bytes(2))
        for packet_id, (lane, number) in self._owed.items():
            lane.resent.add(number)
            self._send(packet_id, lane, number, again=True)

    def _forgotten(self) -> None:
        self._released.clear()

    def _send(self, packet_id: int, lane: Lane, number: int, again: bool) -> None:
        head = text(lane.topic) + (packet_id.to_bytes(2) if lane.qos else b"")
        self._write(0x30 | again << 3 | lane.qos << 1, head + self._none + payload_of(lane.topic, number))

    async def _hear(self, first: int, body: bytes) -> None:
        packet_id, reason = int.from_bytes(body[:2]), body[2] if len(body) > 2 else 0
        owed = self._owed.get(packet_id)
        match first:
            case 0x40 if owed is not None and owed[0].qos == 1:
                self._answered(packet_id, reason)
            case 0x50 if owed is not None and owed[0].qos == 2:
                if self._answered(packet_id, reason):
                    self._released[packet_id] = owed
                    self._write(0x62, packet_id.to_bytes(2))
            case 0x50 if packet_id in self._released:
                self._write(0x62, packet_id.to_bytes(2))
            case 0x70:
                self._released.pop(packet_id, None)
            case 0xE0 if self.version == 5:
                self._closed_with(body)
            case _:
                raise Violation(f"got {first:x} {body[:20].hex(' ')}")
        await self._writer.drain()

    def _answered(self, packet_id: int, reason: int) -> bool:
        lane, number = self._owed.pop(packet_id)
        if reason >= REFUSED:
            lane.refused.add(number)
            self.outcomes[f"publish refused {reason:x}"] += 1
            return False
        lane.acknowledged.add(number)
        return True


class Subscriber(Persistent):
    """Subscribes to all topics of three levels; those that begin with `begin` only tell where it is reached from."""

    def __init__(self, port: int, client: str, version: int, qos: int) -> None:
        super().__init__(port, client, version)
        self.history = Reader(client, qos)
        self.reached_from: set[str] = set()
        self.is_subscribed = False
        self._lost_s = math.inf
        """When its connection was lost, if it has none."""
        self._held: set[int] = set()
        """Identifiers of QoS 2 messages that were not released yet."""

    def _lost(self) -> None:
        self._lost_s = min(self._lost_s, self._now_s)

    def _returned(self) -> None:
        if self._lost_s < math.inf:
            self.history.absences.append((self._lost_s, self._now_s))
            self._lost_s = math.inf
        if not self.is_subscribed:
            self._write(0x82, b"\0\1" + self._none + text(FILTER) + bytes((self.history.qos,)))

    def _forgotten(self) -> None:
        self.is_subscribed = False
        self._held.clear()

    async def _hear(self, first: int, body: bytes) -> None:
        match first & 0xF0:
            case 0x90:
                if body[-1] != self.history.qos:
                    raise Violation(f"SUBSCRIBE was answered with {body[-1]:x}")
                self.is_subscribed = True
            case 0x30:
                self._message(first >> 1 & 3, body)
            case 0x60:
                self._held.discard(int.from_bytes(body[:2]))
                self._write(0x70, body[:2])
            case 0xE0 if self.version == 5:
                self._closed_with(body)
            case _:
                raise Violation(f"got {first:x} {body[:20].hex(' ')}")
        await self._writer.drain()

    def _message(self, qos: int, body: bytes) -> None:
        end = 2 + int.from_bytes(body[:2])
        topic = body[2:end].decode()
        packet_id = body[end : end + 2] if qos else b""
        at = end + len(packet_id)
        if self.version == 5:
            if body[at]:
                raise Violation(f"a property that nobody has set: {body[at : at + 20].hex(' ')}")
            at += 1
        payload = body[at:]
        if qos == 2:
            identifier = int.from_bytes(packet_id)
            if identifier not in self._held:
                self._held.add(identifier)
                self._got(topic, payload)
            self._write(0x50, packet_id)
        else:
            self._got(topic, payload)
            if qos:
                self._write(0x40, packet_id)

    def _got(self, topic: str, payload: bytes) -> None:
        kind, place, _ = topic.split("/")
        if kind == "begin":
            self.reached_from.add(place)
            return
        parts = payload.split(b"|", 2)
        number = int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else -1
        if number < 0 or payload != payload_of(topic, number):
            self.history.corrupted.append(f"{self.client} on {topic}: {payload[:80]!r}")
            return
        self.history.deliveries[topic].append(Delivery(number, self.generation, self._now_s))
