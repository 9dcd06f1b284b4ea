"""Many small files of an hour become one, with the same rows; earlier runs keep theirs."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from overlane.pipeline.compaction import compact
from overlane.pipeline.hour_files import HourFiles

NINE, TEN = 1_767_603_600, 1_767_607_200


def put(directory: Path, hour_s: int, run: int, values: list[int]) -> None:
    directory.mkdir(exist_ok=True)
    paths = [["a", "b"][: value % 3] or None for value in values]
    kind = pa.list_(pa.field("element" if run % 2 else "item", pa.string()))
    rows = pa.table({"value": values, "path": pa.array(paths, kind)}, metadata={"written by": str(run)})
    pq.write_table(rows, directory / f"{hour_s}-{run:04d}-0.parquet")


def values(files: HourFiles, hour_s: int) -> Counter[str]:
    return Counter(repr(row) for path in files.of_hours([hour_s]) for row in pq.read_table(path).to_pylist())


def names(files: HourFiles) -> list[str]:
    return [path.name for _, path in files]


def test_only_hours_with_many_files_are_merged_and_no_row_is_lost_or_repeated(tmp_path: Path) -> None:
    before, now = HourFiles(tmp_path / "before"), HourFiles(tmp_path / "now")
    for run in range(1, 5):
        put(before.directory, NINE, run, list(range(run * 10, run * 11)))
    put(before.directory, TEN, 1, [1, 2])
    put(before.directory, TEN, 2, [2, 3])
    now.share_from(before, lambda _: True)
    expected = {hour_s: values(now, hour_s) for hour_s in (NINE, TEN)}

    assert compact(now, 5, files_max=3) == 1
    assert names(now) == [f"{NINE}-0005-0.parquet", f"{TEN}-0001-0.parquet", f"{TEN}-0002-0.parquet"]
    assert {hour_s: values(now, hour_s) for hour_s in (NINE, TEN)} == expected
    assert len(names(before)) == 6, "files of earlier runs stay"
    assert values(before, NINE) == expected[NINE]
    assert sorted(path.name for path in now.directory.iterdir()) == names(now), "nothing else is left"

    assert compact(now, 6, files_max=3) == 0
    assert compact(HourFiles(tmp_path / "none"), 6) == 0


def test_a_merged_file_does_not_take_the_name_of_one_that_the_same_run_has_written(tmp_path: Path) -> None:
    files = HourFiles(tmp_path / "raw")
    for run in (1, 2, 3):
        put(files.directory, NINE, run, [run])
    assert compact(files, 3, files_max=2) == 1
    assert names(files) == [f"{NINE}-0003-1.parquet"]
    assert values(files, NINE) == Counter(
        repr({"value": run, "path": ["a", "b"][: run % 3] or None}) for run in (1, 2, 3)
    )
