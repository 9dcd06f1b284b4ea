"""Ingested rows of old hours are deleted when, and only when, everything that is computed from them is kept."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overlane.pipeline.hour_files import HourFiles
from overlane.pipeline.ingest import TOO_LATE, read_file
from overlane.pipeline.lake_listing import list_lake
from overlane.pipeline.output_directory import OutputDirectory
from overlane.pipeline.raw_retention import DAY_S, drop_rows, first_day, prune_records, sealed_before
from overlane.telemetry.rows import TopicRate
from overlane.telemetry.schema import SCHEMAS, record_batch

HOUR_S = 3_600
SECOND_NS = 10**9
NINE = 1_767_603_600
"""On the fifth of January 2026."""


@pytest.mark.parametrize(
    ("newest_hour_s", "keep_s", "earlier_s", "expected"),
    [
        (NINE, HOUR_S, 0, NINE),
        (NINE, 3 * HOUR_S, 0, NINE - 2 * HOUR_S),
        (NINE, 1.5 * HOUR_S, 0, NINE - HOUR_S),
        (NINE, None, 0, 0),
        (NINE, None, NINE - HOUR_S, NINE - HOUR_S),
        (NINE, 10 * HOUR_S, NINE - HOUR_S, NINE - HOUR_S),
        (0, HOUR_S, NINE, NINE),
        (HOUR_S, DAY_S, 0, 0),
    ],
)
def test_an_hour_is_sealed_that_ends_so_long_before_the_newest_and_stays_sealed(
    newest_hour_s: int, keep_s: float | None, earlier_s: int, expected: int
) -> None:
    assert sealed_before(newest_hour_s, keep_s, earlier_s) == expected


def files_of(directory: Path, *hours: int) -> HourFiles:
    directory.mkdir(parents=True)
    for hour_s in hours:
        (directory / f"{hour_s}-0001-0.parquet").write_bytes(b"rows")
    return HourFiles(directory)


def test_rows_of_the_hour_before_and_rows_without_an_hour_stay(tmp_path: Path) -> None:
    files = files_of(tmp_path / "links", 0, *(NINE + n * HOUR_S for n in range(-3, 2)))
    assert drop_rows([files], NINE) == 2
    assert files.hours() == {0, NINE - HOUR_S, NINE, NINE + HOUR_S}
    assert drop_rows([files], 0) == 0


def test_rows_that_come_for_a_sealed_hour_are_rejected_and_say_why() -> None:
    rates = [
        TopicRate((at_s + 1) * SECOND_NS, SECOND_NS, "alarms", 3, 30, 0, 0, 3, 30)
        for at_s in (NINE - 1, NINE, NINE + HOUR_S)
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([record_batch("topic_rates", "seattle", 7, rates)]), sink)

    def read(sealed_before_s: int) -> list[tuple[int, str | None]]:
        rows = read_file("topic_rates", "x/date=2026-01-05/a-1-1.parquet", sink.getvalue(), 2**62, sealed_before_s)
        return [(row["hour_s"], row["fault"]) for row in rows.to_pylist()]

    assert read(0) == [(NINE - HOUR_S, None), (NINE, None), (NINE + HOUR_S, None)]
    assert read(NINE) == [(0, TOO_LATE), (NINE, None), (NINE + HOUR_S, None)]
    assert read(NINE + DAY_S) == [(0, TOO_LATE)] * 3


def test_days_that_are_sealed_for_a_day_are_not_listed_and_their_files_forgotten(tmp_path: Path) -> None:
    assert first_day(0) == ""
    assert first_day(NINE) == "date=2026-01-04"
    days = [f"date=2026-01-0{number}" for number in range(1, 6)]
    for day in days:
        (tmp_path / "lake/links" / day).mkdir(parents=True)
        pq.write_table(SCHEMAS["links"].empty_table(), tmp_path / "lake/links" / day / "a-1-1.parquet")
    listed = list_lake(str(tmp_path / "lake"), first_day(NINE))
    assert [file.name.partition("/")[0] for file in listed] == days[3:]
    assert list_lake(str(tmp_path / "lake"), "date=2027-01-01") == []

    records = HourFiles(tmp_path / "lake_files")
    records.directory.mkdir()
    for number, some in enumerate((days[:4], days[4:])):
        told = pa.table({"table": ["links"] * len(some), "file": [f"{day}/a-1-1.parquet" for day in some]})
        pq.write_table(told, records.free(0, number))
    assert prune_records(records, 2, first_day(NINE))
    kept = pq.read_table(records.directory)
    assert kept.column("file").to_pylist() == [f"{day}/a-1-1.parquet" for day in days[3:]]
    assert not prune_records(records, 3, first_day(NINE)), "a second time there is nothing to forget"


NEXT_RUN = """
import os, signal, sys
from overlane.pipeline.hour_files import HourFiles
from overlane.pipeline.output_directory import OutputDirectory
from overlane.pipeline.raw_retention import drop_rows, prune_records

