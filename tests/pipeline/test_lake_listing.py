"""What a lake contains, told without Spark."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from overlane.errors import Unavailable
from overlane.pipeline.lake_listing import LakeFile, list_lake


def put(lake: Path, *names: str) -> None:
    for name in names:
        path = lake / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"1234")


def test_the_files_of_tables_are_listed_and_nothing_else(tmp_path: Path) -> None:
    lake = tmp_path / "a lake"
    put(lake, "links/date=2026-01-02/a-1-1.parquet", "events/date=2026-01-03/b-1-1.parquet", "truth.json")
    put(lake, "links/date=2026-01-02/.a-1-2.parquet", "links/.open/a.journal", "others/date=2026-01-02/a-1-1.parquet")
    (lake / "links/date=2026-01-02/a-1-3.parquet").touch()
    found = list_lake(str(lake))
    assert all(time.time() - 600 < file.modified_s <= time.time() for file in found)
    assert [replace(file, modified_s=0.0) for file in found] == [
        LakeFile("events", "date=2026-01-03/b-1-1.parquet", 4),
        LakeFile("links", "date=2026-01-02/a-1-1.parquet", 4),
        LakeFile("links", "date=2026-01-02/a-1-3.parquet", 0),
    ]
    assert list_lake(f"file://{lake}") == found


def test_a_lake_that_is_not_there_or_empty_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no such directory"):
        list_lake(str(tmp_path / "nowhere"))
    with pytest.raises(Unavailable, match="no telemetry; expected files such as links/"):
        list_lake(str(tmp_path))
    with pytest.raises(Unavailable, match="nosuch"):
        list_lake("nosuch://bucket/lake")
