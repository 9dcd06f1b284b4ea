"""Wills: what a client wants said when it is gone without a goodbye.

A will is a record in the store from the moment its client is connected, so that it is said even when the broker is
what failed. It is due when the connection ends otherwise than by a normal DISCONNECT, after its delay, but no later
than the session ends; a client that comes back in time takes it away (MQTT 5, section 3.1.2.5). When it is due is part
of the record, so that a restart does not prolong the delay. While the store takes nothing, a will is kept in memory
alone.
"""

from dataclasses import dataclass

import mqtt5
import msgspec

from overlane.core.events import Erase, Save
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.mqtt import writing
from overlane.mqtt.agenda import Appointment
from overlane.mqtt.counters import Refusal
from overlane.mqtt.message import EXPIRY_S_MAX, Message
from overlane.mqtt.publishing import Publishing, Refused
from overlane.mqtt.session import Session
from overlane.mqtt.state import State

TABLE = "mqtt.will"

AGAIN_AFTER: Nanos = SECOND
"""When the overlay or the store had no room for one."""


@dataclass(slots=True)
class Will:
    """`expiry_s` counts from when it is published."""

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

    def message(self, client_id: str, now: Nanos) -> Message:
        expires_ns = NEVER if self.expiry_s is None else now + self.expiry_s * SECOND
        return Message(self.topic, self.payload, self.qos, self.retain, self.properties, client_id, now, expires_ns)


_decode = msgspec.msgpack.Decoder(Will).decode


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


class Wills:
    def __init__(self, state: State, publishing: Publishing) -> None:
        self._state = state
        self._publishing = publishing
        self._wills: dict[str, Will] = {}
        self._appointments: dict[str, Appointment | None] = {}

    def __len__(self) -> int:
        return len(self._wills)

    def connected(self, session: Session, will: Will | None) -> None:
        """A new connection's will stands in for that of the one before."""
        self.forget(session.client_id)
        if will is not None:
            self._wills[session.client_id] = will
            self._save(session.client_id, will)

    def forget(self, client_id: str) -> None:
        """A normal goodbye, or a return in time."""
        if self._wills.pop(client_id, None) is not None:
            self._state.agenda.call_off(self._appointments.pop(client_id, None))
            self._state.effects.append(Erase(TABLE, client_id.encode()))

    def lost(self, session: Session, now: Nanos) -> None:
        """The connection has ended without a goodbye."""
        will = self._wills.get(session.client_id)
        if will is None:
            return
        will.due_ns = min(now + will.delay_s * SECOND, session.ends_ns(now))
        if will.due_ns <= now:
            self.say(session.client_id, now)
        else:
            self._save(session.client_id, will)
            self._watch(session.client_id, will)

    def say(self, client_id: str, now: Nanos) -> None:
        """Now, if there is one: its time has come, or its session ends."""
        will = self._wills.get(client_id)
        if will is not None:
            self.forget(client_id)
            self._publish(client_id, will, now)

    def _publish(self, client_id: str, will: Will, now: Nanos) -> None:
        speaker = Session(client_id, will.user, 0)
        try:
            self._publishing.accept(will.message(client_id, now), speaker, will.user_properties, now, is_will=True)
        except Refused as refused:
            self._state.refuse(refused.why, f"a will: {refused.told}", client_id=client_id)
            if refused.why in (Refusal.BUSY, Refusal.STORE):
                self._state.agenda.at(now + AGAIN_AFTER, lambda at: self._publish(client_id, will, at))

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
        self._appointments[client_id] = self._state.agenda.at(will.due_ns, lambda now: self.say(client_id, now))

    def _save(self, client_id: str, will: Will) -> None:
        if not self._state.is_store_failing:
            self._state.effects.append(Save(TABLE, client_id.encode(), msgspec.msgpack.encode(will)))
