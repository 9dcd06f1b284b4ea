"""Delays of messages with a reservation: how old they are when they arrive from other brokers."""

from dataclasses import dataclass, field

from overlane.core.events import Deliver
from overlane.core.topic_cache import TopicCache
from overlane.core.topics import FilterTrie
from overlane.core.units import SECOND, Nanos

KEPT_MAX = 4096


@dataclass(slots=True)
class DelayCounter:
    messages: int = 0
    sum_ns: Nanos = 0
    max_ns: Nanos = 0
    bound_ns: Nanos | None = None
    _late: int = 0

    def note(self, age_ns: Nanos) -> None:
        self.messages += 1
        self.sum_ns += age_ns
        self.max_ns = max(self.max_ns, age_ns)
        if self.bound_ns is not None and age_ns > self.bound_ns:
            self._late += 1

    def late(self, bound_s: float | None) -> int:
        """How many took longer than the bound that holds now."""
        return 0 if bound_s is None else self._late


@dataclass(slots=True)
class Delays:
    """By the filter of a subscription."""

    _counters: dict[str, DelayCounter] = field(default_factory=dict)
    _trie: FilterTrie[str] = field(default_factory=FilterTrie)
    _by_topic: TopicCache[str, tuple[DelayCounter, ...]] = field(default_factory=TopicCache)

    def watch(self, topic_filter: str, bound_s: float | None) -> None:
        """Measure from now on; with another bound anew."""
        bound_ns = None if bound_s is None else int(bound_s * SECOND)
        known = self._counters.get(topic_filter)
        if known is not None and known.bound_ns == bound_ns:
            return
        if known is None and len(self._counters) < KEPT_MAX:
            self._trie.add(topic_filter, topic_filter)
        if topic_filter in self._counters or len(self._counters) < KEPT_MAX:
            self._counters[topic_filter] = DelayCounter(bound_ns=bound_ns)
        self._by_topic.clear()

    def forget(self, topic_filter: str) -> None:
        if self._counters.pop(topic_filter, None) is not None:
            self._trie.remove(topic_filter, topic_filter)
            self._by_topic.clear()

    def of(self, topic_filter: str) -> DelayCounter:
        return self._counters.get(topic_filter) or DelayCounter()

    def __bool__(self) -> bool:
        return bool(self._counters)

    def arrived(self, effect: Deliver) -> None:
        for topic, _, _ in effect.messages:
            counters = self._by_topic.get(topic)
            if counters is None:
                self._by_topic.make_room(topic)
                counters = tuple(self._counters[one] for one in self._trie.match(topic))
                self._by_topic[topic] = counters
            for one in counters:
                one.note(effect.age_ns)
