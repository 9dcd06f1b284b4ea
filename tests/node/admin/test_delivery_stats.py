"""The tally: messages of other brokers by filter and origin, their ages in buckets, how many were in time."""

import pytest

from overlane.adminapi.topic_filters import TopicFilters
from overlane.core.events import Deliver
from overlane.core.units import MS, NEVER
from overlane.mqtt.arrival_counts import Tally, tally
from overlane.mqtt.runs import pack_run
from overlane.network import Network, Topic
from overlane.node.admin.delivery_stats import STEPS, DeliveryStats, bucket, bucket_us
from overlane.pubsub.cluster.arrivals import Mixed

NETWORK = Network(
    topics=(Topic(filter="alarms/#", deadline_ns=60 * MS), Topic(filter="alarms/test", deadline_ns=10 * MS))
)


def delivered(*topics: str, age_ms: int, origin: str = "there") -> Tally:
    messages = [(topic, 0, b"x") for topic in topics]
    return tally(Deliver(messages, dict.fromkeys(topics, ("client",)), origin, age_ms * MS, 60 * MS))


def counted(stats: DeliveryStats) -> dict[tuple[str, str], tuple[int, int]]:
    return {(row, origin): (count.messages, count.in_time) for row, origin, count in stats.counts()}


@pytest.mark.parametrize("age_us", [0, 1, 15, 16, 17, 31, 32, 33, 1_000, 14_321, 999_999, 2**40])
def test_an_age_is_in_a_bucket_that_ends_a_sixteenth_above_it_at_most(age_us: int) -> None:
    end_us = bucket_us(bucket(age_us))
    assert age_us <= end_us <= age_us + age_us // STEPS


def test_buckets_follow_each_other_without_a_gap() -> None:
    assert [bucket(bucket_us(index) + 1) for index in range(500)] == list(range(1, 501))


def test_messages_count_for_the_most_specific_filter_and_their_origin() -> None:
    stats = DeliveryStats("here", TopicFilters(NETWORK))
    stats.delivered(delivered("alarms/1", "alarms/1", "alarms/test", "other", age_ms=20))
    stats.delivered(delivered("alarms/1", age_ms=70, origin="elsewhere"))
    assert counted(stats) == {
        ("", "there"): (1, 1),
        ("alarms/#", "elsewhere"): (1, 0),
        ("alarms/#", "there"): (2, 2),
        ("alarms/test", "there"): (1, 0),
    }


def test_a_run_counts_as_the_messages_in_it() -> None:
    flags, body = pack_run(b"\x30\x05\x00\x01alx" * 7, 7, is_v5=False)
    stats = DeliveryStats("here", TopicFilters(NETWORK))
    stats.delivered(tally(Deliver([("alarms/1", flags, body)], {"alarms/1": ("client",)}, "there", 5 * MS, NEVER)))
    assert counted(stats) == {("alarms/#", "there"): (7, 7)}


def test_a_mixed_run_counts_each_message_for_its_own_topic() -> None:
    topics = ["alarms/1"] * 3 + ["alarms/test"] + ["other"] * 2
    stats = DeliveryStats("here", TopicFilters(NETWORK))
    effect = Deliver([("", 0, b"")], {"": ("",)}, "there", 20 * MS, NEVER)
    stats.delivered(tally(effect, [Mixed(topics, [1] * 6)]))
    assert counted(stats) == {
        ("", "there"): (2, 2),
        ("alarms/#", "there"): (3, 3),
        ("alarms/test", "there"): (1, 0),
    }
    stats = DeliveryStats("here", TopicFilters(Network()))
    stats.delivered(tally(effect, [Mixed(topics, [1] * 6)]))
    assert counted(stats) == {("", "there"): (6, 6)}


def test_what_nobody_here_gets_and_what_was_published_here_is_not_counted() -> None:
    stats = DeliveryStats("here", TopicFilters(NETWORK))
    stats.delivered(tally(Deliver([("alarms/1", 0, b"x")], {}, "there", 5 * MS, NEVER)))
    stats.delivered(delivered("alarms/1", age_ms=1, origin="here"))
    assert counted(stats) == {}
