"""An MQTT server as a pure state machine, for versions 3.1.1 and 5.

Bytes, verdicts and the time go in; bytes and effects come out. The driver's turn:

    server.receive(connection, data, now), server.lost(connection, now), server.authenticated(...), in any number
    effects = server.take_effects()
    make the Saves and Erases durable; find out about who asks to be let in (Authenticate)
    for each connection of server.take_touched(): send what connection.taken() gives, after the records if it waits
    call server.tick(t) at t = server.next_deadline()

The parts: the handshake opens connections, sessions outlive them, publishing and subscribing are what clients do,
delivery is what they get, wills are what is said when they are lost, the fast lane passes plain messages on.
"""

from collections.abc import Callable, Iterable
from typing import assert_never

import mqtt5

from overlane import __version__
from overlane.core.events import Deliver, Effect, Erase
from overlane.core.events import Delivery as Delivered
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.mqtt import (
    codec5,
    codec311,
    elsewhere,
    envelope,
    message,
    retained,
    shelf,
    streamlog,
    systopics,
    wills,
    writers,
    writing,
)
from overlane.mqtt import session as stored
from overlane.mqtt.connection import ERRORS, V5, Connection, Peer, Phase
from overlane.mqtt.counters import Counters, Drop, Refusal
from overlane.mqtt.delivery import Delivery
from overlane.mqtt.fastlane import PLAIN, FastLane
from overlane.mqtt.framing import CONNECT, packet_end, version_of_connect
from overlane.mqtt.gate import Gate
from overlane.mqtt.handshake import Answer, Authenticate, Handshake, Verdict
from overlane.mqtt.incoming import PUBLISH, read_publish
from overlane.mqtt.limits import NONE, Limits
from overlane.mqtt.malformed import PACKET_TOO_LARGE, PROTOCOL_ERROR, UNSUPPORTED_PROTOCOL_VERSION, Malformed
from overlane.mqtt.notices import Notice
from overlane.mqtt.publishing import IDENTIFIER_UNKNOWN, QUOTA, Publishing, Refused
from overlane.mqtt.retained import RetainedMessages
from overlane.mqtt.session import Session
from overlane.mqtt.sessions import Sessions
from overlane.mqtt.shelf import Shelf
from overlane.mqtt.state import Settings, State
from overlane.mqtt.streams import Streams
from overlane.mqtt.subscribing import Subscribing
from overlane.mqtt.uplink import Uplink
from overlane.mqtt.wills import Will, Wills
from overlane.mqtt.writers import Writers

Record = tuple[str, bytes, bytes]

Reason = mqtt5.DisconnectReasonCode

Acknowledgement = mqtt5.PubAckPacket | mqtt5.PubRecPacket | mqtt5.PubRelPacket | mqtt5.PubCompPacket

CONNECTIONS_AHEAD = 64
"""So many more than are allowed may connect, to be told so; any more are closed without a word."""

FILTERS_ANSWERED = 100
"""A SUBSCRIBE of so many filters is answered filter by filter, even if fewer subscriptions are allowed."""

WILL_AGAIN_AFTER: Nanos = SECOND
"""When the overlay had no room for a will."""

SHORT_ACK_BYTES = 4
"""An acknowledgement without reason."""

CONNECT_BYTE = bytes((CONNECT,))

_REFUSALS = {PACKET_TOO_LARGE: Refusal.TOO_LARGE, PROTOCOL_ERROR: Refusal.PROTOCOL, QUOTA: Refusal.QUOTA}


