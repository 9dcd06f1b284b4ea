"""A test bench for the MQTT server: virtual time, a store that can be slow or crash, and clients that tell a story.

    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t/#", qos=2)
    bench.client("bob").publish("t/1", b"x", qos=1)
    assert alice.got() == [Got("t/1", b"x", qos=1)]

The bench is the driver: at the end of each turn the records go to the store as one batch, and what waits for them
leaves when the batch is committed. Ordinarily that is at once. While `bench.is_store_slow`, batches stay uncommitted
until `bench.commit()`; `bench.crash()` loses them, and everything that had not left.

Clients read and answer whatever arrives as long as they are `polite`; otherwise a test says what they send. They follow
the protocol: they resend what was not acknowledged when they come back to a session, and know a QoS 2 message that
comes again by its packet identifier.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import mqtt5

from overlane.core.events import Deliver, Erase, Reception, Save
from overlane.core.qos import QosTable
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.mediation.mediation import Mediation
from overlane.mediation.rule import MediationRule
from overlane.mqtt.codec import codec5, codec311
from overlane.mqtt.codec.framing import packet_end
from overlane.mqtt.connection import Connection
from overlane.mqtt.server import MqttServer
from overlane.pubsub.access import Access, Rule
from overlane.pubsub.cluster.uplink import Alone, Uplink
from overlane.pubsub.contract.connection import ClientConnection
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.questions import Authenticate, CallFunction, LoginVerdict, PassOn, Placed
from overlane.pubsub.limits import Limits
from overlane.pubsub.policies.policy import Policies
from overlane.pubsub.state import Settings

NEVER_S = 0xFFFF_FFFF

Name = tuple[str, bytes]


class Got(NamedTuple):
    """A message as a client gets it."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    ids: tuple[int, ...] = ()
    dup: bool = False
    expiry: int | None = None


