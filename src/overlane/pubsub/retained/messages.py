"""Retained messages: the last retained message of each topic, for later subscriptions.

They are kept in a tree of topic levels, the reverse of the tree of filters: here one filter matches many topics. Number
and bytes are limited; a retained message beyond the limit is not kept, and its publisher gets an error.
"""

from collections.abc import Callable, Iterable, Iterator

from overlane.core.events import Erase, RecordChange, Save
from overlane.core.records import THE_BROKER, RecordKind
from overlane.core.topics import deep_bytes
from overlane.core.units import SECOND, Nanos
from overlane.pubsub.limits import Limits
from overlane.pubsub.message import Message, restored
from overlane.pubsub.retained.removals import Removals

TABLE = "mqtt.retained"

SWEEP_EVERY: Nanos = 10 * SECOND
"""A search through all of them for what has expired comes no more often."""


class _Node:
    __slots__ = ("children", "message")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.message: Message | None = None


class RetainedMessages:
    def __init__(self, limits: Limits, has_others: Callable[[], bool] = lambda: True) -> None:
        """`has_others`: whether there are other brokers."""
        self.limits = limits
        self._root = _Node()
        self._count = 0
        self._swept_ns: Nanos = -SWEEP_EVERY
        self.removed = Removals(has_others)
        self.bytes = 0
        self._own: set[str] = set()
        """Topics of the broker's own statistics, which are not counted: limits are for what clients leave here."""
        self.before_change: Callable[[str, Message | None], None] | None = None
        """Who wants to know what a topic has, before it has something else or nothing any more."""

    def __len__(self) -> int:
        return self._count

    def make_room(self, message: Message, now: Nanos) -> tuple[bool, list[RecordChange]]:
        """Whether it can be kept; where there was no room, those that have expired are taken away first."""
        effects: list[RecordChange] = []
        if not self._fits(message) and now >= self._swept_ns + SWEEP_EVERY:
            self._swept_ns = now
            for one in self._expired(now):
                effects += self.remove(one.topic)
        return self._fits(message), effects

    def _fits(self, message: Message) -> bool:
        old = self.get(message.topic)
        count = self._count + (old is None)
        size = self.bytes + _kept_bytes(message) - (_kept_bytes(old) if old else 0)
        return count <= self.limits.retained_messages and size <= self.limits.retained_bytes

    def get(self, topic: str) -> Message | None:
        node: _Node | None = self._root
        for level in topic.split("/"):
            node = node.children.get(level) if node is not None else None
        return node.message if node is not None else None

    def stamp_of(self, topic: str) -> Nanos:
        """When what a topic has was published, or what it had was removed."""
        old = self.get(topic)
        return old.published_ns if old is not None else self.removed.stamp_of(topic)

    def latest(self, topic: str) -> Message | None:
        """What a topic has, or a message that takes away what it had; None if nothing is remembered of it."""
        kept = self.get(topic)
        if kept is not None or topic not in self.removed:
            return kept
        return Message(topic, b"", 1, True, published_ns=self.removed.stamp_of(topic))

    def removals(self) -> list[Message]:
        """Messages that take away what was taken away here, as far as that is remembered."""
        found = [self.latest(topic) for topic in self.removed if self.get(topic) is None]
        return [one for one in found if one is not None]

    def stamp_latest(self, message: Message) -> None:
        """What a client has published here just now is later than all before, by whatever clock: other brokers judge by
        the stamp, so it has to be right before they are told."""
        message.published_ns = max(message.published_ns, self._before_ns(message) + 1)

    def keep_if_later(self, message: Message) -> list[RecordChange]:
        """Keep what came from elsewhere, unless what is here is later by the time it was published."""
        if message.published_ns <= self._before_ns(message) or (message.payload and not self._fits(message)):
            return []
        return self.keep(message)

    def _before_ns(self, message: Message) -> Nanos:
        """The stamp of what its topic has, or had before it was removed."""
        return self.stamp_of(message.topic)

    def keep(self, message: Message, durable: bool = True) -> list[RecordChange]:
        """Keep it instead of its topic's earlier one; one without payload takes that away."""
        if not message.payload:
            return [*self.removed.add(message.topic, message.published_ns), *self.remove(message.topic)]
        node = self._root
        for level in message.topic.split("/"):
            node = node.children.setdefault(level, _Node())
        if self.before_change is not None:
            self.before_change(message.topic, node.message)
        if node.message is not None:
            self._count_out(node.message)
        node.message = message
        if message.topic not in self._own:
            self._count += 1
            self.bytes += _kept_bytes(message)
        return [Save(TABLE, message.topic_utf8, message.stored())] if durable else []

    def keep_own(self, message: Message) -> None:
        """A statistic of the broker itself."""
        if message.topic not in self._own:
            if (old := self.get(message.topic)) is not None:
                self._count_out(old)
            self._own.add(message.topic)
        self.keep(message, durable=False)

    def _count_out(self, message: Message) -> None:
        if message.topic not in self._own:
            self._count -= 1
            self.bytes -= _kept_bytes(message)

    def restore(self, value: bytes) -> None:
        self.keep(restored(value), durable=False)

    def walk(self, topic_filter: str, after: str | None = None) -> Iterator[Message | None]:
        """Look for what is kept for a filter: one step for each place that is looked at, with what is found there.

        There may be any number of places, so whoever walks may stop for a while, and messages may come and go
        meanwhile: each is found as it is when its place is looked at.

        With `after` the walk goes in the order of topic levels, from behind that topic, or with "" from the start. So
        it can go on where an earlier one has ended, even one of before a restart. Without, it need not sort.
        """
        behind = after.split("/") if after else None
        return self._walk(self._root, topic_filter.split("/"), 0, after is not None, behind)

    def _walk(
        self, node: _Node, levels: list[str], depth: int, is_ordered: bool, after: list[str] | None
    ) -> Iterator[Message | None]:
        """`after`: the place below this one where the earlier walk has ended; None if it has not come here."""
        level = levels[depth] if depth < len(levels) else ""
        is_last = depth == len(levels)
        if after is None and (is_last or level == "#"):
            yield node.message
        if is_last:
            return
        is_wild = level in ("#", "+")
        names: Iterable[str] = (level,) if not is_wild else sorted(node.children) if is_ordered else list(node.children)
        for name in names:
            child = node.children.get(name)
            if child is None or (after and name < after[0]):
                continue
            if is_wild and node is self._root and name.startswith("$"):
                continue  # topics that begin with $ are found by their own name only
            yield None
            behind = after[1:] if after and name == after[0] else None
            yield from self._walk(child, levels, depth if level == "#" else depth + 1, is_ordered, behind)

    def _expired(self, now: Nanos) -> list[Message]:
        """Of all topics, those of the broker itself included."""
        found: list[Message] = []
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            if node.message is not None and node.message.expires_ns <= now:
                found.append(node.message)
            nodes += node.children.values()
        return found

    def remove(self, topic: str) -> list[RecordChange]:
        way = [("", self._root)]
        for level in topic.split("/"):
            child = way[-1][1].children.get(level)
            if child is None:
                return []
            way.append((level, child))
        node = way[-1][1]
        if node.message is None:
            return []
        if self.before_change is not None:
            self.before_change(topic, node.message)
        self._count_out(node.message)
        node.message = None
        while len(way) > 1 and way[-1][1].message is None and not way[-1][1].children:
            level, _ = way.pop()
            del way[-1][1].children[level]
        return [Erase(TABLE, topic.encode())]


RETAINED_KIND = RecordKind(TABLE, lambda _: THE_BROKER, lambda key, value: (key.decode(), restored(value)))


def _kept_bytes(message: Message) -> int:
    return message.size_bytes + deep_bytes(message.topic)
