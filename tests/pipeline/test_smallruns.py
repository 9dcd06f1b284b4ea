"""How much there is to read decides how Spark is set up."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from overlane.pipeline.lake_listing import list_lake
from overlane.pipeline.output_directory import OutputDirectory
from overlane.pipeline.small_runs import SMALL_BYTES, SMALL_ROWS, SMALL_TABLES_BYTES, is_small, is_small_run

DAY = "date=2026-01-05"
NINE = 1_767_603_600


def fill(file: Path, size_bytes: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as made:
        made.truncate(size_bytes)


def test_a_lake_is_small_by_all_its_files_together(tmp_path: Path) -> None:
    lake = tmp_path / "a lake"
    assert is_small(f"file://{lake}")
    fill(lake / "links" / "one.parquet", SMALL_BYTES // 2)
    fill(lake / "events" / "two.parquet", SMALL_BYTES // 2)
    assert is_small(f"file://{lake}")
    fill(lake / "events" / "three.parquet", 1)
    assert not is_small(f"file://{lake}")


def test_what_has_landed_before_counts_too(tmp_path: Path) -> None:
    fill(tmp_path / "out" / "latest" / "raw" / "links" / "part.parquet", SMALL_BYTES + 1)
    assert not is_small((tmp_path / "lake").as_uri(), tmp_path / "out")


def test_a_lake_elsewhere_is_taken_for_large() -> None:
    assert not is_small("s3://bucket/lake")


def test_what_repeats_itself_is_not_small_because_its_files_are(tmp_path: Path) -> None:
    rows = pa.table({"at_ns": pa.repeat(pa.scalar(1), SMALL_ROWS // 2 + 1)})
    (tmp_path / "links").mkdir()
    pq.write_table(rows, tmp_path / "links" / "a-1-1.parquet")
    (tmp_path / "links" / "a-1-2.parquet").write_bytes(b"cut short")
    assert is_small(str(tmp_path))
    pq.write_table(rows, tmp_path / "links" / "a-1-3.parquet")
    assert not is_small(str(tmp_path))
    assert sum(file.stat().st_size for file in (tmp_path / "links").iterdir()) < SMALL_BYTES


def of_second(second: int, path: Path, rows: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"at_ns": pa.repeat(pa.scalar(second * 10**9), rows)}), path)


def test_a_run_that_adds_little_to_a_large_one_is_small(tmp_path: Path) -> None:
    lake, output = tmp_path / "lake", OutputDirectory(tmp_path / "out")
    run = output.begin()
    of_second(NINE, lake / "links" / DAY / "a-1-1.parquet")
    fill(lake / "links" / DAY / "a-1-1.parquet", SMALL_BYTES + 1)
    records = pa.table({"table": ["links"], "file": [f"{DAY}/a-1-1.parquet"]})
    (run.tables / "lake_files").mkdir()
    pq.write_table(records, run.tables / "lake_files" / "0-0001-0.parquet")
    fill(run.raw / "links" / f"{NINE}-0001-0.parquet", SMALL_BYTES + 1)
    output.complete(run)

    def is_small_now() -> bool:
        return is_small_run(f"file://{lake}", output, list_lake(str(lake)))

    assert is_small_now(), "nothing is new"
    of_second(NINE + 3_600, lake / "links" / DAY / "a-1-2.parquet")
    assert is_small_now(), "an hour that has no rows yet"
    of_second(NINE + 3_599, lake / "links" / DAY / "a-1-3.parquet")
    assert not is_small_now(), "a late row, in an hour with many"
    (lake / "links" / DAY / "a-1-3.parquet").unlink()
    of_second(NINE + 7_200, lake / "links" / DAY / "a-1-4.parquet", SMALL_ROWS + 1)
    assert not is_small_now(), "many rows"
    (lake / "links" / DAY / "a-1-4.parquet").unlink()
    fill(run.tables / "latency_bins" / f"{NINE}-0001-0.parquet", SMALL_TABLES_BYTES)
    assert not is_small_now(), "large tables, which others are computed from"