class Server:
    def __init__(
        self,
        name: str,
        settings: Settings,
        uplink: Uplink,
        fresh_id: Callable[[], str],
        records: Iterable[Record] = (),
        now: Nanos = 0,
    ) -> None:
        effects: list[Effect] = []
        self.state = state = State(
            name, settings, uplink, fresh_id, effects, Shelf(effects), RetainedMessages(settings.limits)
        )
        self._delivery = Delivery(state)
        self._subscribing = Subscribing(state, self._delivery)
        self._publishing = Publishing(state, self._delivery)
        self.streams = Streams(state, self._delivery, self._subscribing)
        self.writers = Writers(state, self._publishing)
        self._wills = Wills(state, self._say)
        self._sessions = Sessions(state, self._delivery, self._subscribing, self._wills)
        self._handshake = Handshake(state, self._sessions, self._wills)
        self._fastlane = FastLane(state)
        self.gate = Gate(state)
        self._questions: list[Authenticate] = []
        self._bounds = _bounds(settings.limits)
        self._started_ns = now
        self._recover(records, now)
        state.elsewhere.start(now)
        self._tell(now)

    # Recovery

    def _recover(self, records: Iterable[Record], now: Nanos) -> None:
        state = self.state
        for table, key, value in sorted(records, key=_recovery_order):
            match table:
                case message.TABLE:
                    state.shelf.restore_message(key, message.restored(value))
                case retained.TABLE:
                    state.retained.restore(value)
                case stored.SESSIONS:
                    session = stored.restored(key, value)
                    state.sessions[session.client_id] = session
                case stored.SUBSCRIPTIONS | stored.RECEIVED | stored.PASTS:
                    self._recover_part(table, key, value)
                case shelf.QUEUES:
                    found = state.shelf.restore_entry(key, value)
                    if found is not None and (owner := state.sessions.get(found[0])) is not None:
                        owner.window.restore(found[1])
                    elif found is not None:
                        state.shelf.take(*found)
                case wills.TABLE:
                    self._wills.restore(key, value)
                case streamlog.STREAMS:
                    self.streams.restore(key, value, now)
                case streamlog.LOGS:
                    self.streams.restore_message(key, value)
                case writers.TABLE:
                    self.writers.restore(key, value)
        state.shelf.recovered()
        self.writers.recovered()
        self._subscribing.recovered(now)
        self._sessions.recovered(now)
        self._wills.recovered(now)

    def _recover_part(self, table: str, key: bytes, value: bytes) -> None:
        """What belongs to a session. If the session's own record was lost, it must not come back with a later one."""
        client_id, rest = stored.owner(key)
        owner = self.state.sessions.get(client_id)
        if owner is None:
            self.state.effects.append(Erase(table, key))
        elif table == stored.SUBSCRIPTIONS:
            self._subscribing.restore(stored.restored_subscription(owner, rest.decode(), value))
        elif table == stored.PASTS:
            owner.past[rest.decode()] = value.decode()
        else:
            owner.received.add(int.from_bytes(rest))

    # Connections

    def connected(self, peer: Peer, now: Nanos, since_ns: Nanos | None = None) -> Connection:
        """`since_ns`: when it came, if something else had to be agreed on before."""
        state = self.state
        connection = Connection(peer, state.limits, state.touched, now)
        state.connections.add(connection)
        due = (now if since_ns is None else since_ns) + state.limits.connect_within_ns
        connection.appointment = state.agenda.at(due, lambda at: self._look_at_handshake(connection, at))
        if len(state.connections) > state.limits.connections + CONNECTIONS_AHEAD:
            told = f"more than {state.limits.connections} connections"
            state.refuse(Refusal.CONNECTIONS, told, connection)
            connection.close(-1, told)
        return connection

    def receive(self, connection: Connection, data: bytes, now: Nanos, packets_max: int = NEVER) -> None:
        """Bytes from a client. Whatever is wrong with them ends that connection and changes nothing else.

        No more than `packets_max` packets are handled, beside those that pass on the fast lane. If there are more,
        the connection is behind: they wait until this is called again, perhaps without new bytes.
        """
        connection.is_behind = False
        if connection.phase is Phase.CLOSED:
            return
        connection.heard_ns = now
        connection.bytes_in += len(data)
        self.state.counters.bytes_in += len(data)
        self._understand(connection, data, now, packets_max)

    def _understand(self, connection: Connection, data: bytes, now: Nanos, packets_max: int = NEVER) -> None:
        before = connection.messages_in
        try:
            self._read(connection, data, now, packets_max)
        except Malformed as malformed:
            self._violated(connection, malformed, now)
        limit = self.state.limits.messages_per_second
        if limit != NONE and connection.messages_in != before:
            self._charge(connection, connection.messages_in - before, limit, now)

    def _read(self, connection: Connection, data: bytes, now: Nanos, packets_max: int) -> None:
        framer, position = connection.framer, 0
        if framer.is_waiting:
            packets = framer.feed(data)
            if connection.phase is Phase.CHECKING:
                if framer.waiting_bytes > self.state.limits.packet_bytes:
                    raise Malformed(PACKET_TOO_LARGE, "too much ahead of the answer to CONNECT")
                return
            first = next(packets, None)
            if first is None:
                return
            whole = bytes(first)
            is_open = connection.phase is Phase.OPEN
            if not is_open or self._fastlane.pass_on(connection, whole, 0, now) < len(whole):
                self._packet(connection, first, now)
            data, position = framer.take()
        elif connection.phase is Phase.WAITING and data[:1] not in (b"", CONNECT_BYTE):
            raise Malformed(PROTOCOL_ERROR, "the first packet is not a CONNECT")  # without waiting for all of it
        end = len(data)
        while position < end:
            if connection.phase is Phase.OPEN:
                position = self._fastlane.pass_on(connection, data, position, now)
                if position == end:
                    return
            elif connection.phase is Phase.CLOSED:
                return
            elif connection.phase is Phase.CHECKING:
                framer.feed(data, position)
                return
            following = packet_end(data, position)
            if following - position > framer.packet_bytes_max:
                told = f"a packet of {following - position} bytes; at most {framer.packet_bytes_max} are allowed"
                raise Malformed(PACKET_TOO_LARGE, told)
            if following < 0 or following > end:
                next(framer.feed(data, position), None)  # keeps what is there of it
                return
            packets_max -= 1
            if packets_max <= 0:
                framer.feed(data, position)
                connection.is_behind = True
                return
            self._packet(connection, memoryview(data)[position:following], now)
            position = following

    def authenticated(self, connection: Connection, verdict: Verdict, now: Nanos, packets_max: int = NEVER) -> None:
        """The answer to Authenticate. What the client has sent meanwhile is handled as by `receive`."""
        self._handshake.authenticated(connection, verdict, now)
        self._watch_silence(connection)
        if connection.phase is Phase.OPEN and connection.framer.waiting_bytes:
            data, position = connection.framer.take()
            self._understand(connection, data[position:], now, packets_max)

    def writable(self, connection: Connection, now: Nanos) -> None:
        """The client has read: there is room in the driver's buffer again."""
        if connection.session is not None:
            self._delivery.pump(connection.session, connection, now)

    def lost(self, connection: Connection, now: Nanos) -> None:
        """The connection is broken, or closed by us before."""
        connection.phase = Phase.CLOSED
        self.state.connections.discard(connection)
        self.state.agenda.call_off(connection.appointment)
        self._handshake.gone(connection)
        self._sessions.leave(connection, True, now)

    def _violated(self, connection: Connection, malformed: Malformed, now: Nanos) -> None:
        self.state.refuse(_REFUSALS.get(malformed.reason, Refusal.MALFORMED), str(malformed), connection)
        if connection.phase is Phase.WAITING and malformed.reason == UNSUPPORTED_PROTOCOL_VERSION:
            # Whatever it speaks, these bytes are how every version says that it is not spoken here.
            connection.version = 4
            connection.send(b"\x20\x02\x00\x01")
        elif connection.phase in (Phase.WAITING, Phase.CHECKING) and connection.version == V5:
            code = _connack_reason(malformed.reason)
            connection.send_explained(
                lambda told: mqtt5.ConnAckPacket(reason_code=code, reason_str=told), str(malformed)[:200]
            )
        self._close(connection, malformed.reason, str(malformed), now)

    def _close(self, connection: Connection, reason: int, why: str, now: Nanos) -> None:
        connection.close(_disconnect_reason(int(reason)), why)
        self._sessions.leave(connection, True, now)

    def _charge(self, connection: Connection, messages: int, limit: int, now: Nanos) -> None:
        earned = (now - connection.allowance_ns) * limit / SECOND
        connection.allowance = min(float(limit), connection.allowance + earned) - messages
        connection.allowance_ns = now
        if connection.allowance < 0:
            connection.rests_until_ns = now + int(-connection.allowance * SECOND / limit)
            self.state.counters.throttled += 1

    # Packets

    def _packet(self, connection: Connection, data: memoryview, now: Nanos) -> None:
        session = connection.session
        if session is None or connection.phase is not Phase.OPEN:
            self._first_packet(connection, data, now)
            return
        if data[0] >> 4 == CONNECT >> 4:
            raise Malformed(PROTOCOL_ERROR, "a second CONNECT")
        if data[0] >> 4 == PUBLISH >> 4:
            published = read_publish(data, connection.version, self._bounds)
            self._publishing.publish(connection, session, published, now)
            if data[0] == PLAIN and published.topic and published.alias is None:
                self._fastlane.enter(connection, session, published.topic)
            return
        if data[0] == writing.PUBACK and len(data) == SHORT_ACK_BYTES and (packet_id := data[2] << 8 | data[3]):
            self._delivery.acknowledged(session, connection, packet_id, now)
            return
        packet = (codec5 if connection.version == V5 else codec311).read(data, self._bounds)
        match packet:
            case mqtt5.PubAckPacket() | mqtt5.PubRecPacket() | mqtt5.PubRelPacket() | mqtt5.PubCompPacket():
                self._answer(connection, session, packet, now)
            case mqtt5.SubscribePacket():
                self._subscribing.subscribe(connection, session, packet, now)
            case mqtt5.UnsubscribePacket():
                self._subscribing.unsubscribe(connection, session, packet, now)
            case mqtt5.PingReqPacket():
                connection.send(writing.PINGRESP)
            case mqtt5.DisconnectPacket():
                self._goodbye(connection, session, packet, now)
            case mqtt5.AuthPacket():
                raise Malformed(PROTOCOL_ERROR, "AUTH, though no authentication method was agreed on")
            case (
                mqtt5.ConnectPacket()
                | mqtt5.PublishPacket()
                | mqtt5.ConnAckPacket()
                | mqtt5.SubAckPacket()
                | mqtt5.UnsubAckPacket()
                | mqtt5.PingRespPacket()
            ):
                raise Malformed(PROTOCOL_ERROR, f"{type(packet).__name__} is for servers to send")
            case _:
                assert_never(packet)

    def _first_packet(self, connection: Connection, data: memoryview, now: Nanos) -> None:
        connection.version = version_of_connect(data)
        packet = (codec5 if connection.version == V5 else codec311).read(data, self._bounds)
        assert isinstance(packet, mqtt5.ConnectPacket)
        question = self._handshake.connect(connection, packet, now)
        if question is not None:
            self._questions.append(question)
        self._watch_silence(connection)

    def _answer(self, connection: Connection, session: Session, packet: Acknowledgement, now: Nanos) -> None:
        delivery, packet_id = self._delivery, packet.packet_id
        match packet:
            case mqtt5.PubAckPacket():
                delivery.acknowledged(session, connection, packet_id, now)
            case mqtt5.PubRecPacket():
                if not delivery.received(session, connection, packet_id, int(packet.reason_code) >= ERRORS, now):
                    connection.send(writing.ack(connection.version, writing.PUBREL, packet_id, IDENTIFIER_UNKNOWN))
            case mqtt5.PubRelPacket():
                self._publishing.release(connection, session, packet_id)
            case mqtt5.PubCompPacket():
                delivery.completed(session, connection, packet_id, now)
            case _:
                assert_never(packet)

    def _goodbye(self, connection: Connection, session: Session, packet: mqtt5.DisconnectPacket, now: Nanos) -> None:
        expiry_s = packet.session_expiry_interval
        if expiry_s is not None:
            if expiry_s and not session.expiry_s:
                raise Malformed(PROTOCOL_ERROR, "a session expiry at the end where there was none at the start")
            session.expiry_s = min(expiry_s, self.state.limits.session_expiry_s_max)
        with_will = packet.reason_code != Reason.NORMAL_DISCONNECTION
        connection.close(-1, "the client said goodbye")
        self._sessions.leave(connection, with_will, now)

    # Messages from elsewhere

    def deliver(self, effect: Deliver, now: Nanos) -> None:
        """What the overlay brought for local subscribers."""
        state = self.state
        state.is_let_in = effect.reliable
        for topic, flags, body in effect.messages:
            subscribers = effect.subscribers.get(topic)
            if not subscribers:
                continue
            try:
                if flags & envelope.RUN and not topic.startswith(elsewhere.RESERVED):
                    run, count, is_v5 = envelope.unpack_run(flags, body)
                    self._fastlane.arrive(topic, run, count, is_v5, now)
                    self.streams.arrive(topic, run, is_v5, now)
                else:
                    self._deliver_one(Delivered(topic, body, flags, subscribers), now - effect.age_ns, now)
            except (ValueError, IndexError):
                state.refuse(Refusal.MALFORMED, f"a message of {effect.origin} that cannot be read")
        state.is_let_in = False

    def _deliver_one(self, one: Delivered, published_ns: Nanos, now: Nanos) -> None:
        state = self.state
        if one.topic.startswith(elsewhere.RETAINED):
            state.effects += state.retained.keep_if_later(state.elsewhere.read_retained(one.topic, one.flags, one.body))
            return
        if one.topic.startswith(elsewhere.SHARE):
            self._deliver_to_group(one, published_ns, now)
            return
        arrived = envelope.unpack(one.topic, one.flags, one.body, published_ns)
        if arrived.expires_ns > now:
            only = () if one.subscribers == (elsewhere.EVERYBODY,) else one.subscribers
            self._delivery.spread(arrived, self.state.subscriptions.audience(one.topic), now, only=only)

    def _deliver_to_group(self, one: Delivered, published_ns: Nanos, now: Nanos) -> None:
        """Another broker has chosen this one for a message of a shared subscription."""
        name, _, tag, topic = elsewhere.read_share_name(one.topic)
        arrived = envelope.unpack(topic, one.flags, one.body, published_ns)
        if arrived.expires_ns <= now:
            return
        for group in self.state.subscriptions.audience(topic).groups:
            if (
                group.name == name
                and elsewhere.tag_of(group.filter) == tag
                and self._delivery.share(arrived, group, now)
            ):
                return
        self.state.counters.dropped[Drop.SESSION_ENDED] += 1  # the last member has gone meanwhile

    def publish(self, said: message.Message, now: Nanos) -> None:
        """A message of the server's own, for local subscribers."""
        audience = self.state.subscriptions.audience(said.topic)
        self._delivery.spread(said, audience, now)
        self._delivery.share_here(said, audience, now)

    def _say(self, client_id: str, will: Will, now: Nanos) -> None:
        speaker = Session(client_id, will.user, 0)
        try:
            self._publishing.accept(will.message(client_id, now), speaker, will.user_properties, now, is_will=True)
        except Refused as refused:
            self.state.refuse(refused.why, f"a will: {refused.told}", client_id=client_id)
            if refused.why in (Refusal.BUSY, Refusal.STORE):
                self.state.agenda.at(now + WILL_AGAIN_AFTER, lambda at: self._say(client_id, will, at))

    # Time

    def tick(self, now: Nanos) -> None:
        self.state.agenda.run(now)

    def next_deadline(self) -> Nanos:
        return self.state.agenda.next_deadline()

    def _look_at_handshake(self, connection: Connection, now: Nanos) -> None:
        if connection.phase in (Phase.WAITING, Phase.CHECKING):
            self.state.refuse(Refusal.CONNECT_LATE, "no CONNECT in time", connection)
            self._close(connection, -1, "no CONNECT in time", now)

    def _watch_silence(self, connection: Connection) -> None:
        self.state.agenda.call_off(connection.appointment)
        if connection.phase is Phase.OPEN and connection.keep_alive_ns < NEVER:
            due = self._silent_until(connection)
            connection.appointment = self.state.agenda.at(due, lambda now: self._look_at_silence(connection, now))

    @staticmethod
    def _silent_until(connection: Connection) -> Nanos:
        """How long it may be silent. While it had to rest, it was we who did not listen."""
        heard_ns = max(connection.heard_ns, connection.rests_until_ns, connection.stops_until_ns)
        return heard_ns + connection.keep_alive_ns

    def _look_at_silence(self, connection: Connection, now: Nanos) -> None:
        if connection.phase is not Phase.OPEN:
            return
        if now >= self._silent_until(connection):
            told = "silent for longer than its keep-alive"
            self.state.refuse(Refusal.KEEP_ALIVE, told, connection)
            self._close(connection, Reason.KEEP_ALIVE_TIMEOUT, told, now)
        else:
            self._watch_silence(connection)

    def _tell(self, now: Nanos) -> None:
        for said in systopics.messages(self.state, __version__, now - self._started_ns, now):
            self.state.retained.keep(said, durable=False)
            self.publish(said, now)
        self.state.agenda.at(now + systopics.EVERY, self._tell)

    # For the driver and operators

    def take_effects(self) -> list[Effect]:
        """The records of the turn, which ends with this."""
        state = self.state
        state.turn += 1
        self.gate.turn_ended()
        if not state.effects:
            return []
        effects = list(state.effects)
        state.effects.clear()
        return effects

    @property
    def last_turn(self) -> int:
        """The turn that was ended last."""
        return self.state.turn - 1

    def durable(self, turn: int, now: Nanos) -> bool:
        """The records of all turns up to this one are on disk; whether there is something to be sent."""
        self.state.durable_turn = turn
        self._delivery.durable(now)
        if self.state.postponed and (self.state.can_erase or not self.state.is_store_failing):
            self.state.hear_postponed(now)
        return bool(self.state.touched)

    @property
    def has_words(self) -> bool:
        """Whether there are questions or notices."""
        return bool(self._questions) or self.state.notices.are_there

    def take_notices(self) -> tuple[list[Notice], int]:
        """What operators want to read of, and of how many more there was no room to tell."""
        return self.state.notices.take()

    def take_questions(self) -> list[Authenticate]:
        questions, self._questions = self._questions, []
        return questions

    def take_touched(self) -> list[Connection]:
        if not self.state.touched:
            return []
        touched = list(self.state.touched)
        self.state.touched.clear()
        self.state.counters.bytes_out += sum([connection.out_bytes for connection in touched])
        return touched

    @property
    def counters(self) -> Counters:
        return self.state.counters

    def reconfigure(self, settings: Settings) -> None:
        """New limits, rights and classes, from now on; what is connected stays connected."""
        self.state.settings = settings
        self.state.retained.limits = settings.limits
        self._bounds = _bounds(settings.limits)
        self.state.subscriptions.forget()

    def meet_others(self, now: Nanos) -> None:
        """There are other brokers from now on, which have to know what was retained before."""
        self.state.elsewhere.start(now)
        for kept in self.state.retained.walk("#"):
            if kept is not None:
                self.state.elsewhere.retain(kept, now)

    def store_is_failing(self, is_failing: bool, can_erase: bool = False) -> None:
        """`can_erase`: it fails for want of room, and whatever makes room is welcome."""
        self.state.is_store_failing = is_failing
        self.state.can_erase = can_erase or not is_failing

    def disconnect(self, client_id: str, now: Nanos) -> bool:
        """An operator ends a client's connection; False if it has none."""
        session = self.state.sessions.get(client_id)
        if session is None or session.connection is None:
            return False
        self._close(session.connection, Reason.ADMINISTRATIVE_ACTION, "ended by an operator", now)
        return True

    def drain(self, now: Nanos) -> None:
        """No more clients; those that are connected are told to go elsewhere."""
        self.state.is_draining = True
        for connection in self.state.connections:
            connection.close(int(Reason.SERVER_SHUTTING_DOWN), "the broker shuts down")
        self._sessions.leave_all(self.state.connections, now)


_TABLES = (
    message.TABLE,
    retained.TABLE,
    stored.SESSIONS,
    stored.SUBSCRIPTIONS,
    stored.RECEIVED,
    stored.PASTS,
    shelf.QUEUES,
    wills.TABLE,
    streamlog.STREAMS,
    streamlog.LOGS,
    writers.TABLE,
)


def _recovery_order(record: Record) -> tuple[int, bytes]:
    return (_TABLES.index(record[0]) if record[0] in _TABLES else len(_TABLES)), record[1]


def _bounds(limits: Limits) -> codec5.Bounds:
    return codec5.Bounds(limits.user_properties, max(limits.subscriptions_per_client, FILTERS_ANSWERED))


def _disconnect_reason(reason: int) -> int:
    """A reason that DISCONNECT can tell; less than 0 is none."""
    try:
        return reason if reason < 0 else int(Reason(reason))
    except ValueError:
        return int(Reason.MALFORMED_PACKET)


def _connack_reason(reason: int) -> Answer:
    try:
        return Answer(reason)
    except ValueError:
        return Answer.MALFORMED_PACKET
