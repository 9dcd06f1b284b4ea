"""Sessions: which exist, who takes one over, and when it ends.

A session is claimed by a client that connects. When its connection is lost, it is kept for its expiry interval; then it
ends, and all of its state is removed. A session without an interval ends with its connection.
"""

from collections.abc import Iterable
from typing import NamedTuple

from overlane.core.units import NEVER, Nanos
from overlane.pubsub.contract.consumer import Consumer, Ending
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.delivery.returns import Returns
from overlane.pubsub.notices import Left
from overlane.pubsub.reservations.service import Reservations
from overlane.pubsub.sessions.domain import HeldSession, Holding
from overlane.pubsub.sessions.session import FOR_EVER_S, Session
from overlane.pubsub.sessions.wills import Will, Wills
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.subscribing import Subscribing


class SessionClaim(NamedTuple):
    """`is_present`: the session was there before. `is_stored`: the answer rests on records of this turn."""

    session: Session
    is_present: bool
    is_stored: bool


class Sessions:
    def __init__(
        self,
        state: State,
        delivery: Delivery,
        returns: Returns,
        subscribing: Subscribing,
        wills: Wills,
        reservations: Reservations,
    ) -> None:
        self._state = state
        self._delivery = delivery
        self._returns = returns
        self._subscribing = subscribing
        self._wills = wills
        self._reservations = reservations

    def claim(
        self, client_id: str, user: str | None, clean: bool, expiry_s: int, now: Nanos, after_ns: Nanos = 0
    ) -> SessionClaim:
        """The session for a client that connects. It replaces one elsewhere that was claimed at `after_ns`."""
        session = self._state.sessions.get(client_id)
        was_there = session is not None
        if session is not None and session.consumer is None and session.expires_ns <= now:
            self.end(session, now)  # it was due at this very moment
            session = None
        if session is not None and session.consumer is not None:
            self._take_over(session.consumer, client_id, now)
            session = self._state.sessions.get(client_id)
        if session is not None and (clean or session.user != user):
            # Another user under the same identifier must not get what was kept for this one.
            self.end(session, now)
            session = None
        is_present = session is not None
        if session is None:
            session = self._state.sessions[client_id] = Session(client_id, user, expiry_s)
        is_forgotten = is_present and self._wills.forget(client_id)
        session.expiry_s = expiry_s
        session.expires_ns = NEVER
        session.claimed_ns = max(now, after_ns + 1)
        self._state.timers.cancel(session.timer)
        if session.is_durable and not session.is_known:
            session.known_in = self._state.turn
        is_saved = session.is_durable or session.is_known
        if is_saved:
            self._state.batch.add(session.saved())
        is_ended = was_there and not is_present
        return SessionClaim(session, is_present, is_saved or is_forgotten or is_ended)

    def _take_over(self, consumer: Consumer, client_id: str, now: Nanos) -> None:
        consumer.end(Ending.TAKEN_OVER, f"another connection uses the identifier {client_id[:60]}")
        self.leave(consumer, True, now)

    # For other brokers of the domain (lookup.LocalSessions)

    def held(self, client_id: str, now: Nanos) -> HeldSession:
        """What there is of a client: streams and operators have sessions of other kinds."""
        session = self._state.sessions.get(client_id)
        if session is None or session.log is not None or session.is_operators:
            return HeldSession()
        if session.consumer is None and session.expires_ns <= now:
            return HeldSession()
        holding = Holding.CONNECTED
        if session.is_durable:
            holding = Holding.FOR_EVER if session.expiry_s >= FOR_EVER_S else Holding.KEPT
        return HeldSession(holding, session.claimed_ns)

    def give_up(self, client_id: str, until_ns: Nanos, now: Nanos) -> None:
        """There is another session in the domain: this one ends, unless it was claimed later than that."""
        if self.held(client_id, now).holding is Holding.NOTHING:
            return
        session = self._state.sessions[client_id]
        if session.claimed_ns > until_ns:
            return
        if session.consumer is not None:
            self._take_over(session.consumer, client_id, now)
        if self._state.sessions.get(client_id) is session:
            self.end(session, now)

    def unattended(self, session: Session, now: Nanos) -> None:
        """Nobody is connected to a session that was claimed just now: it lasts for its expiry interval."""
        session.expires_ns = session.ends_ns(now)
        self._state.batch.add(session.saved())
        self._watch(session)

    def resume(self, session: Session, consumer: Consumer, now: Nanos) -> None:
        """The client is back."""
        self._delivery.resume(session, consumer, now)
        self._subscribing.resume(session, consumer, now)

    def end_connection(self, consumer: Consumer, ending: Ending, why: str, now: Nanos) -> None:
        """The broker ends a connection; the client's will is published."""
        consumer.end(ending, why)
        self.leave(consumer, True, now)

    def leave(self, consumer: Consumer, with_will: bool, now: Nanos) -> None:
        """A connection has ended."""
        session = self._detach(consumer)
        if session is not None:
            self._left(session, with_will, now)

    def leave_all(self, consumers: Iterable[Consumer], now: Nanos) -> None:
        """All of these have ended at once: the will of one is not sent to another, but waits for it."""
        sessions = [session for consumer in consumers if (session := self._detach(consumer)) is not None]
        for session in sorted(sessions, key=lambda session: session.client_id):
            self._left(session, True, now)

    def leave_after_failure(self, consumer: Consumer, now: Nanos) -> None:
        """A connection was closed by an internal error; its session may already have stopped sending."""
        session = consumer.session
        if session is not None and session.consumer is None:
            session.consumer = consumer
        self.leave(consumer, True, now)

    def _detach(self, consumer: Consumer) -> Session | None:
        session = consumer.session
        if session is None or session.consumer is not consumer:
            return None
        session.consumer = None
        consumer.session = None
        why = consumer.closing or "the connection broke"
        self._state.notices.add(Left(session.client_id, consumer.peer, why))
        self._delivery.interrupted(session)
        return session

    def _left(self, session: Session, with_will: bool, now: Nanos) -> None:
        if with_will:
            self._wills.lost(session, now)
        else:
            self._wills.forget(session.client_id)
        self._reservations.left(session.client_id, lambda: self._is_connected(session.client_id), now)
        if not session.is_durable:
            self.end(session, now)
            return
        session.expires_ns = session.ends_ns(now)
        self._state.batch.add(session.saved())
        self._watch(session)

    def _is_connected(self, client_id: str) -> bool:
        session = self._state.sessions.get(client_id)
        return session is not None and session.consumer is not None

    def end(self, session: Session, now: Nanos) -> None:
        """It is over: nothing is kept for it any more."""
        state = self._state
        self._wills.say(session.client_id, now)
        state.sessions.pop(session.client_id, None)
        state.timers.cancel(session.timer)
        subscriptions = self._subscribing.end(session, now)
        self._returns.abandon(session, subscriptions, now)
        state.batch.extend(session.erased())
        session.subscriptions.clear()
        session.replays.clear()

    def adopt(self, session: Session, will: Will | None, now: Nanos) -> None:
        """A session from another broker, of which this one has no other, is one of this broker's own from now on."""
        state, replays = self._state, session.replays
        state.sessions[session.client_id] = session
        session.known_in = session.headway_in = session.exchanged_in = state.turn
        session.claimed_ns = now
        state.batch.add(session.saved())
        session.replays = {}
        self._subscribing.adopt(session, now)
        session.replays = replays
        state.batch.extend([session.saved_replay(name) for name in replays])
        state.batch.extend([session.saved_received(identifier) for identifier in sorted(session.received)])
        state.batch.extend(session.deduplication.saved())
        for entry in session.window:
            state.queue_records.put(session.client_id, entry, state.turn)
        self._watch(session)
        if will is not None:
            self._wills.adopt(session.client_id, will, now)

    def recovered(self, now: Nanos) -> None:
        """After a restart no client is connected: the connections from before count as lost now."""
        for session in list(self._state.sessions.values()):
            session.window.recovered(session.headway)
            if session.headway == NEVER:  # of an older record
                session.headway = session.window.sent_up_to
            if session.expires_ns >= NEVER:
                session.expires_ns = session.ends_ns(now)
                self._state.batch.add(session.saved())
            self._watch(session)

    def _watch(self, session: Session) -> None:
        # One that could not be ended whole is ended by the next start: its records are erased last.
        session.timer = self._state.timers.at(
            session.expires_ns,
            lambda now: self.end(session, now),
            lambda error: self._state.failed("timer", session.client_id, error),
        )
