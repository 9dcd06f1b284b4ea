"""Interest: which topic filters each broker needs.

Local subscribers hold filters; the broker needs a filter while at least one of them does. The brokers tell each
other only changes, numbered; who misses one asks for all. A broker's needs outlive its presence: reliable messages
are kept for it while it is away, so only `forget` (it left for good) or a new set of its own ends them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import structs

from overlane.core.events import Effect, Erase, Save
from overlane.core.messages import Interest
from overlane.core.topics import FilterTrie

TABLE = "interest"
PART_BYTES_MAX = 512 * 1024


@dataclass(slots=True)
class Needs:
    """The filters of one remote broker, as of (incarnation, sequence)."""

    version: tuple[int, int] = (0, 0)
    filters: set[str] = field(default_factory=set)


class LocalInterest:
    """The local subscription table, and what of it has been told to the others."""

    def __init__(
        self,
        me: str,
        incarnation: int,
        on_change: Callable[[], None],
        is_told: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`is_told`: whether the others are to hear of a filter."""
        self._on_change = on_change
        self._is_told = is_told
        self._me = me
        self._incarnation = incarnation
        self._trie: FilterTrie[str] = FilterTrie()
        self._holders: dict[str, int] = {}
        self._told: set[str] = set()
        self._changed = False
        self.sequence = 0

    def add(self, subscriber: str, topic_filter: str) -> bool:
        if not self._trie.add(topic_filter, subscriber):
            return False
        self._holders[topic_filter] = self._holders.get(topic_filter, 0) + 1
        self._changed = True
        self._on_change()
        return True

    def remove(self, subscriber: str, topic_filter: str) -> bool:
        if not self._trie.remove(topic_filter, subscriber):
            return False
        self._holders[topic_filter] -= 1
        if not self._holders[topic_filter]:
            del self._holders[topic_filter]
        self._changed = True
        self._on_change()
        return True

    def subscribers(self, topic: str) -> tuple[str, ...]:
        return tuple(self._trie.match(topic))

    def holds(self, topic_filter: str) -> bool:
        return topic_filter in self._holders

    def news(self) -> Interest | None:
        """What changed since the last time the others were told."""
        if not self._changed:
            return None
        self._changed = False
        wanted = set(filter(self._is_told, self._holders))
        added, removed = wanted - self._told, self._told - wanted
        if not added and not removed:
            return None
        base, self.sequence = self.sequence, self.sequence + 1
        self._told = wanted
        return Interest(self._me, self._incarnation, self.sequence, base, sorted(added), sorted(removed))

    def everything(self) -> Interest:
        """All that the others have been told, as one message."""
        return Interest(self._me, self._incarnation, self.sequence, -1, sorted(self._told), [])


