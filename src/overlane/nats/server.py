"""A NATS server as a pure state machine: core NATS, with headers, for clients of any version that speaks it.

Bytes become operations here, and go to the handshake, to publishing or to subscribing. Whatever is wrong with them is
told with -ERR and closes the connection. Silent clients are asked for a sign of life, and closed without an answer.
"""

from typing import Final

from overlane.core.units import NEVER, SECOND, Nanos
from overlane.nats.connection import Connection
from overlane.nats.fast_path import FastPath
from overlane.nats.handshake import Handshake
from overlane.nats.operations import Incomplete, Operation, read_number, read_operation
from overlane.nats.publishing import PublishOperations
from overlane.nats.subscribing import SubscribeOperations
from overlane.nats.violation import Violation
from overlane.pubsub.contract.connection import Phase
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.protocol import ProtocolServer
from overlane.pubsub.contract.questions import LoginVerdict
from overlane.pubsub.counters import Refusal
from overlane.pubsub.publishing import backpressure
from overlane.pubsub.service import PubSub

PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"

PING_EVERY: Nanos = 60 * SECOND
"""A client that has said nothing for so long is asked for a sign of life."""
PINGS_MAX = 2
"""Without an answer to so many it is closed."""


class NatsServer(ProtocolServer[Connection]):
    def __init__(self, pubsub: PubSub) -> None:
        super().__init__(pubsub)
        self._handshake = Handshake(self.state, pubsub.sessions)
        self._publishing = PublishOperations(self.state, pubsub.publishing)
        self._fast_path = FastPath(self.state)
        self._subscribing = SubscribeOperations(self.state, pubsub.subscribing)

    # Connections

    def connected(
        self, peer: Peer, now: Nanos, since_ns: Nanos | None = None, is_turned_away: bool = False
    ) -> Connection:
        state = self.state
        nonce = f"{state.fresh_id()}.{state.fresh_id()}"
        connection = Connection(peer, state, nonce, self._subscribing.remove_ended, now)
        connection.send(self._handshake.info(connection))
        due_ns = (now if since_ns is None else since_ns) + state.limits.connect_within_ns
        connection.timer = state.timers.at_with(connection, due_ns, self._look_at_handshake, self._timer_failed)
        self._admit(connection, is_turned_away)
        if is_turned_away:
            told = f"more than {state.limits.connections_per_second} connections a second"
            connection.refuse("maximum connections exceeded", told)
        return connection

    def receive(self, connection: Connection, data: bytes, now: Nanos, packets_max: int = NEVER) -> None:
        connection.is_behind = False
        if connection.phase is Phase.CLOSED:
            return
        self._count_in(connection, data, now)
        connection.pings_unanswered = 0
        connection.feed(data)
        before = connection.messages_in
        try:
            self._read(connection, now, packets_max)
        except Violation as violation:
            self._violated(connection, violation, now)
        connection.passes = False
        if connection.messages_in != before:
            self._charge(connection, connection.messages_in - before, now)

    def receive_later(self, connection: Connection, data: bytes, now: Nanos) -> bool:
        if connection.phase is not Phase.OPEN:
            return False
        self._count_in(connection, data, now)
        connection.feed(data)
        connection.is_behind = True
        return True

    def receive_ahead(self, connection: Connection, data: bytes, now: Nanos, packets_max: int = NEVER) -> bool:  # noqa: ARG002
        if connection.phase is Phase.OPEN:
            self._count_in(connection, data, now)
            connection.feed(data)
            connection.is_behind = connection.waiting_bytes > 0
        return False

    def authenticated(
        self, connection: Connection, verdict: LoginVerdict, now: Nanos, packets_max: int = NEVER, user: str = ""
    ) -> None:
        try:
            self._handshake.authenticated(connection, verdict, user, now)
            if connection.phase is Phase.OPEN:
                self._watch(connection, now)
                self._read(connection, now, packets_max)
        except Violation as violation:
            self._violated(connection, violation, now)

    def lost(self, connection: Connection, now: Nanos) -> None:
        if connection.is_behind and connection.phase is Phase.OPEN:
            # What a client has said, and had to wait, is not lost with its connection.
            connection.stops_for, connection.passes, connection.is_behind = None, True, False
            try:
                self._read(connection, now, NEVER)
            except Violation as violation:
                self._violated(connection, violation, now)
        self._handshake.gone(connection)
        self._forget(connection, now)

    # Operations

    def _read(self, connection: Connection, now: Nanos, packets_max: int) -> None:
        if connection.phase is Phase.CHECKING and connection.waiting_bytes > self.state.limits.packet_bytes:
            raise Violation("Parser Error", "too much data before the answer to CONNECT", Refusal.TOO_LARGE)
        if connection.waiting_bytes < connection.input_needed or connection.phase is Phase.CHECKING:
            return
        if connection.stops_for is not None:
            connection.is_behind = True
            return
        data, position = connection.take_input(), 0
        end = len(data)
        while position < end and connection.phase in (Phase.WAITING, Phase.OPEN):
            limits, is_open = self.state.limits, connection.phase is Phase.OPEN
            if is_open and not connection.options.verbose:
                position = self._fast_path.pass_on(connection, data, position, now)
                if position == end:
                    break
            payload_bytes_max = connection.payload_bytes_max if is_open else limits.packet_bytes_before_connect
            found = read_operation(data, position, payload_bytes_max)
            if isinstance(found, Incomplete):
                connection.input_needed = found.needed
                break
            packets_max -= 1
            if packets_max < 0 or connection.stops_for is not None:
                connection.is_behind = True
                break
            try:
                self._do(connection, found, now)
            except backpressure.MustStop:
                connection.is_behind = True
                break
            position = found.end
        if position < end and connection.phase is not Phase.CLOSED:
            needed = connection.input_needed
            connection.feed(data[position:] if position else data)
            connection.input_needed = needed

    def _do(self, connection: Connection, operation: Operation, now: Nanos) -> None:
        name, arguments = operation.name, operation.arguments
        if name == b"PING" and not arguments:
            connection.send(PONG)
            return
        if name == b"PONG" and not arguments:
            return
        if name == b"CONNECT":
            self._connect(connection, arguments[0], now)
            return
        session = connection.session
        if session is None:
            self._check_known(name)
            self._connect(connection, b"{}", now)
            session = connection.session
            if session is None:
                return
        if name in (b"PUB", b"HPUB"):
            reply = arguments[1] if len(arguments) > 1 else b""
            self._publishing.publish(
                connection, session, arguments[0], reply, operation.headers, operation.payload, now
            )
            if not reply and not connection.options.verbose:
                self._fast_path.enter(connection, session, arguments[0])
        elif name == b"SUB" and 2 <= len(arguments) <= 3:
            group = arguments[1] if len(arguments) > 2 else b""
            self._subscribing.subscribe(connection, session, arguments[0], group, arguments[-1], now)
        elif name == b"UNSUB" and 1 <= len(arguments) <= 2:
            most = read_number(arguments[1]) if len(arguments) > 1 else 0
            self._subscribing.unsubscribe(connection, session, arguments[0], most, now)
        else:
            self._check_known(name)
            raise Violation("Parser Error", f"{name.decode(errors='replace')} with {len(arguments)} arguments")

    @staticmethod
    def _check_known(name: bytes) -> None:
        if name not in (b"PUB", b"HPUB", b"SUB", b"UNSUB", b"PING", b"PONG"):
            raise Violation("Unknown Protocol Operation", "an operation that NATS does not have", Refusal.PROTOCOL)

    def _connect(self, connection: Connection, body: bytes, now: Nanos) -> None:
        if connection.phase is not Phase.WAITING:
            return  # nats-server takes a second one, and ignores who it says to be
        self._handshake.connect(connection, body, now)
        if connection.is_open:
            self._watch(connection, now)

    def _violated(self, connection: Connection, violation: Violation, now: Nanos) -> None:
        self.state.refuse(violation.why, violation.told, connection)
        connection.refuse(violation.error, violation.told)
        self.pubsub.sessions.leave(connection, True, now)

    # Time

    def _look_at_handshake(self, connection: Connection, now: Nanos) -> None:
        if connection.phase in (Phase.WAITING, Phase.CHECKING):
            told = "no CONNECT in time"
            self._violated(connection, Violation("Authentication Timeout", told, Refusal.CONNECT_LATE), now)

    def _watch(self, connection: Connection, now: Nanos) -> None:
        state = self.state
        connection.keep_alive_ns = (PINGS_MAX + 1) * PING_EVERY
        state.timers.cancel(connection.timer)
        heard_ns = max(connection.heard_ns, connection.rests_until_ns, connection.stops_until_ns)
        due_ns = max(heard_ns, now if connection.pings_unanswered else 0) + PING_EVERY
        connection.timer = state.timers.at_with(connection, due_ns, self._look, self._timer_failed)

    def _look(self, connection: Connection, now: Nanos) -> None:
        if connection.phase is not Phase.OPEN:
            return
        heard_ns = max(connection.heard_ns, connection.rests_until_ns, connection.stops_until_ns)
        if now - heard_ns >= PING_EVERY:
            if connection.pings_unanswered >= PINGS_MAX:
                told = "no answer to PING"
                self._violated(connection, Violation("Stale Connection", told, Refusal.KEEP_ALIVE), now)
                return
            connection.pings_unanswered += 1
            connection.send(PING)
        self._watch(connection, now)

    def _timer_failed(self, connection: Connection, error: Exception) -> None:
        self.state.failed("timer", connection.peer.address, error, connection)
