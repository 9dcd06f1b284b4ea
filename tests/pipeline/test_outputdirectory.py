"""Where runs lie, and which of them is read."""

from pathlib import Path
from typing import Any

import pytest

from overlane.errors import Unavailable
from overlane.pipeline.output_directory import RUNS_KEPT, OutputDirectory
from overlane.pipeline.plans.plan_export import paths_problem


def test_a_run_is_read_when_it_is_complete_and_not_before(tmp_path: Path) -> None:
    place = OutputDirectory(tmp_path)
    assert place.latest() is None
    first = place.begin()
    assert place.latest() is None
    place.complete(first)
    assert place.latest() == first
    place.begin()
    assert place.latest() == first


def test_the_number_of_a_run_that_died_is_not_used_again(tmp_path: Path) -> None:
    place = OutputDirectory(tmp_path)
    place.begin()
    assert place.begin().number == 2


def test_old_runs_go(tmp_path: Path) -> None:
    place = OutputDirectory(tmp_path)
    for _ in range(RUNS_KEPT + 2):
        place.complete(place.begin())
    assert sorted(int(path.name) for path in (tmp_path / "runs").iterdir()) == [3, 4, 5]


def test_two_runs_at_a_time_are_one_too_many(tmp_path: Path) -> None:
    with (
        OutputDirectory(tmp_path).locked(),
        pytest.raises(Unavailable, match="another pipeline run"),
        OutputDirectory(tmp_path).locked(),
    ):
        pass
    with OutputDirectory(tmp_path).locked():
        pass


def test_the_reliability_of_links_and_brokers_is_what_paths_are_planned_by() -> None:
    rows: list[dict[str, Any]] = [
        {"kind": "link", "broker": "a", "peer": "b", "failure_planned": 0.01, "latency_ms": 5.0},
        {"kind": "link", "broker": "b", "peer": "c", "failure_planned": 0.5, "latency_ms": None},
        {"kind": "broker", "broker": "a", "peer": None, "failure_planned": 0.02, "latency_ms": None},
    ]
    found = paths_problem(rows)
    assert found is not None
    assert found["brokers"] == {"a": {"failure": 0.02}, "b": {"failure": 0.001}}
    assert found["links"] == [{"ends": ["a", "b"], "latency_ms": 5.0, "failure": 0.01}]
    assert paths_problem(rows[1:]) is None