out, sealed_before_s, dies_at = OutputDirectory(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
seen = 0

def watch(event, given):
    global seen
    if event in ("os.remove", "os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir"):
        seen += 1
        if seen == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

with out.locked():
    before, this = out.latest(), None
    sys.addaudithook(watch)
    this = out.begin()
    files = HourFiles(this.raw / "links"), HourFiles(this.tables / "link_minutes")
    files[0].share_from(HourFiles(before.raw / "links"), lambda _: True)
    files[1].share_from(HourFiles(before.tables / "link_minutes"), lambda _: True)
    records = HourFiles(this.tables / "lake_files")
    records.share_from(HourFiles(before.tables / "lake_files"), lambda _: True)
    drop_rows(files[:1], sealed_before_s)
    prune_records(records, this.number, "date=2026-01-04")
    this.summary_file.write_text(str(sealed_before_s))
    out.complete(this)
print(seen)
"""
HOURS = [NINE + n * HOUR_S for n in range(4)]


def new_out(path: Path) -> OutputDirectory:
    out = OutputDirectory(path)
    run = out.begin()
    files_of(run.raw / "links", *HOURS)
    files_of(run.tables / "link_minutes", *HOURS)
    (run.tables / "lake_files").mkdir()
    told = pa.table(
        {"table": ["links"] * 2, "file": ["date=2026-01-02/a-1-1.parquet", "date=2026-01-05/a-1-2.parquet"]}
    )
    pq.write_table(told, run.tables / "lake_files" / "0-0001-0.parquet")
    run.summary_file.write_text("0")
    out.complete(run)
    return out


def what_is_read(out: OutputDirectory) -> tuple[int, set[int], set[int], int]:
    latest: Any = out.latest()
    sealed_before_s = int(latest.summary_file.read_text())
    rows, tables = HourFiles(latest.raw / "links").hours(), HourFiles(latest.tables / "link_minutes").hours()
    return sealed_before_s, rows, tables, pq.read_table(latest.tables / "lake_files").num_rows


def next_run(out: OutputDirectory, sealed_before_s: int, dies_at: int) -> subprocess.CompletedProcess[str]:
    words = [str(out.path), str(sealed_before_s), str(dies_at)]
    return subprocess.run([sys.executable, "-c", NEXT_RUN, *words], capture_output=True, text=True, check=False)


def test_a_run_that_is_killed_at_any_moment_deletes_nothing_that_is_not_sealed(tmp_path: Path) -> None:
    sealed_before_s = HOURS[3]
    before = (0, set(HOURS), set(HOURS), 2)
    after = (sealed_before_s, set(HOURS[2:]), set(HOURS), 1)
    done = next_run(new_out(tmp_path / "whole"), sealed_before_s, 0)
    assert done.returncode == 0, done.stderr
    assert what_is_read(OutputDirectory(tmp_path / "whole")) == after
    operations = int(done.stdout)
    seen = set()
    for dies_at in sorted({1, operations, *range(operations // 5, operations, operations // 5)}):
        out = new_out(tmp_path / str(dies_at))
        assert next_run(out, sealed_before_s, dies_at).returncode == -signal.SIGKILL
        found = what_is_read(out)
        assert found in (before, after), dies_at
        seen.add(found[0])
        assert next_run(out, sealed_before_s, 0).returncode == 0, "the next run does what this one should have done"
        assert what_is_read(out) == after, dies_at
    assert 0 in seen
