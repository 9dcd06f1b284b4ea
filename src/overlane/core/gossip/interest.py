"""Interest: the topic filters of other brokers.

Brokers send each other only changes of their filters (local_interest.py), with sequence numbers; a broker that misses
one requests the complete set. The interest of a disconnected broker is kept: reliable messages wait for it. Only
`forget` (it left permanently) or a new set of its own ends it.

The cost of a change does not depend on the number of filters. A complete set that is too large for one message is sent
in parts, on request only (interest_transfer.py). Each part takes effect on arrival: its filters are used at once, and
those that the set no longer contains are removed at its end. Until then the set is incomplete: it is not forwarded, and
is requested again if the neighbour that sends it is lost. Changes from other neighbours are ignored meanwhile;
otherwise a later part could undo them. An ignored change is requested afterwards, if it is later than the known state.
Filters beyond the limits are refused and counted.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from overlane.core.events import Effect, Erase, InterestChanged, Save
from overlane.core.limits import FILTER_BYTES_MAX, FILTERS_MAX, NEEDS_BYTES_MAX
from overlane.core.links.interest_transfer import Filters, WholeSet
from overlane.core.records import THE_BROKER, RecordKind
from overlane.core.topics import FilterTrie
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire.control_messages import InterestUpdate

TABLE = "interest"

FILTER_OVERHEAD_BYTES = 256
"""Approximate memory of a filter of another broker, besides its text."""
LEVEL_OVERHEAD_BYTES = 400
"""What each level of a filter with wildcards takes, about."""
SWEPT_AT_ONCE = 1_000
SWEPT_BYTES = 256 * 1024
SWEEP_GAP: Nanos = 10 * MS
"""How many filters that are needed no more are removed in one go, of about how many bytes, and how soon the next: their
records are written together with those that clients wait for."""
ASK_AGAIN: Nanos = 5 * SECOND
"""How long a neighbour that sends a set, or was asked for it, may be silent before another one is asked."""


@dataclass(slots=True)
class Needs:
    """The filters of one remote broker, as of (incarnation, sequence)."""

    version: tuple[int, int] = (0, 0)
    filters: Filters = field(default_factory=dict)
    leftover: Filters = field(default_factory=dict)
    """Filters of before that the set that is being told has not named yet."""
    is_whole: bool = True
    begun: tuple[int, int] = (0, 0)
    """The version under which the parts of the set come."""
    sender_of_set: str = ""
    """The neighbour that sends the set, or was asked for it."""
    next_part: int = 0
    """Of the set; 0 if none has come."""
    heard_ns: Nanos = -NEVER
    """When it was asked, or told a part."""
    missed: tuple[int, int] = (0, 0)
    """The latest version that another neighbour has told meanwhile, in vain."""
    missed_from: str = ""


def record_bytes(change: Effect) -> int:
    """What a record of a broker's interest takes; 0 if it is something else."""
    if isinstance(change, (Save, Erase)) and change.table == TABLE:
        return len(change.key) + FILTER_OVERHEAD_BYTES
    return 0


