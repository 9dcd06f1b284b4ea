"""QoS classes: what a topic asks of the overlay.

A class is a value. Topics of the same class whose messages go to the same brokers share a route, so the state of the
overlay grows with classes and places, not with topics.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from overlane.core.bundles import RETAINED
from overlane.core.requirements import NONE, Requirements
from overlane.core.topic_cache import TopicCache
from overlane.core.topics import FilterTrie, specificity
from overlane.core.units import NEVER, US, Nanos

HISTORY_ALL = -1
"""Keep every message within its lifespan for late subscribers."""


DEADLINE_US_MAX = (1 << 32) - 1
_LABEL_BITS = 3
LABELS_REMEMBERED = 1_024
"""Of how many deadlines the label is remembered."""


def coarse_us(deadline_us: int) -> int:
    """The deadline with its three highest bits alone: never later, by less than a quarter earlier.

    Of all deadlines that parcels can carry there are fewer than `limits.LABELS_MAX` such ones.
    """
    shift = deadline_us.bit_length() - _LABEL_BITS
    return deadline_us if shift <= 0 else deadline_us >> shift << shift


@lru_cache(maxsize=LABELS_REMEMBERED)
def _label_of(deadline_ns: Nanos) -> str:
    return "" if deadline_ns >= NEVER else str(coarse_us(_deadline_us(deadline_ns)))


def _deadline_us(deadline_ns: Nanos) -> int:
    return min(DEADLINE_US_MAX, deadline_ns // US)


class Routing(StrEnum):
    """How redundantly a class travels. `adaptive` and `thrifty` also repair losses hop by hop while there is time."""

    SINGLE = "single"
    MULTIPATH = "multipath"
    FLOOD = "flood"
    ADAPTIVE = "adaptive"
    THRIFTY = "thrifty"


class Order(StrEnum):
    """What counts more for reliable messages of one publisher on one topic, where not both can be had."""

    STRICT = "strict"
    """A later message waits for an earlier one, however late both become."""
    DEADLINE = "deadline"
    """A later message waits for an earlier one no longer than its own deadline allows."""


@dataclass(frozen=True, slots=True, order=True)
class QosClass:
    deadline_ns: Nanos = NEVER
    reliable: bool = False
    routing: Routing = Routing.ADAPTIVE
    paths: int = 2
    lifespan_ns: Nanos = NEVER
    history: int = 0
    order: Order = Order.STRICT
    reservation: int = 0
    """The reserved flow (`routing.reserved_trees`) that its messages belong to, to the brokers that have asked for it;
    its negative: to all others."""
    requires: Requirements = NONE
    """What it asks of paths beside the deadline."""
    only: tuple[str, ...] = ()
    """The brokers that its messages go to, of those that need the topic; none: all of them."""
    is_shared: bool = False
    """Whether its routes may lead to brokers that have not asked for all that takes them (`flows.channels`)."""

    def __hash__(self) -> int:
        """Of what tells most classes apart: topics are looked up by their class for every message."""
        return hash((self.deadline_ns, self.reliable))

    @property
    def may_overtake(self) -> bool:
        """Whether a reliable message may be delivered before an earlier one of its topic, for its deadline."""
        return self.reliable and self.order is Order.DEADLINE and self.deadline_ns < NEVER

    @property
    def is_strict(self) -> bool:
        """Whether messages of one publisher and topic are delivered in the order in which they were published."""
        return self.reliable and not self.may_overtake

    @property
    def deadline_us(self) -> int:
        """As parcels and routes carry it: 0 if there is none, and no more than they can carry."""
        return 0 if self.deadline_ns >= NEVER else _deadline_us(self.deadline_ns)

    @property
    def label(self) -> str:
        """By which its processing latency is measured and advertised; hops know no more of a class than this.

        Classes with nearly the same deadline share one, so that there are few of them.
        """
        return _label_of(self.deadline_ns)


class QosTable:
    """Which class a topic has: that of the most specific pattern that matches, or the default."""

    def __init__(
        self,
        patterns: Mapping[str, QosClass],
        default: QosClass | None = None,
        renamed: Callable[[str], str | None] | None = None,
    ) -> None:
        """`renamed`: the name of a topic that the patterns are for, if there is one."""
        self._classes = dict(patterns)
        self._renamed = renamed
        self._default = default or QosClass()
        self._trie: FilterTrie[str] = FilterTrie()
        for pattern in patterns:
            self._trie.add(pattern, pattern)
        self._known: TopicCache[str, QosClass] = TopicCache()
        self.keeps_history = any(qos.history for qos in (self._default, *self._classes.values()))
        plain = [qos for pattern, qos in self._classes.items() if not pattern.startswith("$")]
        self.keeps_plain_history = any(qos.history for qos in (self._default, *plain))
        """Whether history is kept of topics that do not begin with `$`."""

    @property
    def histories(self) -> dict[str, int]:
        """The patterns whose topics have a history, and how much of it is kept; "" is the default."""
        classes = {"": self._default, **self._classes}
        return {
            pattern: qos.history
            for pattern, qos in classes.items()
            if qos.history and not (pattern.startswith(RETAINED) and qos.requires.is_trust)
        }

    def trusting(self) -> dict[str, Requirements]:
        """The trust that classes of patterns ask for; none where no class does."""
        found = {pattern: qos.requires.trust_alone() for pattern, qos in self._classes.items()}
        return found if any(one.is_trust for one in found.values()) else {}

    def extended(self, patterns: Mapping[str, QosClass]) -> "QosTable":
        """The same table with more patterns."""
        return QosTable({**self._classes, **patterns}, self._default)

    def under(self, renamed: Callable[[str], str | None]) -> "QosTable":
        """The same table, for topics that have other names."""
        return QosTable(self._classes, self._default, renamed)

    def of(self, topic: str) -> QosClass:
        qos = self._known.get(topic)
        if qos is None:
            self._known.make_room(topic)
            known_as = topic if self._renamed is None else self._renamed(topic) or topic
            patterns = self._trie.match(known_as)
            qos = self._classes[max(patterns, key=specificity)] if patterns else self._default
            self._known[topic] = qos
        return qos
