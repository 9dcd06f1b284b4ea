"""Delivery: from a message to its consumers, for any protocol.

QoS 0 goes to connected consumers, as long as they read; it is never stored. QoS 1 and 2 join the window of the
receiver, durably if its session is durable, and are sent as the consumer's receive maximum allows. A message that was
sent too often without an acknowledgement, or found a full queue, is put on the dead-letter topic.
"""

from collections.abc import Iterable
from itertools import takewhile

from overlane.core.events import PublishResult
from overlane.core.units import Nanos
from overlane.errors import InDoubt
from overlane.pubsub.cluster.names import tag_of
from overlane.pubsub.contract.consumer import Consumer
from overlane.pubsub.counters import Drop
from overlane.pubsub.delivery import dead_letters
from overlane.pubsub.delivery.confirmations import Confirmations
from overlane.pubsub.delivery.window import DeliveryStage, Entry
from overlane.pubsub.message import Message, Run
from overlane.pubsub.publishing.qos_override import RELIABLE, apply_override
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.streams.log import StreamLog
from overlane.pubsub.subscriptions.content_filters import ContentFilters
from overlane.pubsub.subscriptions.table import Audience, Receiver, SharedGroup

SEND_AHEAD_BYTES = 256 * 1024
"""QoS 1 and 2 wait in the window while the consumer has more than this to read."""

OVERRUN = 2
"""Publishers wait for a client that is there and answers, but not for ever: an acknowledgement may be behind a message
on the same connection. What they send meanwhile is kept up to so many times the limits of its queue."""

Given = tuple[bool, float]
"""Whether a message was stored for anybody; and how full the fullest queue is that it has joined, from 0 to 1, of those
whose clients are there and answer."""
NOT_GIVEN: Given = False, 0.0

HEADWAY_WINDOWS = 4
"""The store is told ahead of so many times what may be in flight: of more, and it is told less often, but more would be
sent as if it had been sent before after a crash."""


