"""Old ingested rows are deleted by a run, and every table stays; the same lake, read by the runs of the story."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipelinestory import FROM_S, HOURS, rows, the_story

from overlane.pipeline.flows import FLOWS
from overlane.pipeline.hour_files import HourFiles
from overlane.pipeline.ingest import TOO_LATE
from overlane.pipeline.output_directory import OutputDirectory, Run
from overlane.pipeline.raw_retention import DROPPED
from overlane.pipeline.runner import run
from overlane.pipeline.settings import PipelineSettings
from overlane.pipeline.units import HOUR_S
from sparks import GROUP, the_spark

pytestmark = [GROUP, pytest.mark.slow]

LAST = FROM_S + (HOURS - 1) * HOUR_S


def hours_of(of: Run, table: str) -> set[int]:
    return {hour_s for hour_s in HourFiles(of.raw / table).hours() if hour_s}


def test_rows_of_old_hours_go_and_all_tables_stay_and_late_rows_change_none_of_them(tmp_path: Path) -> None:
    story = the_story()
    lake, out = tmp_path / "lake", tmp_path / "out"
    shutil.copytree(story.lake, lake)
    shutil.copytree(story.out, out, symlinks=True)
    settings = PipelineSettings(str(story.lake), keep_raw_s=HOUR_S)
    latest = OutputDirectory(out).latest()
    assert latest is not None
    every_hour = {FROM_S + hour * HOUR_S for hour in range(HOURS)}
    assert hours_of(latest, "links") == every_hour

    done, summary = run(the_spark(), settings, out)
    assert summary.sealed_before_s == LAST
    for table in DROPPED:
        assert hours_of(done, table) == {LAST - HOUR_S, LAST}, table
    for flow in FLOWS:
        assert rows(done, flow.name) == rows(latest, flow.name), flow.name

    first = next((lake / "topic_rates").glob("*/broker-02-1-1.parquet"))
    late = pq.read_table(first).slice(0, 5)
    moved = pa.array([at_ns + 1 for at_ns in late.column("at_ns").to_pylist()])
    pq.write_table(late.set_column(0, late.schema.field(0), moved), first.with_name("broker-02-1-80.parquet"))
    after, summary = run(the_spark(), replace(settings, lake=str(lake), keep_raw_s=None), out)
    assert summary.sealed_before_s == LAST, "what is deleted does not come back"
    refused = [row for row in rows(after, "quarantine") if row["reason"] == TOO_LATE]
    assert [row["file"].rpartition("/")[2] for row in refused] == ["broker-02-1-80.parquet"] * 5
    for flow in FLOWS:
        if flow.name not in ("quarantine", "lake_files"):
            assert rows(after, flow.name) == rows(latest, flow.name), flow.name
