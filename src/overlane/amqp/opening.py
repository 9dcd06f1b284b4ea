"""Opening: from the first bytes of a client to an open connection with a session, or a refusal that says why.

    AMQP 3 1 0 0, sasl-init   ->   sasl-mechanisms, sasl-outcome
    AMQP 0 1 0 0, open        ->   open

A client may leave out SASL if it has shown a certificate, or needs no user name. All of it may come at once: what lies
behind a login waits until it is known who the client is.

The session of the connection is what the client publishes as; it ends with the connection. Its name is that of the
container, with a number if other connections have the same.
"""

from overlane.amqp import sasl
from overlane.amqp.codec.framing import AMQP_FRAME, FRAME_BYTES_MIN, PROTOCOL, SASL_FRAME, SASL_PROTOCOL
from overlane.amqp.codec.malformed import (
    CONNECTION_FORCED,
    INVALID_FIELD,
    RESOURCE_LIMIT,
    AmqpError,
    Malformed,
)
from overlane.amqp.codec.performatives import Close, Error, Open, SaslInit, SaslMechanisms, SaslOutcome
from overlane.amqp.codec.types import Symbol
from overlane.amqp.connection import PROTOCOL_NAME, Connection, ConnectionStage
from overlane.amqp.idle import Idle
from overlane.core.units import MS, Nanos
from overlane.pubsub.contract.connection import Phase
from overlane.pubsub.contract.protocol import may_be_anonymous
from overlane.pubsub.contract.questions import LOGIN_BUSY, LOGIN_UNAVAILABLE, Authenticate, LoginVerdict
from overlane.pubsub.counters import Refusal
from overlane.pubsub.notices import Connected
from overlane.pubsub.service import PubSub
from overlane.pubsub.sessions.reserved_names import AMQP_LINK

CHANNEL_MAX = 31
FRAME_BYTES = 64 * 1024
"""The largest frame that clients are told to send, where a message may be larger."""
CONTAINER_CHARS_MAX = 256
SOLE_CONNECTION = Symbol("sole-connection-for-container")
OFFERED = (Symbol("ANONYMOUS-RELAY"), Symbol("SHARED-SUBS"))
"""What Qpid JMS and others look for, and is true: messages that say where they go, and shared subscriptions."""