class Delivery:
    def __init__(self, state: State) -> None:
        self._state = state
        self.content_filters = ContentFilters(state.counters)
        self._stalled: dict[str, Session] = {}
        """Those whose next message is not on disk, while the store fails."""
        self.has_stalled = False
        self._confirmations = confirmations = Confirmations(state, self.pump)
        # Bound once, since they are called for every message.
        self.acknowledged, self.acknowledged_run = confirmations.acknowledged, confirmations.acknowledged_run
        self.received, self.completed, self.done = confirmations.received, confirmations.completed, confirmations.done

    # To many

    def spread(
        self,
        message: Message,
        audience: Audience,
        now: Nanos,
        sender: str | None = None,
        only: Iterable[str] = (),
        overrun: int = OVERRUN,
    ) -> Given:
        """To every receiver; with `only`, to those of these clients. `sender` is a local client. `overrun`: how many
        times the limits of its queue a client that is there may have waiting."""
        chosen = frozenset(only)
        is_stored, fullest = NOT_GIVEN
        for receiver in audience.receivers:
            if chosen and receiver.session.client_id not in chosen:
                continue
            if receiver.is_conditional:
                chosen_for = self.content_filters.chosen(receiver, message, sender)
                if chosen_for is None:
                    continue
                receiver = chosen_for
            retain = message.retain and receiver.retain_as_published
            qos = min(message.qos, receiver.qos)
            stored, crowding = self.give(
                receiver.session, message, qos, retain, receiver.identifiers, now, overrun=overrun
            )
            is_stored |= stored
            if crowding > fullest:
                fullest = crowding
        return is_stored, fullest

    def spread_run(self, run: Run, audience: Audience, now: Nanos) -> Given:
        """Messages of QoS 1 to every receiver; none of these is a stream, nor wants less of its own messages."""
        is_stored, fullest = NOT_GIVEN
        for receiver in audience.receivers:
            if receiver.choices:
                stored, crowding = self._give_run_singly(receiver, run, now)
                is_stored |= stored
                fullest = max(fullest, crowding)
                continue
            if receiver.qos:
                stored, crowding = self.give_run(receiver.session, run, receiver.identifiers, now)
                is_stored |= stored
                fullest = max(fullest, crowding)
                continue
            for message in run.messages:
                _, crowding = self.give(receiver.session, message, 0, False, receiver.identifiers, now)
                fullest = max(fullest, crowding)
        return is_stored, fullest

    def _give_run_singly(self, receiver: Receiver, run: Run, now: Nanos) -> Given:
        run.is_split = True  # its messages may be records of their own from now on
        given = NOT_GIVEN
        for message in run.messages:
            given = both(given, self.give_filtered(receiver, message, now))
        return given

    def give_filtered(self, receiver: Receiver, message: Message, now: Nanos) -> Given:
        """A message that is not retained, and not the receiver's own, to a receiver that may have a content filter."""
        found = self.content_filters.chosen(receiver, message, None)
        if found is None:
            return NOT_GIVEN
        return self.give(found.session, message, min(message.qos, found.qos), False, found.identifiers, now)

    def share_here(self, message: Message, audience: Audience, now: Nanos, overrun: int = OVERRUN) -> Given:
        """To one member of each shared subscription of this broker."""
        given = NOT_GIVEN
        for group in audience.groups:
            given = both(given, self.share(message, group, now, overrun))
        return given

    def share(self, message: Message, group: SharedGroup, now: Nanos, overrun: int = OVERRUN) -> Given | None:
        """To one member of the group; None if there is none."""
        limits = self._state.limits
        one = group.choose(
            lambda session: self._state.may_receive(session, message.topic),
            lambda session: session.window.takes(message, limits),
        )
        if one is None:
            return None
        identifiers = (one.identifier,) if one.identifier else ()
        retain = message.retain and one.retain_as_published
        name = "" if min(message.qos, one.qos) == 0 else one.name
        return self.give(one.session, message, min(message.qos, one.qos), retain, identifiers, now, name, overrun)

    def share_by_name(
        self, message: Message, group: str, tag: str, now: Nanos, overrun: int = OVERRUN, *, may_hold: bool = True
    ) -> bool:
        """To a member here of the group that is so called, or to one at another broker; False if there is none.
        `may_hold`: as of `share_elsewhere`."""
        for one in self._state.subscriptions.audience(message.topic).groups:
            is_meant = one.name == group and tag_of(one.filter) == tag
            if is_meant and self.share(message, one, now, overrun) is not None:
                return True
        return self.share_elsewhere(message, group, tag, now, may_hold=may_hold)

    def share_elsewhere(self, message: Message, group: str, tag: str, now: Nanos, *, may_hold: bool = True) -> bool:
        """To a member at another broker: here is none any more. Whether it is on its way; QoS 0 is not sent on.

        `may_hold`: it may wait until it is known who needs its topic. One that has waited for that must not wait again:
        others of its topics that are still held would make it, and it would be released and held for ever.
        """
        if not message.qos:
            return False
        cluster = self._state.cluster
        qos = cluster.class_of(message.topic, self._state.settings.qos.of(message.topic), now)
        qos = apply_override(qos, RELIABLE)
        for one in cluster.directory.shared(message.topic):
            if one.group == group and tag_of(one.filter) == tag:
                broker = cluster.choose(one.group, one.filter, one.brokers, is_here=False)
                return cluster.send_to_group(broker, one, message, qos, now) is PublishResult.ACCEPTED
        return may_hold and cluster.hold_for_group(group, tag, message, qos, now)

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
        overrun: int = OVERRUN,
    ) -> Given:
        if session.log is not None:
            return self._log(session.log, message, qos, retain, now), 0.0
        consumer = session.consumer
        if not qos:
            if consumer is not None:
                try:
                    return False, self._send_plain(consumer, message, retain, identifiers, now)
                except Exception as error:
                    self._failed(session, consumer, error)
            return NOT_GIVEN
        limits, crowding = self._state.limits, 0.0
        if self._state.awaits(session, now):
            crowding = session.window.crowding(limits)
        else:
            overrun = 1
        if not session.window.takes(message, limits, overrun):
            for expired in session.window.expire(now):
                self._state.queue_records.take(expired)
                self._state.counters.dropped[Drop.EXPIRED] += 1
            if not session.window.takes(message, limits, overrun):
                return self.dead(session, message, Drop.QUEUE_FULL, now), crowding
        entry = Entry(message, qos, retain, identifiers, group)
        session.window.add(entry)
        if session.is_durable:
            self._state.batch.extend(session.deduplication.reserve(entry.sequence))
            self._state.queue_records.put(session.client_id, entry, self._state.turn)
        if consumer is not None:
            self.pump(session, consumer, now)
        return session.is_durable, crowding

    def give_run(self, session: Session, run: Run, identifiers: tuple[int, ...], now: Nanos) -> Given:
        """Messages of QoS 1 to a session that takes them as such, and is no stream: as if given one by one."""
        state, window, messages = self._state, session.window, run.messages
        limits, crowding, overrun = state.limits, 0.0, 1
        count = len(messages)
        if self._state.awaits(session, now):
            # As the last of them finds it.
            waiting = (len(window) + count - 1) / limits.queue_messages
            waiting_bytes = (window.bytes + run.size_bytes - messages[-1].size_bytes) / limits.queue_bytes
            crowding, overrun = min(1.0, max(waiting, waiting_bytes)), OVERRUN
        if run.is_split or not window.takes_run(count, run.size_bytes, limits, overrun):
            run.is_split = True  # its messages may be records of their own from now on
            given = NOT_GIVEN
            for message in messages:
                given = both(given, self.give(session, message, 1, False, identifiers, now))
            return given
        entries = window.add_run(messages, identifiers, run.size_bytes)
        if session.is_durable:
            state.batch.extend(session.deduplication.reserve(entries[-1].sequence))
            state.queue_records.put_run(session.client_id, entries, messages, state.turn)
        if session.consumer is not None:
            self.pump(session, session.consumer, now)
        return session.is_durable, crowding

    def _log(self, log: StreamLog, message: Message, qos: int, retain: bool, now: Nanos) -> bool:
        """Whether it is kept."""
        state = self._state
        if state.is_store_failing and not qos:
            state.counters.dropped[Drop.QUEUE_FULL] += 1  # no acknowledgement waits for it, and nothing would limit it
            return False
        lost, records = log.append(message, qos, retain, state.turn, now)
        state.counters.dropped[Drop.QUEUE_FULL] += lost
        state.batch.extend(records)
        return True

    def _send_plain(
        self, consumer: Consumer, message: Message, retain: bool, identifiers: tuple[int, ...], now: Nanos
    ) -> float:
        """How full the client's queue is, if it reads."""
        state, crowding = self._state, consumer.backlog_bytes / self._state.limits.queue_bytes
        if crowding > 1:
            state.counters.dropped[Drop.SLOW_CLIENT] += 1
        elif consumer.take(message, 0, retain, identifiers, now):
            state.counters.messages_out += 1
        else:
            state.counters.dropped[Drop.TOO_LARGE] += 1
        return min(1.0, crowding) if crowding and consumer.keeps_reading(now) else 0.0

    def pump(self, session: Session, consumer: Consumer, now: Nanos) -> None:
        """Give the consumer what it takes. Where that fails by our own fault, the client is ended with a
        reason and its queue is as it was, so that neither the message nor who published it is the worse for it."""
        state, window = self._state, session.window
        entry: Entry | None = None
        try:
            while consumer.backlog_bytes < SEND_AHEAD_BYTES:
                if self._pump_plain(session, consumer, now):
                    continue
                entry = window.next_to_send()
                if entry is None:
                    return
                message = entry.message
                rests_on = self._rests_on(session, entry) if entry.is_stored else 0
                is_durable = rests_on <= state.durable_turn
                if state.is_store_failing and not is_durable:
                    # It would hold back all that follows for as long as the store fails, even answers that make room.
                    self._stalled[session.client_id] = session
                    self.has_stalled = True
                    return
                drop = None
                if entry.stage is DeliveryStage.WAITING and message.is_expired(now):
                    drop = Drop.EXPIRED
                elif entry.tries >= state.limits.tries:
                    drop = Drop.TRIES
                elif not self._state.may_receive(session, message.topic):
                    drop = Drop.DENIED  # the right was revoked while it waited
                elif not consumer.take(
                    message,
                    entry.qos,
                    entry.retain,
                    entry.identifiers,
                    now,
                    entry.tag,
                    entry.stage is DeliveryStage.SENT,
                ):
                    drop = Drop.TOO_LARGE
                if drop is None:
                    consumer.waits |= not is_durable
                    window.send(entry, now)
                    state.counters.messages_out += 1
                    continue
                if entry.qos == 2 and entry.stage is DeliveryStage.SENT:
                    window.give_up(entry)
                    self._confirmations.release(session, consumer, entry)
                else:
                    window.drop(entry)
                    state.queue_records.take(entry)
                if drop is Drop.TRIES:
                    self.dead(session, message, drop, now)
                else:
                    state.counters.dropped[drop] += 1
        except InDoubt:
            raise
        except Exception as error:
            if entry is not None:
                entry.tries += 1  # or the client would never get past it
            self._failed(session, consumer, error)

    def _pump_plain(self, session: Session, consumer: Consumer, now: Nanos) -> bool:
        """Give the consumer those that wait and are plain, all at once; whether there were any that it took."""
        state, window = self._state, session.window
        if not window.is_waiting or state.is_store_failing:
            return False
        entries = window.plain_to_send()
        if not entries:
            return False
        if not session.is_operators:
            rights = state.settings.access.rights(session.user, session.client_id)
            if not rights.everything:
                entries = list(takewhile(lambda one: rights.may_receive(one.message.topic), entries))
        try:
            if not entries or not consumer.take_run(entries):
                return False
        except Exception:
            for entry in entries:
                entry.is_plain = False  # next time it will be seen which of them it is
            raise
        stored: Entry | None = entries[-1]
        if entries[-1].record is None:
            # Only of a session that was durable for a while another may be the last that is stored.
            among = reversed(entries) if session.is_known else ()
            stored = next((entry for entry in among if entry.record is not None), None)
        if stored is not None and self._rests_on(session, stored) > state.durable_turn:
            consumer.waits = True
        window.send_run(entries, now)
        state.counters.messages_out += len(entries)
        return True

    def _failed(self, session: Session, consumer: Consumer, error: Exception) -> None:
        self._state.failed("delivery", session.client_id, error, consumer)
        if session.consumer is consumer:
            session.consumer = None

    def _rests_on(self, session: Session, entry: Entry) -> int:
        """The turn whose records must be on disk before it is sent."""
        state = self._state
        if entry.sequence > session.headway:
            ahead = HEADWAY_WINDOWS * state.limits.in_flight
            state.batch.add(session.goes_ahead(entry.sequence + ahead, state.turn))
        # While the store fails nobody is left without what it has: the answers may make the room that is missing. If
        # the broker dies then, it may come again unmarked.
        return entry.stored_in if state.is_store_failing else max(entry.stored_in, session.headway_in)

    def durable(self, now: Nanos) -> None:
        """More is on disk than before: go on where that was missing."""
        stalled, self._stalled, self.has_stalled = self._stalled, {}, False
        for session in stalled.values():
            if session.consumer is not None:
                self.pump(session, session.consumer, now)

    def dead(self, session: Session, message: Message, why: Drop, now: Nanos, reason: str = "") -> bool:
        """It could not be delivered to this client: whoever subscribes to the dead letters gets it; whether it is
        stored for any of them."""
        state = self._state
        state.counters.dropped[why] += 1
        topic = dead_letters.topic_of(message)
        if not topic:
            return False
        audience = state.subscriptions.audience(topic)
        if not audience.receivers and not audience.groups:
            return False
        state.counters.dead_letters += 1
        letter = dead_letters.letter_of(topic, message, session.client_id, reason or str(why))
        # Nobody waits for those who read dead letters.
        is_stored, _ = both(self.spread(letter, audience, now, overrun=1), self.share_here(letter, audience, now, 1))
        return is_stored

    # Sessions

    def resume(self, session: Session, consumer: Consumer, now: Nanos) -> None:
        """The client is back: what it may have missed is sent again. From now on it owes answers."""
        session.window.answered_ns = now
        for entry in session.window.reconnected():
            if not self._confirmations.postpone(session, consumer, entry):
                consumer.release(entry.tag)
        self.pump(session, consumer, now)

    def interrupted(self, session: Session) -> None:
        """The connection is lost: what was sent over it without being acknowledged is remembered."""
        session.headway = session.window.sent_up_to
        for entry in session.window.sent.values():
            if entry.stage is DeliveryStage.SENT and session.is_durable:
                self._state.queue_records.changed(entry)


def both(one: Given, other: Given | None) -> Given:
    return one if other is None else (one[0] or other[0], max(one[1], other[1]))
