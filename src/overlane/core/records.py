"""Records: what a broker must not forget, and the registry of their kinds.

A record is (table, key, value). The module that writes a kind of record declares it once, as a `RecordKind`: its table,
how a record is read, whose it is, and which other records it needs. A `Registry` puts the kinds of all parts together,
and is what recovery, the store, and whoever ships records to another host use.

    table          "mqtt.session"     version 1 of the kind of this name
                   "mqtt.session@2"   version 2

The version is a part of the table, so that a release can neither overwrite nor erase what it cannot read. It grows only
when earlier releases would misread the new form: fields that are added at the end and may be missing need no new
version. A new version comes with the function that makes it of the version before (`RecordKind.upgrades`).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

Record: TypeAlias = tuple[str, bytes, bytes]
"""(table, key, value)."""

RecordName: TypeAlias = tuple[str, bytes]
"""(table, key)."""

SUBSCRIBER_PREFIX = "\0"
"""`\\0KIND/NAME` names a subscriber that is no client: no client's identifier has a null character."""


class OwnerKind(StrEnum):
    BROKER = "broker"
    """Of no part of the broker in particular."""
    SESSION = "session"
    FLOW = "flow"
    STREAM = "stream"
    WRITER = "writer"


class Owner(NamedTuple):
    """Whose a record is: it has no meaning without its owner, and moves with it."""

    kind: OwnerKind
    name: str = ""


THE_BROKER = Owner(OwnerKind.BROKER)


def owner_of_subscriber(subscriber: str) -> Owner:
    """A client's session, or who else subscribes."""
    if not subscriber.startswith(SUBSCRIBER_PREFIX):
        return Owner(OwnerKind.SESSION, subscriber)
    kind, _, name = subscriber.removeprefix(SUBSCRIBER_PREFIX).partition("/")
    return Owner(OwnerKind(kind), name)


def subscriber_name(kind: OwnerKind, name: str = "") -> str:
    """Under which an owner that is no client subscribes and publishes."""
    return f"{SUBSCRIBER_PREFIX}{kind}/{name}"


_LATER_VERSION = re.compile(r"(.+)@([1-9][0-9]{0,8})")


def _needs_nothing(key: bytes, value: bytes) -> tuple[RecordName, ...]:  # noqa: ARG001
    return ()


@dataclass(frozen=True, slots=True)
class RecordKind:
    """`table`: what the current version is saved as.

    `read` raises ValueError or msgspec.MsgspecError for what is no record of the kind; of all others the key tells
    `owner_of` whose they are. `needs`: the records of other owners that one is no use without. `upgrades`: the value
    of version n+1 made of that of version n, from version 1 on.
    """

    table: str
    owner_of: Callable[[bytes], Owner]
    read: Callable[[bytes, bytes], object]
    needs: Callable[[bytes, bytes], tuple[RecordName, ...]] = _needs_nothing
    upgrades: tuple[Callable[[bytes], bytes], ...] = ()

    def __post_init__(self) -> None:
        if self.table != table_of(self.name, len(self.upgrades) + 1):
            raise ValueError(f"{self.table}: a kind with {len(self.upgrades)} upgrades has one version more")

    @property
    def name(self) -> str:
        return version_of(self.table)[0]

    @property
    def version(self) -> int:
        return version_of(self.table)[1]


def table_of(name: str, version: int) -> str:
    return name if version == 1 else f"{name}@{version}"


def version_of(table: str) -> tuple[str, int]:
    """The name and the version of a kind. What is not written as `table_of` writes it is a name without a version."""
    found = _LATER_VERSION.fullmatch(table)
    return (found[1], int(found[2])) if found and found[2] != "1" else (table, 1)


def numbers_in(key: bytes, count: int) -> list[int]:
    """The numbers of eight bytes that a key is made of."""
    if len(key) != 8 * count:
        raise ValueError(f"a key of {len(key)} bytes; expected {8 * count}")
    return [int.from_bytes(key[at : at + 8]) for at in range(0, len(key), 8)]


class Standing(Enum):
    """What this release can do with the records of a table."""

    CURRENT = "it reads and writes them"
    OLDER = "it reads them when they are upgraded"
    NEWER = "a newer release wrote them in a form that this one cannot read"
    UNKNOWN = "it does not know the kind"


class Registry:
    def __init__(self, kinds: Iterable[RecordKind]) -> None:
        self.kinds = tuple(kinds)
        self._by_name = {kind.name: kind for kind in self.kinds}
        if len(self._by_name) < len(self.kinds):
            raise ValueError("a kind of record is registered twice")

    def find(self, table: str) -> tuple[Standing, RecordKind | None]:
        """The kind that a table has records of, in whatever version."""
        name, version = version_of(table)
        kind = self._by_name.get(name)
        if kind is None:
            return Standing.UNKNOWN, None
        if version == kind.version:
            return Standing.CURRENT, kind
        return (Standing.NEWER if version > kind.version else Standing.OLDER), kind

    def owner_of(self, table: str, key: bytes) -> Owner | None:
        """The owner of a record; None if only another release knows it."""
        standing, kind = self.find(table)
        return kind.owner_of(key) if kind is not None and standing is Standing.CURRENT else None

    def by_owner(self, records: Iterable[Record]) -> dict[Owner | None, list[Record]]:
        owners: dict[Owner | None, list[Record]] = {}
        for record in records:
            owners.setdefault(self.owner_of(record[0], record[1]), []).append(record)
        return owners

    def records_of(self, owner: Owner, records: Iterable[Record]) -> list[Record]:
        """All of an owner, and those of others that it needs, in the order in which they come."""
        records = list(records)
        own = {record[:2]: record for record in records if self.owner_of(record[0], record[1]) == owner}
        needed = {name for table, key, value in own.values() for name in self._needed(table, key, value)}
        return [record for record in records if record[:2] in own or record[:2] in needed]

    def _needed(self, table: str, key: bytes, value: bytes) -> tuple[RecordName, ...]:
        _, kind = self.find(table)
        return () if kind is None else kind.needs(key, value)


def restore(
    kinds: Iterable[RecordKind], records: Iterable[Record], takers: Mapping[str, Callable[[bytes, bytes], object]]
) -> None:
    """Give every record of these kinds to the taker of its table: kind by kind in their order, then key by key. Records
    of other kinds are somebody else's."""
    by_table: dict[str, list[tuple[bytes, bytes]]] = {kind.table: [] for kind in kinds}
    for table, key, value in records:
        if (found := by_table.get(table)) is not None:
            found.append((key, value))
    for table, found in by_table.items():
        take = takers[table]
        for key, value in sorted(found):
            take(key, value)


def fault(kind: RecordKind, key: bytes, value: bytes) -> str | None:
    """Why a record is not one of its kind, if it is not."""
    try:
        kind.read(key, value)
    except (ValueError, msgspec.MsgspecError) as error:
        return f"it cannot be read as {kind.name}: {error}"
    return None


def upgrade(kind: RecordKind, table: str, value: bytes) -> bytes:
    """The value of an older version in the current one; ValueError or msgspec.MsgspecError if it was never valid."""
    for step in kind.upgrades[version_of(table)[1] - 1 :]:
        value = step(value)
    return value
