"""File rotation: rows become journals, journals become files. It is told the time, and starts no thread.

    rows -- record --> an open journal per table and date
    open -- large or old enough --> sealed
    sealed -- publish --> a file of the lake, made by another process (`publishing`), which removes the journal

The first files of a broker process are short, so that there is soon something to read; then a file may cover as long as
the broker had run before it, up to the configured age. Journals left open by an earlier process are sealed at the
start.

Journals and files of this broker together stay within the limit: the oldest are deleted first. How large the files in
the lake are together is asked for once, and then kept as a number.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from overlane.core.units import SECOND, Nanos
from overlane.network.schema import Telemetry
from overlane.telemetry.journal import FileName, Journal, abandoned
from overlane.telemetry.publishing import Job, Publish
from overlane.telemetry.rows import ROWS, Row

FIRST_AGE_S = 10.0
CHUNK_ROWS = 1_000
"""Written down in one go, during which no other thread runs: below a millisecond."""

DAY: Nanos = 86_400 * SECOND

log = logging.getLogger("overlane.telemetry")


@dataclass(slots=True)
class _Open:
    journal: Journal
    since_s: float


class FileRotation:
    """`lake` is a directory or an address, `spool` a local directory for journals. `limits` may be replaced at any
    time."""

    def __init__(
        self,
        lake: str,
        spool: Path,
        broker: str,
        incarnation: int,
        limits: Telemetry,
        now_s: float,
        publish: Publish,
    ) -> None:
        self.limits = limits
        self._lake = lake
        self._spool = spool
        self._publish = publish
        self._broker = broker
        self._incarnation = incarnation
        self._since_s = now_s
        self._lake_bytes: int | None = None
        """Size of this broker's files in the lake, if it is known."""
        self._open: dict[tuple[str, str], _Open] = {}
        self._sealed: list[FileName] = []
        self._number = 0
        self.files_made = 0
        self.files_removed = 0
        self.bytes_removed = 0
        self.rows_lost: Counter[str] = Counter()
        """Rows that no file could be made of, by table."""

    def recover(self) -> None:
        """Find what earlier lives have left, and publish it. OSError if that cannot be done now."""
        for path in self._spool.iterdir():
            name = FileName.of_journal(path.name)
            if name is not None and name.broker == self._broker:
                self._count_on(name)
                if abandoned(path):
                    self._sealed.append(name)
        self._sealed.sort()
        if not self._sealed and self._is_new_lake():
            self._lake_bytes = 0
        else:
            self.publish()

    def _is_new_lake(self) -> bool:
        """Whether it is a directory without any table: then no process is needed to look at it."""
        return "://" not in self._lake and not any((Path(self._lake) / table).exists() for table in ROWS)

    def _count_on(self, name: FileName) -> None:
        """No name is given twice, even where two lives have the same incarnation."""
        if name.incarnation == self._incarnation:
            self._number = max(self._number, name.number)

    # Rows

    def record(self, table: str, rows: Sequence[Row], now_s: float) -> None:
        """OSError if the disk does not take them, ValueError if they cannot be written down."""
        for date, chunk in _by_date(rows):
            for start in range(0, len(chunk), CHUNK_ROWS):
                self._journal(table, date, now_s).append(chunk[start : start + CHUNK_ROWS])

    def _journal(self, table: str, date: str, now_s: float) -> Journal:
        key = table, date
        if key not in self._open:
            self._number += 1
            name = FileName(date, self._incarnation, self._number, table, self._broker)
            self._open[key] = _Open(Journal(self._spool, name), now_s)
        return self._open[key].journal

    # Sealing

    def seal_due(self, now_s: float) -> None:
        for key, one in list(self._open.items()):
            age_max_s = min(self.limits.file_age_ns / SECOND, max(FIRST_AGE_S, one.since_s - self._since_s))
            if one.journal.bytes >= self.limits.file_bytes or now_s - one.since_s >= age_max_s:
                self._seal(key)

    def seal_all(self) -> None:
        for key in list(self._open):
            self._seal(key)

    def _seal(self, key: tuple[str, str]) -> None:
        one = self._open.pop(key)
        one.journal.close()
        self._sealed.append(one.journal.name)

    # Files

    @property
    def is_behind(self) -> bool:
        """Whether there are journals to be made into files."""
        return bool(self._sealed)

    def publish(self) -> None:
        """Make files of what is sealed, the oldest first; then delete files beyond the limit. OSError if the lake or
        the disk does not take one; what is left is to be tried again."""
        job = Job(
            self._lake,
            self._broker,
            str(self._spool),
            tuple(name.journal for name in self._sealed),
            self._incarnation,
            self._lake_bytes,
            sum(one.journal.bytes for one in self._open.values()),
            self.limits.disk_bytes,
        )
        self._lake_bytes = None  # unless there is an answer
        published = self._publish(job)
        self._lake_bytes = published.lake_bytes
        self._number = max(self._number, published.number)
        self._sealed = [name for name in self._sealed if name.journal not in published.done]
        self.files_made += published.files_made
        self.files_removed += published.files_removed
        self.bytes_removed += published.bytes_removed
        self.rows_lost.update(published.rows_lost)
        for warning in published.warnings:
            log.warning("%s", warning)
        if trouble := published.trouble or published.invalid:
            raise OSError(trouble)

    def trim_journals(self) -> None:
        """Delete the oldest journals that wait to be published, as far as they exceed the limit."""
        sizes = [_size(self._spool / name.journal) for name in self._sealed]
        spooled = sum(one.journal.bytes for one in self._open.values()) + sum(sizes)
        while spooled > self.limits.disk_bytes and self._sealed:
            (self._spool / self._sealed.pop(0).journal).unlink(missing_ok=True)
            spooled -= sizes[0]
            self._removed(sizes.pop(0))

    def _removed(self, size_bytes: int) -> None:
        self.files_removed += 1
        self.bytes_removed += size_bytes


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _by_date(rows: Sequence[Row]) -> list[tuple[str, Sequence[Row]]]:
    """The rows of each day; nearly always it is one."""
    days = {row.at_ns // DAY for row in rows}
    return [
        (
            datetime.fromtimestamp(day * (DAY // SECOND), UTC).date().isoformat(),
            rows if len(days) == 1 else [row for row in rows if row.at_ns // DAY == day],
        )
        for day in sorted(days)
    ]
