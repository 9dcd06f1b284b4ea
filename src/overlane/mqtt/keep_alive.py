"""Keep-alive: clients that do not introduce themselves in time, or then say nothing for longer than their keep-alive.

Any byte is a sign of life. Time during which the broker did not listen, because the client had to rest or to stop, does
not count against it; nor does time in which CONNACK waited for the disk, since clients say nothing before it comes.
"""

import mqtt5

from overlane.core.units import NEVER, Nanos
from overlane.mqtt.connection import Connection
from overlane.pubsub.contract.connection import Phase
from overlane.pubsub.counters import Refusal
from overlane.pubsub.sessions.registry import Sessions
from overlane.pubsub.state import State

KEEP_ALIVE_TIMEOUT = int(mqtt5.DisconnectReasonCode.KEEP_ALIVE_TIMEOUT)


class KeepAlive:
    def __init__(self, state: State, sessions: Sessions) -> None:
        self._state = state
        self._sessions = sessions
        # Bound once, and not for every connection.
        self._handshake_due, self._silence_due, self._timer_failed = self._look_at_handshake, self._look, self._failed

    def expect_connect(self, connection: Connection, due_ns: Nanos) -> None:
        """It has come, and is to be let in by then."""
        connection.timer = self._state.timers.at_with(connection, due_ns, self._handshake_due, self._timer_failed)

    def watch(self, connection: Connection) -> None:
        """It has introduced itself, or been let in."""
        self._state.timers.cancel(connection.timer)
        if connection.phase is Phase.OPEN and connection.keep_alive_ns < NEVER:
            self._look_at(connection, connection.heard_ns + connection.keep_alive_ns)

    def _look_at(self, connection: Connection, due_ns: Nanos) -> None:
        connection.timer = self._state.timers.at_with(connection, due_ns, self._silence_due, self._timer_failed)

    def _failed(self, connection: Connection, error: Exception) -> None:
        self._state.failed("timer", connection.peer.address, error, connection)

    def _look_at_handshake(self, connection: Connection, now: Nanos) -> None:
        if connection.phase in (Phase.WAITING, Phase.CHECKING):
            told = "no CONNECT in time"
            self._state.refuse(Refusal.CONNECT_LATE, told, connection)
            connection.close(-1, told)
            self._sessions.leave(connection, True, now)

    def _look(self, connection: Connection, now: Nanos) -> None:
        if connection.phase is not Phase.OPEN:
            return
        until_ns = _silent_until(connection)
        if now >= until_ns:
            told = "silent for longer than its keep-alive"
            self._state.refuse(Refusal.KEEP_ALIVE, told, connection)
            connection.close(KEEP_ALIVE_TIMEOUT, told)
            self._sessions.leave(connection, True, now)
        else:
            self._look_at(connection, min(until_ns, now + connection.keep_alive_ns))


def _silent_until(connection: Connection) -> Nanos:
    """How long it may be silent. While it had to rest, it was we who did not listen."""
    heard_ns = max(connection.heard_ns, connection.rests_until_ns, connection.stops_until_ns, connection.greeted_ns)
    return heard_ns + connection.keep_alive_ns
