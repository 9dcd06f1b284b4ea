"""What the pipeline has learnt, as the demo tells it. tests/pipeline/test_pipeline_lessons.py has it of a real run."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from overlane.cli.simulation.demo import show_plan, show_results
from overlane.core.units import MS
from overlane.demo.pipeline_results import read_results, run_pipeline
from overlane.errors import Unavailable
from overlane.sim.story import network_of

HOUR_S = 3600


def reliability(
    kind: str, broker: str, peer: str | None, failure: float, latency_ms: float | None
) -> dict[str, object]:
    around = {"failure_low": failure / 2, "failure_high": failure * 2, "failures": 1, "latency_ms": latency_ms}
    return {"kind": kind, "broker": broker, "peer": peer, "failure": failure, **around}


def compliance(scope: str, topic: str, hour: int, in_time_rate: float | None) -> dict[str, object]:
    figures = {"deliveries": 1000, "in_time_rate": in_time_rate, "p50_ms": 34.2, "p99_ms": 80.6}
    return {"scope": scope, "topic": topic, "hour_s": hour * HOUR_S, **figures}


def write(run: Path, table: str, rows: Sequence[Mapping[str, object]]) -> None:
    (run / "tables" / table).mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), run / "tables" / table / "part.parquet")


def a_run(run: Path) -> Path:
    links = [("a", "b", 0.01, 14.0), ("b", "c", 0.2, None)]
    write(
        run,
        "reliability",
        [reliability("link", *link) for link in links] + [reliability("broker", "a", None, 0.5, None)],
    )
    topics = [("topic", "reports/1", 2, None), ("topic", "alarms/1", 3, 0.75), ("topic", "alarms/1", 2, 0.991)]
    write(run, "compliance", [compliance(*one) for one in [*topics, ("route", "alarms/1", 2, 0.1)]])
    outlook = [{"ends": [one, other], "failure": failure} for one, other, failure, _ in links]
    (run / "plans").mkdir()
    (run / "plans" / "brokers.json").write_text(json.dumps({"made_ns": 1, "source": "a test", "links": outlook}))
    return run


def test_links_are_learnt_the_worst_first_and_topics_hour_by_hour(tmp_path: Path) -> None:
    lessons = read_results(a_run(tmp_path))
    assert [(row["broker"], row["peer"]) for row in lessons.links] == [("b", "c"), ("a", "b")]
    told = [(row["topic"], row["hour_s"] // HOUR_S) for row in lessons.topics]
    assert told == [("alarms/1", 2), ("alarms/1", 3), ("reports/1", 2)]
    assert [(link.ends, link.failure) for link in lessons.plan.links] == [(("a", "b"), 0.01), (("b", "c"), 0.2)]


def test_what_was_learnt_and_what_the_plan_would_change_is_shown(tmp_path: Path) -> None:
    lessons = read_results(a_run(tmp_path))
    shown = StringIO()
    console = Console(file=shown, width=100)
    show_results(console, lessons)
    show_plan(console, network_of({("a", "b"): MS, ("b", "c"): MS}, {}), lessons.plan)
    lines = [" ".join(line.split()) for line in shown.getvalue().splitlines()]
    assert "b - c 20.0% 10.0% to 40.0% 1 -" in lines
    assert "a - b 1.0% 0.5% to 2.0% 1 14.0 ms" in lines
    assert "alarms/1 1000 99.10% 34 ms 81 ms" in lines
    assert "reports/1 1000 - 34 ms 81 ms" in lines
    assert any("overlane plan apply" in line for line in lines)
    assert [line for line in lines if line.startswith("link b-c") and line.endswith("20.00%")], lines


def test_a_pipeline_that_cannot_run_is_told_with_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    told: list[str] = []
    file = tmp_path / "lake" / "links" / "date=2026-01-02" / "a-1-1.parquet"
    file.parent.mkdir(parents=True)
    file.touch()
    with pytest.raises(Unavailable, match="requires Java 17 or newer"):
        asyncio.run(run_pipeline(tmp_path / "lake", tmp_path / "tables", told.append))
    assert told
