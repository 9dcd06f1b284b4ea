"""Delivery: from a message to the clients that get it.

QoS 0 goes to those that are connected, as long as they read; it is never stored. QoS 1 and 2 join the receiver's
window, durably if its session is durable, and leave from there as the client's receive maximum allows. A message that
was sent too often without being acknowledged, or has found a full queue, is put on the dead-letter topic.
"""

from collections.abc import Iterable

import mqtt5

from overlane.core.units import Nanos
from overlane.mqtt import writing
from overlane.mqtt.connection import Connection
from overlane.mqtt.counters import Drop
from overlane.mqtt.fields import BYTES_MAX
from overlane.mqtt.malformed import PROTOCOL_ERROR, Malformed
from overlane.mqtt.message import Message
from overlane.mqtt.session import Session
from overlane.mqtt.state import State
from overlane.mqtt.streamlog import StreamLog
from overlane.mqtt.subscriptions import Audience, Receiver, SharedGroup, Subscription
from overlane.mqtt.window import Entry, Stage

DEAD_LETTERS = "$dead-letter/"
SEND_AHEAD_BYTES = 256 * 1024
"""QoS 1 and 2 wait in the window while more than this lies in the driver's buffer."""

HEADWAY_WINDOWS = 4
"""The store is told ahead of so many times what may be in flight: of more, and it is told less often, but more would be
sent as if it had been sent before after a crash."""


