"""The source of Spark against a real broker, without Spark: which offsets it gives, and what it reads between them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tlsfront import tls_in_front

from overlane.errors import ConfigError, Unavailable
from overlane.pipeline import create_streams
from overlane.pipeline.streaming.sink import publish_texts
from overlane.pipeline.streaming.source import SCHEMA, DataLoss, Range, Reader, StreamReader
from overlane.pipeline.streaming.stream_client import Credentials, RequestRejected, StreamClient
from overlane.pipeline.streaming.stream_options import read_options
from overlane.testbed.certificates import Authority
from watched import WatchedBroker, let_in


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[WatchedBroker]:
    running = WatchedBroker(tmp_path)
    running.start()
    yield running
    running.kill()


def reader(broker: WatchedBroker, **options: str) -> StreamReader:
    given = {"brokers": broker.admin, "stream": "s", "topic": "in/#", "patience": "60", **options}
    return StreamReader(read_options(given), SCHEMA)


def publish(broker: WatchedBroker, *payloads: bytes) -> None:
    with let_in(broker.port, "publisher") as caller:
        for payload in payloads:
            caller.publish("in/a", payload)


def read(of: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    found: list[bytes] = []
    for partition in of.partitions(start, end):
        for batch in of.read(partition):
            found += batch.column("payload").to_pylist()
    return found


def test_a_range_between_two_offsets_reads_alike_until_it_is_committed(broker: WatchedBroker) -> None:
    source = reader(broker, partitions="2")
    start = source.initialOffset()
    assert source.latestOffset(start, ReadAllAvailable()) == start
    publish(broker, b"0", b"1", b"2")
    end = source.latestOffset(start, ReadAllAvailable())
    assert end["here"]["next"] == 3
    assert len(source.partitions(start, end)) == 2
    assert source.partitions(end, end) == []
    assert read(source, start, end) == read(reader(broker), start, end) == [b"0", b"1", b"2"]
    broker.kill()
    broker.start()
    assert read(source, start, end) == [b"0", b"1", b"2"]
    source.commit(end)
    with pytest.raises(RequestRejected, match="not kept any more"):
        read(source, start, end)
    assert source.latestOffset(end, ReadAllAvailable()) == end


def test_a_batch_has_no_more_messages_than_was_asked_for(broker: WatchedBroker) -> None:
    source = reader(broker, maxMessages="2")
    start = source.initialOffset()
    publish(broker, b"0", b"1", b"2")
    limit = source.getDefaultReadLimit()
    assert limit == ReadMaxRows(2)
    end = source.latestOffset(start, limit)
    assert read(source, start, end) == [b"0", b"1"]
    assert read(source, end, source.latestOffset(end, limit)) == [b"2"]


def test_a_query_of_what_is_there_ends_where_it_began_to_look(broker: WatchedBroker) -> None:
    source = reader(broker)
    start = source.initialOffset()
    publish(broker, b"0")
    source.prepareForTriggerAvailableNow()
    publish(broker, b"1")
    assert read(source, start, source.latestOffset(start, ReadAllAvailable())) == [b"0"]


def test_a_new_query_may_begin_with_what_comes(broker: WatchedBroker) -> None:
    reader(broker).initialOffset()
    publish(broker, b"0")
    assert reader(broker, start="latest").initialOffset()["here"]["next"] == 1
    assert reader(broker, start="earliest").initialOffset()["here"]["next"] == 0


def test_a_stream_that_was_made_anew_is_no_continuation(broker: WatchedBroker) -> None:
    start = reader(broker).initialOffset()
    assert broker.request("/streams/s", "DELETE").status == 204
    with pytest.raises(DataLoss, match="created again"):
        reader(broker).latestOffset(start, ReadAllAvailable())
    careless = reader(broker, failOnDataLoss="false")
    publish(broker, b"0")
    again = careless.latestOffset(start, ReadAllAvailable())
    assert read(careless, start, again) == []
    assert read(careless, again, careless.latestOffset(again, ReadAllAvailable())) == [b"0"]


def test_messages_that_made_room_are_missed(broker: WatchedBroker) -> None:
    source = reader(broker)
    start = source.initialOffset()
    publish(broker, b"0", b"1")
    view = StreamClient(broker.admin, Credentials()).get("s")
    StreamClient(broker.admin, Credentials()).commit("s", view.since_ns, 1)
    with pytest.raises(DataLoss, match="begins at 1"):
        source.latestOffset(start, ReadAllAvailable())
    careless = reader(broker, failOnDataLoss="false")
    assert read(careless, start, careless.latestOffset(start, ReadAllAvailable())) == [b"1"]


def test_a_broker_that_a_query_has_read_from_must_not_be_left_out(broker: WatchedBroker) -> None:
    with pytest.raises(Unavailable, match="there"):
        reader(broker).latestOffset({"there": {"since": 1, "next": 0}}, ReadAllAvailable())


def test_a_broker_that_is_new_enters_without_messages(broker: WatchedBroker) -> None:
    source = reader(broker)
    source.initialOffset()
    publish(broker, b"0")
    entered = source.latestOffset({}, ReadAllAvailable())
    assert read(source, {}, entered) == []
    assert read(source, entered, source.latestOffset(entered, ReadAllAvailable())) == [b"0"]


def test_a_broker_behind_tls_is_believed_by_its_certificate(broker: WatchedBroker, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with tls_in_front(broker.admin, authority.server()) as address:
        known = reader(broker, brokers=address, ca=str(authority.ca))
        start = known.initialOffset()
        publish(broker, b"0")
        assert read(known, start, known.latestOffset(start, ReadAllAvailable())) == [b"0"]
        with pytest.raises(Unavailable, match="certificate"):
            reader(broker, brokers=address).initialOffset()


def test_a_stream_that_is_created_before_the_query_has_what_comes_meanwhile(broker: WatchedBroker) -> None:
    given = {"brokers": broker.admin, "stream": "early", "topic": "in/#"}
    create_streams(**given)
    create_streams(**given)
    publish(broker, b"0")
    source = StreamReader(read_options(given), SCHEMA)
    start = source.initialOffset()
    assert read(source, start, source.latestOffset(start, ReadAllAvailable())) == [b"0"]
    for missing in ("stream", "topic"):
        with pytest.raises(ConfigError, match=missing):
            create_streams(**{name: value for name, value in given.items() if name != missing})


def test_texts_are_published_once_however_often_a_batch_is_repeated(broker: WatchedBroker) -> None:
    options = read_options({"brokers": broker.admin, "stream": "alerts", "topic": "in/#"})
    create_streams(brokers=broker.admin, stream="alerts", topic="in/#")
    for _ in range(2):
        publish_texts(["one", "two"], "in/alerts", options, "health", 1)
    publish_texts(["three"], "in/alerts", options, "health", 2)
    source = StreamReader(options, SCHEMA)
    start = source.initialOffset()
    assert read(source, start, source.latestOffset(start, ReadAllAvailable())) == [b"one", b"two", b"three"]


def test_a_table_is_what_is_kept(broker: WatchedBroker) -> None:
    reader(broker).initialOffset()
    publish(broker, b"0", b"1")
    table = Reader(read_options({"brokers": broker.admin, "stream": "s"}), SCHEMA)
    (only,) = table.partitions()
    assert isinstance(only, Range)
    assert (only.broker, only.start, only.end) == ("here", 0, 2)
    (batch,) = table.read(only)
    assert batch.column("payload").to_pylist() == [b"0", b"1"]
    with pytest.raises(RequestRejected, match="no stream"):
        Reader(read_options({"brokers": broker.admin, "stream": "other"}), SCHEMA).partitions()
