"""Outcomes that clients give to messages they have received (part 3, section 3.4).

    accepted                         the message leaves the queue
    rejected                         it is a dead letter
    released                         it is given again, as if it had not been
    modified: delivery-failed        it is given again, and counts as tried; too many tries make it a dead letter
    modified: undeliverable-here     as rejected: this subscription, or queue, is all that "here" can mean
    settled without an outcome       as modified: delivery-failed, the default that the source was granted with

A client that tells the outcome without settling is told that it may forget the delivery.
"""

from collections.abc import Iterable
from enum import Enum

from overlane.amqp.codec.performatives import SENDER, Accepted, Disposition, Modified, Rejected, Released
from overlane.amqp.outgoing_link import OutgoingLink
from overlane.amqp.session import AmqpSession
from overlane.core.units import Nanos
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.delivery.returns import Returns
from overlane.pubsub.delivery.window import Window


class Outcome(Enum):
    DONE = "it leaves the queue"
    DEAD = "it is a dead letter"
    AGAIN = "it is given again"
    TRIED = "it is given again, and counts as tried"


def outcome_of(state: object) -> Outcome | None:
    """None if it is no outcome."""
    match state:
        case Accepted():
            return Outcome.DONE
        case Rejected() | Modified(undeliverable_here=True):
            return Outcome.DEAD
        case Released():
            return Outcome.AGAIN
        case Modified(delivery_failed=failed):
            return Outcome.TRIED if failed else Outcome.AGAIN
        case _:
            return None


class Settling:
    def __init__(self, delivery: Delivery, returns: Returns) -> None:
        self._delivery = delivery
        self._returns = returns

    def disposition(self, channel: AmqpSession, frame: Disposition, now: Nanos) -> None:
        if frame.role is SENDER:
            return  # of what it has sent itself: that is settled already
        outcome = outcome_of(frame.state)
        if outcome is None:
            if not frame.settled:
                return
            outcome = Outcome.TRIED
        numbers = channel.numbers(frame.first, frame.first if frame.last is None else frame.last)
        tags: dict[OutgoingLink, list[int]] = {}
        for number in numbers:
            link, tag = channel.unsettled.pop(number)
            if tag:
                tags.setdefault(link, []).append(tag)
        if not frame.settled:
            for number in numbers:
                channel.confirm(number, frame.state)
        for link, its_tags in tags.items():
            self.settle(link, outcome, its_tags, now)

    def settle(self, link: OutgoingLink, outcome: Outcome, tags: list[int], now: Nanos) -> None:
        consumer = link if link.queue is None else link.queue
        session = consumer.session
        if session is None:
            return
        _shrink(session.window, tags)
        match outcome:
            case Outcome.DONE:
                self._delivery.acknowledged_run(session, consumer, tags, now)
            case Outcome.DEAD:
                self._returns.reject(session, consumer, tags, now)
            case Outcome.AGAIN | Outcome.TRIED:
                self._returns.give_back(session, consumer, tags, outcome is Outcome.TRIED, now)


def _shrink(window: Window, tags: Iterable[int]) -> None:
    """What is settled does not make room: the client gives credit for more when it wants more."""
    window.receive_max -= sum(tag in window.sent for tag in tags)
