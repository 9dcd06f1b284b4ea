"""How much there is to read decides how Spark is set up."""

from pathlib import Path

from overlane.pipeline.brevity import SMALL_BYTES, is_small


def fill(file: Path, size_bytes: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as made:
        made.truncate(size_bytes)


def test_a_lake_is_small_by_all_its_files_together(tmp_path: Path) -> None:
    lake = tmp_path / "a lake"
    assert is_small(lake.as_uri())
    fill(lake / "links" / "one.parquet", SMALL_BYTES // 2)
    fill(lake / "events" / "two.parquet", SMALL_BYTES // 2)
    assert is_small(lake.as_uri())
    fill(lake / "events" / "three.parquet", 1)
    assert not is_small(lake.as_uri())


def test_what_has_landed_before_counts_too(tmp_path: Path) -> None:
    fill(tmp_path / "out" / "raw" / "links" / "part.parquet", SMALL_BYTES + 1)
    assert not is_small((tmp_path / "lake").as_uri(), tmp_path / "out")


def test_a_lake_elsewhere_is_taken_for_large() -> None:
    assert not is_small("s3://bucket/lake")
