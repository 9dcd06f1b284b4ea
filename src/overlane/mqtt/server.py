"""An MQTT server as a pure state machine, for versions 3.1.1 and 5.

Bytes, verdicts and the time go in; bytes and effects come out. The driver's turn:

    server.receive(connection, data, now), server.lost(connection, now), server.authenticated(...), in any number
    effects = server.take_effects()
    make the Saves and Erases durable; find out about who asks to be let in (Authenticate)
    for each connection of server.take_touched(): send what connection.taken() gives, after the records if it waits
    call server.durable(turn, now) when the records of that turn are on disk: what it makes belongs to the next turn
    call server.tick(t) at t = server.next_deadline()

Here bytes become packets, and the parts are put together: the handshake opens connections, sessions outlive them,
silence ends them, publishing and subscribing are what clients do (packets tells which), delivery is what they get,
wills are what is said when they are lost, the fast lane passes plain messages on, arriving is what other brokers send.
"""

from collections.abc import Callable, Iterable

import mqtt5

from overlane import __version__
from overlane.core.events import Effect
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.mqtt import systopics
from overlane.mqtt.arriving import Arriving
from overlane.mqtt.connection import V5, Connection, Peer, Phase
from overlane.mqtt.counters import Counters, Refusal
from overlane.mqtt.delivery import Delivery
from overlane.mqtt.fastlane import FastLane
from overlane.mqtt.framing import CONNECT, packet_end
from overlane.mqtt.gate import Gate
from overlane.mqtt.handshake import Answer, Authenticate, Handshake, Verdict
from overlane.mqtt.limits import NONE
from overlane.mqtt.malformed import (
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    QUOTA_EXCEEDED,
    UNSUPPORTED_PROTOCOL_VERSION,
    Malformed,
)
from overlane.mqtt.message import Message
from overlane.mqtt.notices import Notice
from overlane.mqtt.packets import Packets
from overlane.mqtt.publishing import Publishing
from overlane.mqtt.recovery import Record, Recovery
from overlane.mqtt.retained import RetainedMessages
from overlane.mqtt.sessions import Sessions
from overlane.mqtt.shelf import Shelf
from overlane.mqtt.silence import Silence
from overlane.mqtt.state import Settings, State
from overlane.mqtt.streams import Streams
from overlane.mqtt.subscribing import Subscribing
from overlane.mqtt.uplink import Uplink
from overlane.mqtt.wills import Wills
from overlane.mqtt.writers import Writers

Reason = mqtt5.DisconnectReasonCode

CONNECTIONS_AHEAD = 64
"""So many more than are allowed may connect, to be told so; any more are closed without a word."""

CONNECT_BYTE = bytes((CONNECT,))

_REFUSALS = {PACKET_TOO_LARGE: Refusal.TOO_LARGE, PROTOCOL_ERROR: Refusal.PROTOCOL, QUOTA_EXCEEDED: Refusal.QUOTA}


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
        subscribing = Subscribing(state, self._delivery)
        publishing = Publishing(state, self._delivery)
        self.streams = Streams(state, self._delivery, subscribing)
        self.writers = Writers(state, publishing)
        wills = Wills(state, publishing)
        self._sessions = Sessions(state, self._delivery, subscribing, wills)
        self._handshake = Handshake(state, self._sessions, wills)
        self._silence = Silence(state, self._sessions)
        self._fastlane = FastLane(state)
        self._packets = Packets(
            state,
            self._handshake,
            self._sessions,
            self._silence,
            publishing,
            subscribing,
            self._delivery,
            self._fastlane,
        )
        self.gate = Gate(state)
        self.deliver = Arriving(state, self._delivery, self._fastlane, self.streams).deliver
        self._started_ns = now
        recovery = Recovery(state, subscribing, self._sessions, wills, self.streams, self.writers)
        recovery.recover(records, now)
        state.elsewhere.start(now)
        self._tell(now)

    # Connections

    def connected(self, peer: Peer, now: Nanos, since_ns: Nanos | None = None) -> Connection:
        """`since_ns`: when it came, if something else had to be agreed on before."""
        state = self.state
        connection = Connection(peer, state.limits, state.touched, now)
        state.connections.add(connection)
        due = (now if since_ns is None else since_ns) + state.limits.connect_within_ns
        self._silence.expect_connect(connection, due)
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
                self._packets.take(connection, first, now)
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
            self._packets.take(connection, memoryview(data)[position:following], now)
            position = following

    def authenticated(self, connection: Connection, verdict: Verdict, now: Nanos, packets_max: int = NEVER) -> None:
        """The answer to Authenticate. What the client has sent meanwhile is handled as by `receive`."""
        self._handshake.authenticated(connection, verdict, now)
        self._silence.watch(connection)
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
        self._sessions.close(connection, malformed.reason, str(malformed), now)

    def _charge(self, connection: Connection, messages: int, limit: int, now: Nanos) -> None:
        earned = (now - connection.allowance_ns) * limit / SECOND
        connection.allowance = min(float(limit), connection.allowance + earned) - messages
        connection.allowance_ns = now
        if connection.allowance < 0:
            connection.rests_until_ns = now + int(-connection.allowance * SECOND / limit)
            self.state.counters.throttled += 1

    def _publish(self, said: Message, now: Nanos) -> None:
        """A message of the server's own, for local subscribers."""
        audience = self.state.subscriptions.audience(said.topic)
        self._delivery.spread(said, audience, now)
        self._delivery.share_here(said, audience, now)

    # Time

    def tick(self, now: Nanos) -> None:
        self.state.agenda.run(now)

    def next_deadline(self) -> Nanos:
        return self.state.agenda.next_deadline()

    def _tell(self, now: Nanos) -> None:
        for said in systopics.messages(self.state, __version__, now - self._started_ns, now):
            self.state.retained.keep(said, durable=False)
            self._publish(said, now)
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
    def has_records(self) -> bool:
        """Whether the turn has records."""
        return bool(self.state.effects)

    @property
    def last_turn(self) -> int:
        """The turn that was ended last."""
        return self.state.turn - 1

    def durable(self, turn: int, now: Nanos) -> bool:
        """The records of all turns up to this one are on disk; whether there is something to be sent or written now."""
        self.state.durable_turn = turn
        self._delivery.durable(now)
        if self.state.postponed and self.state.can_erase:
            self.state.hear_postponed(now)
        return bool(self.state.touched or self.state.effects)

    @property
    def has_words(self) -> bool:
        """Whether there are questions or notices."""
        return bool(self._packets.questions) or self.state.notices.are_there

    def take_notices(self) -> tuple[list[Notice], int]:
        """What operators want to read of, and of how many more there was no room to tell."""
        return self.state.notices.take()

    def take_questions(self) -> list[Authenticate]:
        questions, self._packets.questions = self._packets.questions, []
        return questions

    def take_touched(self) -> list[Connection]:
        if self.state.effects:
            raise RuntimeError("records were made after those of the turn were taken: answers would not wait for them")
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
        self._packets.reconfigure(settings.limits)
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
        self._sessions.close(session.connection, int(Reason.ADMINISTRATIVE_ACTION), "ended by an operator", now)
        return True

    def drain(self, now: Nanos) -> None:
        """No more clients; those that are connected are told to go elsewhere."""
        self.state.is_draining = True
        for connection in self.state.connections:
            connection.close(int(Reason.SERVER_SHUTTING_DOWN), "the broker shuts down")
        self._sessions.leave_all(self.state.connections, now)


def _connack_reason(reason: int) -> Answer:
    try:
        return Answer(reason)
    except ValueError:
        return Answer.MALFORMED_PACKET
