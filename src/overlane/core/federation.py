"""Federation: which topics may cross the border of a local domain.

Each broker has rules of its own: which topics may leave it for which other brokers, and which may enter it from which.
A message is checked twice: before it leaves, by the rules of the broker where it was published, and when it arrives,
by the rules of the broker where it is delivered. Brokers in between only forward. A direction without rules is open;
with rules, only what one of them allows may cross.

Topics with a prefix of the overlay's own (`$retained/alarms/1`) are judged by the topic behind it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from overlane.core.topics import covers, matches

ANYONE = "*"

INNER = {"$overlane": 2, "$retained": 1, "$share": 4, "$want": 3}
"""The overlay's own names, and how many levels each puts in front of a topic."""


@dataclass(frozen=True, slots=True)
class Passage:
    """These topics may cross, to or from this broker, or `*`."""

    broker: str
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Federation:
    """None: no rules, everything may cross."""

    leave: tuple[Passage, ...] | None = None
    enter: tuple[Passage, ...] | None = None

    def may_leave(self, topic: str, to: str) -> bool:
        return _may_cross(self.leave, topic, to)

    def may_enter(self, topic: str, origin: str) -> bool:
        return _may_cross(self.enter, topic, origin)

    def may_ever_enter(self, topic_filter: str) -> bool:
        """Whether a subscription to the filter could get anything from elsewhere at all."""
        if self.enter is None:
            return True
        wanted = inner(topic_filter)
        return any(overlap(wanted, one) for passage in self.enter for one in passage.filters)

    @property
    def is_open(self) -> bool:
        return self.leave is None and self.enter is None


OPEN = Federation()


def inner(topic: str) -> str:
    """The topic that applications know."""
    if not topic.startswith("$"):
        return topic
    levels = topic.split("/")
    skipped = INNER.get(levels[0])
    return topic if skipped is None else "/".join(levels[skipped:]) or topic


def _may_cross(passages: Iterable[Passage] | None, topic: str, other: str) -> bool:
    if passages is None:
        return True
    known = inner(topic)
    return any(
        matches(allowed, known)
        for passage in passages
        if passage.broker in (ANYONE, other)
        for allowed in passage.filters
    )


def overlap(one: str, other: str) -> bool:
    """Whether some topic may match both filters; yes where in doubt."""
    if covers(one, other) or covers(other, one):
        return True
    for mine, theirs in zip(one.split("/"), other.split("/"), strict=False):
        if "#" in (mine, theirs):
            return True
        if mine != theirs and "+" not in (mine, theirs):
            return False
    return one.count("/") == other.count("/") or "#" in one or "#" in other
