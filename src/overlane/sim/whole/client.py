"""An MQTT client with a persistent session, of 3.1.1 or 5: what it publishes and gets, over any number of connections.

    offline -- pause --> connecting -- CONNACK --> online -- lost, or it leaves --> offline

What is not acknowledged is sent again on the next connection: PUBLISH with DUP, or PUBREL. Messages of QoS 2 that come
are taken once for each packet identifier until it is released. The application acknowledges after a moment of its own,
so that much is under way when something breaks. What the client knows survives everything: it never crashes. A message
that is refused with a reason (MQTT 5) is given up; where the broker closes the connection instead (3.1.1), it is sent
again.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

import mqtt5

from overlane.core.units import MS, Nanos
from overlane.mqtt.codec import codec5, codec311
from overlane.mqtt.codec.framing import Framer
from overlane.sim.engine import Engine
from overlane.sim.luck import between
from overlane.sim.whole.wire import Wire

PACKET_BYTES_MAX = 1 << 20
EXPIRY_S = 86_400
RECONNECT_MIN: Nanos = 20 * MS
RECONNECT_MAX: Nanos = 600 * MS
ANSWERED_WITHIN: Nanos = 2_000 * MS
"""A broker that has not answered CONNECT for so long is not there."""
ERRORS = 0x80
WINDOW = 20
"""Messages under way in each direction."""
IDS = 65_535


@dataclass(frozen=True, slots=True)
class Message:
    """`number` counts what one publisher has published on one topic, from 1."""

    publisher: str
    topic: str
    number: int
    qos: int

    def payload(self) -> bytes:
        return f"{self.publisher} {self.number} {self.qos}".encode()

    @classmethod
    def read(cls, topic: str, payload: bytes) -> "Message":
        publisher, number, qos = payload.decode().split()
        return cls(publisher, topic, int(number), int(qos))


class Observer(Protocol):
    """Who is told what clients were promised, and what they got."""

    def sent(self, message: Message) -> None: ...
    def acknowledged(self, message: Message) -> None: ...
    def refused(self, _message: Message, /) -> None: ...
    def subscribed(self, client: str, topic_filter: str, qos: int) -> None: ...
    def got(self, client: str, message: Message, qos: int) -> None: ...
    def went(self, client: str) -> None: ...
    def session_lost(self, client: str) -> None: ...
    def dismissed(self, client: str, reason: int) -> None: ...


class Client:
    def __init__(
        self,
        name: str,
        engine: Engine,
        luck: Random,
        dial: "Callable[[Client], Wire | None]",
        observer: Observer,
        is_v5: bool = True,
    ) -> None:
        """`dial` opens a connection to the client's broker; None if it is not there."""
        self.name = name
        self._read, self._write = (codec5.read, codec5.write) if is_v5 else (codec311.read, codec311.write)
        self.is_online = False
        self.is_away = False
        """Whether it means to stay offline."""
        self.resumed = 0
        """How often its session was there when it came back."""
        self.resent = 0
        self._engine = engine
        self._luck = luck
        self._dial = dial
        self._observer = observer
        self._wire: Wire | None = None
        self._framer = Framer(PACKET_BYTES_MAX)
        self._had_session = False
        self._window = 1
        self._last_id = 0
        self._numbers: dict[str, int] = {}
        self._unsent: deque[Message] = deque()
        self._under_way: dict[int, Message] = {}
        """Sent and not acknowledged, in the order in which it was first sent."""
        self._released: dict[int, None] = {}
        """QoS 2 that the broker has taken, and PUBREL under way."""
        self._received: set[int] = set()
        """QoS 2 that was taken and is not released."""
        self._wishes: dict[str, int] = {}
        self._subscribing: dict[int, tuple[str, int]] = {}

    # The application

    @property
    def unsettled(self) -> int:
        """Messages that the broker has yet to take responsibility for, and requests that it has yet to answer."""
        return len(self._unsent) + len(self._under_way) + len(self._subscribing)

    def publish(self, topic: str, qos: int) -> None:
        number = self._numbers[topic] = self._numbers.get(topic, 0) + 1
        self._unsent.append(Message(self.name, topic, number, qos))
        self._send_more()

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self._wishes[topic_filter] = qos
        if self.is_online:
            self._ask(topic_filter, qos)

    def leave(self) -> None:
        """Disconnect, and stay away; the session stays."""
        self.is_away = True
        if self._wire is not None:
            if self.is_online:
                self._wire.send(self._write(mqtt5.DisconnectPacket()))
            wire, self._wire = self._wire, None
            self._offline()
            self._engine.at(self._engine.now + between(self._luck, 0, 50 * MS), lambda _: wire.break_off())

    def come(self) -> None:
        """Connect, and stay."""
        self.is_away = False
        if self._wire is None:
            self._connect(None)

    # The connection

    def _connect(self, _: None) -> None:
        if self._wire is not None or self.is_away:
            return
        self._framer = Framer(PACKET_BYTES_MAX)
        self._wire = wire = self._dial(self)
        if wire is None:
            self._connect_later()
            return
        connect = mqtt5.ConnectPacket(
            self.name, clean_start=False, keep_alive=0, session_expiry_interval=EXPIRY_S, receive_max=WINDOW
        )
        wire.send(self._write(connect))
        self._engine.at(self._engine.now + ANSWERED_WITHIN, self._give_up, wire)

    def _give_up(self, wire: Wire) -> None:
        if self._wire is wire and not self.is_online:
            wire.break_off()

    def _connect_later(self) -> None:
        self._engine.at(self._engine.now + between(self._luck, RECONNECT_MIN, RECONNECT_MAX), self._connect)

    def lost(self, wire: Wire) -> None:
        if wire is self._wire:
            self._wire = None
            self._offline()
            if not self.is_away:
                self._connect_later()

    def _offline(self) -> None:
        self.is_online = False
        self._subscribing.clear()
        self._observer.went(self.name)

    def received(self, wire: Wire, data: bytes) -> None:
        if wire is not self._wire:
            return
        for packet in self._framer.feed(data):
            self._take(self._read(packet))
            if wire is not self._wire:
                return

    def _send(self, packet: mqtt5.Packet) -> None:
        if self._wire is not None:
            self._wire.send(self._write(packet))

    # Packets

    def _take(self, packet: mqtt5.Packet) -> None:
        match packet:
            case mqtt5.ConnAckPacket():
                self._connected(packet)
            case mqtt5.PublishPacket():
                self._arrived(packet)
            case mqtt5.PubAckPacket() | mqtt5.PubRecPacket():
                self._answered(packet.packet_id, int(packet.reason_code))
            case mqtt5.PubRelPacket():
                self._received.discard(packet.packet_id)
                self._answer_later(mqtt5.PubCompPacket(packet.packet_id))
            case mqtt5.PubCompPacket():
                self._released.pop(packet.packet_id, None)
                self._send_more()
            case mqtt5.SubAckPacket():
                wish = self._subscribing.pop(packet.packet_id, None)
                if wish is not None and all(int(code) < ERRORS for code in packet.reason_codes):
                    self._observer.subscribed(self.name, *wish)
            case mqtt5.DisconnectPacket():
                self._observer.dismissed(self.name, int(packet.reason_code))
            case _:
                raise AssertionError(f"{self.name} got {packet}")

    def _connected(self, packet: mqtt5.ConnAckPacket) -> None:
        if int(packet.reason_code) >= ERRORS:
            return
        if self._had_session and not packet.session_present:
            self._observer.session_lost(self.name)
            self._received.clear()
        if not packet.session_present:
            self._received.clear()
        self.resumed += packet.session_present
        self.resent += len(self._under_way) + len(self._released)
        self._had_session = self.is_online = True
        self._window = min(WINDOW, packet.receive_max)
        for packet_id, message in self._under_way.items():
            self._send_message(packet_id, message, again=True)
        for packet_id in self._released:
            self._send(mqtt5.PubRelPacket(packet_id))
        for topic_filter, qos in self._wishes.items():
            self._ask(topic_filter, qos)
        self._send_more()

    def _ask(self, topic_filter: str, qos: int) -> None:
        packet_id = self._next_id()
        self._subscribing[packet_id] = topic_filter, qos
        asked = mqtt5.TopicFilter(topic_filter, max_qos=mqtt5.QoS(qos), retain_handling=mqtt5.RetainHandling.SEND_NEVER)
        self._send(mqtt5.SubscribePacket(packet_id, [asked]))

    def _next_id(self) -> int:
        used = self._under_way.keys() | self._released.keys() | self._subscribing.keys()
        while True:
            self._last_id = self._last_id % IDS + 1
            if self._last_id not in used:
                return self._last_id

    def _send_more(self) -> None:
        while self.is_online and self._unsent and len(self._under_way) + len(self._released) < self._window:
            message = self._unsent.popleft()
            self._observer.sent(message)
            packet_id = 0
            if message.qos:
                packet_id = self._next_id()
                self._under_way[packet_id] = message
            self._send_message(packet_id, message, again=False)

    def _send_message(self, packet_id: int, message: Message, again: bool) -> None:
        qos = mqtt5.QoS(message.qos)
        self._send(
            mqtt5.PublishPacket(message.topic, message.payload(), qos=qos, packet_id=packet_id or None, duplicate=again)
        )

    def _answered(self, packet_id: int, reason: int) -> None:
        message = self._under_way.pop(packet_id, None)
        if message is None:
            return
        if reason >= ERRORS:
            self._observer.refused(message)
        else:
            self._observer.acknowledged(message)
            if message.qos == 2:
                self._released[packet_id] = None
                self._send(mqtt5.PubRelPacket(packet_id))
        self._send_more()

    def _arrived(self, packet: mqtt5.PublishPacket) -> None:
        qos, packet_id = int(packet.qos), packet.packet_id
        message = Message.read(packet.topic, bytes(packet.payload))
        if qos == 2:
            assert packet_id is not None
            if packet_id not in self._received:
                self._received.add(packet_id)
                self._observer.got(self.name, message, qos)
            self._answer_later(mqtt5.PubRecPacket(packet_id))
        else:
            self._observer.got(self.name, message, qos)
            if qos:
                assert packet_id is not None
                self._answer_later(mqtt5.PubAckPacket(packet_id))

    def _answer_later(self, packet: mqtt5.Packet) -> None:
        """In order, on the connection of now or not at all."""
        wire = self._wire

        def answer(_: None) -> None:
            if wire is not None and wire is self._wire:
                wire.send(self._write(packet))

        self._engine.at(self._engine.now + self._pause_ns, answer)

    @property
    def _pause_ns(self) -> Nanos:
        """The same for all packets, so that answers keep their order."""
        return 5 * MS
