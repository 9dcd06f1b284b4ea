"""Telemetry that is not as expected is told, a sentence for each expectation."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overlane.errors import ConfigError
from overlane.pipeline.expectations import Expectations, read_expectations, unmet
from overlane.pipeline.output_directory import OutputDirectory, Run

SECOND_NS = 10**9
NOW_NS = 1_000_000 * SECOND_NS


def run_of(out: Path, **tables: list[dict[str, Any]]) -> Run:
    run = OutputDirectory(out).begin()
    for name, rows in tables.items():
        (run.tables / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows), run.tables / name / "part.parquet")
    return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    files: list[dict[str, Any]] = [
        {"broker": "a", "rows": 900, "faults": 0, "last_ns": NOW_NS - 100 * SECOND_NS},
        {"broker": "b", "rows": 90, "faults": 5, "last_ns": NOW_NS - 500 * SECOND_NS},
        {"broker": None, "rows": 0, "faults": 1, "last_ns": None},
    ]
    return run_of(
        tmp_path,
        lake_files=files,
        quarantine=[{"reason": "negative messages_in"}] * 5 + [{"reason": "schema version 2; expected 1"}],
        clock_offsets=[{"broker": "a", "offset_s": 0}, {"broker": "b", "offset_s": -3}],
    )


def test_what_is_as_expected_is_not_told(run: Run) -> None:
    given = Expectations("2m", brokers_min=2, rows_per_broker=85, quarantined=0.01, skew="3s")
    assert unmet(given, run, NOW_NS) == []
    assert unmet(Expectations(), run, NOW_NS) == []


def test_everything_else_is_told(run: Run) -> None:
    given = Expectations("90s", 3, 86, 0.001, "2s", newer_schema=False)
    assert unmet(given, run, NOW_NS) == [
        "the newest row is 100 s old; expected at most 90s",
        "2 brokers have written; expected at least 3",
        "b has 85 rows; expected at least 86",
        "0.61% of the rows were rejected; expected at most 0.10%",
        "files of schema version 2; expected 1",
        "the clock of b is off by 3 s; expected at most 2s",
    ]


def test_expectations_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "expect.toml"
    file.write_text(
        'freshness = "15m"\nrows_per_broker = 1000\nquarantined = 0.01\nskew = "2s"\nnewer_schema = false\n'
    )
    assert read_expectations(file) == Expectations("15m", None, 1000, 0.01, "2s", newer_schema=False)


@pytest.mark.parametrize("content", ["freshnes = '1m'", "freshness = '1 week'", "quarantined = 'few'", "= 1"])
def test_a_wrong_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "expect.toml").write_text(content)
    with pytest.raises(ConfigError, match=r"expect\.toml"):
        read_expectations(tmp_path / "expect.toml")
    with pytest.raises(ConfigError, match="nothing"):
        read_expectations(tmp_path / "none.toml")
