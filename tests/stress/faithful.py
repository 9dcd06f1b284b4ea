"""Clients that do what the protocol asks of them however often the broker dies, and remember all that they did.

They keep their sessions, come back when the connection breaks, resend what was not acknowledged, and know a QoS 2
message that comes again by its identifier. Written from the specification with nothing of the broker's in them, so that
the two do not share a misunderstanding.
"""

import asyncio
from collections import defaultdict
from contextlib import suppress

PAUSE_S = 0.02
PATIENCE_S = 60.0
FOR_EVER = b"\x05\x11\xff\xff\xff\xff"
"""The properties of a CONNECT whose session is kept, in MQTT 5."""
REFUSED = 0x80
IDS = 65_535


def packet(first: int, body: bytes) -> bytes:
    length, left = bytearray(), len(body)
    while left > 0x7F:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((first, *length, left)) + body


def text(value: str) -> bytes:
    return len(value).to_bytes(2) + value.encode()


class SessionLost(AssertionError):
    """The broker has forgotten a session that it had to keep."""


class Faithful:
    """What publishers and subscribers have in common: one connection after the other."""

    def __init__(self, port: int, client: str, version: int) -> None:
        self.client = client
        self.version = version
        self.generation = 0
        """How often it has been let in."""
        self.is_connected = False
        self._port = port
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def stay(self) -> None:
        """Connected for ever, but for the time that the broker is away."""
        while True:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
                try:
                    await self._introduce()
                    self.is_connected = True
                    while True:
                        await self._hear(*await self._packet())
                finally:
                    self.is_connected = False
                    self._writer.close()
            self._left()
            await asyncio.sleep(PAUSE_S)

    async def _introduce(self) -> None:
        properties = FOR_EVER if self.version == 5 else b""
        self._write(0x10, text("MQTT") + bytes((self.version, 0, 0, 0)) + properties + text(self.client))
        kind, body = await self._packet()
        assert kind == 0x20, f"{self.client} got {kind:x}"
        assert body[1] == 0, f"{self.client} was refused with {body[1]:x}"
        if self.generation and not body[0]:
            raise SessionLost(self.client)
        self.generation += 1
        self._returned()

    async def _packet(self) -> tuple[int, bytes]:
        first = (await self._reader.readexactly(1))[0]
        length = shift = 0
        while True:
            byte = (await self._reader.readexactly(1))[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return first, await self._reader.readexactly(length)

    def _write(self, first: int, body: bytes) -> None:
        self._writer.write(packet(first, body))

    @property
    def _none(self) -> bytes:
        """No properties."""
        return b"\0" if self.version == 5 else b""

    def _returned(self) -> None:
        """It has been let in."""

    def _left(self) -> None:
        """The connection is broken."""

    async def _hear(self, first: int, body: bytes) -> None:
        raise NotImplementedError


class FaithfulPublisher(Faithful):
    """Publishes numbers from 0 on, each in its turn, with no more than `window` of them on their way."""

    def __init__(
        self, port: int, client: str, version: int, topic: str, qos: int, window: int = 20, retain: bool = False
    ) -> None:
        super().__init__(port, client, version)
        self.topic = topic
        self.qos = qos
        self.acknowledged: set[int] = set()
        """What the broker has taken responsibility for."""
        self.resent: set[int] = set()
        """What it may have got more than once from us."""
        self.published = 0
        self.is_stopped = False
        self._window = window
        self._retain = retain
        self._owed: dict[int, int] = {}
        """Numbers by packet identifier, in the order in which they were first sent."""
        self._released: dict[int, int] = {}
        """Those of which only the end of the exchange is owed."""

    @property
    def is_settled(self) -> bool:
        return not self._owed and not self._released

    def _returned(self) -> None:
        for packet_id in self._released:
            self._write(0x62, packet_id.to_bytes(2))
        for packet_id, number in self._owed.items():
            self.resent.add(number)
            self._send(packet_id, number, again=True)
        self._go_on()

    def _go_on(self) -> None:
        while not self.is_stopped and len(self._owed) + len(self._released) < self._window:
            packet_id = self.published % IDS + 1
            self._owed[packet_id] = self.published
            self._send(packet_id, self.published, again=False)
            self.published += 1

    def _send(self, packet_id: int, number: int, again: bool) -> None:
        first = 0x30 | again << 3 | self.qos << 1 | self._retain
        self._write(first, text(self.topic) + packet_id.to_bytes(2) + self._none + b"%d" % number)

    async def _hear(self, first: int, body: bytes) -> None:
        packet_id, reason = int.from_bytes(body[:2]), body[2] if len(body) > 2 else 0
        assert reason < REFUSED or first == 0x70, f"{self.client}: {first:x} with {reason:x}"
        match first:
            case 0x40 if self.qos == 1:
                self.acknowledged.add(self._owed.pop(packet_id))
            case 0x50 if self.qos == 2:
                if packet_id in self._owed:
                    self._released[packet_id] = self._owed.pop(packet_id)
                    self.acknowledged.add(self._released[packet_id])
                self._write(0x62, packet_id.to_bytes(2))
            case 0x70 if self.qos == 2:
                self._released.pop(packet_id, None)
            case _:
                raise AssertionError(f"{self.client} got {first:x} {body.hex(' ')}")
        self._go_on()
        await self._writer.drain()


class FaithfulSubscriber(Faithful):
    """`heard`: the numbers by topic, each with the generation of the connection that it came by."""

    def __init__(self, port: int, client: str, version: int, topic_filter: str, qos: int) -> None:
        super().__init__(port, client, version)
        self.qos = qos
        self.heard: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self.is_subscribed = False
        self._filter = topic_filter
        self._held: set[int] = set()
        """Identifiers of QoS 2 messages that were not released yet."""

    def _returned(self) -> None:
        if not self.is_subscribed:
            self._write(0x82, b"\0\1" + self._none + text(self._filter) + bytes((self.qos,)))

    async def _hear(self, first: int, body: bytes) -> None:
        match first & 0xF0:
            case 0x90:
                assert body[-1] == self.qos, f"{self.client}: subscribing was refused with {body[-1]:x}"
                self.is_subscribed = True
            case 0x30:
                self._message(first >> 1 & 3, body)
            case 0x60:
                self._held.discard(int.from_bytes(body[:2]))
                self._write(0x70, body[:2])
            case _:
                raise AssertionError(f"{self.client} got {first:x} {body.hex(' ')}")
        await self._writer.drain()

    def _message(self, qos: int, body: bytes) -> None:
        end = 2 + int.from_bytes(body[:2])
        topic, packet_id = body[2:end].decode(), body[end : end + 2]
        payload = body[end + 2 + len(self._none) :]
        if self.version == 5:
            assert body[end + 2] == 0, "a property that nobody has set"
        if qos == 2:
            identifier = int.from_bytes(packet_id)
            if identifier not in self._held:
                self._held.add(identifier)
                self.heard[topic].append((int(payload), self.generation))
            self._write(0x50, packet_id)
        else:
            assert qos == 1, f"{self.client} got a message of QoS {qos}"
            self.heard[topic].append((int(payload), self.generation))
            self._write(0x40, packet_id)
