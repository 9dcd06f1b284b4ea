"""Lakes for tests: what a reader finds in one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from overlane.core.units import SECOND
from overlane.network.schema import Telemetry
from overlane.telemetry.file_rotation import DAY, FileRotation
from overlane.telemetry.publisher import execute
from overlane.telemetry.publishing import Publish
from overlane.telemetry.rows import TABLES, Event, Row
from overlane.telemetry.schema import SCHEMAS

NOON = 20_000 * DAY + DAY // 2
"""A moment of 2024-10-04."""


def table(lake: Path, name: str) -> pa.Table:
    """All rows of a table, as somebody reads them who knows nothing of brokers."""
    if not (lake / name).exists():
        return SCHEMAS[name].empty_table()
    schema = SCHEMAS[name].append(pa.field("date", pa.string()))
    return ds.dataset(lake / name, schema=schema, partitioning="hive").to_table()


def rows(lake: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table(lake, name).sort_by("at_ns").to_pylist()
    return found


def files(lake: Path) -> list[str]:
    return sorted(str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file())


def event(seconds: float, text: str = "") -> Event:
    return Event(NOON + int(seconds * SECOND), "link", peer=text)


class Desk:
    """A filing with its lake and its spool, and a clock that is set by hand."""

    def __init__(
        self,
        directory: Path,
        broker: str = "seattle",
        incarnation: int = 1,
        publish: Publish = execute,
        **limits: Any,
    ) -> None:
        self.lake = directory / "lake"
        self.spool = directory / "lake" / ".open"
        self.spool.mkdir(parents=True, exist_ok=True)
        self.now_s = 1_000.0
        settings = Telemetry(**limits)
        where = str(self.lake)
        self.filing = FileRotation(where, self.spool, broker, incarnation, settings, self.now_s, publish)
        self.filing.recover()

    def record(self, *rows: Row) -> None:
        for row in rows:
            self.filing.record(TABLES[type(row)], [row], self.now_s)

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.filing.seal_due(self.now_s)
        self.filing.publish()

    def close(self) -> None:
        self.filing.seal_all()
        self.filing.publish()

    def die(self) -> None:
        """As after kill -9: the locks are gone, and everything else stays as it is."""
        for one in self.filing._open.values():
            one.journal.close()


def counted(lake: Path, name: str, of: Callable[[dict[str, Any]], int] = lambda _: 1) -> int:
    return sum(map(of, rows(lake, name)))
