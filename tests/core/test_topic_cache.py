"""Caches of topics: bounded in entries and in bytes, whatever publishers think up."""

from overlane.core.broker import OverlayBroker
from overlane.core.config import BrokerConfig
from overlane.core.qos import QosTable
from overlane.core.topic_cache import TOPIC_BYTES_REMEMBERED, TopicCache

LONG_BYTES = 60_000
ENOUGH = TOPIC_BYTES_REMEMBERED // LONG_BYTES + 1


def test_a_cache_that_is_full_is_emptied_at_its_limit_and_not_before() -> None:
    cache: TopicCache[str, int] = TopicCache(entries_max=3, bytes_max=10_000)
    for number in range(3):
        assert not cache.make_room(str(number))
        cache[str(number)] = number
    assert len(cache) == 3
    assert cache.make_room("3")
    assert not cache


def test_long_topics_fill_a_cache_by_their_bytes() -> None:
    cache: TopicCache[str, int] = TopicCache(bytes_max=10 * LONG_BYTES)
    sizes = []
    for number in range(30):
        topic = str(number).ljust(LONG_BYTES, "x")
        cache.make_room(topic)
        cache[topic] = number
        sizes.append(len(cache))
    assert max(sizes) == 9
    assert sizes[9] == 1


def test_a_core_remembers_no_more_bytes_of_topics_than_its_caches_may() -> None:
    core = OverlayBroker(BrokerConfig("a", QosTable({})), 1)
    core.start(0)
    for number in range(2 * ENOUGH):
        core.publish(str(number).ljust(LONG_BYTES, "x"), b"", 0)
        core.flush(0)
    for cache in (core.config.qos._known, core._sink._matches, core._drafts._topics):
        assert 0 < len(cache) <= ENOUGH
