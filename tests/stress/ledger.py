"""What was published is held against what was heard: lost, repeated, reordered.

Lost is what was acknowledged and has not arrived. Order is that of the first time each number was heard.

QoS 2 must not repeat anything. QoS 1 may repeat what somebody had not acknowledged when the broker died: a message that
its publisher has sent again, or one that its subscriber heard again after the broker came back, because the broker did
not know of the acknowledgement. Any other repetition is one too many.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from faithful import FaithfulPublisher, FaithfulSubscriber


@dataclass
class Ledger:
    published: int = 0
    acknowledged: int = 0
    heard: int = 0
    allowed_repeats: int = 0
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.repeated or self.reordered or self.invented)

    def __str__(self) -> str:
        wrong = {
            "lost": self.lost,
            "repeated": self.repeated,
            "reordered": self.reordered,
            "invented": self.invented,
        }
        told = ", ".join(f"{what} {len(found)} {found[:5] or ''}".strip() for what, found in wrong.items())
        return (
            f"{self.published} published, {self.acknowledged} acknowledged, {self.heard} heard, {told}; "
            f"{self.allowed_repeats} repeated as QoS 1 may"
        )


def balance(publishers: Iterable[FaithfulPublisher], subscribers: Iterable[FaithfulSubscriber]) -> Ledger:
    """Every subscriber has subscribed to what every publisher publishes."""
    ledger = Ledger()
    subscribers = list(subscribers)
    for publisher in publishers:
        ledger.published += publisher.published
        ledger.acknowledged += len(publisher.acknowledged)
        for subscriber in subscribers:
            _compare(ledger, publisher, subscriber)
    return ledger


def missing(publishers: Iterable[FaithfulPublisher], subscribers: Iterable[FaithfulSubscriber]) -> int:
    """How much of what was acknowledged has not arrived yet."""
    return sum(
        len(publisher.acknowledged - {number for number, _ in subscriber.heard[publisher.topic]})
        for publisher in publishers
        for subscriber in subscribers
    )


def _compare(ledger: Ledger, publisher: FaithfulPublisher, subscriber: FaithfulSubscriber) -> None:
    way = f"{publisher.client} -> {subscriber.client}"
    heard = subscriber.heard[publisher.topic]
    ledger.heard += len(heard)
    latest, seen = -1, dict[int, int]()
    for number, generation in heard:
        before = seen.get(number)
        if before is not None:
            is_resent = publisher.qos == 1 and number in publisher.resent
            is_unanswered = min(publisher.qos, subscriber.qos) == 1 and generation > before
            if is_resent or is_unanswered:
                ledger.allowed_repeats += 1
            else:
                ledger.repeated.append(f"{way}: {number} in connections {before} and {generation}")
        elif number >= publisher.published:
            ledger.invented.append(f"{way}: {number}")
        elif number < latest:
            ledger.reordered.append(f"{way}: {number} after {latest}")
        latest = max(latest, number)
        seen[number] = generation
    ledger.lost += [f"{way}: {number}" for number in sorted(publisher.acknowledged - seen.keys())]
