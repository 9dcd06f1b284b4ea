"""An MQTT server as a pure state machine, for versions 3.1.1 and 5.

Bytes, verdicts and the time go in (`pubsub.protocol`); bytes and effects come out at the end of the driver's turn
(`pubsub.service`).

Here bytes become packets, and the parts of MQTT are put together around the publish/subscribe service
(`pubsub.service`): the handshake opens connections, the keep-alive ends silent ones, packets tells what clients want,
the fast path passes plain messages on.
"""

from collections.abc import Callable, Iterable

import mqtt5

from overlane.core.records import Record
from overlane.core.units import NEVER, Nanos
from overlane.mqtt.codec.framing import CONNECT, packet_end, version_of_connect
from overlane.mqtt.codec.malformed import (
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    QUOTA_EXCEEDED,
    UNSUPPORTED_PROTOCOL_VERSION,
    Malformed,
)
from overlane.mqtt.connection import UNKNOWN, V5, Connection
from overlane.mqtt.fast_path import FastPath
from overlane.mqtt.handshake import Answer, Handshake
from overlane.mqtt.keep_alive import KeepAlive
from overlane.mqtt.packets import Packets
from overlane.mqtt.placing import Placing
from overlane.mqtt.publishing import PublishPackets
from overlane.mqtt.qos1_path import Qos1Path
from overlane.mqtt.read_ahead import ReadAhead
from overlane.mqtt.run_arrivals import RunArrivals
from overlane.mqtt.run_delivery import RunDelivery
from overlane.mqtt.runs import PLAIN
from overlane.mqtt.subscribing import SubscribePackets
from overlane.pubsub.cluster.uplink import Uplink
from overlane.pubsub.contract.connection import ClientConnection, Phase
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.protocol import ProtocolServer
from overlane.pubsub.contract.questions import LoginVerdict
from overlane.pubsub.counters import Counters, Refusal
from overlane.pubsub.limits import NONE
from overlane.pubsub.publishing import backpressure
from overlane.pubsub.reservations.network import ReservationNetwork
from overlane.pubsub.service import PubSub
from overlane.pubsub.sessions.lookup import Found
from overlane.pubsub.state import Settings
from overlane.pubsub.timers import Timers

PACKETS_FOR_RUN = 8
"""A run of QoS 1 counts as so many packets that are handled by themselves: it takes about as long."""

CONNECT_BYTE = bytes((CONNECT,))
CONNECT_HEAD_BYTES = 14
"""Type and length of a packet, name and level of the protocol: none takes more, and no packet beyond the limit less."""
CONNACK_UNAVAILABLE = b"\x20\x02\x00\x03"
"""How MQTT 3.1.1 says that the server is not available: what it says of whatever it has no return code for."""

_REFUSALS = {PACKET_TOO_LARGE: Refusal.TOO_LARGE, PROTOCOL_ERROR: Refusal.PROTOCOL, QUOTA_EXCEEDED: Refusal.QUOTA}

_WAITING, _CHECKING, _OPEN, _CLOSED = Phase.WAITING, Phase.CHECKING, Phase.OPEN, Phase.CLOSED
"""Global names: attributes of an Enum take longer to find, and every read of a connection needs them."""


