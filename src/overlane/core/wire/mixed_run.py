"""Mixed run: messages of several topics that one parcel carries as one body.

A protocol encodes messages so that they can be told apart; of those in one flow the core joins as many as come in a
turn, from whomever, into one body: their number, and what the protocol has made of them, end to end. On the wire the
topic of such a body is empty, and brokers in between know nothing of it. Its source knows the topics for the sake of
order; its destinations learn them from the body, by the protocol's own rules (`Split`).

Only flows that keep nothing have mixed runs: best effort, without history.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from overlane.core.wire.parcel import MIXED_RUN, PARCEL_BYTES_MAX, Message

Split = Callable[[int, bytes], Iterator[Message]]
"""The messages in a mixed run, or runs of them of one topic each, in order, by flags and body; ValueError or IndexError
where it is none."""


def no_mixed_runs(flags: int, body: bytes) -> Iterator[Message]:  # noqa: ARG001
    raise ValueError("a mixed run of a protocol that is not spoken here")


class MixedRunTopics(str):
    """The topic of a mixed run at its source: empty, with the topics of its messages beside it."""

    __slots__ = ("topics",)

    topics: Sequence[str]


def topics_in(column: Iterable[str]) -> dict[str, None]:
    """Each topic of some messages once, those in mixed runs included."""
    found: dict[str, None] = {}
    for topic in column:
        if type(topic) is MixedRunTopics:
            found.update(dict.fromkeys(topic.topics))
        else:
            found[topic] = None
    return found


class MixedRun:
    """One that grows."""

    __slots__ = ("_alone", "_pieces", "_topics", "count", "flags", "size")

    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.count = 0
        self.size = 0
        self._pieces: list[bytes] = []
        self._topics: list[str] = []
        self._alone: tuple[int, bytes] | None = None

    def takes(self, flags: int, size: int) -> bool:
        return flags == self.flags and self.size + size <= PARCEL_BYTES_MAX

    def add(self, topics: Sequence[str], encoded: bytes, count: int, alone: tuple[int, bytes] | None) -> None:
        """`alone`: flags and body of a single message that stays alone."""
        self._topics += topics
        self._pieces.append(encoded)
        self._alone = alone
        self.count += count
        self.size += len(encoded)

    def message(self) -> Message:
        """What it has become: where all are of one topic, a message of that."""
        topic = self._topics[0]
        if self._alone is not None and self.count == 1:
            return topic, *self._alone
        body = b"".join((self.count.to_bytes(4), *self._pieces))
        if self._topics.count(topic) == len(self._topics):
            return topic, self.flags, body
        topics = MixedRunTopics(MIXED_RUN)
        topics.topics = self._topics
        return topics, self.flags, body