class RemoteInterest:
    """The remote subscription table. It is durable: after a restart, messages are still kept for the same brokers."""

    def __init__(self, on_change: Callable[[], None], bytes_max: int = NEEDS_BYTES_MAX) -> None:
        """`bytes_max`: of all filters of all brokers, with what they take in memory besides."""
        self._on_change = on_change
        self._bytes_max = bytes_max
        self._bytes = 0
        self.effects: list[Effect] = []
        self._needs: dict[str, Needs] = {}
        self._trie: FilterTrie[str] = FilterTrie()
        self._scoped: dict[str, Filters] = {}
        """By broker, the filters that brokers of the other tier tell of it; others may be told by it itself."""
        self._kept: dict[str, list[int]] = {}
        """By broker, how many filters of it are in the table, and how many bytes they are."""
        self._unswept: dict[str, Filters] = {}
        """By broker, filters that it needs no more and that are still in the table."""
        self._gone: set[str] = set()
        """Brokers that left, some of whose filters are not removed yet."""
        self.reports_all = False
        """Whether every change is an effect (InterestChanged), not only that of a filter that begins with `$`."""
        self.sweep_at: Nanos = NEVER
        self.refused = 0
        """Filters that were refused for lack of room."""
        self.recorded_bytes = 0
        """How many bytes of records were saved and erased so far, each with some for what it costs besides."""

    def reserved(self) -> list[tuple[str, str]]:
        """The needs under names of the overlay's own, those that begin with `$`: filters and brokers."""
        names = [name for name in self._trie.filters() if name.startswith("$")]
        return [(name, broker) for name in names for broker in self._trie.values_of(name)]

    def version_of(self, broker: str) -> tuple[int, int]:
        """What need not be told again: nothing, of a set that is not whole."""
        needs = self._needs.get(broker)
        return needs.version if needs is not None and needs.is_whole else (0, 0)

    def brokers(self) -> list[str]:
        return sorted(self._needs)

    def needing(self, topic: str) -> tuple[str, ...]:
        """The remote brokers that need a topic, in the order of their names."""
        found = self._trie.match(topic)
        if self._gone:
            found = [broker for broker in found if broker not in self._gone]
        return tuple(sorted(found))

    def whole(self, broker: str) -> WholeSet | None:
        """None if it is not known, or not whole."""
        needs = self._needs.get(broker)
        return WholeSet(*needs.version, needs.filters) if needs is not None and needs.is_whole else None

    def everything(self, broker: str) -> InterestUpdate | None:
        """As one message; for tests and people."""
        whole = self.whole(broker)
        return None if whole is None else InterestUpdate(broker, *whole[:2], -1, sorted(whole.filters), [])

    # Receiving

    def accept(self, news: InterestUpdate, sender: str = "", now: Nanos = 0) -> tuple[bool, bool, list[str]]:
        """Take a change, or a part of a whole set, from a neighbour: whether it was new, whether the neighbour is to be
        asked for all (a gap must be filled first), and which filters it adds."""
        needs = self._needs.setdefault(news.broker, Needs())
        version = news.incarnation, news.sequence
        is_telling = needs.next_part > 0 and needs.sender_of_set == sender
        known = needs.version if needs.is_whole or is_telling else (0, 0)
        if news.base < 0 and news.part:
            if not is_telling or news.part != needs.next_part or version != needs.begun:
                return False, False, []
            return True, False, self._take_part(needs, news, now)
        if version <= known and not (news.base < 0 and is_telling):
            if needs.sender_of_set == sender and not needs.next_part:
                needs.sender_of_set = ""  # what it was asked for came from another neighbour
            return False, False, []
        is_all = news.base < 0 or (news.base == 0 and news.incarnation > known[0])
        is_told_by_another = needs.next_part > 0 and not is_telling and now - needs.heard_ns < ASK_AGAIN
        # Only the start of a later incarnation can be taken beside that.
        if is_told_by_another and (not is_all or news.more or news.incarnation <= needs.version[0]):
            if version > needs.missed:
                needs.missed, needs.missed_from = version, sender
            return False, False, []
        if is_all and news.more:
            self._begin(needs, version, sender)
            return True, False, self._take_part(needs, news, now)
        if is_all:
            return True, False, self._replace(needs, news, version, now)
        if (news.incarnation, news.base) != known:
            return False, self._request_set(needs, news, sender, now), []
        fresh = self._add(needs, news.broker, news.added)
        self._drop(needs, news.broker, news.removed)
        needs.version = version
        if fresh or news.removed:
            self._on_change()
        return True, False, fresh

    def take_missed(self, broker: str, now: Nanos) -> str | None:
        """The neighbour to ask for the set: it has told a later version than the one that is whole now, while another
        neighbour was listened to. It is remembered as the one that was asked."""
        needs = self._needs[broker]
        missed, neighbour = needs.missed, needs.missed_from
        needs.missed, needs.missed_from = (0, 0), ""
        if missed <= needs.version:
            return None
        needs.sender_of_set, needs.next_part, needs.heard_ns = neighbour, 0, now
        return neighbour

    def is_whole(self, broker: str) -> bool:
        needs = self._needs.get(broker)
        return needs is not None and needs.is_whole

    def _request_set(self, needs: Needs, news: InterestUpdate, sender: str, now: Nanos) -> bool:
        """Whether to request the complete set from the sender; it is remembered as the one that was asked."""
        is_mention = news.base == news.sequence
        if (
            now - needs.heard_ns < ASK_AGAIN
            and needs.sender_of_set
            and not (needs.sender_of_set == sender and is_mention)
        ):
            return False  # it has been asked for
        needs.sender_of_set, needs.next_part, needs.heard_ns = sender, 0, now
        return True

    def _begin(self, needs: Needs, version: tuple[int, int], sender: str) -> None:
        self._set_aside(needs)
        needs.version = needs.begun = version
        needs.is_whole = False
        needs.sender_of_set, needs.next_part = sender, 0

    @staticmethod
    def _set_aside(needs: Needs) -> None:
        if needs.leftover:
            needs.leftover.update(needs.filters)
        else:
            needs.leftover = needs.filters
        needs.filters = {}

    def _take_part(self, needs: Needs, news: InterestUpdate, now: Nanos) -> list[str]:
        fresh = self._add(needs, news.broker, news.added)
        needs.next_part += 1
        needs.heard_ns = now
        if not news.more:
            self._finish(needs, news.broker, now)
        if fresh:
            self._on_change()
        return fresh

    def _replace(self, needs: Needs, news: InterestUpdate, version: tuple[int, int], now: Nanos) -> list[str]:
        self._begin(needs, version, "")
        fresh = self._add(needs, news.broker, news.added)
        has_less = bool(needs.leftover)
        self._finish(needs, news.broker, now)
        if fresh or has_less:
            self._on_change()
        return fresh

    def _finish(self, needs: Needs, broker: str, now: Nanos) -> None:
        """A set is complete: remove what it did not contain."""
        needs.is_whole = True
        needs.sender_of_set, needs.next_part, needs.heard_ns = "", 0, -NEVER
        self._let_go(needs, broker, now)

    def _add(self, needs: Needs, broker: str, filters: Iterable[str]) -> list[str]:
        """The filters that are new; those without room are refused."""
        fresh: list[str] = []
        self._gone.discard(broker)
        unswept = self._unswept.get(broker)
        for topic_filter in filters:
            if topic_filter in needs.filters:
                continue
            if topic_filter in needs.leftover:
                del needs.leftover[topic_filter]
                needs.filters[topic_filter] = None
                continue
            if unswept and topic_filter in unswept:
                del unswept[topic_filter]
            elif self._scoped and topic_filter in self._scoped.get(broker, ()):
                needs.filters[topic_filter] = None
                continue
            elif self._enter(broker, topic_filter):
                self._report(topic_filter, broker, True)
                self._record(Save(TABLE, _key(broker, topic_filter), b""))
            else:
                self.refused += 1
                continue
            needs.filters[topic_filter] = None
            fresh.append(topic_filter)
        return fresh

    def _enter(self, broker: str, topic_filter: str) -> bool:
        """Put it into the table, if there is room: for twice as much as a broker may need, since what it needed before
        goes only when all of a new set has come."""
        size = len(topic_filter.encode())
        kept = self._kept.setdefault(broker, [0, 0])
        if kept[0] >= 2 * FILTERS_MAX or kept[1] + size > 2 * FILTER_BYTES_MAX:
            return False
        cost_bytes = size + overhead_bytes(topic_filter)
        if self._bytes + cost_bytes > self._bytes_max:
            return False
        kept[0] += 1
        kept[1] += size
        self._bytes += cost_bytes
        self._trie.add(topic_filter, broker)
        return True

    def _drop(self, needs: Needs, broker: str, filters: Iterable[str]) -> None:
        for topic_filter in filters:
            if topic_filter in needs.filters:
                del needs.filters[topic_filter]
            elif topic_filter in needs.leftover:
                del needs.leftover[topic_filter]
            else:
                continue
            self._erase(broker, topic_filter)

    # What the other tier tells

    def hold(self, broker: str, topic_filter: str) -> bool:
        """A broker needs a filter, by what was told over a link to the other tier; whether that is new."""
        scoped = self._scoped.get(broker)
        if scoped is None:
            scoped = self._scoped[broker] = {}
        elif topic_filter in scoped:
            return False
        if self._is_told_by_itself(broker, topic_filter):
            scoped[topic_filter] = None
            return False
        self._gone.discard(broker)
        if not self._enter(broker, topic_filter):
            self.refused += 1
            return False
        scoped[topic_filter] = None
        self._report(topic_filter, broker, True)
        self._record(Save(TABLE, _key(broker, topic_filter), b""))
        self._on_change()
        return True

    def renew(self, broker: str, topic_filter: str) -> None:
        """A broker needs a filter that was held for it, perhaps after a time without: that is reported once more."""
        if topic_filter in self.held(broker):
            self._report(topic_filter, broker, True)

    def release(self, broker: str, topic_filter: str) -> None:
        """By what is told over links to the other tier, the broker does not need the filter any more."""
        scoped = self._scoped.get(broker)
        if scoped is None or topic_filter not in scoped:
            return
        del scoped[topic_filter]
        if not scoped:
            del self._scoped[broker]
        if not self._is_told_by_itself(broker, topic_filter):
            self._erase(broker, topic_filter)
            self._on_change()

    def held(self, broker: str) -> Filters:
        return self._scoped.get(broker, {})

    def held_brokers(self) -> list[str]:
        return sorted(self._scoped)

    def hold_restored(self) -> None:
        """What was restored was told by the other tier."""
        for broker, needs in list(self._needs.items()):
            if needs.version == (0, 0):
                self._scoped.setdefault(broker, {}).update(needs.filters)
                del self._needs[broker]

    def _is_told_by_itself(self, broker: str, topic_filter: str) -> bool:
        needs = self._needs.get(broker)
        if needs is not None and (topic_filter in needs.filters or topic_filter in needs.leftover):
            return True
        return topic_filter in self._unswept.get(broker, ())

    # Removal

    def _let_go(self, needs: Needs, broker: str, now: Nanos) -> None:
        """The leftover is removed: all of it, or by and by where it is much."""
        if not needs.leftover:
            return
        leftover, needs.leftover = needs.leftover, {}
        if unswept := self._unswept.get(broker):
            unswept.update(leftover)
        else:
            self._unswept[broker] = leftover
        self._sweep(now)

    def sweep(self, now: Nanos) -> None:
        """Remove some of the filters that are needed no more."""
        self._sweep(now)
        self._on_change()

    def _sweep(self, now: Nanos) -> None:
        room = SWEPT_AT_ONCE
        end_bytes = self.recorded_bytes + SWEPT_BYTES
        for broker in list(self._unswept):
            filters = self._unswept[broker]
            while filters and room and self.recorded_bytes < end_bytes:
                room -= 1
                self._erase(broker, filters.popitem()[0])
            if not filters:
                del self._unswept[broker]
                self._gone.discard(broker)
        self.sweep_at = now + SWEEP_GAP if self._unswept else NEVER

    def _erase(self, broker: str, topic_filter: str) -> None:
        if self._scoped and topic_filter in self._scoped.get(broker, ()):
            return
        size = len(topic_filter.encode())
        kept = self._kept[broker]
        kept[0] -= 1
        kept[1] -= size
        if not kept[0]:
            del self._kept[broker]
        self._bytes -= size + overhead_bytes(topic_filter)
        self._trie.remove(topic_filter, broker)
        self._report(topic_filter, broker, False)
        self._record(Erase(TABLE, _key(broker, topic_filter)))

    def _record(self, change: Save | Erase) -> None:
        self.recorded_bytes += record_bytes(change)
        self.effects.append(change)

    def _report(self, topic_filter: str, broker: str, is_needed: bool) -> None:
        if self.reports_all or topic_filter.startswith("$"):
            self.effects.append(InterestChanged(topic_filter, broker, is_needed))

    def lost(self, neighbour: str) -> list[str]:
        """The link is gone: the brokers whose sets that neighbour was telling, or was asked for."""
        for needs in self._needs.values():
            if needs.missed_from == neighbour:
                needs.missed, needs.missed_from = (0, 0), ""  # when it is back, it tells what we lack
        found = [broker for broker, needs in self._needs.items() if needs.sender_of_set == neighbour]
        for broker in found:
            needs = self._needs[broker]
            needs.sender_of_set, needs.next_part, needs.heard_ns = "", 0, -NEVER
        return sorted(found)

    def forget(self, broker: str, now: Nanos = 0) -> None:
        """The broker left for good. Its version is kept, so that old messages cannot restore it."""
        for topic_filter in list(self._scoped.get(broker, ())):
            self.release(broker, topic_filter)
        needs = self._needs.get(broker)
        if needs and (needs.filters or needs.leftover):
            self._set_aside(needs)
            self._gone.add(broker)
            self._let_go(needs, broker, now)
            self._on_change()

    def disown(self, broker: str, now: Nanos = 0) -> None:
        """What was said of the broker was false: forget it, so that its own statements are new."""
        self.forget(broker, now)
        self._needs.pop(broker, None)

    def is_needy(self, broker: str) -> bool:
        """Whether the broker needs anything."""
        needs = self._needs.get(broker)
        return broker in self._scoped or (needs is not None and bool(needs.filters or needs.leftover))

    def restore(self, key: bytes) -> None:
        """What a broker needed when we stopped, until its present interest is known."""
        broker, topic_filter = _read_key(key)
        needs = self._needs.setdefault(broker, Needs())
        if topic_filter in needs.filters:
            return
        if not self._enter(broker, topic_filter):
            self.refused += 1
            self.effects.append(Erase(TABLE, key))
            return
        needs.filters[topic_filter] = None
        self._on_change()


def overhead_bytes(topic_filter: str) -> int:
    """What a filter takes in the table beside its text, about."""
    if "+" not in topic_filter and "#" not in topic_filter:
        return FILTER_OVERHEAD_BYTES
    return FILTER_OVERHEAD_BYTES + LEVEL_OVERHEAD_BYTES * (topic_filter.count("/") + 1)


def mention(broker: str, incarnation: int, sequence: int) -> InterestUpdate:
    """A message with only the version of the latest change: who has an older one requests the set."""
    return InterestUpdate(broker, incarnation, sequence, sequence, [], [])


def _key(broker: str, topic_filter: str) -> bytes:
    return f"{broker}\0{topic_filter}".encode()


def _read_key(key: bytes) -> tuple[str, str]:
    broker, separator, topic_filter = key.decode().partition("\0")
    if not separator:
        raise ValueError("a key without a broker")
    return broker, topic_filter


INTEREST_KIND = RecordKind(TABLE, lambda _: THE_BROKER, lambda key, _: _read_key(key))
