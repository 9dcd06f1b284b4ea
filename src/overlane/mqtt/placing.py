"""Placing: clients whose session is, or may be, at another broker of the domain.

    CONNECT, let in -- begin --> searching -- Placed, to the driver and back --> opened here, redirected, or passed on

A client is authenticated here before other brokers are asked: a client that cannot log in gets no information about
sessions, and causes no work elsewhere. CONNECT is forwarded unchanged but without the password.

An MQTT 5 client requests a redirect with the user property `overlane-redirect: yes` of CONNECT. A client whose session
belongs to this broker sends `overlane-here: yes`, and its identifier ends with `@` and the name of the broker: then no
other broker is asked, so the client does not wait for brokers that are down. Every MQTT 5 client gets other addresses
of the domain in user properties of CONNACK (`overlane-alternative`).
"""

from dataclasses import dataclass

import mqtt5

from overlane.core.units import Nanos
from overlane.mqtt.codec.fields import binary, variable, write_variable
from overlane.mqtt.connection import V5, Connection
from overlane.pubsub.contract.connection import Phase
from overlane.pubsub.contract.questions import PassOn
from overlane.pubsub.notices import PassedOn
from overlane.pubsub.sessions.lookup import SessionLookup
from overlane.pubsub.state import State

ALTERNATIVE_PROPERTY = "overlane-alternative"
REDIRECT_PROPERTY = "overlane-redirect"
REDIRECT_WANTED = (REDIRECT_PROPERTY, "yes")
HERE_WANTED = ("overlane-here", "yes")

PASSWORD_FLAG = 0x40


@dataclass(frozen=True, slots=True)
class Searching:
    """A client that waits for the end of the search."""

    packet: mqtt5.ConnectPacket
    user: str | None
    connect: bytes


class Placing:
    def __init__(self, state: State, lookup: SessionLookup) -> None:
        self._state = state
        self._lookup = lookup
        self._searching: dict[Connection, Searching] = {}

    @property
    def is_needed(self) -> bool:
        return self._lookup.is_needed

    def must_search(self, connection: Connection, packet: mqtt5.ConnectPacket, now: Nanos) -> bool:
        """Whether the session may be elsewhere. One that another broker has found here may have ended meanwhile."""
        if not self._lookup.is_needed or not packet.client_id:
            return False
        if HERE_WANTED in (packet.user_properties or ()) and packet.client_id.endswith(f"@{self._state.name}"):
            return False
        return not connection.peer.via or packet.clean_start or not self._lookup.is_kept_here(packet.client_id, now)

    def begin(
        self, connection: Connection, packet: mqtt5.ConnectPacket, user: str | None, connect: bytes, now: Nanos
    ) -> None:
        """Search for the session of a client that was let in."""
        connection.phase = Phase.CHECKING
        self._searching[connection] = Searching(packet, user, connect)
        self._lookup.begin(connection, packet.client_id, packet.clean_start, now)

    def end(self, connection: Connection) -> Searching | None:
        """The search has ended; None if the client has gone meanwhile."""
        return self._searching.pop(connection, None)

    def settle(self, connection: Connection) -> None:
        """The client has its session, or is gone."""
        self._searching.pop(connection, None)
        self._lookup.settle(connection)

    def reference(self, connection: Connection, packet: mqtt5.ConnectPacket, broker: str) -> str | None:
        """The address of the broker, for a client that wants to go there itself."""
        is_wanted = connection.version == V5 and REDIRECT_WANTED in (packet.user_properties or ())
        return self._lookup.domain.address(broker, connection.peer.listener) if is_wanted else None

    def pass_on(self, connection: Connection, searching: Searching, broker: str) -> PassOn:
        self.tell(connection, searching, broker, is_redirected=False)
        return PassOn(connection, broker, searching.user, without_password(searching.connect))

    def tell(self, connection: Connection, searching: Searching, broker: str, *, is_redirected: bool) -> None:
        client_id = searching.packet.client_id
        self._state.notices.add(PassedOn(client_id, searching.user, connection.peer, broker, is_redirected))

    def alternatives(self, connection: Connection) -> list[tuple[str, str]]:
        """User properties of CONNACK."""
        peer = connection.peer
        found = self._lookup.domain.alternatives(peer.listener, with_own=bool(peer.via))
        return [(ALTERNATIVE_PROPERTY, address) for address in found]


def without_password(connect: bytes) -> bytes:
    """A well-formed CONNECT of any version without its password, the last of its fields."""
    _, position = variable(connect, 1)
    start = position
    _, position = binary(connect, position)
    flags_at = position + 1  # behind the protocol's level
    if not connect[flags_at] & PASSWORD_FLAG:
        return connect
    *_, password_at = _field_positions(connect, flags_at)
    flags = bytes((connect[flags_at] & ~PASSWORD_FLAG,))
    body = connect[start:flags_at] + flags + connect[flags_at + 1 : password_at]
    return connect[:1] + write_variable(len(body)) + body


def _field_positions(connect: bytes, flags_at: int) -> list[int]:
    """Where the fields of the payload begin."""
    flags, is_v5 = connect[flags_at], connect[flags_at - 1] == V5
    position = flags_at + 3  # flags, keep-alive
    if is_v5:
        length, position = variable(connect, position)
        position += length
    has_will, has_user = bool(flags & 0x04), bool(flags & 0x80)
    found = [position]
    _, position = binary(connect, position)
    if has_will:
        if is_v5:
            length, position = variable(connect, position)
            position += length
        for _ in range(2):
            found.append(position)
            _, position = binary(connect, position)
    if has_user:
        found.append(position)
        _, position = binary(connect, position)
    return [*found, position]
