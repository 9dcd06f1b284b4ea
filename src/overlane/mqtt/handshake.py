"""The handshake: from CONNECT to an open connection with a session, or a refusal with a reason.

Authentication happens elsewhere, since passwords take time: the handshake returns `Authenticate` and continues with the
result. A certificate determines the user, independent of the user name; for a forwarded connection, the forwarding
broker does. In a domain with several brokers, the session is searched for before it is created (`placing`). A client
that connects with an identifier in use takes the session over, and the previous connection is closed with that reason
(MQTT 5, section 3.1.4).
"""

from typing import assert_never

import mqtt5

from overlane.core.topics import BadTopic, check_topic
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.errors import OverlaneError
from overlane.mqtt.codec import codec5, writing
from overlane.mqtt.connection import V5, Connection
from overlane.mqtt.placing import Placing
from overlane.pubsub.access import is_own_bridge_state
from overlane.pubsub.contract.connection import Phase
from overlane.pubsub.contract.protocol import may_be_anonymous
from overlane.pubsub.contract.questions import (
    LOGIN_BUSY,
    LOGIN_UNAVAILABLE,
    TOKEN_START,
    Authenticate,
    LoginVerdict,
    PassOn,
)
from overlane.pubsub.counters import Refusal
from overlane.pubsub.limits import NONE
from overlane.pubsub.message import EXPIRY_S_MAX
from overlane.pubsub.notices import Connected
from overlane.pubsub.sessions.deduplication import PROPERTY, run_of
from overlane.pubsub.sessions.lookup import Found
from overlane.pubsub.sessions.registry import Sessions
from overlane.pubsub.sessions.reserved_names import PREFIXES, is_reserved
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.sessions.wills import Will, Wills
from overlane.pubsub.state import State
from overlane.secret import Secret

CLIENT_ID_CHARS_MAX = 256
TOPIC_BYTES_PROPERTY = "overlane-topic-bytes-max"
"""MQTT has no field for the longest topic that a server takes: it is a user property of CONNACK."""

Answer = mqtt5.ConnAckReasonCode


class _Rejected(OverlaneError):
    """The client is turned away."""

    def __init__(self, reason: Answer, why: Refusal, told: str) -> None:
        super().__init__(told)
        self.reason = reason
        self.why = why
        self.told = told


