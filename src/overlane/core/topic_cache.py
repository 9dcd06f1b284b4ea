"""Topic cache: a bounded cache of what was computed per topic.

Publishers choose the number and length of topics, so the cache is bounded in entries and in bytes, and is emptied when
it is full. Every entry can be computed again. It is a dictionary, because reading must cost no more than that; whoever
adds an entry calls `make_room` first.
"""

from sys import getsizeof
from typing import Generic, TypeVar

TOPICS_REMEMBERED = 100_000
TOPIC_BYTES_REMEMBERED = 16 * 2**20
"""In one cache: topics, and their bytes in memory."""

K = TypeVar("K")
V = TypeVar("V")


class TopicCache(dict[K, V], Generic[K, V]):
    __slots__ = ("_bytes", "_bytes_max", "_entries_max")

    def __init__(self, entries_max: int = TOPICS_REMEMBERED, bytes_max: int = TOPIC_BYTES_REMEMBERED) -> None:
        super().__init__()
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._bytes = 0

    def make_room(self, topic: str) -> bool:
        """To be called before something is kept; whether all else had to go."""
        size_bytes = getsizeof(topic)
        is_full = len(self) >= self._entries_max or self._bytes + size_bytes > self._bytes_max
        if is_full:
            self.clear()
        self._bytes += size_bytes
        return is_full

    def clear(self) -> None:
        super().clear()
        self._bytes = 0
