"""How much there is to read decides how Spark is set up."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from overlane.pipeline.small_runs import SMALL_BYTES, SMALL_ROWS, is_small


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
