"""The registry of record kinds: versions, owners, and what moves together."""

import pytest

from overlane.core.records import (
    THE_BROKER,
    Owner,
    OwnerKind,
    Record,
    RecordKind,
    Registry,
    Standing,
    fault,
    owner_of_subscriber,
    restore,
    subscriber_name,
    table_of,
    upgrade,
    version_of,
)


def owner(key: bytes) -> Owner:
    return Owner(OwnerKind.SESSION, key.partition(b"/")[0].decode())


PARTS = RecordKind(
    "part", owner, lambda key, value: (owner(key), int(value)), needs=lambda _, value: (("whole", value),)
)
WHOLES = RecordKind("whole", lambda _: THE_BROKER, lambda key, _: key.decode())
THIRD = RecordKind(
    "grown@3", owner, lambda _, value: int(value), upgrades=(lambda one: one + b"2", lambda two: two + b"3")
)
REGISTRY = Registry((PARTS, WHOLES, THIRD))

RECORDS: list[Record] = [
    ("part", b"a/1", b"7"),
    ("whole", b"7", b""),
    ("part", b"b/1", b"8"),
    ("whole", b"8", b""),
    ("grown@3", b"a", b"1"),
    ("grown@4", b"a", b"?"),
    ("other", b"a", b""),
]


@pytest.mark.parametrize(
    ("table", "name", "version"),
    [
        ("mqtt.session", "mqtt.session", 1),
        ("mqtt.session@2", "mqtt.session", 2),
        ("x@10", "x", 10),
        ("x@1", "x@1", 1),
        ("x@0", "x@0", 1),
        ("x@02", "x@02", 1),
        ("x@", "x@", 1),
        ("@2", "@2", 1),
        ("x@two", "x@two", 1),
        ("x@" + "9" * 5_000, "x@" + "9" * 5_000, 1),
    ],
)
def test_a_table_names_a_kind_and_its_version(table: str, name: str, version: int) -> None:
    assert version_of(table) == (name, version)
    assert table_of(name, version) == table


@pytest.mark.parametrize(
    ("table", "standing", "kind"),
    [
        ("part", Standing.CURRENT, PARTS),
        ("part@2", Standing.NEWER, PARTS),
        ("grown", Standing.OLDER, THIRD),
        ("grown@2", Standing.OLDER, THIRD),
        ("grown@3", Standing.CURRENT, THIRD),
        ("grown@4", Standing.NEWER, THIRD),
        ("other", Standing.UNKNOWN, None),
    ],
)
def test_what_this_release_can_do_with_a_table(table: str, standing: Standing, kind: RecordKind | None) -> None:
    assert REGISTRY.find(table) == (standing, kind)


def test_the_records_of_an_owner_come_with_those_that_they_need() -> None:
    one, other = Owner(OwnerKind.SESSION, "a"), Owner(OwnerKind.SESSION, "b")
    assert REGISTRY.records_of(one, RECORDS) == [RECORDS[0], RECORDS[1], RECORDS[4]]
    assert REGISTRY.records_of(other, iter(RECORDS)) == RECORDS[2:4]
    assert REGISTRY.by_owner(RECORDS) == {
        one: [RECORDS[0], RECORDS[4]],
        other: [RECORDS[2]],
        THE_BROKER: [RECORDS[1], RECORDS[3]],
        None: RECORDS[5:],
    }


def test_a_record_that_cannot_be_read_is_no_record_of_its_kind() -> None:
    assert fault(PARTS, b"a/1", b"7") is None
    assert "it cannot be read as part" in (fault(PARTS, b"a/1", b"x") or "")
    assert "it cannot be read as part" in (fault(PARTS, b"\xff", b"7") or "")


def test_an_older_version_is_upgraded_step_by_step() -> None:
    assert [upgrade(THIRD, table, b"1") for table in ("grown", "grown@2", "grown@3")] == [b"123", b"13", b"1"]


def test_records_are_taken_kind_by_kind_and_key_by_key() -> None:
    taken: list[object] = []
    takers = {table: lambda *record, table=table: taken.append((table, *record)) for table in ("whole", "part")}
    restore((WHOLES, PARTS), reversed(RECORDS), takers)
    assert taken == [RECORDS[1], RECORDS[3], RECORDS[0], RECORDS[2]]
    with pytest.raises(KeyError):
        restore((WHOLES, PARTS), (), {"part": print})


def test_a_kind_is_registered_once_and_has_an_upgrade_for_each_version() -> None:
    with pytest.raises(ValueError, match="registered twice"):
        Registry((PARTS, RecordKind("part", owner, PARTS.read)))
    with pytest.raises(ValueError, match="one version more"):
        RecordKind("part@2", owner, PARTS.read)


def test_a_subscriber_is_a_session_or_says_what_it_is() -> None:
    assert owner_of_subscriber("reader") == Owner(OwnerKind.SESSION, "reader")
    assert owner_of_subscriber(subscriber_name(OwnerKind.STREAM, "a/b")) == Owner(OwnerKind.STREAM, "a/b")
    with pytest.raises(ValueError, match="nobody"):
        owner_of_subscriber("\0nobody/x")