class Delivery:
    def __init__(self, state: State) -> None:
        self._state = state
        self._stalled: dict[str, Session] = {}
        """Those whose next message is not on disk, while the store fails."""

    # To many

    def spread(
        self, message: Message, audience: Audience, now: Nanos, sender: str | None = None, only: Iterable[str] = ()
    ) -> None:
        """To every receiver; with `only`, to those of these clients. `sender` is a local client."""
        chosen = frozenset(only)
        for receiver in audience.receivers:
            if chosen and receiver.session.client_id not in chosen:
                continue
            if not receiver.is_own and receiver.session.client_id == sender:
                if receiver.of_own is None:
                    continue
                receiver = receiver.of_own
            self._give(receiver, message, now)

    def share_here(self, message: Message, audience: Audience, now: Nanos) -> None:
        """To one member of each shared subscription of this broker."""
        for group in audience.groups:
            self.share(message, group, now)

    def share(self, message: Message, group: SharedGroup, now: Nanos) -> bool:
        """To one member of the group."""
        limits = self._state.limits
        one = group.choose(
            lambda session: self._state.may_receive(session, message.topic),
            lambda session: session.window.takes(message, limits),
        )
        if one is None:
            return False
        identifiers = (one.identifier,) if one.identifier else ()
        retain = message.retain and one.retain_as_published
        name = "" if min(message.qos, one.qos) == 0 else one.name
        self.give(one.session, message, min(message.qos, one.qos), retain, identifiers, now, name)
        return True

    def _give(self, receiver: Receiver, message: Message, now: Nanos) -> None:
        retain = message.retain and receiver.retain_as_published
        self.give(receiver.session, message, min(message.qos, receiver.qos), retain, receiver.identifiers, now)

    def needs_store(self, message: Message, audience: Audience) -> bool:
        """Whether accepting it means to keep it through a restart."""
        if not message.qos:
            return False
        if any(one.qos and one.session.is_durable for one in audience.receivers):
            return True
        return any(one.qos and one.session.is_durable for group in audience.groups for one in group.members.values())

    # To one

    def give(
        self,
        session: Session,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        now: Nanos,
        group: str = "",
    ) -> None:
        if session.log is not None:
            self._log(session.log, message, qos, retain, now)
            return
        connection = session.connection
        if not qos:
            if connection is not None:
                self._send_plain(connection, message, retain, identifiers, now)
            return
        limits = self._state.limits
        is_awaited = session.is_awaited(now)
        if is_awaited:
            self._state.crowding = max(self._state.crowding, session.window.crowding(limits))
        if not (session.window.takes(message, limits) or (is_awaited and self._state.is_let_in)):
            for expired in session.window.expire(now):
                self._state.shelf.take(session.client_id, expired)
                self._state.counters.dropped[Drop.EXPIRED] += 1
            if not session.window.takes(message, limits):
                self._dead(session, message, Drop.QUEUE_FULL, now)
                return
        entry = Entry(message, qos, retain, identifiers, group)
        session.window.add(entry)
        if session.is_durable:
            self._state.effects += session.once.reserve(entry.sequence)
            self._state.shelf.put(session.client_id, entry, self._state.turn)
        if connection is not None:
            self.pump(session, connection, now)

    def _log(self, log: StreamLog, message: Message, qos: int, retain: bool, now: Nanos) -> None:
        state = self._state
        if state.is_store_failing and not qos:
            state.counters.dropped[Drop.QUEUE_FULL] += 1  # nobody waits for it, and nothing would bound it
        else:
            state.counters.dropped[Drop.QUEUE_FULL] += log.append(message, qos, retain, state.turn, now)

    def _send_plain(
        self, connection: Connection, message: Message, retain: bool, identifiers: tuple[int, ...], now: Nanos
    ) -> None:
        state, crowding = self._state, connection.backlog_bytes / self._state.limits.queue_bytes
        if crowding > state.crowding and connection.keeps_reading(now):
            state.crowding = min(1.0, crowding)
        if crowding > 1:
            state.counters.dropped[Drop.SLOW_CLIENT] += 1
        elif connection.send_message(message, 0, retain, identifiers, now):
            state.counters.messages_out += 1
        else:
            state.counters.dropped[Drop.TOO_LARGE] += 1

    def pump(self, session: Session, connection: Connection, now: Nanos) -> None:
        """Send what the client and its connection take."""
        state, window = self._state, session.window
        while connection.backlog_bytes < SEND_AHEAD_BYTES:
            entry = window.next_to_send()
            if entry is None:
                return
            message = entry.message
            rests_on = self._rests_on(session, entry) if entry.is_stored else 0
            is_durable = rests_on <= state.durable_turn
            if state.is_store_failing and not is_durable:
                # It would hold back all that follows for as long as the store fails, even answers that make room.
                self._stalled[session.client_id] = session
                return
            drop = None
            if entry.stage is Stage.WAITING and message.is_expired(now):
                drop = Drop.EXPIRED
            elif entry.tries >= state.limits.tries:
                drop = Drop.TRIES
            elif not self._state.may_receive(session, message.topic):
                drop = Drop.DENIED  # the right was revoked while it waited
            elif not connection.send_message(
                message, entry.qos, entry.retain, entry.identifiers, now, entry.packet_id, entry.stage is Stage.SENT
            ):
                drop = Drop.TOO_LARGE
            if drop is None:
                connection.waits |= not is_durable
                window.send(entry, now)
                state.counters.messages_out += 1
                continue
            if entry.qos == 2 and entry.stage is Stage.SENT:
                window.give_up(entry)
                self._release(session, connection, entry)
            else:
                window.drop(entry)
                state.shelf.take(session.client_id, entry)
            if drop is Drop.TRIES:
                self._dead(session, message, drop, now)
            else:
                state.counters.dropped[drop] += 1

    def _rests_on(self, session: Session, entry: Entry) -> int:
        """The turn whose records must be on disk before it is sent."""
        state = self._state
        if entry.sequence > session.headway:
            ahead = HEADWAY_WINDOWS * state.limits.in_flight
            state.effects.append(session.goes_ahead(entry.sequence + ahead, state.turn))
        # While the store fails nobody is left without what it has: the answers may make the room that is missing. If
        # the broker dies then, it may come again unmarked.
        return entry.stored_in if state.is_store_failing else max(entry.stored_in, session.headway_in)

    def durable(self, now: Nanos) -> None:
        """More is on disk than before: go on where that was missing."""
        if self._stalled:
            stalled, self._stalled = self._stalled, {}
            for session in stalled.values():
                if session.connection is not None:
                    self.pump(session, session.connection, now)

    def _dead(self, session: Session, message: Message, why: Drop, now: Nanos) -> None:
        """It could not be delivered to this client: whoever watches the dead letters gets it."""
        state = self._state
        state.counters.dropped[why] += 1
        if message.topic.startswith(DEAD_LETTERS) or len(message.topic_utf8) + len(DEAD_LETTERS) > BYTES_MAX:
            return
        audience = state.subscriptions.audience(DEAD_LETTERS + message.topic)
        if not audience.receivers and not audience.groups:
            return
        state.counters.dead_letters += 1
        told = mqtt5.PublishPacket(
            "-", b"", user_properties=[("overlane-client", session.client_id), ("overlane-reason", str(why))]
        )
        letter = Message(
            DEAD_LETTERS + message.topic,
            message.payload,
            message.qos,
            properties=message.properties + writing.properties_of(told),
            sender=message.sender,
            published_ns=message.published_ns,
        )
        is_let_in, state.is_let_in = state.is_let_in, False  # the gate has not asked those who read dead letters
        self.spread(letter, audience, now)
        self.share_here(letter, audience, now)
        state.is_let_in = is_let_in

    # What the client says of it

    def acknowledged(self, session: Session, connection: Connection, packet_id: int, now: Nanos) -> bool:
        """PUBACK. False if nothing with this identifier was owed; Malformed if it is not the answer to that."""
        entry = session.window.sent.get(packet_id)
        if entry is None:
            return False
        if entry.qos != 1:
            raise Malformed(PROTOCOL_ERROR, f"PUBACK for message {packet_id}, which is of QoS 2")
        session.window.answered_ns = now
        self._done(session, entry)
        self.pump(session, connection, now)
        return True

    def received(self, session: Session, connection: Connection, packet_id: int, is_refused: bool, now: Nanos) -> bool:
        """PUBREC. A refused message is done with; otherwise it is released. False and Malformed as with PUBACK."""
        entry = session.window.sent.get(packet_id)
        if entry is None:
            return False
        if entry.qos != 2:
            raise Malformed(PROTOCOL_ERROR, f"PUBREC for message {packet_id}, which is of QoS 1")
        session.window.answered_ns = now
        if is_refused:
            self._done(session, entry)
            self.pump(session, connection, now)
            return True
        if self._must_hear_later(session, connection, entry):
            return True
        if entry.stage is Stage.RELEASED:
            connection.send(writing.ack(connection.version, writing.PUBREL, packet_id, 0))
        else:
            session.window.release(entry)
            self._release(session, connection, entry)
        return True

    def _must_hear_later(self, session: Session, connection: Connection, entry: Entry) -> bool:
        """Whether the store does not know that it is released, nor could be told now."""
        packet_id, rests_on = entry.packet_id, 0
        if entry.stage is Stage.RELEASED:
            rests_on = session.exchanged_in
        elif entry.is_stored:
            rests_on = self._state.turn
        return self._state.must_hear_later(
            rests_on,
            connection,
            writing.PUBREC,
            packet_id,
            lambda then: self.received(session, connection, packet_id, False, then),
        )

    def _release(self, session: Session, connection: Connection, entry: Entry) -> None:
        # Not before the store knows: after a crash the message would be sent again, and the client take it for new.
        if entry.is_stored:
            self._state.shelf.changed(session.client_id, entry)
            session.exchanged_in = self._state.turn
            connection.waits = True
        connection.send(writing.ack(connection.version, writing.PUBREL, entry.packet_id, 0))

    def completed(self, session: Session, connection: Connection, packet_id: int, now: Nanos) -> bool:
        """PUBCOMP."""
        entry = session.window.sent.get(packet_id)
        if entry is None or entry.stage is not Stage.RELEASED:
            return False
        self._done(session, entry)
        self.pump(session, connection, now)
        return True

    def _done(self, session: Session, entry: Entry) -> None:
        session.window.done(entry)
        self._state.shelf.take(session.client_id, entry)

    # Sessions

    def resume(self, session: Session, connection: Connection, now: Nanos) -> None:
        """The client is back: what it may have missed is sent again."""
        for entry in session.window.reconnected():
            if not self._must_hear_later(session, connection, entry):
                connection.send(writing.ack(connection.version, writing.PUBREL, entry.packet_id, 0))
        self.pump(session, connection, now)

    def interrupted(self, session: Session) -> None:
        """The connection is lost: what was sent over it without being acknowledged is remembered."""
        session.headway = session.window.sent_up_to
        for entry in session.window.sent.values():
            if entry.stage is Stage.SENT and session.is_durable:
                self._state.shelf.changed(session.client_id, entry)

    def abandon(self, session: Session, subscriptions: Iterable[Subscription], now: Nanos) -> None:
        """The session ends. What it owed of shared subscriptions goes to another member, QoS 2 under way excepted."""
        state = self._state
        groups = {one.name: state.subscriptions.group(one.group, one.filter) for one in subscriptions if one.group}
        for entry in list(session.window):
            state.shelf.take(session.client_id, entry)
            group = groups.get(entry.group)
            moves = entry.stage is Stage.WAITING or entry.qos == 1
            if not (group is not None and moves and self.share(entry.message, group, now)):
                state.counters.dropped[Drop.SESSION_ENDED] += 1
