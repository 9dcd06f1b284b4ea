"""Files as they should not be: what is wrong with them is told, and the rest goes on."""

from typing import Any
from unittest.mock import ANY

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overlane.pipeline.ingest import AHEAD_NS, read_file
from overlane.telemetry.rows import DeliveryRow, LinkSample, TopicRate
from overlane.telemetry.schema import SCHEMAS, record_batch

NOW_NS = 1_700_000_000_000_000_000
PATH = "file:/lake/topic_rates/date=2026-01-02/seattle-1-1.parquet"


def rate(at_ns: int = NOW_NS, messages: int = 3, topic: str = "alarms") -> TopicRate:
    return TopicRate(at_ns, 1_000_000_000, topic, messages, 30, 0, 0, 3, 30)


def table(*rows: TopicRate) -> Any:
    return pa.Table.from_batches([record_batch("topic_rates", "seattle", 1, rows)])


def written(given: Any) -> Any:
    sink = pa.BufferOutputStream()
    pq.write_table(given, sink)
    return sink.getvalue()


def read(given: Any, kind: str = "topic_rates") -> list[dict[str, Any]]:
    content = given if isinstance(given, pa.Buffer) else written(given)
    rows: list[dict[str, Any]] = read_file(kind, PATH, content, NOW_NS).to_pylist()
    return rows


def faults(given: Any) -> list[str | None]:
    return [row["fault"] for row in read(given)]


def test_good_rows_land_with_the_file_and_the_row_they_are_from() -> None:
    rows = read(table(rate(), rate(messages=4, topic="news")))
    assert [(row["messages_in"], row["file"], row["row"], row["fault"]) for row in rows] == [
        (3, "date=2026-01-02/seattle-1-1.parquet", 0, None),
        (4, "date=2026-01-02/seattle-1-1.parquet", 1, None),
    ]


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_a_truncated_file_is_one_row_that_says_so(kept: int) -> None:
    whole = written(table(rate()))
    (row,) = read(whole.slice(0, kept % whole.size))
    assert row["fault"].startswith("unreadable: ")
    assert row["row"] is None


def test_a_column_that_must_be_there_is_missed() -> None:
    assert faults(table(rate()).drop_columns(["messages_in"])) == ["column messages_in is missing"]


def test_a_column_that_older_files_do_not_have_is_empty() -> None:
    link = LinkSample(NOW_NS, 1, "denver", "up", 5, 1, 0.0, 0, 0, 0, 1, 1)
    given = pa.Table.from_batches([record_batch("links", "seattle", 1, [link])]).drop_columns(["jitter_ns"])
    (row,) = read(given, "links")
    assert (row["fault"], row["jitter_ns"], row["latency_ns"]) == (None, None, 5)


def test_a_column_of_another_type_is_refused() -> None:
    given = table(rate())
    place = given.schema.get_field_index("bytes_in")
    assert faults(given.set_column(place, "bytes_in", pa.array(["30"]))) == ["column bytes_in is string, not int64"]


def test_a_narrower_type_of_the_same_kind_is_taken() -> None:
    given = table(rate())
    place = given.schema.get_field_index("bytes_in")
    assert faults(given.set_column(place, "bytes_in", pa.array([30], pa.int32()))) == [None]


def test_a_file_of_another_table_is_refused() -> None:
    assert faults(table(rate()).replace_schema_metadata({"overlane.telemetry.table": "links"})) == ["a file of links"]


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (rate(messages=-1), "negative messages_in"),
        (rate(at_ns=NOW_NS + AHEAD_NS + 1), "in the future"),
        (rate(at_ns=NOW_NS + AHEAD_NS), None),
        (rate(at_ns=-5), "negative at_ns"),
        (rate()._replace(interval_ns=0), "interval_ns is 0"),
    ],
)
def test_only_the_row_that_is_wrong_is_faulty(row: TopicRate, fault: str | None) -> None:
    others = rate(topic="before"), rate(topic="behind")
    assert faults(table(others[0], row, others[1])) == [None, fault, None]


def test_a_row_that_a_file_has_twice_counts_once() -> None:
    again = [rate(), rate(topic="news"), rate(at_ns=NOW_NS - 1), rate(messages=4), rate(topic="news")]
    assert faults(table(*again)) == [None, None, None, "repeated", "repeated"]


def test_deliveries_are_repeated_only_if_all_of_them_is_the_same() -> None:
    def delivery(path: tuple[str, ...], age_ns: int = 5) -> DeliveryRow:
        return DeliveryRow(NOW_NS, "alarms", "a", age_ns, 9, True, False, "single", 10, 2, path, 1)

    rows = [delivery(("a", "b")), delivery(("a", "c")), delivery(("a", "b"), 6), delivery(("a", "c"))]
    given = pa.Table.from_batches([record_batch("deliveries", "b", 1, rows)])
    assert [row["fault"] for row in read(given, "deliveries")] == [None, None, None, "repeated"]


@pytest.mark.parametrize(("version", "fault"), [("1", None), ("2", "schema version 2; expected 1"), ("x", ANY)])
def test_a_file_of_a_newer_schema_is_refused(version: str, fault: str | None) -> None:
    given = table(rate()).replace_schema_metadata({"overlane.telemetry.version": version})
    assert faults(given) == [fault]


def test_what_must_be_told_may_not_be_empty() -> None:
    given = table(rate(), rate(messages=4))
    place = given.schema.get_field_index("topic")
    assert faults(given.set_column(place, "topic", pa.array(["alarms", None]))) == [None, "no topic"]


def test_every_table_of_the_brokers_lands() -> None:
    for name, schema in SCHEMAS.items():
        assert read_file(name, PATH, written(schema.empty_table()), NOW_NS).num_rows == 0
