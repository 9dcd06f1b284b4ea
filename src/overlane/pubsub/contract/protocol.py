"""A client protocol at a broker: the interface of its server to turns and client links, and its requests to the driver.

One broker has one publish/subscribe service (`pubsub.service`), and a server for each protocol of clients: a pure state
machine that creates connections (`pubsub.connection`), processes their bytes, and calls the service. Data to send, its
records, questions, notices, failures and timers are in the state that all servers share: a turn ends for all of them at
once.

The table of protocols is in `turn.protocols`.
"""

from typing import Any, Generic, TypeVar

from overlane.core.units import NEVER, SECOND, Nanos
from overlane.pubsub.contract.connection import ClientConnection, Phase
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.questions import LoginVerdict
from overlane.pubsub.counters import Refusal
from overlane.pubsub.limits import NONE
from overlane.pubsub.service import PubSub
from overlane.pubsub.sessions.lookup import Found
from overlane.pubsub.state import Settings, State

C = TypeVar("C", bound=ClientConnection)

CONNECTIONS_AHEAD = 64
"""So many more than are allowed may connect, to be told so; any more are closed without a word."""


class ProtocolServer(Generic[C]):
    """Of one protocol. Inputs of a driver; whatever they cause is in the state at the end of the turn."""

    def __init__(self, pubsub: PubSub) -> None:
        self.pubsub = pubsub
        self.state: State = pubsub.state

    # Connections

    def connected(self, peer: Peer, now: Nanos, since_ns: Nanos | None = None, is_turned_away: bool = False) -> C:
        """`since_ns`: when it came, if something else had to be agreed on before. `is_turned_away`: it may introduce
        itself, to be told that too many connect at once."""
        raise NotImplementedError

    def receive(self, connection: C, data: bytes, now: Nanos, packets_max: int = NEVER) -> None:
        """Bytes from a client. Whatever is wrong with them ends that connection and changes nothing else.

        No more than about `packets_max` packets are handled. If there are more, the connection is behind: they wait
        until this is called again, perhaps without new bytes. So it is where the client has to stop (`stops_for`).
        """
        raise NotImplementedError

    def receive_later(self, connection: C, data: bytes, now: Nanos) -> bool:
        """Bytes from a client for which there is no time now: they wait until `receive` is called. False if they have
        to be handled at once."""
        raise NotImplementedError

    def receive_ahead(self, connection: C, data: bytes, now: Nanos, packets_max: int = NEVER) -> bool:
        """Bytes from a client that has to rest or to stop, perhaps none since it began to: at most acknowledgements
        are handled. Everything else waits until `receive` is called. True if there are more of them, which wait until
        this is called again."""
        raise NotImplementedError

    def authenticated(
        self, connection: C, verdict: LoginVerdict, now: Nanos, packets_max: int = NEVER, user: str = ""
    ) -> None:
        """The answer to a question who the client is; `user`: who it was found to be. What it has sent meanwhile is
        handled as by `receive`."""
        raise NotImplementedError

    def placed(self, connection: C, found: Found, now: Nanos, packets_max: int = NEVER) -> None:
        """The answer to Placed, for protocols that search for sessions (`PubSub.lookup`)."""
        raise NotImplementedError

    def writable(self, connection: C, now: Nanos) -> None:
        """The client has read: there is room in the driver's buffer again."""
        if connection.session is not None:
            self.pubsub.delivery.pump(connection.session, connection, now)

    def lost(self, connection: C, now: Nanos) -> None:
        """The connection is broken, or closed by us before."""
        raise NotImplementedError

    def failed(self, connection: C, kind: str, error: Exception) -> None:
        """What this client sent, or what was found out about it, met with a fault of ours: it is told so and ended."""
        session = connection.session
        source = session.client_id if session is not None else connection.peer.address
        self.state.failed(kind, source, error, connection)

    def reconfigure(self, settings: Settings) -> None:
        """New limits, rights and classes, which the service has taken over already."""

    # Shared by protocols

    def _admit(self, connection: C, is_turned_away: bool) -> None:
        """Count a new connection; close it if there are far too many."""
        state = self.state
        connection.is_turned_away = is_turned_away
        state.connections.add(connection)
        if len(state.connections) > state.limits.connections + CONNECTIONS_AHEAD:
            told = f"more than {state.limits.connections} connections"
            state.refuse(Refusal.CONNECTIONS, told, connection)
            connection.shut(told)

    def _forget(self, connection: C, now: Nanos) -> None:
        """The connection is gone, and so is the client."""
        connection.phase = Phase.CLOSED
        self.state.connections.discard(connection)
        self.state.timers.cancel(connection.timer)
        self.pubsub.sessions.leave(connection, True, now)

    def _count_in(self, connection: C, data: bytes, now: Nanos) -> None:
        """Bytes have come; a sign of life."""
        connection.heard_ns = now
        connection.bytes_in += len(data)
        self.state.counters.bytes_in += len(data)

    def _charge(self, connection: C, messages: int, now: Nanos) -> None:
        """It has published so many messages: it has to rest where that is faster than is allowed."""
        limit = self.state.settings.limits.messages_per_second
        if limit == NONE:
            return
        earned = (now - connection.allowance_ns) * limit / SECOND
        connection.allowance = min(float(limit), connection.allowance + earned) - messages
        connection.allowance_ns = now
        if connection.allowance < 0:
            connection.rests_until_ns = now + int(-connection.allowance * SECOND / limit)
            self.state.counters.throttled += 1


AnyServer = ProtocolServer[Any]
"""To a client link every server is alike: it gives each the connections that it has made."""


def may_be_anonymous(state: State, peer: Peer) -> bool:
    """Whether a client that names no user is let in."""
    allowed = state.settings.anonymous
    return peer.is_loopback if allowed is None else allowed
