"""Rates of topics: the traffic on each topic since the last sample.

Messages published by clients are counted by the MQTT server, per topic; the difference is taken here. Messages from
other brokers are counted on delivery. Outgoing traffic is computed from both and the number of subscribers: nothing is
counted per message and receiver.
"""

from collections.abc import Iterable, Iterator, Sequence

from overlane.core.units import Nanos
from overlane.pubsub.counters import TopicStats
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.table import Audience
from overlane.telemetry.rows import TopicRate

TOPICS_MAX = 10_000
"""Topics of other brokers per interval; messages on further topics are counted together."""


class TopicRates:
    def __init__(self, state: State) -> None:
        self._state = state
        self._seen: dict[str, tuple[TopicStats, int, int]] = {}
        """Of each topic: whose counts, and what they were. A topic that was forgotten meanwhile counts anew."""
        self._arrived: dict[str, list[int]] = {}
        self._reach: dict[Audience, int] = {}
        self.untold = 0
        """Messages from other brokers beyond the limit of topics."""

    def tally(self, topic: str, messages: int, size_bytes: int) -> None:
        """Messages came from another broker."""
        found = self._arrived.get(topic)
        if found is None:
            if len(self._arrived) >= TOPICS_MAX:
                self.untold += messages
                return
            found = self._arrived[topic] = [0, 0]
        found[0] += messages
        found[1] += size_bytes

    def tally_mixed(self, topics: Sequence[str], sizes: Sequence[int]) -> None:
        """As `tally`, for messages of several topics: the topic of each, and its size."""
        find = self._arrived.get
        for topic, size_bytes in zip(topics, sizes, strict=True):
            found = find(topic)
            if found is None:
                self.tally(topic, 1, size_bytes)
            else:
                found[0] += 1
                found[1] += size_bytes

    def topics(self) -> list[str]:
        """Those to look at."""
        self._reach.clear()
        known = self._state.topics
        if len(self._seen) > 2 * len(known) + TOPICS_MAX:
            self._seen = {topic: entry for topic, entry in self._seen.items() if topic in known}
        return [*known, *(topic for topic in self._arrived if topic not in known)]

    def rows(self, topics: Iterable[str], at_ns: Nanos, interval_ns: Nanos) -> Iterator[TopicRate]:
        """Of those of the topics on which something came since the last look."""
        known, seen, arrived = self._state.topics, self._seen, self._arrived
        for topic in topics:
            messages_in = bytes_in = 0
            stats = known.get(topic)
            if stats is not None:
                before = seen.get(topic)
                counted, size = (before[1], before[2]) if before is not None and before[0] is stats else (0, 0)
                if stats.messages != counted:
                    messages_in, bytes_in = stats.messages - counted, stats.bytes - size
                    seen[topic] = stats, stats.messages, stats.bytes
            came = arrived.pop(topic, None)
            if not messages_in and came is None:
                continue
            messages, size_bytes = came or (0, 0)
            reach = self._receivers(topic)
            yield TopicRate(
                at_ns,
                interval_ns,
                topic,
                messages_in,
                bytes_in,
                messages,
                size_bytes,
                (messages_in + messages) * reach,
                (bytes_in + size_bytes) * reach,
            )

    def _receivers(self, topic: str) -> int:
        audience = self._state.subscriptions.audience(topic)
        reach = self._reach.get(audience)
        if reach is None:
            connected = sum(one.session.consumer is not None for one in audience.receivers)
            reach = self._reach[audience] = connected + len(audience.groups)
        return reach
