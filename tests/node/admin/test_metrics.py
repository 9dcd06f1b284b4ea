"""The metrics of a running broker: they count what happened, by name and reason, and no client can make them grow."""

from collections.abc import Iterator

import mqtt5
import pytest
from prometheus_client.parser import text_string_to_metric_families

from overlane.pubsub.counters import Drop, Refusal
from waiting import eventually
from watched import Caller, WatchedBroker, let_in

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    running = WatchedBroker(
        tmp_path_factory.mktemp("metrics"),
        '[limits]\nqueue_messages = 3\n[[access]]\nuser = "anonymous"\npublish = ["open/#"]\nsubscribe = ["open/#"]\n'
        '[brokers.there]\n[[links]]\nends = ["here", "there"]\nlatency = "10ms"\n',
    )
    running.start()
    yield running
    running.kill()


def scrape(broker: WatchedBroker) -> Samples:
    families = text_string_to_metric_families(broker.request("/metrics").body.decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(samples: Samples, metric: str, /, **labels: str) -> float:
    return samples[metric, tuple(sorted(labels.items()))]


def test_the_content_type_is_that_of_prometheus(broker: WatchedBroker) -> None:
    assert broker.request("/metrics").headers["content-type"].startswith("text/plain; version=")


def test_messages_and_bytes_are_counted_both_ways(broker: WatchedBroker) -> None:
    before = scrape(broker)
    with let_in(broker.port, "reader") as reader, let_in(broker.port, "writer") as writer:
        reader.subscribe("open/a")
        for _ in range(5):
            writer.publish("open/a", b"x" * 100)
        for _ in range(5):
            reader.read(mqtt5.PublishPacket)
        after = scrape(broker)
    for direction in ("in", "out"):
        for name, least in (("overlane_messages_total", 5), ("overlane_bytes_total", 500)):
            grown = value(after, name, direction=direction) - value(before, name, direction=direction)
            assert grown >= least, (name, direction)
    accepted = "overlane_connections_accepted_total"
    assert value(after, accepted) == value(before, accepted) + 2


def test_what_is_refused_is_counted_by_its_reason(broker: WatchedBroker) -> None:
    before = scrape(broker)
    with let_in(broker.port, "intruder") as caller:
        assert caller.publish("closed/a") == mqtt5.PubAckReasonCode.NOT_AUTHORIZED
        assert caller.subscribe("closed/#") == mqtt5.SubAckReasonCode.NOT_AUTHORIZED
    with Caller(broker.port) as caller:
        caller.write(b"GET / HTTP/1.1\r\n\r\n")
        assert caller.is_closed()
    after = scrape(broker)
    grown = {
        why: value(after, "overlane_refused_total", reason=why) - value(before, "overlane_refused_total", reason=why)
        for why in Refusal
    }
    assert {why: count for why, count in grown.items() if count} == {Refusal.DENIED: 2, Refusal.PROTOCOL: 1}


def test_what_is_dropped_is_counted_by_its_reason_and_what_waits_is_told(broker: WatchedBroker) -> None:
    with let_in(broker.port, "gone", expiry_s=60) as caller:
        caller.subscribe("open/queue", 1)
    eventually(lambda: broker.get("/clients/gone")["client"]["connection"] is None)
    with let_in(broker.port, "writer") as writer:
        for _ in range(5):
            writer.publish("open/queue")
    eventually(lambda: value(scrape(broker), "overlane_queue_messages") == 3, "three messages wait")
    samples = scrape(broker)
    assert value(samples, "overlane_dropped_total", reason=Drop.QUEUE_FULL) == 2
    assert value(samples, "overlane_queue_bytes") > 0


def test_reasons_are_there_before_they_come_to_pass(broker: WatchedBroker) -> None:
    samples = scrape(broker)
    assert all(("overlane_dropped_total", (("reason", why),)) in samples for why in Drop)
    assert all(("overlane_refused_total", (("reason", why),)) in samples for why in Refusal)


def test_the_store_tells_its_state_and_how_long_commits_take(broker: WatchedBroker) -> None:
    with let_in(broker.port, "durable", expiry_s=60):
        pass
    samples = scrape(broker)
    assert value(samples, "overlane_store_durable") == 1
    assert value(samples, "overlane_store_failing") == 0
    assert value(samples, "overlane_store_commit_seconds_count") >= 1
    assert value(samples, "overlane_store_commit_seconds_sum") > 0
    buckets = [number for (name, _), number in samples.items() if name == "overlane_store_commit_seconds_bucket"]
    assert buckets == sorted(buckets)
    assert buckets[-1] == value(samples, "overlane_store_commit_seconds_count")


def test_links_loop_process_and_readiness_are_told(broker: WatchedBroker) -> None:
    samples = scrape(broker)
    assert value(samples, "overlane_link_state", peer="there", state="down") == 1
    assert value(samples, "overlane_link_state", peer="there", state="up") == 0
    assert value(samples, "overlane_ready") == 1
    assert 0 <= value(samples, "overlane_loop_lag_seconds", of="average") < 10
    assert value(samples, "process_resident_memory_bytes") > 10_000_000
    assert value(samples, "overlane_broker_info", name="here", version=broker.get("/status")["version"]) == 1


def test_no_client_can_make_the_number_of_metrics_grow(broker: WatchedBroker) -> None:
    before = len(scrape(broker))
    with let_in(broker.port, "many") as caller:
        for number in range(50):
            caller.publish(f"open/{number}")
            caller.publish(f"closed/{number}")
    assert len(scrape(broker)) == before
