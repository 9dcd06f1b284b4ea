"""An MQTT client of 3.1.1 or 5, over any number of connections.

    offline -- pause --> connecting -- CONNACK --> online -- lost, or it leaves --> offline

Unacknowledged packets are sent again on the next connection: PUBLISH with DUP, or PUBREL. Received messages of QoS 2
are accepted once per packet identifier until it is released. The application acknowledges after a short time, so that
many messages are in transit when a fault occurs. The client never crashes and keeps its state. A message that is
refused with a reason (MQTT 5) is given up; if the broker closes the connection instead (3.1.1), it is sent again.

It subscribes again on each connection, without requesting retained messages. With `replays` it requests them until this
is granted once: a new subscription would end the replay of the previous one.

With a keep-alive it pings in time. Each connection has a different will, if any.
"""

from collections import deque
from collections.abc import Callable
from random import Random

import mqtt5

from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.mqtt.codec import codec5, codec311
from overlane.mqtt.codec.framing import Framer
from overlane.sim.engine import Engine
from overlane.sim.random_streams import between
from overlane.sim.whole.contact import Contact
from overlane.sim.whole.habits import Habits
from overlane.sim.whole.message import SimulatedMessage, SimulationObserver
from overlane.sim.whole.wire import Wire

PACKET_BYTES_MAX = 1 << 20
RECONNECT_MIN: Nanos = 20 * MS
RECONNECT_MAX: Nanos = 600 * MS
ANSWERED_WITHIN: Nanos = 2_000 * MS
"""A broker that has not answered CONNECT for so long is not there."""
ERRORS = 0x80
IDS = 65_535


