"""Which hours a run computes, and what it takes over from the run before."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overlane.pipeline.flows import FLOWS, RAW, Flow
from overlane.pipeline.output_directory import OutputDirectory, Run
from overlane.pipeline.run_state import RAW_FORMAT, TABLES_FORMAT, RunState, settings_key
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.settings import PipelineSettings

NINE = 1_767_603_600
HOUR_S = 3_600
SETTINGS = PipelineSettings("file:///lake")
OF = {flow.name: flow for flow in FLOWS}
NO_SPARK: Any = None
TEN, ELEVEN = NINE + HOUR_S, NINE + 2 * HOUR_S


def put(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def peaks(*hours: int) -> list[dict[str, Any]]:
    return [{"start_s": hour_s, "end_s": hour_s + 900} for hour_s in hours]


@pytest.fixture
def out(tmp_path: Path) -> OutputDirectory:
    """With a run that has three hours of everything."""
    output = OutputDirectory(tmp_path)
    run = output.begin()
    for hour_s in (NINE, TEN, ELEVEN):
        for name in ("links", "topic_rates"):
            put(run.raw / name / f"{hour_s}-0001-0.parquet", [{"x": 1}])
        for name in ("alive", "load_series"):
            put(run.tables / name / f"{hour_s}-0001-0.parquet", [{"x": 1}])
        put(run.tables / "clock_offsets" / f"{hour_s}-0001-0.parquet", [{"hour_s": hour_s, "offset_s": 0}])
    put(run.tables / "peaks" / "0-0001-0.parquet", peaks(NINE))
    put(run.tables / "lake_files" / "0-0001-0.parquet", [{"table": "links", "file": "date=x/a-1-1.parquet"}])
    put(run.tables / "channels" / "0-0001-0.parquet", [{"x": 1}])
    told = {"raw_format": RAW_FORMAT, "tables_format": TABLES_FORMAT, "settings": settings_key(SETTINGS)}
    run.summary_file.write_bytes(msgspec.json.encode(told))
    output.complete(run)
    return output


def next_state(out: OutputDirectory, settings: PipelineSettings = SETTINGS) -> RunState:
    state = RunState(NO_SPARK, settings, out.begin(), out.latest())
    state.take_over_raw()
    return state


def names(run: Run, table: str) -> list[str]:
    return sorted(path.name for path in (run.tables / table).iterdir())


def test_hours_with_new_rows_are_computed_and_all_others_taken_over(out: OutputDirectory) -> None:
    state = next_state(out)
    assert state.ingested() == {("links", "date=x/a-1-1.parquet")}
    assert state.files(RAW["links"]).hours() == {NINE, TEN, ELEVEN}
    state.add_rows("links", {TEN}, [])
    assert state.hours_of(OF["alive"]) == {TEN}
    assert not state.take_over(OF["alive"], {TEN})
    assert names(state.this, "alive") == [f"{NINE}-0001-0.parquet", f"{ELEVEN}-0001-0.parquet"]


def test_without_new_rows_everything_is_taken_over_unless_settings_differ(out: OutputDirectory) -> None:
    state = next_state(out)
    assert state.take_over(OF["alive"], state.hours_of(OF["alive"]))
    assert state.take_over(OF["channels"], None)
    assert names(state.this, "channels") == ["0-0001-0.parquet"]
    other = next_state(out, PipelineSettings("file:///lake", channels=3))
    assert other.take_over(OF["alive"], set()), "hours do not depend on settings"
    assert not other.take_over(OF["channels"], None)


def test_a_table_whose_input_has_changed_is_not_taken_over(out: OutputDirectory) -> None:
    state = next_state(out)
    state.changed.add("channel_plan")
    assert not state.take_over(OF["channels"], None)


@pytest.mark.parametrize(("field", "keeps_raw"), [("tables_format", True), ("raw_format", False)])
def test_tables_of_another_format_are_computed_from_all_rows(out: OutputDirectory, field: str, keeps_raw: bool) -> None:
    latest = out.latest()
    assert latest is not None
    told = msgspec.json.decode(latest.summary_file.read_bytes())
    latest.summary_file.write_bytes(msgspec.json.encode(told | {field: "older"}))
    state = next_state(out)
    assert state.touched_hours == ({NINE, TEN, ELEVEN} if keeps_raw else set())
    assert bool(state.ingested()) == keeps_raw
    assert not state.take_over(OF["alive"], state.touched_hours)
    assert names(state.this, "alive") == []
    assert len(state.new_files(RAW["links"])) == (3 if keeps_raw else 0), "files are recorded anew"


def test_neighbours_are_computed_where_a_clock_is_or_was_taken_to_be_wrong(out: OutputDirectory) -> None:
    state = next_state(out)
    state.add_rows("links", {ELEVEN}, [])
    put(state.this.tables / "clock_offsets" / "1.parquet", [{"hour_s": TEN, "offset_s": 3}])
    state.widen_by_clocks()
    assert state.touched_hours == {ELEVEN}, "the wrong clock is in another hour"
    put(state.this.tables / "clock_offsets" / "2.parquet", [{"hour_s": ELEVEN, "offset_s": 3}])
    state.widen_by_clocks()
    assert state.touched_hours == {TEN, ELEVEN, ELEVEN + HOUR_S}
    assert state.hours_read(RAW["links"], {TEN}) == {NINE, TEN, ELEVEN}
    assert state.hours_read("alive", {TEN}) == {TEN}


def test_series_are_computed_where_peaks_have_moved(out: OutputDirectory) -> None:
    state = next_state(out)
    state.add_rows("topic_rates", {ELEVEN}, [])
    put(state.this.tables / "peaks" / "0-0002-0.parquet", peaks(TEN))
    assert state.hours_of(OF["load_series"]) == {NINE, TEN, ELEVEN}
    put(state.this.tables / "peaks" / "0-0002-0.parquet", peaks(NINE, ELEVEN))
    assert state.hours_of(OF["load_series"]) == {ELEVEN}


def test_flows_come_after_what_they_read_and_make_every_table_once() -> None:
    known = set(RAW.values())
    for flow in FLOWS:
        assert set(flow.reads) <= known, flow.name
        known.add(flow.name)
    assert sorted(flow.name for flow in FLOWS) == sorted(TABLES)


def test_a_flow_that_reads_what_it_does_not_declare_fails(out: OutputDirectory) -> None:
    flow = Flow("wrong", ("alive",), lambda of, _: of.table("peaks"))
    with pytest.raises(LookupError, match="wrong reads peaks"):
        flow.make(next_state(out).source(flow, None), SETTINGS)


def sealed(out: OutputDirectory, **other: object) -> None:
    """As a run leaves it that has deleted the ingested rows of nine and ten o'clock."""
    latest = out.latest()
    assert latest is not None
    for hour_s in (NINE, TEN):
        (latest.raw / "links" / f"{hour_s}-0001-0.parquet").unlink()
    told = msgspec.json.decode(latest.summary_file.read_bytes())
    latest.summary_file.write_bytes(msgspec.json.encode(told | {"sealed_before_s": ELEVEN} | other))