class Wire:
    """One network connection: what the server has said and the client has not read."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.held: deque[tuple[bytes, int]] = deque()
        """Chunks, and the batch of records that each waits for."""
        self.arrived = b""
        self.is_broken = False

    def flush(self, committed: int, now: Nanos) -> None:
        while self.held and self.held[0][1] <= committed:
            self.arrived += self.held.popleft()[0]
            if self.connection.greeted_ns == NEVER:
                self.connection.greeted_ns = now
        self.count()

    def take(self) -> bytes:
        """What the client reads."""
        data, self.arrived = self.arrived, b""
        self.count()
        return data

    def count(self) -> None:
        self.connection.unsent_bytes = sum(len(data) for data, _ in self.held) + len(self.arrived)


class Bench:
    def __init__(
        self,
        *,
        rules: Iterable[Rule] = (),
        users: Mapping[str, bytes] | None = None,
        anonymous: bool | None = None,
        qos: QosTable | None = None,
        uplink: Uplink | None = None,
        mediation: Iterable[MediationRule] = (),
        has_lane: bool = True,
        policies: Policies | None = None,
        **limits: int,
    ) -> None:
        self.now: Nanos = 1_000 * SECOND
        self.store: dict[Name, bytes] = {}
        self.users = users or {}
        mediated = Mediation(mediation) if mediation else None
        self.settings = Settings(
            Limits(**limits), Access(rules), qos or QosTable({}), anonymous, mediation=mediated, policies=policies
        )
        self.calls: list[CallFunction] = []
        """Of functions, which nobody has answered."""
        self.wires: list[Wire] = []
        self.clients: list[Client] = []
        self.is_store_slow = False
        self.holds_verdicts = False
        self.questions: list[Authenticate] = []
        self.placements: list[Placed | PassOn] = []
        self._uplink = uplink or Alone()
        self._has_lane = has_lane
        self._fresh = 0
        self._batches: deque[tuple[dict[Name, bytes | None], int]] = deque()
        """What is not committed, and the turn it is of."""
        self._submitted = self._committed = 0
        self.start()

    # The broker's life

    def start(self) -> None:
        records = [(table, key, value) for (table, key), value in self.store.items()]
        self.server = MqttServer("seattle", self.settings, self._uplink, self._fresh_id, records, self.now)
        if not self._has_lane:
            self.server._fast_path.enter = lambda *_: None  # type: ignore[method-assign]
        self.end_turn()

    def crash(self, *, restart: bool = True) -> None:
        """The process dies now: what was not committed is lost, and so is what was not sent."""
        self._batches.clear()
        self._committed = self._submitted
        for wire in self.wires:
            wire.is_broken = True
        self.wires = []
        for client in self.clients:
            client.is_open = False
        if restart:
            self.start()

    def reconfigure(self, rules: Iterable[Rule] | None = None, **limits: int) -> None:
        old = self.settings
        access = old.access if rules is None else Access(rules)
        self.settings = Settings(
            Limits(**limits) if limits else old.limits, access, old.qos, old.anonymous, policies=old.policies
        )
        self.server.pubsub.reconfigure(self.settings)
        self.server.reconfigure(self.settings)
        self.settle()

    def _fresh_id(self) -> str:
        self._fresh += 1
        return f"assigned-{self._fresh}"

    # Turns

    def end_turn(self) -> None:
        if self.holds_verdicts:
            self._ask()
        else:
            self.answer_all()
        batch: dict[Name, bytes | None] = {}
        for effect in self.server.take_records():
            match effect:
                case Save(table, key, value):
                    batch[table, key] = value
                case Erase(table, key):
                    batch[table, key] = None
                case _:
                    raise AssertionError(f"the server asked for {effect}")
        if batch:
            self._batches.append((batch, self.server.last_turn))
            self._submitted += 1
        wires: dict[ClientConnection, Wire] = {wire.connection: wire for wire in self.wires}
        for connection in self.server.take_touched():
            chunks, waits = connection.taken()
            if (wire := wires.get(connection)) is not None:
                wire.held.append((b"".join(chunks), self._submitted if waits else 0))
        if not self._batches:
            self.server.durable(self.server.last_turn, self.now)
        if not self.is_store_slow:
            self.commit()
        self.flush()

    def _ask(self) -> None:
        for asked in self.server.take_questions():
            match asked:
                case Authenticate():
                    self.questions.append(asked)
                case Placed() | PassOn():
                    self.placements.append(asked)
                case CallFunction():
                    self.calls.append(asked)
                case _:
                    raise AssertionError(f"MQTT asked {asked}")

    def answer_all(self) -> None:
        """Let in, or not, whoever asks for it."""
        self._ask()
        questions, self.questions = self.questions, []
        for question in questions:
            self.answer(question)

    def commit(self, batches: int = 1_000_000) -> None:
        while self._batches and batches:
            batch, turn = self._batches.popleft()
            for name, value in batch.items():
                if value is None:
                    self.store.pop(name, None)
                else:
                    self.store[name] = value
            self._committed += 1
            self.server.durable(turn, self.now)
            batches -= 1
        self.flush()

    @property
    def uncommitted(self) -> int:
        return len(self._batches)

    def flush(self) -> None:
        for wire in self.wires:
            wire.flush(self._committed, self.now)

    def answer(self, question: Authenticate, verdict: LoginVerdict | None = None) -> None:
        if verdict is None:
            is_right = self.users.get(question.user) == question.password.reveal()
            verdict = LoginVerdict.IS_USER if is_right else LoginVerdict.IS_NOT
        assert isinstance(question.connection, Connection)
        self.server.authenticated(question.connection, verdict, self.now)

    def settle(self) -> None:
        """Everything that is under way arrives and is answered, until all is quiet."""
        self.end_turn()
        while any(client.read() for client in self.clients) or self.server.state.touched:
            self.end_turn()

    def wait(self, seconds: float) -> None:
        """Time passes, and the server does what is due, when it is due."""
        until = self.now + round(seconds * SECOND)
        while (due := self.server.next_deadline()) <= until:
            self.now = max(self.now, due)
            self.server.tick(self.now)
            self.settle()
        self.now = until

    def deliver(self, effect: Deliver) -> Reception:
        reception = self.server.deliver(effect, self.now)
        self.settle()
        return reception

    # Clients

    def client(self, client_id: str, version: int = 5, **wishes: Any) -> "Client":
        """One that connects now."""
        client = self.stranger(client_id, version, **wishes)
        client.connect()
        return client

    def stranger(self, client_id: str = "", version: int = 5, **wishes: Any) -> "Client":
        """One that has said nothing yet."""
        client = Client(self, client_id, version, **wishes)
        self.clients.append(client)
        return client

    def tables(self) -> dict[str, int]:
        """How many records the store has, by table."""
        counts: dict[str, int] = {}
        for table, _ in sorted(self.store):
            counts[table] = counts.get(table, 0) + 1
        return counts


class Client:
    """`expiry` is the session's, in seconds; for 3.1.1 any but 0 means a session that is not clean.

    `clean` unless there is an expiry. `polite`: it reads and answers by itself whenever the bench settles.
    """

    def __init__(
        self,
        bench: Bench,
        client_id: str,
        version: int,
        *,
        expiry: int = 0,
        clean: bool | None = None,
        polite: bool = True,
        peer: Peer | None = None,
        **connect: Any,
    ) -> None:
        self.bench = bench
        self.id = client_id
        self.version = version
        self.expiry = expiry
        self.clean = clean
        self.polite = polite
        self.peer = peer or Peer("127.0.0.1")
        self.wishes = connect
        self.wire: Wire | None = None
        self.is_open = False
        self.connack: mqtt5.ConnAckPacket | None = None
        self.farewell: mqtt5.DisconnectPacket | None = None
        self.inbox: list[Got] = []
        self.packets: list[mqtt5.Packet] = []
        """All that came since `saw` was last called."""
        self.unread = b""
        self.owed: dict[int, mqtt5.PublishPacket | None] = {}
        """What it has published and not had acknowledged; None once only PUBCOMP is missing."""
        self.held_ids: set[int] = set()
        """Identifiers of QoS 2 messages that came and are not released."""
        self.aliases: dict[int, str] = {}
        self._packet_id = 0

    # Connections

    @property
    def codec(self) -> Any:
        return codec5 if self.version == 5 else codec311

    def open(self) -> "Client":
        """A network connection, without a word."""
        self.drop()
        connection = self.bench.server.connected(self.peer, self.bench.now)
        self.wire = Wire(connection)
        self.bench.wires.append(self.wire)
        self.is_open = True
        self.unread, self.connack, self.farewell, self.packets = b"", None, None, []
        self.aliases = {}
        self.bench.settle()
        return self

    def connect(self, **changes: Any) -> "Client":
        self.expiry = changes.pop("expiry", self.expiry)
        clean = changes.pop("clean", self.clean)
        self.wishes |= changes
        self.open()
        clean = not self.expiry if clean is None else clean
        if self.version != 5:
            clean = not self.expiry
        expiry_s = self.expiry if self.version == 5 else 0 if clean else NEVER_S
        self.send(mqtt5.ConnectPacket(self.id, clean_start=clean, session_expiry_interval=expiry_s, **self.wishes))
        return self

    reconnect = connect

    def drop(self) -> None:
        """The network breaks."""
        if self.wire is not None and not self.wire.is_broken:
            self.wire.is_broken = True
            self.bench.wires.remove(self.wire)
            self.bench.server.lost(self.wire.connection, self.bench.now)
            self.wire = None
            self.is_open = False
            self.bench.settle()

    def disconnect(self, reason: int = 0, expiry: int | None = None) -> None:
        code = mqtt5.DisconnectReasonCode(reason)
        self.send(mqtt5.DisconnectPacket(reason_code=code, session_expiry_interval=expiry))
        self.drop()

    @property
    def is_closed(self) -> bool:
        return not self.is_open

    @property
    def refusal(self) -> int:
        """The reason code of the CONNACK; 0 if it was let in."""
        assert self.connack is not None, "there was no CONNACK"
        return int(self.connack.reason_code)

    @property
    def is_resumed(self) -> bool:
        assert self.connack is not None, "there was no CONNACK"
        return self.connack.session_present

    @property
    def ended(self) -> int | None:
        """The reason of the server's DISCONNECT."""
        return None if self.farewell is None else int(self.farewell.reason_code)

    @property
    def connection(self) -> Connection:
        assert self.wire is not None
        return self.wire.connection

    # What it says

    def send(self, *packets: mqtt5.Packet | bytes, settle: bool = True) -> None:
        assert self.wire is not None, f"{self.id} is not connected"
        data = b"".join(each if isinstance(each, bytes) else self.codec.write(each) for each in packets)
        self.bench.server.receive(self.wire.connection, data, self.bench.now)
        if settle:
            self.bench.settle()

    def subscribe(
        self,
        *filters: str,
        qos: int = 0,
        no_local: bool = False,
        as_published: bool = False,
        handling: int = 0,
        identifier: int | None = None,
        user_properties: list[tuple[str, str]] | None = None,
    ) -> list[int]:
        """The reason codes."""
        packet = mqtt5.SubscribePacket(
            self.next_id(),
            [
                mqtt5.TopicFilter(
                    each,
                    max_qos=mqtt5.QoS(qos),
                    no_local=no_local,
                    retain_as_published=as_published,
                    retain_handling=mqtt5.RetainHandling(handling),
                )
                for each in filters
            ],
            subscription_id=identifier,
            user_properties=user_properties,
        )
        self.send(packet)
        return [int(code) for code in self._answer(mqtt5.SubAckPacket, packet.packet_id).reason_codes]

    def unsubscribe(self, *filters: str) -> list[int]:
        packet = mqtt5.UnsubscribePacket(self.next_id(), list(filters))
        self.send(packet)
        return [int(code) for code in self._answer(mqtt5.UnsubAckPacket, packet.packet_id).reason_codes]

    def publish(
        self, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False, settle: bool = True, **given: Any
    ) -> int | None:
        """The reason code that a message of QoS 1 or 2 is acknowledged with; None while it is not."""
        packet_id = self.next_id() if qos else None
        packet = mqtt5.PublishPacket(topic, payload, qos=mqtt5.QoS(qos), retain=retain, packet_id=packet_id, **given)
        if packet_id is not None:
            self.owed[packet_id] = packet
        self.send(packet, settle=settle)
        for one in self.packets:
            if isinstance(one, mqtt5.PubAckPacket | mqtt5.PubRecPacket) and one.packet_id == packet_id:
                return int(one.reason_code)
        return None

    def ack(self, kind: type[Any], packet_id: int, reason: int = 0) -> None:
        """PUBACK, PUBREC, PUBREL or PUBCOMP, from a client that is not polite."""
        self.send(codec5.read(_ack_bytes(kind, packet_id, reason)))

    def ping(self) -> None:
        self.send(mqtt5.PingReqPacket())

    def next_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        while self._packet_id in self.owed:
            self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id

    # What it hears

    def got(self) -> list[Got]:
        """The messages since this was last asked."""
        inbox, self.inbox = self.inbox, []
        return inbox

    def saw(self, kind: Any = None) -> list[Any]:
        """The packets since this was last asked, or those of one kind."""
        packets, self.packets = self.packets, []
        return [packet for packet in packets if kind is None or isinstance(packet, kind)]

    def read(self, packets: int = 1_000_000) -> bool:
        """Read what has arrived; whether there was anything."""
        wire = self.wire
        if wire is None or wire.is_broken:
            return False
        has_news = bool(wire.arrived)
        if has_news:
            self.unread += wire.take()
            if wire.connection.has_more_to_say:
                self.bench.server.writable(wire.connection, self.bench.now)
        while packets and 0 < (end := packet_end(self.unread, 0)) <= len(self.unread):
            packet, self.unread = self.codec.read(self.unread[:end]), self.unread[end:]
            packets -= 1
            self.packets.append(packet)
            self._hear(packet)
        if wire.connection.closing is not None and not wire.held and not wire.arrived and not self.unread:
            has_news |= self.is_open
            self.is_open = False
        return has_news

    def _hear(self, packet: mqtt5.Packet) -> None:
        match packet:
            case mqtt5.ConnAckPacket():
                self.connack = packet
                if not int(packet.reason_code):
                    self._resume()
            case mqtt5.PublishPacket():
                self._hear_message(packet)
            case mqtt5.PubAckPacket():
                self.owed.pop(packet.packet_id, None)
            case mqtt5.PubRecPacket():
                if int(packet.reason_code) >= 0x80:
                    self.owed.pop(packet.packet_id, None)
                elif packet.packet_id in self.owed:
                    self.owed[packet.packet_id] = None
                    if self.polite:
                        self.send(mqtt5.PubRelPacket(packet.packet_id), settle=False)
            case mqtt5.PubRelPacket():
                self.held_ids.discard(packet.packet_id)
                if self.polite:
                    self.send(mqtt5.PubCompPacket(packet.packet_id), settle=False)
            case mqtt5.PubCompPacket():
                self.owed.pop(packet.packet_id, None)
            case mqtt5.DisconnectPacket():
                self.farewell = packet
            case _:
                pass

    def _hear_message(self, packet: mqtt5.PublishPacket) -> None:
        topic = packet.topic
        if packet.topic_alias is not None:
            if topic:
                self.aliases[packet.topic_alias] = topic
            topic = self.aliases[packet.topic_alias]
        qos, packet_id = int(packet.qos), packet.packet_id
        is_known = qos == 2 and packet_id in self.held_ids
        if not is_known:
            ids = tuple(packet.subscription_ids)
            got = Got(topic, packet.payload, qos, packet.retain, ids, packet.duplicate, packet.message_expiry_interval)
            self.inbox.append(got)
        if packet_id is not None:
            if qos == 2:
                self.held_ids.add(packet_id)
            if self.polite:
                answer = mqtt5.PubAckPacket(packet_id) if qos == 1 else mqtt5.PubRecPacket(packet_id)
                self.send(answer, settle=False)

    def _resume(self) -> None:
        assert self.connack is not None
        if not self.connack.session_present:
            self.owed, self.held_ids = {}, set()
            return
        if not self.polite:
            return
        for packet_id, packet in list(self.owed.items()):
            self.send(mqtt5.PubRelPacket(packet_id) if packet is None else again(packet), settle=False)

    def _answer(self, kind: type[Any], packet_id: int) -> Any:
        found = [one for one in self.packets if isinstance(one, kind) and one.packet_id == packet_id]
        assert found, f"{self.id} has no {kind.__name__} {packet_id}: {self.packets}"
        return found[-1]


def again(packet: mqtt5.PublishPacket) -> mqtt5.PublishPacket:
    """The same once more, with the duplicate flag."""
    return mqtt5.PublishPacket(
        packet.topic,
        packet.payload,
        qos=packet.qos,
        retain=packet.retain,
        packet_id=packet.packet_id,
        duplicate=True,
        message_expiry_interval=packet.message_expiry_interval,
        user_properties=packet.user_properties,
    )


_KINDS = {mqtt5.PubAckPacket: 0x40, mqtt5.PubRecPacket: 0x50, mqtt5.PubRelPacket: 0x62, mqtt5.PubCompPacket: 0x70}


def _ack_bytes(kind: type[Any], packet_id: int, reason: int) -> bytes:
    return bytes((_KINDS[kind], 3)) + packet_id.to_bytes(2) + bytes((reason,))
