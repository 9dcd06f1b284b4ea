"""Every column of every table is explained, in the files and in the page."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overlane.pipeline.compaction import compact
from overlane.pipeline.flows import FLOWS, RAW
from overlane.pipeline.hour_files import HourFiles
from overlane.pipeline.parquet_comments import COMMENT, SPARK_KEY, commented_arrow, schema_of
from overlane.pipeline.raw_writer import FILE_RECORD
from overlane.pipeline.schemas import INGESTED, TABLES
from overlane.pipeline.table_comments import COLUMNS, OWN, ROWS, comment_of

PROJECT = Path(__file__).parents[2]
EVERY = {**TABLES, **{RAW[table]: schema for table, schema in INGESTED.items()}}


@pytest.mark.parametrize("table", EVERY)
def test_every_column_of_a_table_is_explained(table: str) -> None:
    assert ROWS[table]
    schema = schema_of(table)
    assert schema.simpleString() == EVERY[table].simpleString()
    for field in schema.fields:
        assert field.metadata["comment"] == comment_of(table, field.name)
        assert field.metadata["comment"].endswith(".")


def test_nothing_is_explained_that_is_not_there() -> None:
    assert set(ROWS) == set(EVERY) == {flow.name for flow in FLOWS} | set(RAW.values())
    assert [(table, name) for table, own in OWN.items() for name in own if name not in EVERY[table].names] == []
    common = {name for table, schema in EVERY.items() for name in schema.names if name not in OWN.get(table, {})}
    assert sorted(set(COLUMNS) - common) == []


def test_files_that_arrow_writes_have_the_comments_for_both_kinds_of_readers_and_keep_them(tmp_path: Path) -> None:
    files = HourFiles(tmp_path)
    for number in range(3):
        rows = pa.Table.from_pylist(
            [{"table": "links", "file": str(number)}], commented_arrow(FILE_RECORD, "lake_files")
        )
        pq.write_table(rows, files.free(0, number))
    assert compact(files, 4, files_max=2) == 1
    schema = pq.read_schema(next(iter(files))[1])
    assert schema.field("file").metadata[COMMENT.encode()].decode() == comment_of("lake_files", "file")
    for_spark = json.loads(schema.metadata[SPARK_KEY.encode()])
    assert {field["name"]: field["metadata"]["comment"] for field in for_spark["fields"]} == {
        name: comment_of("lake_files", name) for name in FILE_RECORD.names
    }


def test_the_page_of_all_tables_is_as_the_code_has_it() -> None:
    script = PROJECT / "scripts" / "write_tables.py"
    run = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
