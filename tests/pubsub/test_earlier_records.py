"""The records of a broker from before pubsub was a part of its own are read as they always were.

The file has one record a line: table, key and value in hexadecimal. The sessions in it: `writer`, which asked for
deduplication; `reader`, which is away with five messages waiting; `late`, which has got the first of 300 retained
messages; `willing`, which was connected with a will.
"""

import json
from pathlib import Path

from inmemory import Service, Taken

from overlane.core.records import Record, Registry, upgrade
from overlane.core.units import MS, SECOND
from overlane.pubsub.record_kinds import KINDS
from overlane.pubsub.streams.writers import BatchOutcome, Note

RECORDS = Path(__file__).parent / "records-before-pubsub.jsonl"


def earlier() -> Service:
    first, *lines = RECORDS.read_text().splitlines()
    read = [upgraded(table, bytes.fromhex(key), bytes.fromhex(value)) for table, key, value in map(json.loads, lines)]
    return Service(read, json.loads(first)["now_ns"])


def upgraded(table: str, key: bytes, value: bytes) -> Record:
    """A record as the store hands it over when it was opened by this release."""
    _, kind = Registry(KINDS).find(table)
    return (kind.table, key, upgrade(kind, table, value)) if kind is not None else (table, key, value)


def test_sessions_subscriptions_and_queues_are_there() -> None:
    service = earlier()
    assert sorted(service.pubsub.state.sessions) == ["late", "reader", "willing", "writer"]
    reader = service.connect("reader", expiry_s=3600)
    assert reader.take_all() == [
        Taken("t/1", b"one", 1),
        Taken("t/2", b"two", 2),
        Taken("s/1", b"shared", 1),
        Taken("t/3", b"three", 1),
        Taken("t/4", b"four", 1),
    ]
    assert (reader.properties[0].content_type, reader.properties[0].user_properties) == ("text/plain", (("a", "b"),))
    assert reader.its.subscriptions["t/#"].override.deadline_ns == 50 * MS
    assert reader.its.subscriptions["$share/g/s/+"].group == "g"


def test_retained_messages_are_there_and_a_replay_goes_on_where_it_was() -> None:
    service = earlier()
    assert len([one for one in service.pubsub.state.retained.walk("kept/#") if one is not None]) == 300
    late = service.connect("late", expiry_s=3600, receive_max=1_000)
    for _ in range(50):
        for tag in late.tags:
            late.acknowledge(tag)
        late.tags.clear()
        service.run(10 * MS)
    assert [one.topic for one in late.taken] == [f"kept/{number:03}" for number in range(300)]


def test_a_will_is_published_when_its_delay_is_over() -> None:
    service = earlier()
    reader = service.connect("another")
    reader.subscribe("wills/#", qos=1)
    service.run(599 * SECOND)
    assert reader.take_all() == []
    service.run(2 * SECOND)
    assert reader.take_all() == [Taken("wills/1", b"gone", 1)]
    assert reader.properties[-1].content_type == "text/plain"


def test_streams_and_writers_go_on_where_they_were() -> None:
    service = earlier()
    log = service.pubsub.streams.get("log")
    assert log is not None
    found, following = service.pubsub.streams.read(log, 0, 10, 10, 10_000, service.now)
    assert [(one.topic, one.payload) for _, one in found] == [("t/3", b"three"), ("t/4", b"four")]
    assert following == 2
    again = service.pubsub.writers.write("batches", None, 4, 0, [Note("t/4", b"four", 1, False)], service.now)
    assert again == BatchOutcome(1)
    assert service.pubsub.streams.get("log") is log
    assert log.next == 2


def test_what_was_accepted_before_is_known_to_deduplication() -> None:
    service = earlier()
    session = service.pubsub.state.sessions["writer"]
    assert session.deduplication.is_promised
    service.pubsub.state.batch.extend(session.deduplication.begin("run-1", 10, 0))
    assert service.pubsub.publishing.is_duplicate(session, 1, 301, is_repeated=True)
    assert not service.pubsub.publishing.is_duplicate(session, 1, 2, is_repeated=True)
