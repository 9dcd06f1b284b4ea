"""Retained messages: the last of each topic that was published to be kept, for whoever subscribes later.

They lie in a tree of topic levels, the reverse of the filters' tree: here a filter walks over many topics. Number and
bytes are bounded; a retained message that would go beyond is not kept, and its publisher is told.
"""

from collections.abc import Callable, Iterator

from overlane.core.events import Effect, Erase, Save
from overlane.core.units import SECOND, Nanos
from overlane.mqtt.limits import Limits
from overlane.mqtt.message import Message, restored

TABLE = "mqtt.retained"

SWEEP_EVERY: Nanos = 10 * SECOND
"""A search through all of them for what has expired comes no more often."""


REMOVALS_REMEMBERED = 10_000


class _Node:
    __slots__ = ("children", "message")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.message: Message | None = None


class RetainedMessages:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._root = _Node()
        self._count = 0
        self._swept_ns: Nanos = -SWEEP_EVERY
        self._removed: dict[str, Nanos] = {}
        """When messages were taken away, so that no earlier one from elsewhere comes in their place."""
        self.bytes = 0
        self.before_change: Callable[[str, Message | None], None] | None = None
        """Who wants to know what a topic has, before it has something else or nothing any more."""

    def __len__(self) -> int:
        return self._count

    def has_room(self, message: Message, now: Nanos) -> tuple[bool, list[Effect]]:
        """Whether it can be kept; where there was no room, those that have expired are taken away first."""
        effects: list[Effect] = []
        if not self._fits(message) and now >= self._swept_ns + SWEEP_EVERY:
            self._swept_ns = now
            for one in list(self._below(self._root, at_root=False)):
                if one is not None and one.expires_ns <= now:
                    effects += self.remove(one.topic)
        return self._fits(message), effects

    def _fits(self, message: Message) -> bool:
        old = self.get(message.topic)
        count = self._count + (old is None)
        size = self.bytes + message.size_bytes - (old.size_bytes if old else 0)
        return count <= self.limits.retained_messages and size <= self.limits.retained_bytes

    def get(self, topic: str) -> Message | None:
        node: _Node | None = self._root
        for level in topic.split("/"):
            node = node.children.get(level) if node is not None else None
        return node.message if node is not None else None

    def keep_latest(self, message: Message) -> list[Effect]:
        """Keep what a client has published here just now: it is later than all before, by whatever clock."""
        old = self.get(message.topic)
        before_ns = old.published_ns if old is not None else self._removed.get(message.topic, 0)
        message.published_ns = max(message.published_ns, before_ns + 1)
        return self.keep(message)

    def keep_if_later(self, message: Message) -> list[Effect]:
        """Keep what came from elsewhere, unless what is here is later by the time it was published."""
        old = self.get(message.topic)
        before_ns = old.published_ns if old is not None else self._removed.get(message.topic, 0)
        if message.published_ns <= before_ns or (message.payload and not self._fits(message)):
            return []
        return self.keep(message)

    def keep(self, message: Message, durable: bool = True) -> list[Effect]:
        """Keep it instead of its topic's earlier one; one without payload takes that away."""
        if not message.payload:
            self._remember_removal(message)
            return self.remove(message.topic)
        node = self._root
        for level in message.topic.split("/"):
            node = node.children.setdefault(level, _Node())
        if self.before_change is not None:
            self.before_change(message.topic, node.message)
        if node.message is None:
            self._count += 1
        else:
            self.bytes -= node.message.size_bytes
        node.message = message
        self.bytes += message.size_bytes
        return [Save(TABLE, message.topic_utf8, message.stored())] if durable else []

    def restore(self, value: bytes) -> None:
        self.keep(restored(value), durable=False)

    def walk(self, topic_filter: str) -> Iterator[Message | None]:
        """Look for what is kept for a filter: one step for each place that is looked at, with what is found there.

        There may be any number of places, so whoever walks may stop for a while, and messages may come and go
        meanwhile: each is found as it is when its place is looked at.
        """
        return self._walk(self._root, topic_filter.split("/"), 0)

    def walk_on(self, topic_filter: str, after: str) -> Iterator[Message | None]:
        """The same in the order of their levels, from behind a topic, or with "" from the start: so that a walk can go
        on where an earlier one has ended, even one of before a restart."""
        return self._walk_on(self._root, topic_filter.split("/"), 0, after.split("/") if after else None)

    def _walk_on(self, node: _Node, levels: list[str], depth: int, after: list[str] | None) -> Iterator[Message | None]:
        """`after`: the place below this one where the earlier walk has ended; None if it has not come here."""
        level = levels[depth] if depth < len(levels) else ""
        is_last = depth == len(levels)
        if after is None and (is_last or level == "#"):
            yield node.message
        if is_last:
            return
        names = sorted(node.children) if level in ("#", "+") else [level]
        for name in names:
            child = node.children.get(name)
            if child is None or (after and name < after[0]):
                continue
            if node is self._root and level in ("#", "+") and name.startswith("$"):
                continue
            yield None
            behind = after[1:] if after and name == after[0] else None
            yield from self._walk_on(child, levels, depth if level == "#" else depth + 1, behind)

    def _walk(self, node: _Node, levels: list[str], depth: int) -> Iterator[Message | None]:
        if depth == len(levels):
            yield node.message
            return
        level = levels[depth]
        if level == "#":
            yield from self._below(node, at_root=depth == 0)
        elif level == "+":
            for name, child in list(node.children.items()):
                # Topics that begin with $ are found by their own name only.
                if depth or not name.startswith("$"):
                    yield None
                    yield from self._walk(child, levels, depth + 1)
        elif level in node.children:
            yield from self._walk(node.children[level], levels, depth + 1)

    def _below(self, node: _Node, at_root: bool) -> Iterator[Message | None]:
        yield node.message
        stack = [child for name, child in node.children.items() if not (at_root and name.startswith("$"))]
        stack.reverse()
        while stack:
            child = stack.pop()
            yield child.message
            stack += reversed(child.children.values())

    def _remember_removal(self, message: Message) -> None:
        self._removed.pop(message.topic, None)
        self._removed[message.topic] = message.published_ns
        if len(self._removed) > REMOVALS_REMEMBERED:
            del self._removed[next(iter(self._removed))]

    def remove(self, topic: str) -> list[Effect]:
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
        self._count -= 1
        self.bytes -= node.message.size_bytes
        node.message = None
        while len(way) > 1 and way[-1][1].message is None and not way[-1][1].children:
            level, _ = way.pop()
            del way[-1][1].children[level]
        return [Erase(TABLE, topic.encode())]
