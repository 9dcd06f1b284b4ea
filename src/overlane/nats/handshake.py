"""The handshake: INFO, then CONNECT, then an open connection with a transient session, or a refusal with a reason.

The server sends first. Authentication happens elsewhere: by user name and password, by a token (`NAME:PASSWORD` of a
user), or by an NKey, with which the client signs the nonce in INFO. A certificate determines the user. A client that
does not send CONNECT first is treated as one with an empty CONNECT.
"""

import base64
import binascii
from typing import Final

import msgspec

from overlane import __version__
from overlane.core.units import Nanos
from overlane.nats.connection import OK, Connection, Options
from overlane.nats.violation import Violation
from overlane.pubsub.contract.connection import Phase
from overlane.pubsub.contract.protocol import may_be_anonymous
from overlane.pubsub.contract.questions import (
    LOGIN_BUSY,
    LOGIN_UNAVAILABLE,
    TOKEN_START,
    Authenticate,
    AuthenticateKey,
    LoginVerdict,
)
from overlane.pubsub.counters import Refusal
from overlane.pubsub.notices import Connected
from overlane.pubsub.sessions.registry import Sessions
from overlane.pubsub.state import State
from overlane.secret import Secret

SPOKEN: Final = "2.10.0"
"""The version of nats-server whose client protocol this is: clients ask for it to know what they may use."""
NAME_CHARS_MAX = 64
FIELD_CHARS_MAX = 4_096

DENIED = "Authorization Violation"


class Connect(msgspec.Struct, frozen=True):
    """The fields of CONNECT that matter here."""

    verbose: bool = False
    pedantic: bool = False
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    name: str | None = None
    user: str | None = None
    password: str | None = msgspec.field(name="pass", default=None)
    auth_token: str | None = None
    nkey: str | None = None
    sig: str | None = None
    jwt: str | None = None


_decode = msgspec.json.Decoder(Connect).decode


class Handshake:
    def __init__(self, state: State, sessions: Sessions) -> None:
        self._state = state
        self._sessions = sessions
        self._waiting: dict[Connection, Connect] = {}
        """Clients that are being looked into."""

    def info(self, connection: Connection) -> bytes:
        peer, state = connection.peer, self._state
        needs_login = peer.certified is None and not may_be_anonymous(state, peer)
        told = {
            "server_id": state.name,
            "server_name": state.name,
            "version": SPOKEN,
            "overlane": __version__,
            "proto": 1,
            "headers": True,
            "max_payload": connection.payload_bytes_max,
            "auth_required": needs_login,
            "tls_required": peer.listener.endswith("_tls"),
            "nonce": connection.nonce,
            "client_ip": peer.address.rpartition(":")[0],
        }
        return b"INFO " + msgspec.json.encode(told) + b"\r\n"

    def connect(self, connection: Connection, body: bytes, now: Nanos) -> None:
        """CONNECT has come, or something else with which a client begins; Violation."""
        try:
            said = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
            raise Violation("Parser Error", f"CONNECT: {wrong}") from None
        state, peer = self._state, connection.peer
        if len(state.connections) > state.limits.connections:
            told = f"more than {state.limits.connections} connections"
            raise Violation("maximum connections exceeded", told, Refusal.CONNECTIONS)
        if state.is_draining:
            raise Violation("Server Shutdown", "shutting down", Refusal.CONNECTIONS)
        connection.options = Options(said.verbose, said.pedantic, said.echo, said.headers, said.no_responders)
        question = None if peer.certified is not None else _question(connection, said)
        if question is not None:
            connection.phase = Phase.CHECKING
            self._waiting[connection] = said
            state.questions.append(question)
            return
        if peer.certified is None and not may_be_anonymous(state, peer):
            told = "a user name and password, a token, a key or a certificate is needed"
            raise Violation(DENIED, told, Refusal.CREDENTIALS)
        self._open(connection, said, peer.certified, now)

    def authenticated(self, connection: Connection, verdict: LoginVerdict, user: str, now: Nanos) -> None:
        """Violation if it is turned away."""
        said = self._waiting.pop(connection, None)
        if said is None or connection.phase is not Phase.CHECKING:
            return
        if verdict is LoginVerdict.BUSY:
            raise Violation("Server Busy", LOGIN_BUSY, Refusal.CREDENTIALS)
        if verdict is LoginVerdict.UNAVAILABLE:
            raise Violation("Authorization Service Unavailable", LOGIN_UNAVAILABLE, Refusal.CREDENTIALS)
        is_anonymous = verdict is LoginVerdict.IS_ANONYMOUS and may_be_anonymous(self._state, connection.peer)
        if verdict is not LoginVerdict.IS_USER and not is_anonymous:
            raise Violation(DENIED, "user, password, token or key are wrong", Refusal.CREDENTIALS)
        self._open(connection, said, None if is_anonymous else user, now)

    def gone(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)

    def _open(self, connection: Connection, said: Connect, user: str | None, now: Nanos) -> None:
        state = self._state
        client_id = state.fresh_id()
        if said.name:
            shown = "".join(one if one.isprintable() else "?" for one in said.name[:NAME_CHARS_MAX])
            client_id = f"{shown}-{client_id}"
        session, _, _ = self._sessions.claim(client_id, user, True, 0, now)
        connection.phase = Phase.OPEN
        connection.session = session
        connection.allowance, connection.allowance_ns = float(state.limits.messages_per_second), now
        session.consumer = connection
        session.window.receive_max = state.limits.in_flight  # it has room as a member of a group
        state.counters.connections_accepted += 1
        state.notices.add(Connected(client_id, user, connection.peer, connection.protocol, False))
        if connection.options.verbose:
            connection.send(OK)


def _question(connection: Connection, said: Connect) -> Authenticate | AuthenticateKey | None:
    given = (said.user, said.password, said.auth_token, said.nkey, said.sig)
    if any(one is not None and len(one) > FIELD_CHARS_MAX for one in given):
        raise Violation(DENIED, "a credential that is too long", Refusal.CREDENTIALS)
    if said.jwt:
        told = "JWTs of NATS operators are not known here: use a password, a token or an NKey"
        raise Violation(DENIED, told, Refusal.CREDENTIALS)
    if said.nkey:
        try:
            signature = base64.b64decode(_padded(said.sig or ""), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise Violation(DENIED, "a signature that is not base64", Refusal.CREDENTIALS) from None
        return AuthenticateKey(connection, said.nkey, connection.nonce.encode(), signature)
    if said.auth_token:
        if said.auth_token.startswith(TOKEN_START.decode()):
            return Authenticate(connection, "", Secret(said.auth_token.encode(errors="surrogatepass")))
        user, _, password = said.auth_token.partition(":")
        return Authenticate(connection, user, Secret(password.encode(errors="surrogatepass")))
    if said.user is not None:
        return Authenticate(connection, said.user, Secret((said.password or "").encode(errors="surrogatepass")))
    return None


def _padded(text: str) -> str:
    """Clients write base64 in either alphabet, with padding or without."""
    text = text.rstrip("=").replace("+", "-").replace("/", "_")
    return text + "=" * (-len(text) % 4)
