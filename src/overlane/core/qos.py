"""QoS classes: what a topic asks of the overlay.

A class is a value. Topics of the same class whose messages go to the same brokers share a route, so the state of the
overlay grows with classes and places, not with topics.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from overlane.core.topics import FilterTrie, specificity
from overlane.core.units import NEVER, US, Nanos

HISTORY_ALL = -1
"""Keep every message within its lifespan for late subscribers."""


TOPICS_REMEMBERED = 100_000
DEADLINE_US_MAX = (1 << 32) - 1


class Routing(StrEnum):
    """How redundantly a class travels. `adaptive` and `thrifty` also repair losses hop by hop while there is time."""

    SINGLE = "single"
    MULTIPATH = "multipath"
    FLOOD = "flood"
    ADAPTIVE = "adaptive"
    THRIFTY = "thrifty"


@dataclass(frozen=True, slots=True, order=True)
class QosClass:
    deadline_ns: Nanos = NEVER
    reliable: bool = False
    routing: Routing = Routing.ADAPTIVE
    paths: int = 2
    lifespan_ns: Nanos = NEVER
    history: int = 0

    @property
    def deadline_us(self) -> int:
        """As parcels and routes carry it: 0 if there is none, and no more than they can carry."""
        return 0 if self.deadline_ns >= NEVER else min(DEADLINE_US_MAX, self.deadline_ns // US)

    @property
    def label(self) -> str:
        """By which its processing latency is measured and advertised; hops know no more of a class than this."""
        return "" if self.deadline_ns >= NEVER else str(self.deadline_ns // US)


class QosTable:
    """Which class a topic has: that of the most specific pattern that matches, or the default."""

    def __init__(self, patterns: Mapping[str, QosClass], default: QosClass | None = None) -> None:
        self._classes = dict(patterns)
        self._default = default or QosClass()
        self._trie: FilterTrie[str] = FilterTrie()
        for pattern in patterns:
            self._trie.add(pattern, pattern)
        self._known: dict[str, QosClass] = {}
        self.keeps_history = any(qos.history for qos in (self._default, *self._classes.values()))

    def of(self, topic: str) -> QosClass:
        qos = self._known.get(topic)
        if qos is None:
            if len(self._known) >= TOPICS_REMEMBERED:
                self._known.clear()
            patterns = self._trie.match(topic)
            qos = self._classes[max(patterns, key=specificity)] if patterns else self._default
            self._known[topic] = qos
        return qos
