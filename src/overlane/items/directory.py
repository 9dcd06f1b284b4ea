"""The directory: `topic@domain -> primary, mirror, epoch`, as a value, and as the JSON that clients and people read.

An entry is an item: all its topics have the same brokers. A topic belongs to the item with the most specific filter
that matches it. Epochs grow with every change of the placement; an entry of a lower epoch than one that is known is old
news, wherever it comes from.
"""

from collections.abc import Iterable

import msgspec

from overlane.core.topics import BadTopic, check_filter, covers, matches, specificity
from overlane.errors import OverlaneError

DIRECTORY = "$overlane/directory/"
"""Its entries are retained messages below this topic, by item."""
ENTRY_BYTES_MAX = 64 * 1024
FOUND_REMEMBERED_MAX = 10_000


class BadEntry(OverlaneError, ValueError):
    """A directory entry that no broker would have written."""

    error_code = "OVL-312"


class At(msgspec.Struct, frozen=True):
    """A broker, and where clients connect to it, by the name of the listener."""

    broker: str
    clients: dict[str, str] = {}


class Entry(msgspec.Struct, frozen=True):
    item: str
    domain: str
    topics: tuple[str, ...]
    epoch: int
    primary: At
    mirror: At | None = None
    critical: bool = False

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @property
    def brokers(self) -> tuple[At, ...]:
        """The primary first."""
        return (self.primary,) if self.mirror is None else (self.primary, self.mirror)


def decode_entry(content: bytes) -> Entry:
    """BadEntry."""
    if len(content) > ENTRY_BYTES_MAX:
        raise BadEntry(f"a directory entry of {len(content)} bytes; expected at most {ENTRY_BYTES_MAX}")
    try:
        entry = msgspec.json.decode(content, type=Entry)
        for topic_filter in entry.topics:
            check_filter(topic_filter)
    except (msgspec.DecodeError, BadTopic, UnicodeDecodeError) as bad:
        raise BadEntry(f"not a directory entry: {bad}") from None
    return entry


class ItemDirectory:
    """Entries by item, and lookup by topic."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: dict[str, Entry] = {entry.item: entry for entry in entries}
        self._found: dict[str, str | None] = {}

    def take(self, entry: Entry) -> bool:
        """Whether it is news."""
        known = self.entries.get(entry.item)
        if known is not None and (known.epoch > entry.epoch or known == entry):
            return False
        self.entries[entry.item] = entry
        self._found.clear()
        return True

    def remove(self, item: str) -> bool:
        self._found.clear()
        return self.entries.pop(item, None) is not None

    def find(self, topic: str) -> Entry | None:
        """The entry of the item that the topic belongs to."""
        item = self._found.get(topic, "")
        if item == "":
            if len(self._found) >= FOUND_REMEMBERED_MAX:
                self._found.clear()
            item = self._found[topic] = item_of(topic, {one.item: one.topics for one in self.entries.values()})
        return None if item is None else self.entries[item]

    def within(self, topic_filter: str) -> Entry | None:
        """The entry of the item that has every topic that the filter matches; None where there is no such item."""
        found = [
            (specificity(own), entry)
            for entry in self.entries.values()
            for own in entry.topics
            if covers(own, topic_filter)
        ]
        if not found:
            return None
        best = max(found, key=lambda one: one[0])[1]
        # A more specific filter of another item may take some of the topics away.
        others = [own for entry in self.entries.values() if entry.item != best.item for own in entry.topics]
        return None if any(covers(topic_filter, own) for own in others) else best


def item_of(topic: str, items: dict[str, tuple[str, ...]]) -> str | None:
    """The item that a topic belongs to, of items with their filters."""
    found = [
        (specificity(topic_filter), name)
        for name, filters in items.items()
        for topic_filter in filters
        if matches(topic_filter, topic)
    ]
    return max(found)[1] if found else None


def preferred(items: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    """Filters with their items, in the order of `item_of`: of those that match a topic, the first counts."""
    pairs = [(topic_filter, name) for name, filters in items.items() for topic_filter in filters]
    return sorted(pairs, key=lambda pair: (specificity(pair[0]), pair[1]), reverse=True)
