"""A store with records of other releases: nothing is lost, whatever this release can do with them."""

import logging
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from storebench import Loop, Turns, content

from overlane.core.records import THE_BROKER, RecordKind, Registry
from overlane.errors import ConfigError
from overlane.node.store.durable import FILE, Store
from overlane.node.store.record_file import Name, Quarantined
from overlane.turn.record_registry import REGISTRY

NUMBERS = RecordKind("number", lambda _: THE_BROKER, lambda _, value: int(value))
TENS = RecordKind(
    "number@2", lambda _: THE_BROKER, lambda _, value: int(value), upgrades=(lambda value: b"%d" % (10 * int(value)),)
)
EARLIER, LATER = Registry((*REGISTRY.kinds, NUMBERS)), Registry((*REGISTRY.kinds, TENS))


@contextmanager
def opened(directory: Path, registry: Registry, changes: Mapping[Name, bytes] | None = None) -> Iterator[Store]:
    turns = Turns(Loop())
    store = Store.open(directory, turns.loop.soon, turns.states.append, clock_s=1, registry=registry)
    try:
        if changes:
            turns.commit(store, dict(changes))
        yield store
    finally:
        store.close()


def rows(directory: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(directory / FILE)) as connection:
        return connection.execute("SELECT * FROM records WHERE kind != 'store' ORDER BY id").fetchall()


def test_records_of_a_newer_version_refuse_the_store_and_leave_it_as_it_is(tmp_path: Path) -> None:
    damaged = {("number@2", b"a"): b"10", ("number@2", b"b"): b"20", ("mqtt.session@3", b"c"): b""}
    with opened(tmp_path, Registry(()), damaged):
        pass
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(ConfigError) as refused, opened(tmp_path, EARLIER):
        pass
    told = "1 records of the kind mqtt.session in version 3, allowed is at most version 1: a newer release wrote them"
    assert told in str(refused.value)
    assert "2 records of the kind number in version 2" in str(refused.value)
    assert (tmp_path / FILE).read_bytes() == before
    with opened(tmp_path, Registry((TENS,))) as store:
        assert content(store)["number@2", b"b"] == b"20"


def test_records_of_an_unknown_kind_are_kept_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    unknown = {("later.kind", b"a"): b"\xff", ("later.kind@7", b"b"): b""}
    with opened(tmp_path, REGISTRY, unknown):
        pass
    before = rows(tmp_path)
    with caplog.at_level(logging.WARNING), opened(tmp_path, REGISTRY) as store:
        assert store.unknown == {"later.kind": 1, "later.kind@7": 1}
        assert content(store) == unknown
        assert store.quarantined == []
    assert rows(tmp_path) == before
    assert "1 records of kind later.kind, unknown to this release, are kept unchanged" in caplog.text


def test_a_record_with_the_right_checksum_that_is_none_of_its_kind_is_quarantined(tmp_path: Path) -> None:
    good = {("mqtt.session", b"a"): msgspec.msgpack.encode((None, 60, 0))}
    bad = {("mqtt.session", b"b"): b"\x93\xa1x", ("mqtt.queue@2", b"short"): b"", ("store", b"incarnation"): b"x"}
    with opened(tmp_path, REGISTRY, good | bad):
        pass
    with opened(tmp_path, REGISTRY) as store:
        assert content(store) == good
        found = {(one.table, one.key): one.reason for one in store.quarantined}
    assert found.keys() == bad.keys()
    told = "it cannot be read as mqtt.queue: a key without a client and a sequence number"
    assert found["mqtt.queue@2", b"short"] == told
    with opened(tmp_path, REGISTRY) as store:
        assert store.quarantined == []


def test_an_older_version_is_upgraded_at_the_first_start_and_stays_so(tmp_path: Path) -> None:
    with opened(tmp_path, EARLIER, {("number", b"a"): b"1", ("number", b"b"): b"2", ("other", b"c"): b"3"}):
        pass
    upgraded = {("number@2", b"a"): b"10", ("number@2", b"b"): b"20", ("other", b"c"): b"3"}
    with opened(tmp_path, LATER) as store:
        assert content(store) == upgraded
    with opened(tmp_path, LATER) as store:
        assert (content(store), store.quarantined) == (upgraded, [])


def test_what_cannot_be_upgraded_is_quarantined(tmp_path: Path) -> None:
    with opened(tmp_path, Registry(()), {("number", b"a"): b"x", ("number", b"b"): b"2", ("number@2", b"b"): b"7"}):
        pass
    with opened(tmp_path, LATER) as store:
        assert content(store) == {("number@2", b"b"): b"7"}
        assert sorted(store.quarantined, key=lambda one: one.key) == [
            Quarantined("number", b"a", "it cannot be upgraded: invalid literal for int() with base 10: b'x'"),
            Quarantined("number", b"b", "there is one of version 2 with the same key"),
        ]
    with opened(tmp_path, LATER) as store:
        assert (content(store), store.quarantined) == ({("number@2", b"b"): b"7"}, [])


def test_a_replica_has_all_that_another_store_needs_to_continue_the_broker(tmp_path: Path) -> None:
    records = {("later.kind", b"a"): b"?", ("mqtt.session", b"a"): msgspec.msgpack.encode((None, 60, 0))}
    with opened(tmp_path / "one", REGISTRY, records) as one:
        replica = {(table, key): value for table, key, value in one.replica()}
        assert {name: value for name, value in replica.items() if name[0] != "store"} == records
    with opened(tmp_path / "other", REGISTRY, replica):
        pass
    with opened(tmp_path / "other", REGISTRY) as other:
        assert (content(other), other.instance, other.incarnation) == (records, one.instance, one.incarnation + 1)
