"""Idle time-outs (part 2, section 2.4.5): both ends announce the silence after which they close the connection.

The announced time is half of the time after which a client counts as lost. A client that announces a time-out gets
empty frames when there is nothing else to send. A client that does not open the connection in time is closed.
"""

from collections.abc import Callable

from overlane.amqp.codec.framing import EMPTY
from overlane.amqp.codec.malformed import RESOURCE_LIMIT
from overlane.amqp.connection import Connection
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.pubsub.contract.connection import Phase
from overlane.pubsub.counters import Refusal
from overlane.pubsub.limits import NONE, Limits
from overlane.pubsub.service import PubSub

IDLE: Nanos = 60 * SECOND
"""What clients are told, where the network file has no shorter limit."""
IDLE_MIN: Nanos = 100 * MS
"""A client that wants to hear something more often is served no more often than this."""


class Idle:
    def __init__(self, pubsub: PubSub, ended: Callable[[Connection, Nanos], None]) -> None:
        """`ended`: told of connections that are closed here."""
        self._pubsub = pubsub
        self._ended = ended
        self._state = pubsub.state

    @staticmethod
    def told_ns(limits: Limits) -> Nanos:
        longest = limits.keep_alive_s_max
        return min(IDLE, longest * SECOND) if longest != NONE else IDLE

    def expect_open(self, connection: Connection, due_ns: Nanos) -> None:
        """It has come, and is to be let in by then."""
        connection.timer = self._state.timers.at_with(connection, due_ns, self._look_at_opening, self._failed)

    def watch(self, connection: Connection, idle_time_out_ms: int | None, now: Nanos) -> None:
        """It is open. `idle_time_out_ms`: what the client has told."""
        connection.keep_alive_ns = 2 * self.told_ns(self._state.limits)
        self._state.timers.cancel(connection.timer)
        self._set(connection)
        if idle_time_out_ms:
            # Half of it, so that a frame that is late is still in time.
            connection.idle_within_ns = max(IDLE_MIN, idle_time_out_ms * MS // 2)
            self._set_idle(connection, now)

    def _set(self, connection: Connection) -> None:
        connection.timer = self._state.timers.at_with(connection, _silent_until(connection), self._look, self._failed)

    def _set_idle(self, connection: Connection, now: Nanos) -> None:
        due_ns = now + connection.idle_within_ns
        connection.idle_timer = self._state.timers.at_with(connection, due_ns, self._speak, self._failed)

    def forget(self, connection: Connection) -> None:
        self._state.timers.cancel(connection.timer)
        self._state.timers.cancel(connection.idle_timer)

    def _failed(self, connection: Connection, error: Exception) -> None:
        self._state.failed("timer", connection.peer.address, error, connection)

    def _look_at_opening(self, connection: Connection, now: Nanos) -> None:  # noqa: ARG002
        if connection.phase in (Phase.WAITING, Phase.CHECKING):
            told = "no open in time"
            self._state.refuse(Refusal.CONNECT_LATE, told, connection)
            connection.shut(told)

    def _look(self, connection: Connection, now: Nanos) -> None:
        if connection.phase is not Phase.OPEN:
            return
        if now < _silent_until(connection):
            self._set(connection)
            return
        told = f"silent for longer than {connection.keep_alive_ns // SECOND} s"
        self._state.refuse(Refusal.KEEP_ALIVE, told, connection)
        connection.close(RESOURCE_LIMIT, told)
        self._ended(connection, now)
        self._pubsub.sessions.leave(connection, True, now)

    def _speak(self, connection: Connection, now: Nanos) -> None:
        if connection.phase is Phase.OPEN:
            connection.send(EMPTY)
            self._set_idle(connection, now)


def _silent_until(connection: Connection) -> Nanos:
    """How long it may be silent. While it had to rest, it was we who did not listen."""
    heard_ns = max(connection.heard_ns, connection.rests_until_ns, connection.stops_until_ns)
    return min(NEVER, heard_ns + connection.keep_alive_ns)
