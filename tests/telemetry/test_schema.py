"""The tables of the lake: one declaration for rows, files and documentation."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from overlane.telemetry.rows import TABLES, DeliveryRow, Event, QueueDepth, Row
from overlane.telemetry.schema import SCHEMAS, TABLE_KEY, VERSION, VERSION_KEY, record_batch

DOCS = Path(__file__).parent.parent.parent / "docs" / "telemetry.md"

AT_NS = 1_700_000_000_123_456_789


def test_every_table_begins_with_when_and_who() -> None:
    for table, schema in SCHEMAS.items():
        assert schema.names[:3] == ["at_ns", "broker", "incarnation"], table
        assert [schema.field(name).nullable for name in schema.names[:3]] == [False, False, False]


def test_every_table_says_its_name_and_version() -> None:
    for table, schema in SCHEMAS.items():
        assert schema.metadata == {TABLE_KEY: table.encode(), VERSION_KEY: b"%d" % VERSION}


def test_only_types_are_used_that_parquet_and_spark_have_alike() -> None:
    plain = {pa.int64(), pa.float64(), pa.bool_(), pa.string()}

    def leaf(kind: pa.DataType) -> pa.DataType:
        return leaf(kind.value_type) if pa.types.is_list(kind) else kind

    for schema in SCHEMAS.values():
        assert {leaf(field.type) for field in schema} <= plain


def test_rows_become_columns_with_the_writer_added() -> None:
    row = DeliveryRow(
        AT_NS, "t", "seattle", 5, None, None, True, "adaptive", 64, 2, ("seattle", "denver", "orlando"), 7
    )
    batch = record_batch("deliveries", "orlando", 3, [row])
    assert batch.schema == SCHEMAS["deliveries"]
    assert batch.to_pylist() == [{**row._asdict(), "broker": "orlando", "incarnation": 3, "path": list(row.path or ())}]


def test_paths_and_links_keep_their_shape() -> None:
    row = Event(AT_NS, "route", paths=(("a", "b"), ("a", "c", "d")), links=(("a", "b"),))
    (read,) = record_batch("events", "a", 1, [row]).to_pylist()
    assert (read["paths"], read["links"]) == ([["a", "b"], ["a", "c", "d"]], [["a", "b"]])


@pytest.mark.parametrize("bad", ["text", 1 << 63, b"bytes"])
def test_a_row_that_is_not_what_the_schema_says_is_refused(bad: object) -> None:
    row = QueueDepth(AT_NS, "retained", None, None, bad, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rows of queues"):
        record_batch("queues", "a", 1, [row])


def test_the_documentation_names_every_column_of_every_table() -> None:
    text = DOCS.read_text()
    for row, table in TABLES.items():
        described = text.split(f"\n### {table}\n")[1].split("\n| column | meaning |\n")[1].split("\n\n")[0]
        told = re.findall(r"^\| `([a-z_`, ]+)` \|", described, re.MULTILINE)
        assert ", ".join(told).replace("`", "").split(", ") == columns(row), table


def columns(row: type[Row]) -> list[str]:
    return [name for name in row._fields if name != "at_ns"]