class MqttServer(ProtocolServer[Connection]):
    def __init__(
        self,
        name: str,
        settings: Settings,
        uplink: Uplink,
        fresh_id: Callable[[], str],
        records: Iterable[Record] = (),
        now: Nanos = 0,
        network: ReservationNetwork | None = None,
        timers: Timers | None = None,
    ) -> None:
        """Every broker speaks MQTT: this makes the service that servers of other protocols use with it."""
        pubsub = PubSub(name, settings, uplink, fresh_id, records, now, network, timers)
        super().__init__(pubsub)
        state = self.state
        self.streams, self.writers, self.admission = pubsub.streams, pubsub.writers, pubsub.admission
        self.lookup, self.advertising = pubsub.lookup, pubsub.reservations.advertising
        self._handshake = Handshake(state, pubsub.sessions, pubsub.wills, Placing(state, pubsub.lookup))
        self._keep_alive = KeepAlive(state, pubsub.sessions)
        run_delivery = RunDelivery(state, pubsub.delivery)
        self._fast_path = FastPath(state, run_delivery, pubsub.reservations)
        publishing = PublishPackets(state, pubsub.publishing)
        self._qos1_path = Qos1Path(state, self._fast_path, pubsub.publishing, pubsub.delivery)
        self._packets = Packets(
            state,
            self._handshake,
            pubsub.sessions,
            self._keep_alive,
            publishing,
            SubscribePackets(state, pubsub.subscribing, pubsub.policies),
            pubsub.delivery,
            self._fast_path,
        )
        # What is the same for every protocol; bound once, since some of it is called every turn.
        self.deliver = pubsub.arrivals(RunArrivals(state, run_delivery)).deliver
        self.take_records, self.durable = pubsub.take_records, pubsub.durable
        self.commits_since = pubsub.commits_since
        self.tick, self.next_deadline = pubsub.tick, pubsub.next_deadline
        self.meet_others, self.store_is_failing = pubsub.meet_others, pubsub.store_is_failing
        self.tier_changed = pubsub.tier_changed
        self.disconnect, self.drain = pubsub.disconnect, pubsub.drain
        self.remove_retained = pubsub.remove_retained
        self.take_questions, self.take_notices = pubsub.take_questions, pubsub.take_notices
        self.take_touched, self.take_failures = pubsub.take_touched, pubsub.take_failures

    # Connections

    def connected(
        self, peer: Peer, now: Nanos, since_ns: Nanos | None = None, is_turned_away: bool = False
    ) -> Connection:
        state = self.state
        connection = Connection(peer, state.limits, state.touched, now)
        due = (now if since_ns is None else since_ns) + state.limits.connect_within_ns
        self._keep_alive.expect_connect(connection, due)
        self._admit(connection, is_turned_away)
        return connection

    def receive(self, connection: Connection, data: bytes, now: Nanos, packets_max: int = NEVER) -> None:
        """As `ProtocolServer.receive`. Packets that pass on the fast path do not count."""
        connection.is_behind = False
        if connection.phase is _CLOSED:
            return
        size = len(data)
        connection.heard_ns = now
        connection.bytes_in += size
        self.state.counters.bytes_in += size
        self._understand(connection, data, now, packets_max)
        connection.passes = False

    def receive_later(self, connection: Connection, data: bytes, now: Nanos) -> bool:
        if connection.phase is not Phase.OPEN:
            return False
        self._count_in(connection, data, now)
        self._stop_reading_ahead(connection)
        self._keep(connection, data, 0)
        return True

    def receive_ahead(self, connection: Connection, data: bytes, now: Nanos, packets_max: int = NEVER) -> bool:
        if connection.phase is not Phase.OPEN:
            return False
        self._count_in(connection, data, now)
        ahead = connection.ahead
        if ahead is None:
            ahead = connection.ahead = ReadAhead()
            data = connection.framer.take_all() + data
        ahead.feed(data)
        try:
            self._acknowledged(connection, ahead, now, packets_max)
        except Malformed as malformed:
            self._violated(connection, malformed, now)
        connection.is_behind = ahead.waiting_bytes > 0
        return bool(ahead.acknowledgements) and connection.phase is Phase.OPEN

    def _acknowledged(self, connection: Connection, ahead: ReadAhead, now: Nanos, packets_max: int) -> None:
        data, position = ahead.acknowledgements, 0
        end = len(data)
        while position < end and packets_max > 0 and connection.phase is Phase.OPEN:
            if (passed := self._qos1_path.pass_on(connection, data, position, now)) == position:
                passed = packet_end(data, position)
                self._packets.take(connection, memoryview(data)[position:passed], now)
                packets_max -= 1
            else:
                packets_max -= PACKETS_FOR_RUN
            position = passed
        ahead.acknowledgements = data[position:]

    @staticmethod
    def _stop_reading_ahead(connection: Connection) -> None:
        """What was kept comes before everything else."""
        ahead, connection.ahead = connection.ahead, None
        if ahead is not None:
            connection.framer.feed(ahead.take())

    def _understand(self, connection: Connection, data: bytes, now: Nanos, packets_max: int = NEVER) -> None:
        before = connection.messages_in
        if connection.ahead is not None:
            self._stop_reading_ahead(connection)
        try:
            self._read(connection, data, now, packets_max)
        except Malformed as malformed:
            self._violated(connection, malformed, now)
        if self.state.settings.limits.messages_per_second != NONE and connection.messages_in != before:
            self._charge(connection, connection.messages_in - before, now)

    def _read(self, connection: Connection, data: bytes, now: Nanos, packets_max: int) -> None:
        framer, position = connection.framer, 0
        if connection.phase is _WAITING and not self._read_version(connection, data):
            framer.feed(data)
            return
        if connection.stops_for is not None:
            self._keep(connection, data, 0)
            return
        if framer.is_waiting:
            rest = self._resumed(connection, data)
            if rest is None:
                return
            data, position = rest
        end = len(data)
        while position < end:
            if connection.phase is _OPEN:
                if data[position] == PLAIN:
                    position = self._fast_path.pass_on(connection, data, position, now)
                    if position == end:
                        return
                if (passed := self._qos1_path.pass_on(connection, data, position, now)) > position:
                    position = passed
                    packets_max -= PACKETS_FOR_RUN
                    if packets_max > 0:
                        continue
            elif connection.phase is _CLOSED:
                return
            elif connection.phase is _CHECKING:
                framer.feed(data, position)
                return
            following = packet_end(data, position)
            self._check_size(following - position, framer.packet_bytes_max)
            if following < 0 or following > end:
                framer.keep(data, position)
                return
            packets_max -= 1
            packet = memoryview(data)[position:following]
            if packets_max <= 0 or not self._is_taken(connection, packet, now):
                self._keep(connection, data, position)
                return
            position = following

    @staticmethod
    def _check_size(packet_bytes: int, packet_bytes_max: int) -> None:
        if packet_bytes > packet_bytes_max:
            told = f"a packet of {packet_bytes} bytes; at most {packet_bytes_max} are allowed"
            raise Malformed(PACKET_TOO_LARGE, told)

    @staticmethod
    def _read_version(connection: Connection, data: bytes) -> bool:
        """Malformed if it cannot be a CONNECT, or is too large for one, without waiting for all of it. One that is too
        large is answered in its own version, which stands in its first bytes: False if these are not there yet."""
        framer = connection.framer
        head = (framer.prefix(CONNECT_HEAD_BYTES) + data[:CONNECT_HEAD_BYTES])[:CONNECT_HEAD_BYTES]
        if head[:1] not in (b"", CONNECT_BYTE):
            raise Malformed(PROTOCOL_ERROR, "the first packet is not a CONNECT")
        size = packet_end(head, 0)
        if size <= framer.packet_bytes_max:
            return True
        if len(head) < CONNECT_HEAD_BYTES:
            return False
        connection.version = version_of_connect(head)
        told = f"a CONNECT of {size} bytes; at most {framer.packet_bytes_max} are allowed"
        raise Malformed(PACKET_TOO_LARGE, told)

    def _resumed(self, connection: Connection, data: bytes) -> tuple[bytes, int] | None:
        """What was kept and this behind it, as data and a position; None if it has to be kept longer."""
        framer = connection.framer
        if connection.phase is not Phase.CHECKING:
            return framer.resume(data)
        framer.feed(data)
        if framer.waiting_bytes > self.state.limits.packet_bytes:
            raise Malformed(PACKET_TOO_LARGE, "too much data before the answer to CONNECT")
        return None

    def _is_taken(self, connection: Connection, packet: memoryview, now: Nanos) -> bool:
        """Let a packet be handled; False if the client has to stop before."""
        if connection.stops_for is not None:
            return False
        try:
            self._packets.take(connection, packet, now)
        except backpressure.MustStop:
            return False
        return True

    @staticmethod
    def _keep(connection: Connection, data: bytes, position: int) -> None:
        """What lies behind the position is for later."""
        connection.framer.feed(data, position)
        connection.is_behind = True

    def authenticated(
        self,
        connection: Connection,
        verdict: LoginVerdict,
        now: Nanos,
        packets_max: int = NEVER,
        user: str = "",
    ) -> None:
        self._handshake.authenticated(connection, verdict, now, user)
        self._let_in(connection, now, packets_max)

    def _let_in(self, connection: Connection, now: Nanos, packets_max: int) -> None:
        """It may have been: what it has sent meanwhile is handled."""
        self._keep_alive.watch(connection)
        if connection.phase is Phase.OPEN and connection.framer.waiting_bytes:
            data, position = connection.framer.take()
            self._understand(connection, data[position:], now, packets_max)

    # Sessions at other brokers of the domain

    def neighbour_said(self, peer: str, body: bytes, now: Nanos) -> None:
        """What a neighbour has sent to the lookup of this broker."""
        self.lookup.heard(peer, body, now)

    def placed(self, connection: Connection, found: Found, now: Nanos, packets_max: int = NEVER) -> None:
        """The answer to Placed. What the client has sent meanwhile is handled as by `receive`, if it was let in."""
        pass_on = self._handshake.placed(connection, found, now)
        if pass_on is not None:
            self.state.questions.append(pass_on)
        else:
            self._let_in(connection, now, packets_max)

    def passing_on(self, connection: ClientConnection) -> bytes | None:
        """The driver passes all further bytes of the client on to another broker; those that came behind its CONNECT,
        or None if it is gone. It counts as a connection until it is lost."""
        assert isinstance(connection, Connection)
        if connection.phase is not Phase.CHECKING:
            return None
        connection.phase = Phase.PASSED_ON
        return connection.framer.take_all()

    def cannot_pass_on(self, connection: ClientConnection, told: str) -> None:
        """The broker that has the session cannot be reached: the client is told so, and may come again."""
        assert isinstance(connection, Connection)
        if connection.phase is Phase.CHECKING:
            self._handshake.cannot_pass_on(connection, told)

    def lost(self, connection: Connection, now: Nanos) -> None:
        if connection.is_behind and connection.phase is Phase.OPEN:
            self._hear_out(connection, now)
        connection.phase = Phase.CLOSED
        self._handshake.gone(connection)
        self._forget(connection, now)

    def failed(self, connection: Connection, kind: str, error: Exception) -> None:
        if connection.phase in (Phase.WAITING, Phase.CHECKING):
            if connection.version == V5:
                connection.send_packet(mqtt5.ConnAckPacket(reason_code=Answer.IMPLEMENTATION_SPECIFIC_ERROR))
            elif connection.version != UNKNOWN:
                connection.send(CONNACK_UNAVAILABLE)
        super().failed(connection, kind, error)

    def _hear_out(self, connection: Connection, now: Nanos) -> None:
        """What a client has said, and had to wait, is not lost with its connection."""
        connection.stops_for, connection.passes, connection.is_behind = None, True, False
        self._understand(connection, b"", now)

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
        elif connection.phase in (Phase.WAITING, Phase.CHECKING) and malformed.reason == PACKET_TOO_LARGE:
            connection.send(CONNACK_UNAVAILABLE)
        connection.close(malformed.reason, str(malformed))
        self.pubsub.sessions.leave(connection, True, now)

    # For the driver and operators

    @property
    def last_turn(self) -> int:
        return self.pubsub.last_turn

    @property
    def counters(self) -> Counters:
        return self.state.counters

    def reconfigure(self, settings: Settings) -> None:
        self._packets.reconfigure(settings.limits)


def _connack_reason(reason: int) -> Answer:
    try:
        return Answer(reason)
    except ValueError:
        return Answer.MALFORMED_PACKET