class RemoteInterest:
    """The remote subscription table. It is durable: a source that restarts still owes what it owed."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self.effects: list[Effect] = []
        self._needs: dict[str, Needs] = {}
        self._trie: FilterTrie[str] = FilterTrie()
        self._reserved: set[tuple[str, str]] = set()

    def reserved(self) -> list[tuple[str, str]]:
        """The needs (filter, broker) under names of the overlay's own, those that begin with `$`."""
        return sorted(self._reserved)

    def version_of(self, broker: str) -> tuple[int, int]:
        needs = self._needs.get(broker)
        return needs.version if needs else (0, 0)

    def brokers(self) -> list[str]:
        return sorted(self._needs)

    def needing(self, topic: str) -> tuple[str, ...]:
        """The remote brokers that need a topic, in the order of their names."""
        return tuple(sorted(self._trie.match(topic)))

    def everything(self, broker: str) -> Interest | None:
        needs = self._needs.get(broker)
        return None if needs is None else Interest(broker, *needs.version, -1, sorted(needs.filters), [])

    def accept(self, news: Interest) -> tuple[bool, bool, list[str]]:
        """Take a change: whether it was new, whether a gap must be filled first, and which filters it adds."""
        needs = self._needs.setdefault(news.broker, Needs())
        if (news.incarnation, news.sequence) <= needs.version:
            return False, False, []
        if news.base >= 0 and (news.incarnation, news.base) != needs.version:
            first_of_all = news.base == 0 and news.incarnation > needs.version[0]
            if not first_of_all:
                return False, True, []
            news = Interest(news.broker, news.incarnation, news.sequence, -1, news.added, [])
        added = set(news.added)
        wanted = added if news.base < 0 else (needs.filters | added) - set(news.removed)
        fresh, gone = wanted - needs.filters, needs.filters - wanted
        for topic_filter in sorted(fresh):
            self._add(topic_filter, news.broker)
            self.effects.append(Save(TABLE, _key(news.broker, topic_filter), b""))
        for topic_filter in sorted(gone):
            self._remove(topic_filter, news.broker)
            self.effects.append(Erase(TABLE, _key(news.broker, topic_filter)))
        needs.version, needs.filters = (news.incarnation, news.sequence), wanted
        if fresh or gone:
            self._on_change()
        return True, False, sorted(fresh)

    def forget(self, broker: str) -> None:
        """The broker left for good. Its version stays, so that an echo of the past cannot bring it back."""
        needs = self._needs.get(broker)
        if needs and needs.filters:
            for topic_filter in sorted(needs.filters):
                self._remove(topic_filter, broker)
                self.effects.append(Erase(TABLE, _key(broker, topic_filter)))
            needs.filters = set()
            self._on_change()

    def disown(self, broker: str) -> None:
        """What was told of the broker was not so: whatever it says itself is news."""
        self.forget(broker)
        self._needs.pop(broker, None)

    def is_needy(self, broker: str) -> bool:
        """Whether the broker needs anything."""
        return broker in self._needs and bool(self._needs[broker].filters)

    def restore(self, key: bytes) -> None:
        """What a broker needed in an earlier life of ours, until it is heard what it needs now."""
        broker, _, topic_filter = key.decode().partition("\0")
        self._needs.setdefault(broker, Needs()).filters.add(topic_filter)
        self._add(topic_filter, broker)
        self._on_change()

    def _add(self, topic_filter: str, broker: str) -> None:
        self._trie.add(topic_filter, broker)
        if topic_filter.startswith("$"):
            self._reserved.add((topic_filter, broker))

    def _remove(self, topic_filter: str, broker: str) -> None:
        self._trie.remove(topic_filter, broker)
        self._reserved.discard((topic_filter, broker))


def in_parts(message: Interest) -> list[Interest]:
    """The message in parts that fit into frames."""
    if _size(message.added) + _size(message.removed) <= PART_BYTES_MAX:
        return [message]
    parts: list[tuple[list[str], list[str]]] = [([], [])]
    size = 0
    for place, filters in enumerate((message.added, message.removed)):
        for topic_filter in filters:
            size += _size([topic_filter])
            if size > PART_BYTES_MAX:
                parts.append(([], []))
                size = _size([topic_filter])
            parts[-1][place].append(topic_filter)
    return [
        structs.replace(message, added=added, removed=removed, part=number, parts=len(parts))
        for number, (added, removed) in enumerate(parts)
    ]


class Assembly:
    """Puts the parts of one neighbour's messages together again."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Interest]] = {}

    def add(self, message: Interest) -> Interest | None:
        """The whole message, when this was its last part."""
        if message.parts == 1:
            return message
        parts = self._parts.setdefault(message.broker, [])
        if message.part == 0:
            parts.clear()
        parts.append(message)
        whole = [one.part for one in parts] == list(range(message.parts))
        if message.part != message.parts - 1 or not whole:
            return None
        del self._parts[message.broker]
        return structs.replace(
            message,
            added=[topic_filter for one in parts for topic_filter in one.added],
            removed=[topic_filter for one in parts for topic_filter in one.removed],
            part=0,
            parts=1,
        )


def _size(filters: list[str]) -> int:
    return sum(4 * len(topic_filter) + 5 for topic_filter in filters)


def _key(broker: str, topic_filter: str) -> bytes:
    return f"{broker}\0{topic_filter}".encode()
