"""Rows of the lake as files of hours: each row in its hour, one file per hour and task."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overlane.pipeline.ingest import read_file, rejected_file
from overlane.pipeline.raw_writer import FILE_RECORD, HourWriter, _task, file_record
from overlane.pipeline.schemas import INGESTED, TABLES
from overlane.telemetry.rows import TopicRate
from overlane.telemetry.schema import SCHEMAS, record_batch

SECOND_NS = 10**9
NINE = 1_767_603_600
TEN = NINE + 3_600
NOW_NS = (TEN + 7_200) * SECOND_NS
NAME = "date=2026-01-05/seattle-1-1.parquet"


def content(*rows: TopicRate) -> bytes:
    sink = pa.BufferOutputStream()
    batches = [record_batch("topic_rates", "seattle", 7, rows)] if rows else []
    pq.write_table(pa.Table.from_batches(batches, SCHEMAS["topic_rates"]), sink)
    return bytes(sink.getvalue())


def rate(at_s: int, messages: int = 3) -> TopicRate:
    return TopicRate((at_s + 1) * SECOND_NS, SECOND_NS, "alarms", messages, 30, 0, 0, 3, 30)


def files(*contents: bytes) -> Any:
    """As Spark gives them to a task."""
    paths = [
        f"file:/lake/topic_rates/date=2026-01-05/seattle-1-{number + 1}.parquet" for number in range(len(contents))
    ]
    rows = {"path": paths, "length": [len(one) for one in contents], "content": list(contents)}
    return pa.RecordBatch.from_pydict(rows)


def test_a_task_writes_each_row_to_its_hour_and_tells_what_it_has_read_and_written(tmp_path: Path) -> None:
    both, one = content(rate(NINE), rate(TEN), rate(TEN + 1)), content(rate(NINE + 1, -1), rate(NINE + 2))
    empty, cut = content(), both[:-9]
    batches = [files(both, one), files(empty), files(cut)]
    (told,) = _task("topic_rates", NOW_NS, f"file://{tmp_path}")(iter(batches))
    records = [row for row in told.to_pylist() if row["part"] is None]
    assert [(row["broker"], row["incarnation"], row["rows"], row["faults"]) for row in records] == [
        ("seattle", 7, 3, 0),
        ("seattle", 7, 2, 1),
        (None, None, 0, 0),
        (None, None, 0, 1),
    ]
    spans = [(row["first_ns"], row["last_ns"]) for row in records]
    assert spans[0] == ((NINE + 1) * SECOND_NS, (TEN + 2) * SECOND_NS)
    assert spans[1] == ((NINE + 3) * SECOND_NS, (NINE + 3) * SECOND_NS), "of rows without a fault"
    parts = [row["part"] for row in told.to_pylist() if row["part"] is not None]
    assert {part.split("/")[0] for part in parts} == {"_hour=0", f"_hour={NINE}", f"_hour={TEN}"}
    assert sorted(parts) == sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet"))
    assert len(parts) == 3, "one file per hour"
    written = {part.split("=")[1].split("/")[0]: pq.read_table(tmp_path / part) for part in parts}
    found = {hour: [row["at_ns"] for row in rows.to_pylist()] for hour, rows in written.items()}
    assert found[str(NINE)] == [(NINE + 1) * SECOND_NS, (NINE + 3) * SECOND_NS]
    assert found[str(TEN)] == [(TEN + 1) * SECOND_NS, (TEN + 2) * SECOND_NS]
    assert [row["fault"].split(":")[0] for row in written["0"].to_pylist()] == ["negative messages_in", "unreadable"]
    assert written[str(NINE)].schema.names == INGESTED["topic_rates"].fieldNames()


@pytest.mark.parametrize(("rows_held", "open_max"), [(1, 200), (3, 1), (1, 1), (100, 2)])
def test_no_row_is_lost_or_repeated_however_few_are_held_and_files_are_open(
    tmp_path: Path, rows_held: int, open_max: int
) -> None:
    hours = HourWriter(str(tmp_path), rows_held, open_max)
    given = []
    for number in range(4):
        rows = [rate(NINE + 3_600 * ((number + place) % 3) + place, 10 * number + place) for place in range(5)]
        given += [row.messages_in for row in rows]
        hours.add(read_file("topic_rates", f"lake/{NAME}", pa.py_buffer(content(*rows)), NOW_NS * 2))
    parts = hours.close()
    tables = [pq.read_table(tmp_path / part) for part in parts]
    assert sorted(value for rows in tables for value in rows.column("messages_in").to_pylist()) == sorted(given)
    for part, rows in zip(parts, tables, strict=True):
        assert {f"_hour={hour_s}" for hour_s in rows.column("hour_s").to_pylist()} == {part.split("/")[0]}
    assert len(parts) == 3 or open_max < 3


def test_the_record_of_a_file_has_the_columns_of_lake_files() -> None:
    assert FILE_RECORD.names == TABLES["lake_files"].fieldNames()
    rejected = file_record("topic_rates", NAME, rejected_file("topic_rates", NAME, "unreadable: the file is empty"))
    assert rejected == {
        "table": "topic_rates",
        "file": NAME,
        "broker": None,
        "incarnation": None,
        "rows": 0,
        "faults": 1,
        "first_ns": None,
        "last_ns": None,
    }
