"""Wills: messages that are published for clients whose connection is lost.

A will is a record in the store from the moment its client is connected, so that it is published even if the broker
fails. It is due when the connection ends without a normal disconnect, after its delay, but no later than the session
ends; a client that returns in time cancels it. The due time is part of the record, so that a restart does not prolong
the delay. A will that arrives while the store has failed is kept in memory only until the store works again.

A will that cannot be published, because the overlay has no room or the store has failed, is tried again. Its record
stays until then. Wills of one client are published in order.
"""

from dataclasses import dataclass

import msgspec

from overlane.core.events import Erase, Save
from overlane.core.records import Owner, OwnerKind, RecordKind
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.errors import InDoubt
from overlane.pubsub.contract.refused import PublicationRefused
from overlane.pubsub.counters import Refusal
from overlane.pubsub.limits import uncarriable
from overlane.pubsub.message import Message
from overlane.pubsub.publishing.publishing import Publishing
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.timers import Timer

TABLE = "mqtt.will"

AGAIN_AFTER: Nanos = SECOND
"""When the overlay or the store had no room for one."""


@dataclass(slots=True)
class Will:
    """`expiry_s` counts from when it is published. `properties`: as `Message.encoded`."""

    user: str | None
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    user_properties: list[tuple[str, str]]
    expiry_s: int | None
    delay_s: int
    due_ns: Nanos = NEVER

    def due(self, session: Session, now: Nanos) -> Nanos:
        """When it is published, if the connection of its client is lost now or was before."""
        return self.due_ns if self.due_ns < NEVER else min(now + self.delay_s * SECOND, session.ends_ns(now))

    def message(self, client_id: str, now: Nanos) -> Message:
        expires_ns = NEVER if self.expiry_s is None else now + self.expiry_s * SECOND
        return Message(self.topic, self.payload, self.qos, self.retain, self.properties, client_id, now, expires_ns)


_decode = msgspec.msgpack.Decoder(Will).decode

WILL_KIND = RecordKind(
    TABLE, lambda key: Owner(OwnerKind.SESSION, key.decode()), lambda key, value: (key.decode(), _decode(value))
)


class Wills:
    def __init__(self, state: State, publishing: Publishing) -> None:
        self._state = state
        self._publishing = publishing
        self._wills: dict[str, Will] = {}
        self._timers: dict[str, Timer | None] = {}
        self._overdue: list[tuple[str, Will]] = []
        """Those that are to be published, and could not be yet, in their order."""
        self._retry: Timer | None = None
        self._unsaved: set[str] = set()
        """Whose will has no record yet: the store takes nothing, or has one that is overdue in its place."""

    def __len__(self) -> int:
        return len(self._wills)

    def connected(self, session: Session, will: Will | None) -> bool:
        """A new connection's will stands in for that of the one before; whether the store has to know."""
        is_changed = self.forget(session.client_id)
        if will is not None:
            self._wills[session.client_id] = will
            self._save(session.client_id, will)
        return is_changed or will is not None

    def forget(self, client_id: str) -> bool:
        """A normal disconnect, or a return in time; whether there was one."""
        if self._take(client_id) is None:
            return False
        self._erase(client_id)
        return True

    def _take(self, client_id: str) -> Will | None:
        will = self._wills.pop(client_id, None)
        self._state.timers.cancel(self._timers.pop(client_id, None))
        self._unsaved.discard(client_id)
        return will

    def lost(self, session: Session, now: Nanos) -> None:
        """The connection has ended without a normal disconnect."""
        will = self._wills.get(session.client_id)
        if will is None:
            return
        will.due_ns = will.due(session, now)
        self._wait(session.client_id, will, now)

    def get(self, client_id: str) -> Will | None:
        return self._wills.get(client_id)

    def adopt(self, client_id: str, will: Will, now: Nanos) -> None:
        """The will of a client that another broker has lost: when it is due is known."""
        self._wills[client_id] = will
        self._wait(client_id, will, now)

    def _wait(self, client_id: str, will: Will, now: Nanos) -> None:
        if will.due_ns <= now:
            self.say(client_id, now)
        else:
            self._save(client_id, will)
            self._watch(client_id, will)

    def say(self, client_id: str, now: Nanos) -> None:
        """Publish it now, if there is one: its time has come, or its session ends."""
        will = self._take(client_id)
        if will is None:
            return
        if self._is_overdue(client_id) or not self._publish(client_id, will, now):
            self._overdue.append((client_id, will))
            self._try_again_at(now + AGAIN_AFTER)
        else:
            self._erase(client_id)

    def _publish(self, client_id: str, will: Will, now: Nanos) -> bool:
        """Whether it is done with; False if it is to be tried again."""
        if told := uncarriable("", will.topic):
            self._state.refuse(Refusal.TOO_LARGE, f"a will: {told}", client_id=client_id)
            return True
        speaker = Session(client_id, will.user, 0)
        try:
            self._publishing.accept(will.message(client_id, now), speaker, will.user_properties, now, is_will=True)
        except PublicationRefused as refused:
            self._state.refuse(refused.why, f"a will: {refused.told}", client_id=client_id)
            return refused.why not in (Refusal.BUSY, Refusal.STORE)
        except InDoubt:
            raise
        except Exception as error:
            # It is published once and never repeated, whichever receivers it has reached.
            self._state.failed("will", client_id, error)
        return True

    # Overdue

    def _is_overdue(self, client_id: str) -> bool:
        return any(whose == client_id for whose, _ in self._overdue)

    def _try_again_at(self, due_ns: Nanos) -> None:
        self._state.timers.cancel(self._retry)
        self._retry = self._state.timers.at(due_ns, self._try_again)

    def _try_again(self, now: Nanos) -> None:
        """Those of a client behind one that could not be published wait with it."""
        self._retry = None
        overdue, self._overdue = self._overdue, []
        for client_id, will in overdue:
            if self._is_overdue(client_id) or not self._publish(client_id, will, now):
                self._overdue.append((client_id, will))
            elif client_id not in self._wills:
                self._erase(client_id)
        if self._overdue:
            self._try_again_at(now + AGAIN_AFTER)
        for client_id in sorted(self._unsaved):
            self._save(client_id, self._wills[client_id])

    def store_works(self) -> None:
        """What had to wait for the store is done at the next opportunity."""
        if self._overdue or self._unsaved:
            self._try_again_at(-NEVER)

    # Records

    def restore(self, key: bytes, value: bytes) -> None:
        self._wills[key.decode()] = _decode(value)

    def recovered(self, now: Nanos) -> None:
        """After a restart every client that was connected counts as lost now."""
        for client_id, will in list(self._wills.items()):
            session = self._state.sessions.get(client_id)
            if session is None or will.due_ns <= now:
                self.say(client_id, now)
            elif will.due_ns < NEVER:
                self._watch(client_id, will)
            else:
                self.lost(session, now)

    def _watch(self, client_id: str, will: Will) -> None:
        self._timers[client_id] = self._state.timers.at(will.due_ns, lambda now: self.say(client_id, now))

    def _save(self, client_id: str, will: Will) -> None:
        if self._state.is_store_failing or self._is_overdue(client_id):
            self._unsaved.add(client_id)
        else:
            self._unsaved.discard(client_id)
            self._state.batch.add(Save(TABLE, client_id.encode(), msgspec.msgpack.encode(will)))

    def _erase(self, client_id: str) -> None:
        """Unless the record is of an earlier will, which is overdue."""
        if not self._is_overdue(client_id):
            self._state.batch.add(Erase(TABLE, client_id.encode()))
