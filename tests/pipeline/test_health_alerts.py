"""Alerts about brokers, clocks and links: when their reason appears and when it is gone, and not in between."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overlane.pipeline.analysis.health_alerts import HealthAlerts, often_down, silent_brokers, wrong_clocks
from overlane.pipeline.lake_listing import LakeFile
from overlane.pipeline.output_directory import OutputDirectory, Run


def run_with(path: Path, table: str, rows: list[dict[str, Any]]) -> Run:
    run = OutputDirectory(path).begin()
    (run.tables / table).mkdir()
    pq.write_table(pa.Table.from_pylist(rows), run.tables / table / "part.parquet")
    return run


def test_a_broker_without_new_files_is_silent() -> None:
    def file(name: str, modified_s: float) -> LakeFile:
        return LakeFile("links", f"date=2026-01-02/{name}", 9, modified_s)

    files = [
        file("new-york-1-1.parquet", 100.0),
        file("new-york-1-2.parquet", 5_000.0),
        file("rome-7-9.parquet", 4_000),
    ]
    assert silent_brokers(files, 5_100.0) == [{"kind": "silent", "broker": "rome", "since_s": 4_000}]
    assert silent_brokers(files, 5_100.0, 2_000.0) == []


def test_a_clock_is_judged_by_the_last_hour(tmp_path: Path) -> None:
    rows = [("a", 1, 5), ("a", 2, 0), ("b", 1, 0), ("b", 2, -3), ("c", 2, 1)]
    told: list[dict[str, Any]] = [{"broker": name, "hour_s": hour, "offset_s": offset} for name, hour, offset in rows]
    assert wrong_clocks(run_with(tmp_path, "clock_offsets", told)) == [{"kind": "clock", "broker": "b", "offset_s": -3}]
    assert wrong_clocks(None) == []


def test_what_brokers_will_avoid_is_an_alert(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"broker": "a", "peer": "b", "failure_planned": 0.03},
        {"broker": "a", "peer": "c", "failure_planned": 0.002},
        {"broker": "d", "peer": None, "failure_planned": 0.01},
        {"broker": "e", "peer": None, "failure_planned": None},
    ]
    assert often_down(run_with(tmp_path, "reliability", rows)) == [
        {"kind": "often down", "what": "a-b", "failure": 0.03},
        {"kind": "often down", "what": "d", "failure": 0.01},
    ]


def test_an_alert_is_published_when_it_appears_and_when_it_is_over(tmp_path: Path) -> None:
    published: list[tuple[int, list[dict[str, Any]]]] = []
    writers: set[str] = set()

    def started() -> HealthAlerts:
        return HealthAlerts(tmp_path / "live" / "health.json", publish)

    def publish(writer: str, batch: int, alerts: list[dict[str, Any]]) -> None:
        writers.add(writer)
        published.append((batch, alerts))

    silent = {"kind": "silent", "broker": "rome", "since_s": 4_000}
    alerts = started()
    for _ in range(3):
        alerts.update([silent])
    alerts = started()
    alerts.update([silent])
    alerts.update([])
    alerts.update([])
    alerts.update([silent])
    assert published == [(1, [silent]), (2, [{**silent, "is_over": True}]), (3, [silent])]
    assert len(writers) == 1