class Opening:
    def __init__(self, pubsub: PubSub, idle: Idle) -> None:
        self._pubsub = pubsub
        self._state = pubsub.state
        self._idle = idle
        self._containers: dict[str, set[Connection]] = {}
        """Open connections by their container ids."""

    # Protocol headers

    def header(self, connection: Connection, header: bytes, now: Nanos) -> None:
        """The client says which protocol it speaks; another one is answered with one that is spoken here."""
        if connection.stage is ConnectionStage.HEADER and header == SASL_PROTOCOL:
            connection.stage = ConnectionStage.SASL_INIT
            mechanisms = sasl.offered(connection.peer, may_be_anonymous(self._state, connection.peer))
            connection.send(SASL_PROTOCOL)
            connection.say(0, SaslMechanisms(mechanisms), SASL_FRAME)
        elif header == PROTOCOL and connection.stage is ConnectionStage.HEADER and not self._may_skip_sasl(connection):
            self._turn_away(connection, SASL_PROTOCOL, "a user name and password, or a certificate, is needed")
        elif header == PROTOCOL:
            if connection.stage is ConnectionStage.HEADER:
                connection.user = connection.peer.certified
            connection.stage = ConnectionStage.OPEN
            connection.send(PROTOCOL)
        else:
            expected = PROTOCOL if connection.stage is ConnectionStage.AMQP_HEADER else SASL_PROTOCOL
            self._turn_away(connection, expected, f"the protocol {header[4:].hex()} is not spoken here")
        connection.heard_ns = now

    def _may_skip_sasl(self, connection: Connection) -> bool:
        return connection.peer.certified is not None or may_be_anonymous(self._state, connection.peer)

    def _turn_away(self, connection: Connection, header: bytes, told: str) -> None:
        self._state.refuse(Refusal.PROTOCOL, told, connection)
        connection.stage = max(connection.stage, ConnectionStage.SASL_INIT)  # it is told something
        connection.send(header)
        connection.shut(told)

    # SASL

    def sasl_frame(self, connection: Connection, frame: object) -> None:
        if not isinstance(frame, SaslInit):
            raise Malformed("expected a sasl-init")
        try:
            found = sasl.read_init(frame, connection.peer, may_be_anonymous(self._state, connection.peer))
        except sasl.LoginRefused as refused:
            self._refuse_login(connection, sasl.AUTH_FAILED, refused.told)
            return
        if isinstance(found, sasl.Login):
            connection.phase = Phase.CHECKING
            connection.user = found.user
            self._state.questions.append(Authenticate(connection, found.user, found.password))
        else:
            self._logged_in(connection, found)

    def authenticated(self, connection: Connection, verdict: LoginVerdict, user: str = "") -> None:
        if connection.phase is not Phase.CHECKING:
            return
        connection.phase = Phase.WAITING
        match verdict:
            case LoginVerdict.IS_USER:
                self._logged_in(connection, user or connection.user)
            case LoginVerdict.IS_ANONYMOUS if may_be_anonymous(self._state, connection.peer):
                self._logged_in(connection, None)
            case LoginVerdict.BUSY:
                self._refuse_login(connection, sasl.BUSY, LOGIN_BUSY)
            case LoginVerdict.UNAVAILABLE:
                self._refuse_login(connection, sasl.BUSY, LOGIN_UNAVAILABLE)
            case _:
                self._refuse_login(connection, sasl.AUTH_FAILED, "user name or password are wrong")

    def _logged_in(self, connection: Connection, user: str | None) -> None:
        connection.user = user
        connection.stage = ConnectionStage.AMQP_HEADER
        connection.say(0, SaslOutcome(sasl.OK), SASL_FRAME)

    def _refuse_login(self, connection: Connection, code: int, told: str) -> None:
        self._state.refuse(Refusal.CREDENTIALS, told, connection)
        connection.say(0, SaslOutcome(code), SASL_FRAME)
        connection.shut(told)

    # Open

    def open(self, connection: Connection, frame: object, now: Nanos) -> None:
        if not isinstance(frame, Open):
            raise Malformed("the first performative is not an open")
        try:
            self._check(connection, frame)
        except AmqpError as refused:
            self._refuse(connection, frame, refused)
            return
        state, limits = self._state, self._state.limits
        connection.container_id = frame.container_id
        connection.frame_bytes_max = frame.max_frame_size or 1 << 20
        connection.is_sole = SOLE_CONNECTION in (frame.desired_capabilities or ())
        connection.limits_told = limits
        connection.framer.frame_bytes_max = max(FRAME_BYTES_MIN, min(FRAME_BYTES, limits.packet_bytes))
        name = self._session_name(frame.container_id)
        session, _, _ = self._pubsub.sessions.claim(name, connection.user, True, 0, now)
        session.consumer = connection
        connection.session = session
        connection.phase, connection.stage = Phase.OPEN, ConnectionStage.FRAMES
        connection.allowance, connection.allowance_ns = float(limits.messages_per_second), now
        state.counters.connections_accepted += 1
        state.notices.add(Connected(name, connection.user, connection.peer, PROTOCOL_NAME, False))
        self._say_open(connection, (*OFFERED, SOLE_CONNECTION) if connection.is_sole else OFFERED)
        self._idle.watch(connection, frame.idle_time_out, now)
        self._containers.setdefault(frame.container_id, set()).add(connection)

    def gone(self, connection: Connection) -> None:
        others = self._containers.get(connection.container_id)
        if others is not None:
            others.discard(connection)
            if not others:
                del self._containers[connection.container_id]

    def _check(self, connection: Connection, frame: Open) -> None:
        """AmqpError if the client cannot be let in."""
        state, limits = self._state, self._state.limits
        if len(state.connections) > limits.connections:
            raise AmqpError(RESOURCE_LIMIT, f"more than {limits.connections} connections")
        if connection.is_turned_away:
            raise AmqpError(RESOURCE_LIMIT, f"more than {limits.connections_per_second} connections a second")
        if state.is_draining:
            raise AmqpError(CONNECTION_FORCED, "the broker is shutting down")
        if not 0 < len(frame.container_id) <= CONTAINER_CHARS_MAX:
            told = f"a container id of {len(frame.container_id)} characters; 1 to {CONTAINER_CHARS_MAX} are allowed"
            raise AmqpError(INVALID_FIELD, told)
        if "\0" in frame.container_id:
            raise AmqpError(INVALID_FIELD, "a container id that contains U+0000")
        if frame.max_frame_size is not None and frame.max_frame_size < FRAME_BYTES_MIN:
            raise AmqpError(INVALID_FIELD, f"max-frame-size is at least {FRAME_BYTES_MIN}")
        is_sole = SOLE_CONNECTION in (frame.desired_capabilities or ())
        others = self._containers.get(frame.container_id, ())
        if others and (is_sole or any(other.is_sole for other in others)):
            raise _ContainerInUse(frame.container_id)

    def _refuse(self, connection: Connection, frame: Open, refused: AmqpError) -> None:
        why = Refusal.CONNECTIONS if refused.condition != INVALID_FIELD else Refusal.PROTOCOL
        if not connection.is_turned_away:  # or it was counted when it came
            self._state.refuse(why, refused.told, connection, frame.container_id[:CONTAINER_CHARS_MAX])
        connection.say(0, Open(self._state.name, properties={Symbol("amqp:connection-establishment-failed"): True}))
        info = {Symbol("invalid-field"): Symbol("container-id")} if isinstance(refused, _ContainerInUse) else None
        connection.say(0, Close(Error(refused.condition, refused.told, info)))
        connection.shut(refused.told)

    def _session_name(self, container_id: str) -> str:
        name = AMQP_LINK + container_id
        number = 1
        while name in self._state.sessions:
            number += 1
            name = f"{AMQP_LINK}{container_id}#{number}"
        return name

    def _say_open(self, connection: Connection, capabilities: tuple[Symbol, ...]) -> None:
        connection.has_said_open = True
        connection.say(
            0,
            Open(
                self._state.name,
                max_frame_size=connection.framer.frame_bytes_max,
                channel_max=CHANNEL_MAX,
                idle_time_out=self._idle.told_ns(self._state.limits) // MS,
                offered_capabilities=capabilities,
                properties={Symbol("product"): "Overlane", Symbol("topic-bytes-max"): self._state.limits.topic_bytes},
            ),
            AMQP_FRAME,
        )


class _ContainerInUse(AmqpError):
    def __init__(self, container_id: str) -> None:
        super().__init__(INVALID_FIELD, f"another connection has the container id {container_id[:60]}")
