"""Every record that a broker writes is of a registered kind, and the registry reads it and knows whose it is."""

import ast
import importlib
import json
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import overlane
from overlane.core.events import Erase, Save
from overlane.core.records import THE_BROKER, Owner, OwnerKind, Record, Standing, fault, upgrade
from overlane.pubsub.delivery.queue_records import QUEUES
from overlane.pubsub.message import TABLE as MESSAGES
from overlane.pubsub.streams.streams import IDENTIFIER
from overlane.turn.record_registry import REGISTRY

PACKAGE = Path(overlane.__file__).parent
TESTS = Path(__file__).parents[1]


def written_tables() -> Iterator[tuple[str, str]]:
    """Where a record is saved or erased in a table that is a constant, and the table."""
    for part in ("core", "pubsub", "mqtt", "turn", "node"):
        for path in sorted((PACKAGE / part).rglob("*.py")):
            module = ".".join(["overlane", *path.relative_to(PACKAGE).with_suffix("").parts])
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Call(ast.Name("Save" | "Erase"), [table, *_]):
                        yield f"{module}:{node.lineno}", _value(table, module)


def _value(table: ast.expr, module: str) -> str:
    if isinstance(table, ast.Constant):
        return str(table.value)
    found = importlib.import_module(module)
    for name in ast.unparse(table).split("."):
        if not hasattr(found, name):
            return ""  # a variable
        found = getattr(found, name)
    return str(found)


def test_what_is_saved_or_erased_is_of_a_registered_kind() -> None:
    tables = dict(written_tables())
    assert len(tables) > 25
    unregistered = {at: table for at, table in tables.items() if table and REGISTRY.find(table)[1] is None}
    assert unregistered == {}
    # Written by the file itself, and by the driver of a replica.
    assert {kind.table for kind in REGISTRY.kinds} - set(tables.values()) == {"store", "replica"}
    assert (Save.__module__, Erase.__module__) == ("overlane.core.events",) * 2


def earlier_records() -> list[Record]:
    _, *lines = (TESTS / "pubsub" / "records-before-pubsub.jsonl").read_text().splitlines()
    return [(table, bytes.fromhex(key), bytes.fromhex(value)) for table, key, value in map(json.loads, lines)]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Of a broker of the last release, with records of every kind that clients can bring about."""
    directory = tmp_path_factory.mktemp("store")
    with tarfile.open(TESTS / "node" / "store" / "stores" / "0.1.0.tar.xz") as archive:
        archive.extractall(directory)  # of our own; Python 3.11.3 and older know no filters
    with closing(sqlite3.connect(directory / "a" / "broker.db")) as connection:
        rows = connection.execute("SELECT kind, key, value FROM records")
        return [upgraded(kind, key, value) for kind, key, value in rows]


def upgraded(table: str, key: bytes, value: bytes) -> Record:
    """A record as this release writes it."""
    standing, kind = REGISTRY.find(table)
    assert kind is not None
    assert standing in (Standing.CURRENT, Standing.OLDER)
    return kind.table, key, upgrade(kind, table, value)


def test_records_of_earlier_releases_are_read(stored: list[Record]) -> None:
    seen = set()
    for table, key, value in [*stored, *(upgraded(*record) for record in earlier_records())]:
        standing, kind = REGISTRY.find(table)
        assert standing is Standing.CURRENT
        assert kind is not None
        assert fault(kind, key, value) is None
        assert REGISTRY.owner_of(table, key) is not None
        seen.add(kind.name)
    # These last but a moment, are written in two tiers or with mirrors only, or are new.
    unseen = {"mqtt.beginning", "inflow", "held", "mqtt.handout", "replica", "web.callback", "mediation.waiting"}
    unseen |= {"mqtt.removal"}
    assert {kind.name for kind in REGISTRY.kinds} - seen == unseen


def test_all_records_of_a_session_are_one_call(stored: list[Record]) -> None:
    found = REGISTRY.records_of(Owner(OwnerKind.SESSION, "reader"), stored)
    tables = {table for table, _, _ in found}
    assert tables == {"mqtt.session", "mqtt.subscription", QUEUES, MESSAGES, "subscription"}
    waiting = [record for record in found if record[0] == QUEUES]
    needed = {REGISTRY.find(QUEUES)[1].needs(key, value)[0] for _, key, value in waiting}  # type: ignore[union-attr]
    assert needed == {record[:2] for record in found if record[0] == MESSAGES}
    assert needed


def test_the_records_of_owners_are_all_there_are(stored: list[Record]) -> None:
    owners = REGISTRY.by_owner(stored)
    assert sorted(record for records in owners.values() for record in records) == sorted(stored)
    assert {owner.kind for owner in owners if owner is not None} == set(OwnerKind)
    stream = owners[Owner(OwnerKind.STREAM, "s1")]
    assert {table for table, _, _ in stream} >= {"mqtt.stream", "mqtt.streamlog"}
    assert ("store", b"incarnation") in {record[:2] for record in owners[THE_BROKER]}


def test_what_a_stream_subscribes_to_in_the_overlay_is_the_streams() -> None:
    assert REGISTRY.owner_of("subscription", f"{IDENTIFIER}s1\0plant/#".encode()) == Owner(OwnerKind.STREAM, "s1")


@pytest.mark.parametrize("kind", REGISTRY.kinds, ids=lambda kind: kind.name)
def test_garbage_is_of_no_kind_and_raises_nothing_else(kind: object) -> None:
    found = next(one for one in REGISTRY.kinds if one is kind)
    for key, value in [
        (b"", b""),
        (b"\xff", b"\xff"),
        (b"\0" * 8, b"\xc1"),
        (b"a\0b", b"\x93\x01"),
        (b"x" * 24, b"\xff"),
    ]:
        fault(found, key, value)
    assert fault(found, b"\xff", b"\xff") is not None
