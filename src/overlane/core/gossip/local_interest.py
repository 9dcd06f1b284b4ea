"""Local interest: which topic filters this broker needs, and what of that has been announced.

A broker needs a filter while at least one of its local subscribers holds it. The others are told changes only, with
sequence numbers. A change costs what it changes, however many filters there are; one that is too large is not sent as
such, and who lacks it requests the complete set.
"""

from collections.abc import Callable, Iterable

from overlane.core.gossip.interest import mention
from overlane.core.limits import TOPIC_BYTES_MAX, fits
from overlane.core.links.interest_transfer import Filters, WholeSet, part_end
from overlane.core.topics import FilterTrie, deep_bytes
from overlane.core.wire.control_messages import InterestUpdate
from overlane.core.wire.message_fields import PART_FILTERS_MAX

CHANGES_MAX = 16
"""A change of more messages than this is not sent as such: the others request the complete set."""


class LocalInterest:
    """The local subscription table, and what of it has been announced to other brokers."""

    def __init__(
        self,
        me: str,
        incarnation: int,
        on_change: Callable[[], None],
        is_told: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`is_told`: whether a filter is announced to other brokers."""
        self._on_change = on_change
        self._is_told = is_told
        self._me = me
        self._incarnation = incarnation
        self._trie: FilterTrie[str] = FilterTrie()
        self._holders: dict[str, int] = {}
        self._told: Filters = {}
        self._added: Filters = {}
        self._removed: Filters = {}
        """What changed since the others were told: filters that are needed now, and those that are no more."""
        self._count = 0
        self._bytes = 0
        self.sequence = 0

    def add(self, subscriber: str, topic_filter: str) -> bool:
        if not self._trie.add(topic_filter, subscriber):
            return False
        holders = self._holders.get(topic_filter, 0)
        self._holders[topic_filter] = holders + 1
        # Other brokers would refuse a longer one.
        if not holders and fits(topic_filter, TOPIC_BYTES_MAX) and self._is_told(topic_filter):
            self._count += 1
            self._bytes += len(topic_filter.encode()) + deep_bytes(topic_filter)
            self._note(topic_filter, True)
        self._on_change()
        return True

    def remove(self, subscriber: str, topic_filter: str) -> bool:
        if not self._trie.remove(topic_filter, subscriber):
            return False
        self._holders[topic_filter] -= 1
        if not self._holders[topic_filter]:
            del self._holders[topic_filter]
            if topic_filter in self._told or topic_filter in self._added:
                self._count -= 1
                self._bytes -= len(topic_filter.encode()) + deep_bytes(topic_filter)
                self._note(topic_filter, False)
        self._on_change()
        return True

    def _note(self, topic_filter: str, is_needed: bool) -> None:
        changed, opposite = (self._added, self._removed) if is_needed else (self._removed, self._added)
        if topic_filter in opposite:
            del opposite[topic_filter]
        else:
            changed[topic_filter] = None

    @property
    def size(self) -> tuple[int, int]:
        """Number and bytes of the announced filters."""
        return self._count, self._bytes

    def subscribers(self, topic: str) -> tuple[str, ...]:
        return tuple(self._trie.match(topic))

    def holds(self, topic_filter: str) -> bool:
        return topic_filter in self._holders

    def unannounced(self) -> list[tuple[str, bool]]:
        """What the next announcement changes: filters, and whether they are needed."""
        return [*((one, True) for one in self._added), *((one, False) for one in self._removed)]

    def news(self) -> list[InterestUpdate]:
        """The changes since the last announcement, each a message."""
        added, removed = self._added, self._removed
        if not added and not removed:
            return []
        is_large = len(added) + len(removed) > CHANGES_MAX * PART_FILTERS_MAX
        changes: list[list[tuple[str, bool]]] = []
        if not is_large:
            changes = list(_in_parts(sorted(self.unannounced())))
        self._added, self._removed = {}, {}
        # In one go: there may be hundreds of thousands, of a broker that has just started. Whoever is being told the
        # set of before is told this one anew.
        if is_large and len(added) > len(self._told):
            added.update(self._told)
            self._told = added
        else:
            self._told.update(added)
        for topic_filter in removed:
            del self._told[topic_filter]
        # The first change of an incarnation replaces the interest of the one before: it is sent as a complete set.
        if is_large or len(changes) > (CHANGES_MAX if self.sequence else 1):
            self.sequence += 1
            return [self.mention()]
        return [self._change(change) for change in changes]

    def _change(self, change: list[tuple[str, bool]]) -> InterestUpdate:
        base, self.sequence = self.sequence, self.sequence + 1
        added = [topic_filter for topic_filter, is_needed in change if is_needed]
        removed = [topic_filter for topic_filter, is_needed in change if not is_needed]
        return InterestUpdate(self._me, self._incarnation, self.sequence, base, added, removed)

    def mention(self) -> InterestUpdate:
        """A message with the latest version only: who lacks it requests the set."""
        return mention(self._me, self._incarnation, self.sequence)

    def whole(self) -> WholeSet:
        return WholeSet(self._incarnation, self.sequence, self._told)

    def everything(self) -> InterestUpdate:
        """The announced set as one message; for tests and people."""
        return InterestUpdate(self._me, self._incarnation, self.sequence, -1, sorted(self._told), [])


def _in_parts(changes: list[tuple[str, bool]]) -> Iterable[list[tuple[str, bool]]]:
    filters = [topic_filter for topic_filter, _ in changes]
    at = 0
    while at < len(filters):
        end = part_end(filters, at)
        yield changes[at:end]
        at = end
