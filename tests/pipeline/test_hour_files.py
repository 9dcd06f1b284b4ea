"""Tables in files of hours: what a run takes over, and what it writes anew."""

from pathlib import Path

from overlane.pipeline.hour_files import HourFiles


def put(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_hours_are_taken_over_or_replaced(tmp_path: Path) -> None:
    first = HourFiles(tmp_path / "first")
    for hour in ("3600", "7200", "0"):
        put(tmp_path / "staging" / f"_hour={hour}" / "part-1.parquet", f"old {hour}")
    put(tmp_path / "staging" / "_hour=3600" / "part-2.parquet", "old 3600 too")
    put(tmp_path / "staging" / "_SUCCESS", "")
    assert first.move_from(tmp_path / "staging", 1) == {0, 3600, 7200}
    assert sorted(path.name for _, path in first) == [
        "0-0001-0.parquet",
        "3600-0001-0.parquet",
        "3600-0001-1.parquet",
        "7200-0001-0.parquet",
    ]
    assert not (tmp_path / "staging").exists()

    put(tmp_path / "first" / "0-0001-empty.parquet", "only columns")
    second = HourFiles(tmp_path / "second")
    second.share_from(first, lambda hour_s: hour_s != 3600)
    put(tmp_path / "staging" / "_hour=3600" / "part-1.parquet", "new 3600")
    second.move_from(tmp_path / "staging", 2)
    assert {path.name: path.read_text() for _, path in second} == {
        "0-0001-0.parquet": "old 0",
        "3600-0002-0.parquet": "new 3600",
        "7200-0001-0.parquet": "old 7200",
    }
    assert second.of_hours([3600, 10_800]) == [tmp_path / "second" / "3600-0002-0.parquet"]
    kept = tmp_path / "second" / "7200-0001-0.parquet"
    assert kept.samefile(tmp_path / "first" / "7200-0001-0.parquet"), "no copy"


def test_a_table_that_is_not_divided_is_of_hour_0(tmp_path: Path) -> None:
    put(tmp_path / "staging" / "part-1.parquet", "all")
    files = HourFiles(tmp_path / "table")
    assert files.move_from(tmp_path / "staging", 7) == {0}
    assert files.hours() == {0}
    assert HourFiles(tmp_path / "none").hours() == set()
