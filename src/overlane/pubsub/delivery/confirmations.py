"""Confirmations of consumers: a message that was sent is received, released or done with.

QoS 1 takes one confirmation. QoS 2 takes two: after the first the message is released, and the consumer forgets its tag
with the second. What is done with leaves the window and the store, and makes room for what waits.
"""

from collections.abc import Callable, Iterable

from overlane.core.units import Nanos
from overlane.errors import InDoubt, OverlaneError
from overlane.pubsub.contract.consumer import Confirmation, Consumer
from overlane.pubsub.delivery.window import DeliveryStage, Entry
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State


class UnexpectedConfirmation(OverlaneError, ValueError):
    """A consumer confirms a message otherwise than its QoS asks for."""

    error_code = "OVL-310"

    def __init__(self, tag: int, qos: int) -> None:
        super().__init__(f"message {tag} is of QoS {qos}")


class Confirmations:
    def __init__(self, state: State, pump: Callable[[Session, Consumer, Nanos], None]) -> None:
        """`pump`: gives a consumer what waits for it, as far as there is room."""
        self._state = state
        self._pump = pump

    def acknowledged(self, session: Session, consumer: Consumer, tag: int, now: Nanos) -> bool:
        """QoS 1: the consumer has the message. False if nothing with this tag was owed; UnexpectedConfirmation."""
        entry = session.window.sent.get(tag)
        if entry is None:
            return False
        if entry.qos != 1:
            raise UnexpectedConfirmation(tag, entry.qos)
        session.window.answered_ns = now
        self.done(session, entry)
        self._pump(session, consumer, now)
        return True

    def acknowledged_run(self, session: Session, consumer: Consumer, tags: Iterable[int], now: Nanos) -> None:
        """As `acknowledged`, for each tag in turn."""
        window = session.window
        sent, size_bytes = window.sent, 0
        done: list[Entry] = []
        try:
            for tag in tags:
                entry = sent.get(tag)
                if entry is None:
                    continue
                if entry.qos != 1:
                    raise UnexpectedConfirmation(tag, entry.qos)
                del sent[tag]
                size_bytes += entry.message.size_bytes
                done.append(entry)
        finally:
            if done:
                window.bytes -= size_bytes
                window.answered_ns = now
                self._state.queue_records.take_run(done)
                self._pump(session, consumer, now)

    def received(self, session: Session, consumer: Consumer, tag: int, is_refused: bool, now: Nanos) -> bool:
        """QoS 2: the consumer has the message, and it is released; or the consumer refuses it, and it is done with.
        False if nothing with this tag was owed; UnexpectedConfirmation."""
        entry = session.window.sent.get(tag)
        if entry is None:
            return False
        if entry.qos != 2:
            raise UnexpectedConfirmation(tag, entry.qos)
        session.window.answered_ns = now
        if is_refused:
            self.done(session, entry)
            self._pump(session, consumer, now)
            return True
        if self.postpone(session, consumer, entry):
            return True
        if entry.stage is DeliveryStage.RELEASED:
            consumer.release(tag)
        else:
            session.window.release(entry)
            self.release(session, consumer, entry)
        return True

    def postpone(self, session: Session, consumer: Consumer, entry: Entry) -> bool:
        """Postpone its release if it is not in the store and cannot be stored now; whether that was done."""
        tag, rests_on = entry.tag, 0
        if entry.stage is DeliveryStage.RELEASED:
            rests_on = session.exchanged_in
        elif entry.is_stored:
            rests_on = self._state.turn
        return self._state.postpone(
            rests_on,
            consumer,
            Confirmation.RECEIVED,
            tag,
            lambda then: self.received(session, consumer, tag, False, then),
        )

    def release(self, session: Session, consumer: Consumer, entry: Entry) -> None:
        """QoS 2: let the consumer forget the message that it has."""
        # Not before the store knows: after a crash the message would be sent again, and the client take it for new.
        if entry.is_stored:
            try:
                self._state.queue_records.changed(entry)
            except Exception as error:
                raise InDoubt(f"the store cannot be told that a message of {session.client_id} is released") from error
            session.exchanged_in = self._state.turn
            consumer.waits = True
        consumer.release(entry.tag)

    def completed(self, session: Session, consumer: Consumer, tag: int, now: Nanos) -> bool:
        """QoS 2: the consumer has forgotten the tag."""
        entry = session.window.sent.get(tag)
        if entry is None or entry.stage is not DeliveryStage.RELEASED:
            return False
        self.done(session, entry)
        self._pump(session, consumer, now)
        return True

    def done(self, session: Session, entry: Entry) -> None:
        session.window.done(entry)
        self._state.queue_records.take(entry)
