"""Topic filters: what is wrong with one, and those of the network file, by which brokers and monitor count messages."""

from collections import Counter
from collections.abc import Sequence

from overlane.core.topics import BadTopic, FilterTrie, check_filter, specificity
from overlane.core.units import Nanos
from overlane.network.schema import Network

NO_FILTER = ""
"""The key of topics that no filter of the file matches."""
TOPICS_CACHED_MAX = 100_000


def fault_of(topic_filter: str) -> str | None:
    """What is wrong with a filter; None if nothing is."""
    try:
        check_filter(topic_filter)
    except BadTopic as bad:
        return str(bad)
    return None


class TopicFilters:
    """Finds the filter that a topic is counted under: the most specific match, which also sets its QoS class."""

    def __init__(self, network: Network) -> None:
        self.deadlines: dict[str, Nanos] = {topic.filter: topic.deadline_ns for topic in network.topics}
        self._filters: FilterTrie[str] = FilterTrie()
        for name in self.deadlines:
            self._filters.add(name, name)
        self._cache: dict[str, str] = {}

    def count(self, topics: Sequence[str]) -> Counter[str]:
        """How many of the topics are counted under each filter."""
        return Counter(map(self.of, topics)) if self.deadlines else Counter({NO_FILTER: len(topics)})

    def of(self, topic: str) -> str:
        found = self._cache.get(topic)
        if found is None:
            if len(self._cache) >= TOPICS_CACHED_MAX:
                self._cache.clear()
            found = self._cache[topic] = max(self._filters.match(topic), key=specificity, default=NO_FILTER)
        return found