def test_a_sealed_hour_is_not_computed_again_for_late_rows_or_peaks_that_have_moved(out: OutputDirectory) -> None:
    sealed(out)
    state = next_state(out)
    state.add_rows("events", {TEN, ELEVEN}, [])
    put(state.this.tables / "peaks" / "0-0002-0.parquet", peaks(TEN, ELEVEN))
    for name in ("alive", "load_series"):
        assert state.hours_of(OF[name]) == {ELEVEN}, name
    assert not state.take_over(OF["alive"], {ELEVEN})
    assert names(state.this, "alive") == [f"{NINE}-0001-0.parquet", f"{TEN}-0001-0.parquet"]


@pytest.mark.parametrize(("field", "records"), [("tables_format", 1), ("raw_format", 0)])
def test_sealed_hours_keep_their_tables_when_the_format_changes(out: OutputDirectory, field: str, records: int) -> None:
    sealed(out, **{field: "older"})
    state = next_state(out)
    assert not state.take_over(OF["alive"], state.hours_of(OF["alive"]))
    assert names(state.this, "alive") == [f"{NINE}-0001-0.parquet", f"{TEN}-0001-0.parquet"]
    assert not state.take_over(OF["channels"], None)
    assert names(state.this, "channels") == []
    assert not state.take_over(OF["lake_files"], None)
    assert len(names(state.this, "lake_files")) == records, "files whose rows are kept are not read again"
    assert not state.is_recomputed