class SimulatedClient:
    def __init__(
        self,
        name: str,
        engine: Engine,
        luck: Random,
        dial: "Callable[[SimulatedClient, Contact], Wire | None]",
        observer: SimulationObserver,
        habits: Habits,
        window: int,
    ) -> None:
        """`dial` opens a connection to the client's broker; None if it is not there.

        `window`: messages under way in each direction.
        """
        self.name = name
        self._habits = habits
        self._read, self._write = (codec5.read, codec5.write) if habits.is_v5 else (codec311.read, codec311.write)
        self._contacts = 0
        self._pings = 0
        self._is_dismissed = False
        """Whether DISCONNECT has come."""
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
        self._window_max = window
        self._window = 1
        self._last_id = 0
        self._numbers: dict[str, int] = {}
        self._unsent: deque[SimulatedMessage] = deque()
        self._under_way: dict[int, SimulatedMessage] = {}
        """Sent and not acknowledged, in the order in which it was first sent."""
        self._unrepeated: deque[int] = deque()
        """Those of them that were not sent again on this connection: a broker may take fewer at a time than before."""
        self._released: dict[int, None] = {}
        """QoS 2 that the broker has taken, and PUBREL under way."""
        self._received: set[int] = set()
        """QoS 2 that was taken and is not released."""
        self._wishes: dict[str, int] = {}
        self._replayed: set[str] = set()
        """Filters whose retained messages it wants and has not been granted yet."""
        self._is_granted: set[str] = set()
        """Those that it has been granted."""
        self._subscribing: dict[int, tuple[str, int]] = {}

    # The application

    @property
    def has_session(self) -> bool:
        """Whether its session is kept somewhere."""
        return self._had_session

    @property
    def unsettled(self) -> int:
        """Messages that the broker has yet to take responsibility for, and requests that it has yet to answer."""
        return max(0, self._pings - 1) + len(self._unsent) + self.owed()

    def owed(self) -> int:
        """Requests that are sent and not answered."""
        return len(self._under_way) + len(self._subscribing)

    def publish(self, topic: str, qos: int, *, is_retained: bool = False, clears: bool = False) -> None:
        number = self._numbers[topic] = self._numbers.get(topic, 0) + 1
        self._unsent.append(SimulatedMessage(self.name, topic, number, qos, is_retained, clears))
        self._send_more()

    def subscribe(self, topic_filter: str, qos: int, *, replays: bool = False) -> None:
        self._wishes[topic_filter] = qos
        if replays:
            self._replayed.add(topic_filter)
        if self.is_online:
            self._ask(topic_filter, qos)

    def leave(self) -> None:
        """Disconnect, and stay away; the session stays."""
        self._go_away(self._say_goodbye)

    def _say_goodbye(self, wire: Wire) -> None:
        wire.contact.may_be_refused = not self._habits.is_v5 and self.owed() > 0
        wire.send(self._write(mqtt5.DisconnectPacket()), is_goodbye=True)

    def vanish(self) -> None:
        """Be gone without a word, and stay away."""
        self._go_away(lambda _: None)

    def _go_away(self, part: Callable[[Wire], None]) -> None:
        self.is_away = True
        if self._wire is not None:
            if self.is_online:
                part(self._wire)
            wire, self._wire = self._wire, None
            self._offline()
            self._engine.at(self._engine.now + between(self._luck, 0, 50 * MS), lambda _: wire.break_off())

    def fall_silent(self, until_ns: Nanos) -> None:
        wire = self._wire
        if wire is not None and self.is_online:
            wire.fall_silent()
            self._observer.went(self.name)
            self._engine.at(until_ns, self._wake_up, wire)

    def _wake_up(self, wire: Wire) -> None:
        self._observer.woke_up(wire.contact)
        wire.wake_up()
        self._engine.at(self._engine.now + self._pause_ns, self._answers_leave, wire)

    def _answers_leave(self, wire: Wire) -> None:
        """Only when they arrive does the broker know that the client reads again."""
        self._engine.at(wire.arrives_ns, self._is_heard_again, wire)

    def _is_heard_again(self, wire: Wire) -> None:
        if wire is self._wire and self.is_online and not wire.is_silent:
            self._observer.came(self.name)

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
        self._is_dismissed = False
        habits = self._habits
        self._contacts += 1
        contact = Contact(
            self.name, self._contacts, self._engine.now, habits.keep_alive_ns, habits.will_delay_s * SECOND
        )
        self._wire = wire = self._dial(self, contact)
        if wire is None:
            self._connect_later()
            return
        will = habits.will_of(self.name, contact.number)
        self._observer.contacted(contact, will)
        wire.send(self._write(habits.connect_packet(self.name, will, self._window_max)))
        self._engine.at(self._engine.now + ANSWERED_WITHIN, self._give_up, wire)
        if habits.keep_alive_s:
            self._ping_later(wire)

    def _ping(self, wire: Wire) -> None:
        if wire is self._wire:
            if self.is_online:
                self._pings += 1
                self._send(mqtt5.PingReqPacket())
            self._ping_later(wire)

    def _ping_later(self, wire: Wire) -> None:
        self._engine.at(self._engine.now + self._habits.keep_alive_ns // 2, self._ping, wire)

    def _give_up(self, wire: Wire) -> None:
        if self._wire is wire and not self.is_online:
            wire.break_off()

    def _connect_later(self) -> None:
        if not self._habits.is_passing:
            self._engine.at(self._engine.now + between(self._luck, RECONNECT_MIN, RECONNECT_MAX), self._connect)

    def lost(self, wire: Wire) -> None:
        if wire is self._wire:
            contact = wire.contact
            if contact.closed_ns < NEVER and contact.accepted_ns < NEVER and not self._is_dismissed:
                self._observer.dismissed(contact, None)
            self._wire = None
            self._offline()
            self.is_away |= self._habits.is_passing
            if not self.is_away:
                self._connect_later()

    def _offline(self) -> None:
        self.is_online = False
        self._pings = 0
        self._subscribing.clear()
        self._observer.went(self.name)

    def received(self, wire: Wire, data: bytes) -> None:
        if wire is not self._wire:
            return
        for packet in self._framer.feed(data):
            self._take(wire, self._read(packet))
            if wire is not self._wire:
                return

    def _send(self, packet: mqtt5.Packet) -> None:
        if self._wire is not None:
            self._wire.send(self._write(packet))

    # Packets

    def _take(self, wire: Wire, packet: mqtt5.Packet) -> None:
        match packet:
            case mqtt5.ConnAckPacket():
                self._connected(wire, packet)
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
                    self._is_granted.add(wish[0])
                    self._observer.subscribed(self.name, *wish)
            case mqtt5.PingRespPacket():
                self._pings -= 1
            case mqtt5.DisconnectPacket():
                self._is_dismissed = True
                self._observer.dismissed(wire.contact, int(packet.reason_code))
            case _:
                raise AssertionError(f"{self.name} got {packet}")

    def _connected(self, wire: Wire, packet: mqtt5.ConnAckPacket) -> None:
        if int(packet.reason_code) >= ERRORS:
            return
        wire.contact.accepted_ns = self._engine.now
        if self._had_session and not packet.session_present:
            self._observer.session_lost(self.name)
            self._received.clear()
        if not packet.session_present:
            self._received.clear()
        self.resumed += packet.session_present
        self.resent += len(self._under_way) + len(self._released)
        self._unrepeated = deque(self._under_way)
        self._had_session = not self._habits.is_passing
        self.is_online = True
        self._observer.came(self.name)
        self._window = min(self._window_max, packet.receive_max)
        self._repeat()
        for packet_id in self._released:
            self._send(mqtt5.PubRelPacket(packet_id))
        for topic_filter, qos in self._wishes.items():
            if not (topic_filter in self._replayed and topic_filter in self._is_granted):
                self._ask(topic_filter, qos)
        self._send_more()

    def _ask(self, topic_filter: str, qos: int) -> None:
        packet_id = self._next_id()
        self._subscribing[packet_id] = topic_filter, qos
        handling = mqtt5.RetainHandling.SEND_NEVER
        if topic_filter in self._replayed:
            handling = mqtt5.RetainHandling.SEND_ALWAYS
            self._observer.asked(self.name, topic_filter, qos)
        asked = mqtt5.TopicFilter(
            topic_filter, max_qos=mqtt5.QoS(qos), retain_as_published=False, retain_handling=handling
        )
        self._send(mqtt5.SubscribePacket(packet_id, [asked]))

    def _next_id(self) -> int:
        used = self._under_way.keys() | self._released.keys() | self._subscribing.keys()
        while True:
            self._last_id = self._last_id % IDS + 1
            if self._last_id not in used:
                return self._last_id

    def _has_room(self) -> bool:
        return self.is_online and len(self._under_way) - len(self._unrepeated) + len(self._released) < self._window

    def _repeat(self) -> None:
        while self._unrepeated and self._has_room():
            packet_id = self._unrepeated.popleft()
            message = self._under_way[packet_id]
            self._observer.resent(message)
            self._send_message(packet_id, message, again=True)

    def _send_more(self) -> None:
        self._repeat()
        while self._unsent and self._has_room():
            message = self._unsent.popleft()
            self._observer.sent(message)
            packet_id = 0
            if message.qos:
                packet_id = self._next_id()
                self._under_way[packet_id] = message
            self._send_message(packet_id, message, again=False)

    def _send_message(self, packet_id: int, message: SimulatedMessage, again: bool) -> None:
        qos = mqtt5.QoS(message.qos)
        self._send(
            mqtt5.PublishPacket(
                message.topic,
                message.payload(),
                qos=qos,
                packet_id=packet_id or None,
                duplicate=again,
                retain=message.is_retained,
            )
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
        if packet_id is None:
            self._tell(packet, qos)
        elif qos == 2:
            if packet_id not in self._received:
                self._received.add(packet_id)
                self._tell(packet, qos)
            self._answer_later(mqtt5.PubRecPacket(packet_id))
        else:
            self._tell(packet, qos)
            self._answer_later(mqtt5.PubAckPacket(packet_id))

    def _tell(self, packet: mqtt5.PublishPacket, qos: int) -> None:
        message = SimulatedMessage.read(packet.topic, bytes(packet.payload))
        if message is None:
            return
        if packet.retain:
            self._observer.got_retained(self.name, message, qos)
        else:
            self._observer.got(self.name, message, qos)

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
