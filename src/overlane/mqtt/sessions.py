"""Sessions: who has one, who takes it over, and when it ends.

A session is claimed by a client that connects. Its connection, when lost, leaves it for its expiry interval; then it
ends, and everything that was kept for it goes. A session without an interval ends with its connection.
"""

from collections.abc import Iterable

import mqtt5

from overlane.core.units import NEVER, Nanos
from overlane.mqtt.connection import Connection
from overlane.mqtt.delivery import Delivery
from overlane.mqtt.notices import Left
from overlane.mqtt.session import Session
from overlane.mqtt.state import State
from overlane.mqtt.subscribing import Subscribing
from overlane.mqtt.wills import Wills

TAKEN_OVER = int(mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER)


class Sessions:
    def __init__(self, state: State, delivery: Delivery, subscribing: Subscribing, wills: Wills) -> None:
        self._state = state
        self._delivery = delivery
        self._subscribing = subscribing
        self._wills = wills

    def claim(self, client_id: str, user: str | None, clean: bool, expiry_s: int, now: Nanos) -> tuple[Session, bool]:
        """The session for a client that connects, and whether it was there before."""
        session = self._state.sessions.get(client_id)
        if session is not None and session.connection is None and session.expires_ns <= now:
            self.end(session, now)  # it was due at this very moment
            session = None
        if session is not None and session.connection is not None:
            connection = session.connection
            connection.close(TAKEN_OVER, f"another connection came under the identifier {client_id[:60]}")
            self.leave(connection, True, now)
            session = self._state.sessions.get(client_id)
        if session is not None and (clean or session.user != user):
            # Another user under the same identifier must not get what was kept for this one.
            self.end(session, now)
            session = None
        is_present = session is not None
        if session is None:
            session = self._state.sessions[client_id] = Session(client_id, user, expiry_s)
        else:
            self._wills.forget(client_id)
        session.expiry_s = expiry_s
        session.expires_ns = NEVER
        self._state.agenda.call_off(session.appointment)
        if session.is_durable and not session.is_known:
            session.known_in = self._state.turn
        if session.is_durable or session.is_known:
            self._state.effects.append(session.saved())
        return session, is_present

    def resume(self, session: Session, connection: Connection, now: Nanos) -> None:
        """The client is back."""
        self._delivery.resume(session, connection, now)
        self._subscribing.resume(session, connection, now)

    def close(self, connection: Connection, reason: int, why: str, now: Nanos) -> None:
        """End a connection; the client is told the reason, unless that is less than 0."""
        connection.close(reason, why)
        self.leave(connection, True, now)

    def leave(self, connection: Connection, with_will: bool, now: Nanos) -> None:
        """A connection has ended."""
        session = self._detach(connection)
        if session is not None:
            self._left(session, with_will, now)

    def leave_all(self, connections: Iterable[Connection], now: Nanos) -> None:
        """All of these have ended at once: what is said of the one is not sent to the other, but waits for it."""
        sessions = [session for connection in connections if (session := self._detach(connection)) is not None]
        for session in sorted(sessions, key=lambda session: session.client_id):
            self._left(session, True, now)

    def _detach(self, connection: Connection) -> Session | None:
        session = connection.session
        if session is None or session.connection is not connection:
            return None
        session.connection = None
        connection.session = None
        why = connection.closing or "the connection broke"
        self._state.notices.add(Left(session.client_id, connection.peer, why))
        self._delivery.interrupted(session)
        return session

    def _left(self, session: Session, with_will: bool, now: Nanos) -> None:
        if with_will:
            self._wills.lost(session, now)
        else:
            self._wills.forget(session.client_id)
        if not session.is_durable:
            self.end(session, now)
            return
        session.expires_ns = session.ends_ns(now)
        self._state.effects.append(session.saved())
        self._watch(session)

    def end(self, session: Session, now: Nanos) -> None:
        """It is over: nothing is kept for it any more."""
        state = self._state
        self._wills.say(session.client_id, now)
        state.sessions.pop(session.client_id, None)
        state.agenda.call_off(session.appointment)
        subscriptions = self._subscribing.end(session, now)
        self._delivery.abandon(session, subscriptions, now)
        state.effects += session.erased()
        session.subscriptions.clear()
        session.past.clear()

    def recovered(self, now: Nanos) -> None:
        """After a restart nobody is connected: those who were are lost as of now."""
        for session in list(self._state.sessions.values()):
            session.window.recovered(session.headway)
            session.headway = session.window.sent_up_to
            if session.expires_ns >= NEVER:
                session.expires_ns = session.ends_ns(now)
                self._state.effects.append(session.saved())
            self._watch(session)

    def _watch(self, session: Session) -> None:
        session.appointment = self._state.agenda.at(session.expires_ns, lambda now: self.end(session, now))