class Handshake:
    def __init__(self, state: State, sessions: Sessions, wills: Wills, placing: Placing) -> None:
        self._state = state
        self._sessions = sessions
        self._wills = wills
        self._placing = placing
        self._waiting: dict[Connection, tuple[mqtt5.ConnectPacket, bytes]] = {}
        """Clients that are being looked into, with their CONNECT and, where it may be passed on, its bytes."""

    def connect(
        self, connection: Connection, packet: mqtt5.ConnectPacket, data: memoryview, now: Nanos
    ) -> Authenticate | None:
        """The client's first packet, and its bytes; what must be found out about it, if anything."""
        kept = bytes(data) if self._placing.must_search(connection, packet, now) else b""
        try:
            return self._consider(connection, packet, kept, now)
        except _Rejected as rejected:
            self._reject(connection, packet, rejected)
            return None

    def _consider(
        self, connection: Connection, packet: mqtt5.ConnectPacket, data: bytes, now: Nanos
    ) -> Authenticate | None:
        state, peer = self._state, connection.peer
        connection.tells_problems = packet.request_problem_info
        connection.packet_bytes_max = packet.max_packet_size or NEVER
        if len(state.connections) > state.limits.connections:
            told = f"more than {state.limits.connections} connections"
            raise _Rejected(Answer.SERVER_BUSY, Refusal.CONNECTIONS, told)
        if connection.is_turned_away:
            told = f"more than {state.limits.connections_per_second} connections a second"
            raise _Rejected(Answer.CONNECTION_RATE_EXCEEDED, Refusal.CONNECTION_RATE, told)
        if packet.authentication_method is not None:
            told = "enhanced authentication is not offered: use a user name and password, or a certificate"
            raise _Rejected(Answer.BAD_AUTHENTICATION_METHOD, Refusal.CREDENTIALS, told)
        if state.is_draining:
            raise _Rejected(Answer.SERVER_UNAVAILABLE, Refusal.CONNECTIONS, "shutting down")
        if len(packet.client_id) > CLIENT_ID_CHARS_MAX:
            told = f"a client identifier of more than {CLIENT_ID_CHARS_MAX} characters"
            raise _Rejected(Answer.CLIENT_ID_NOT_VALID, Refusal.PROTOCOL, told)
        if is_reserved(packet.client_id):
            told = f"client identifiers must not begin with {', '.join(PREFIXES)}: sessions of AMQP have these names"
            raise _Rejected(Answer.CLIENT_ID_NOT_VALID, Refusal.PROTOCOL, told)
        if not packet.client_id and connection.version != V5 and not packet.clean_start:
            told = "a session that is kept needs a client identifier"
            raise _Rejected(Answer.CLIENT_ID_NOT_VALID, Refusal.PROTOCOL, told)
        # A token as password needs no user name: it has one.
        says_who = packet.username is not None or (packet.password or b"").startswith(TOKEN_START)
        if says_who and peer.certified is None and not peer.via:
            connection.phase = Phase.CHECKING
            self._waiting[connection] = packet, data
            return Authenticate(connection, packet.username or "", Secret(packet.password or b""), packet.client_id)
        if peer.certified is None and not peer.via and not may_be_anonymous(state, peer):
            told = "a user name and password, or a certificate, is needed"
            raise _Rejected(Answer.NOT_AUTHORIZED, Refusal.CREDENTIALS, told)
        self._let_in(connection, packet, data, peer.certified, now)
        return None

    def authenticated(self, connection: Connection, verdict: LoginVerdict, now: Nanos, user: str = "") -> None:
        packet, data = self._waiting.pop(connection, (None, b""))
        if packet is None or connection.phase is not Phase.CHECKING:
            return
        try:
            self._let_in(connection, packet, data, self._user(connection, packet, verdict, user), now)
        except _Rejected as rejected:
            self._reject(connection, packet, rejected)

    def _let_in(
        self, connection: Connection, packet: mqtt5.ConnectPacket, data: bytes, user: str | None, now: Nanos
    ) -> None:
        """It is known who the client is: it gets its session, here or where that is."""
        if not data:
            self._open(connection, packet, user, now)
            return
        # Before a session ends elsewhere, as clean start demands.
        self._will(packet, user, packet.client_id)
        if packet.clean_start:
            self._check_room(packet, user, packet.client_id)
        self._placing.begin(connection, packet, user, data, now)

    def placed(self, connection: Connection, found: Found, now: Nanos) -> PassOn | None:
        """Where the session is, or is to be; what is to be done about it elsewhere."""
        searching = self._placing.end(connection)
        if searching is None or connection.phase is not Phase.CHECKING:
            return None
        packet = searching.packet
        try:
            if found.silent:
                told = f"the session may be at {', '.join(found.silent)[:100]}, which does not answer; try again"
                raise _Rejected(Answer.SERVER_UNAVAILABLE, Refusal.SESSION_AWAY, told)
            if found.broker and connection.peer.via:
                told = f"the session has moved to {found.broker}; try again"
                raise _Rejected(Answer.SERVER_UNAVAILABLE, Refusal.SESSION_AWAY, told)
            if not found.broker:
                self._open(connection, packet, searching.user, now, found.after_ns)
            elif (reference := self._placing.reference(connection, packet, found.broker)) is not None:
                self._placing.tell(connection, searching, found.broker, is_redirected=True)
                reason = Answer.SERVER_MOVED if found.is_for_ever else Answer.USE_ANOTHER_SERVER
                connection.send_packet(mqtt5.ConnAckPacket(reason_code=reason, server_reference=reference))
                connection.close(-1, f"redirected to {found.broker}")
            else:
                return self._placing.pass_on(connection, searching, found.broker)
        except _Rejected as rejected:
            self._reject(connection, packet, rejected)
        finally:
            self._placing.settle(connection)
        return None

    def cannot_pass_on(self, connection: Connection, told: str) -> None:
        """The broker that has the session cannot be reached."""
        self._state.refuse(Refusal.SESSION_AWAY, told, connection)
        connection.send_explained(
            lambda words: mqtt5.ConnAckPacket(reason_code=Answer.SERVER_UNAVAILABLE, reason_str=words), told
        )
        connection.close(-1, told)

    def _user(
        self, connection: Connection, packet: mqtt5.ConnectPacket, verdict: LoginVerdict, user: str
    ) -> str | None:
        match verdict:
            case LoginVerdict.IS_USER:
                return user or packet.username
            case LoginVerdict.IS_ANONYMOUS if may_be_anonymous(self._state, connection.peer):
                return connection.peer.certified
            case LoginVerdict.IS_ANONYMOUS | LoginVerdict.IS_NOT:
                told = "user name or password are wrong"
                raise _Rejected(Answer.BAD_USER_NAME_OR_PASSWORD, Refusal.CREDENTIALS, told)
            case LoginVerdict.BUSY:
                raise _Rejected(Answer.SERVER_BUSY, Refusal.CREDENTIALS, LOGIN_BUSY)
            case LoginVerdict.UNAVAILABLE:
                raise _Rejected(Answer.SERVER_UNAVAILABLE, Refusal.CREDENTIALS, LOGIN_UNAVAILABLE)
            case _:
                assert_never(verdict)

    def gone(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        self._placing.settle(connection)

    def _reject(self, connection: Connection, packet: mqtt5.ConnectPacket, rejected: "_Rejected") -> None:
        if not connection.is_turned_away:  # or it was counted when it came
            self._state.refuse(rejected.why, rejected.told, connection, packet.client_id)
        connection.send_explained(
            lambda told: mqtt5.ConnAckPacket(reason_code=rejected.reason, reason_str=told), rejected.told
        )
        connection.close(-1, rejected.told)

    def _will(self, packet: mqtt5.ConnectPacket, user: str | None, client_id: str) -> Will | None:
        will = will_of(packet, user)
        if will is not None and (refusal := self._wrong_with(will, user, client_id)):
            raise _Rejected(refusal[0], Refusal.DENIED, refusal[1])
        return will

    def _check_room(self, packet: mqtt5.ConnectPacket, user: str | None, client_id: str) -> int:
        """How long the session is kept, in seconds, if there is room for it."""
        state, limits = self._state, self._state.limits
        expiry_s = min(packet.session_expiry_interval, limits.session_expiry_s_max)
        if state.is_store_failing and self._is_a_change(client_id, user, packet.clean_start, expiry_s):
            told = "the durable store takes nothing at the moment; connect without a session that is kept"
            raise _Rejected(Answer.QUOTA_EXCEEDED, Refusal.STORE, told)
        if expiry_s and client_id not in state.sessions and len(state.sessions) >= limits.sessions:
            told = f"more than {limits.sessions} sessions; connect without one that is kept"
            raise _Rejected(Answer.QUOTA_EXCEEDED, Refusal.QUOTA, told)
        return expiry_s

    def _open(
        self,
        connection: Connection,
        packet: mqtt5.ConnectPacket,
        user: str | None,
        now: Nanos,
        after_ns: Nanos = 0,
    ) -> None:
        """`after_ns`: as of `Sessions.claim`."""
        state, limits = self._state, self._state.limits
        client_id = packet.client_id or state.fresh_id()
        will = self._will(packet, user, client_id)
        expiry_s = self._check_room(packet, user, client_id)

        run = run_of(packet.user_properties) if expiry_s and not state.is_store_failing else ""

        properties = [(TOPIC_BYTES_PROPERTY, str(limits.topic_bytes))]
        if connection.version == V5 and self._placing.is_needed:
            properties += self._placing.alternatives(connection)

        def answer(is_present: bool) -> mqtt5.ConnAckPacket:
            return mqtt5.ConnAckPacket(
                session_present=is_present,
                assigned_client_id=None if packet.client_id else client_id,
                session_expiry_interval=expiry_s if expiry_s != packet.session_expiry_interval else None,
                server_keep_alive=self._server_keep_alive_s(connection, packet),
                receive_max=limits.in_flight,
                topic_alias_max=limits.topic_aliases,
                max_packet_size=limits.packet_bytes,
                retain_available=limits.retained_messages > 0,
                user_properties=[*properties, (PROPERTY, run)] if run else properties,
            )

        if connection.version == V5 and len(codec5.write(answer(False))) > connection.packet_bytes_max:
            properties = []  # MQTT-3.2.2-20
        if connection.version == V5 and len(codec5.write(answer(False))) > connection.packet_bytes_max:
            told = "the client does not take a packet as large as the answer"
            raise _Rejected(Answer.PACKET_TOO_LARGE, Refusal.TOO_LARGE, told)
        session, is_present, is_stored = self._sessions.claim(
            client_id, user, packet.clean_start, expiry_s, now, after_ns
        )
        if not run and not is_present:
            deduplicated = []  # nothing was promised before, and nothing is now
        elif state.is_store_failing:
            deduplicated = session.deduplication.rest()
        else:
            deduplicated = session.deduplication.begin(run, limits.in_flight, session.window.last_sequence)
        state.batch.extend(deduplicated)
        self._attach(connection, session, packet, now)
        is_stored |= self._wills.connected(session, will) or bool(deduplicated)
        state.notices.add(Connected(client_id, user, connection.peer, connection.protocol, is_present))
        connection.send_packet(answer(is_present))
        self._sessions.resume(session, connection, now)
        # While the store fails only those get here whose session it has already, or need not have.
        connection.waits |= is_stored and not state.is_store_failing
        if connection.waits:
            connection.greeted_ns = NEVER

    def _is_a_change(self, client_id: str, user: str | None, is_clean: bool, expiry_s: int) -> bool:
        """Whether the store would have to know of a session that it has not, or to forget one where it cannot. Who
        comes back to what is kept for it is welcome at any time: what it reads and acknowledges makes room."""
        known = self._state.sessions.get(client_id)
        if known is None or not known.is_known or known.known_in > self._state.durable_turn:
            return expiry_s > 0
        is_another = is_clean or known.user != user
        return is_another and (expiry_s > 0 or not self._state.can_erase)

    def _attach(self, connection: Connection, session: Session, packet: mqtt5.ConnectPacket, now: Nanos) -> None:
        limits = self._state.limits
        connection.phase = Phase.OPEN
        connection.session = session
        connection.limits_told = limits
        connection.framer.packet_bytes_max = limits.packet_bytes
        connection.aliases_out_max = min(packet.topic_alias_max, limits.topic_aliases)
        connection.allowance, connection.allowance_ns = float(limits.messages_per_second), now
        connection.received_before = len(session.received)
        if keep_alive_s := self._server_keep_alive_s(connection, packet) or packet.keep_alive:
            connection.keep_alive_ns = keep_alive_s * SECOND * 3 // 2
        session.consumer = connection
        session.window.receive_max = min(packet.receive_max, limits.in_flight)
        self._state.counters.connections_accepted += 1

    def _server_keep_alive_s(self, connection: Connection, packet: mqtt5.ConnectPacket) -> int | None:
        """The interval that replaces the client's own; None where its own is right."""
        longest, wanted = self._state.limits.keep_alive_s_max, packet.keep_alive
        is_replaced = longest != NONE and not 0 < wanted <= longest and connection.version == V5
        return longest if is_replaced else None

    def _wrong_with(self, will: Will, user: str | None, client_id: str) -> tuple[Answer, str] | None:
        try:
            check_topic(will.topic)
        except BadTopic as bad:
            return Answer.TOPIC_NAME_INVALID, f"will: {bad}"
        if told := self._state.limits.too_long(will.topic):
            return Answer.TOPIC_NAME_INVALID, f"will: {told}"
        if will.topic.count("/") >= self._state.limits.filter_levels:
            return Answer.TOPIC_NAME_INVALID, f"a will's topic of more than {self._state.limits.filter_levels} levels"
        is_allowed = self._state.settings.access.may_publish(user, client_id, will.topic)
        if not is_allowed and not is_own_bridge_state(will.topic, client_id):
            return Answer.NOT_AUTHORIZED, f"not allowed to publish its will on {will.topic[:100]}"
        if will.retain and not self._state.limits.retained_messages:
            return Answer.RETAIN_NOT_SUPPORTED, "retained messages are not offered"
        return None


def will_of(packet: mqtt5.ConnectPacket, user: str | None) -> Will | None:
    will = packet.will
    if will is None:
        return None
    return Will(
        user,
        will.topic,
        will.payload or b"",
        int(will.qos),
        will.retain,
        writing.properties_of(will),
        will.user_properties,
        will.message_expiry_interval,
        min(will.will_delay_interval, EXPIRY_S_MAX),
    )
