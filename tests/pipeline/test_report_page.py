"""The page about a run: it says what the tables say, needs nothing from elsewhere, and survives what is missing."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from overlane.cli.main import app
from overlane.network.plan import LinkForecast, Plan
from overlane.pipeline.output_directory import OutputDirectory, Run
from overlane.pipeline.report.page import report

HOUR = 1_790_000_000 // 3_600 * 3_600
HOUR_NS = 3_600 * 10**9


def link(broker: str, peer: str, failure: float) -> dict[str, Any]:
    return {
        "kind": "link",
        "broker": broker,
        "peer": peer,
        "failure": failure,
        "failures": 3,
        "observed_s": 7200.0,
        "failure_low": failure / 3,
        "failure_high": min(1.0, failure * 3),
    }


def compliance(scope: str, topic: str | None) -> dict[str, Any]:
    return {
        "scope": scope,
        "topic": topic,
        "hour_s": None,
        "deliveries": 100,
        "judged": 100,
        "in_time": 98,
        "in_time_rate": 0.98,
        "p50_ms": 10.0,
        "p90_ms": 20.0,
        "p99_ms": 61.5,
        "p999_ms": 80.0,
    }


TABLES: dict[str, list[dict[str, Any]]] = {
    "lake_files": [{"rows": 10, "faults": 1, "first_ns": HOUR * 10**9, "last_ns": HOUR * 10**9 + 3 * HOUR_NS}],
    "quarantine": [{"reason": "a negative rate"}],
    "load_hours": [{"hour_s": HOUR + 3_600 * hour, "messages_per_second": 100.0 * (hour + 1)} for hour in range(3)],
    "peaks": [{"start_s": HOUR + 3_600, "end_s": HOUR + 7_200}],
    "topic_load": [
        {"number": number, "topic": topic, "mean": 5.0 - number, "variance": 4.0, "bytes_mean": 1.0}
        for number, topic in enumerate(("plant/<boiler>", "plant/valve", "office/door"))
    ],
    "topic_covariance": [
        {"number": 0, "first": 0, "covariances": [4.0, 3.6, -1.0]},
        {"number": 1, "first": 0, "covariances": [3.6, 4.0, 0.0]},
        {"number": 2, "first": 0, "covariances": [-1.0, 0.0, 4.0]},
    ],
    "reliability": [link("denver", "seattle", 0.031), link("denver", "orlando", 0.0004)],
    "compliance": [compliance("all", None), compliance("topic", "plant/<boiler>")],
    "latency_bins": [
        {"hour_s": HOUR, "bin": 850, "deliveries": 90, "judged": 90, "in_time": 90},
        {"hour_s": HOUR + 3_600, "bin": 930, "deliveries": 10, "judged": 10, "in_time": 8},
    ],
    "clock_offsets": [
        {"broker": "denver", "hour_s": HOUR, "offset_s": 3},
        {"broker": "seattle", "hour_s": HOUR, "offset_s": 0},
    ],
    "offenders": [
        {"rank": 1, "topic": "plant/<boiler>", "origin": "denver", "broker": "seattle", "deliveries": 100, "missed": 2}
    ],
    "bottlenecks": [
        {
            "kind": "link",
            "broker": "denver",
            "peer": "seattle",
            "hour_s": HOUR,
            "late_deliveries": 2,
            "spent_ms": 50.0,
            "share": 0.8,
        }
    ],
}


def run_of(out: Path, tables: dict[str, list[dict[str, Any]]], failure: float) -> Run:
    place = OutputDirectory(out)
    run = place.begin()
    for name, rows in tables.items():
        (run.tables / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows), run.tables / name / "part-0.parquet")
    plan = Plan(made_ns=HOUR * 10**9, links=(LinkForecast(("denver", "seattle"), failure),))
    (run.plans / "brokers.json").write_bytes(msgspec.json.encode(plan))
    place.complete(run)
    return run


class _Balance(HTMLParser):
    """Whether every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_it_says_what_the_tables_say(tmp_path: Path) -> None:
    run_of(tmp_path, TABLES, 0.002)
    page = report(run_of(tmp_path, TABLES, 0.031))
    for said in (
        "3.0 h",
        "98.000%",
        "300 messages per second",
        "The strongest is between plant/&lt;boiler&gt; and plant/valve (+0.90)",
        "denver - seattle is down the most: 3.100% of the time",
        "80.000% of all deliveries within their deadline",
        "61.5",
        "2 of 100 late",
        "0.1 s lost, 80% of the age of 2 late deliveries",
        "21 Sep 14:00-15:00",
        "0.2000%</td><td>3.1000%",
        "a negative rate",
        "The clocks of 1 of 2 brokers differ",
        "+3 s",
    ):
        assert said in page, said
    assert "plant/<boiler>" not in page


def test_it_is_whole_and_fetches_nothing(tmp_path: Path) -> None:
    page = report(run_of(tmp_path, TABLES, 0.031))
    balance = _Balance()
    balance.feed(page)
    assert balance.open == []
    assert re.findall(r"(?:src|href|url\()\s*[=(]", page) == []
    assert page.count("<svg") == 6


@pytest.mark.parametrize("missing", sorted(TABLES))
def test_what_is_missing_leaves_out_its_part_alone(tmp_path: Path, missing: str) -> None:
    some = {name: rows for name, rows in TABLES.items() if name != missing}
    assert "Input" in report(run_of(tmp_path, some, 0.1))


def test_the_command_writes_the_page_of_the_last_run_or_says_that_there_is_none(tmp_path: Path) -> None:
    none = CliRunner().invoke(app, ["pipeline", "report", "--out", str(tmp_path)])
    assert none.exit_code == 1
    assert "no completed run" in none.stderr
    run_of(tmp_path, TABLES, 0.1)
    done = CliRunner().invoke(app, ["pipeline", "report", "--out", str(tmp_path)])
    assert done.exit_code == 0
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
