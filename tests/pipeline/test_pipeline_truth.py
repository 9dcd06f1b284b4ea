"""The whole pipeline on a sample: it finds what is true, reads nothing twice, and survives its own death."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sparks import BRIEF, GROUP, the_spark

from overlane.pipeline.place import Place, Run
from overlane.pipeline.running import Progress, run
from overlane.pipeline.sample import START_S, write_sample
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.settings import Settings
from overlane.pipeline.units import HOUR_S

pytestmark = [GROUP, pytest.mark.slow, pytest.mark.long]

SEED = 5
BROKERS, TOPICS, HOURS = 6, 60, 4
FROM_S = START_S + 8 * HOUR_S
"""Eight o'clock: the peak begins an hour later."""


class Story:
    """A lake of a few hours, a run that was killed, one that was not, and one after more telemetry had come."""

    def __init__(self, path: Path) -> None:
        self.lake, self.out, late = path / "lake", path / "out", path / "late"
        write_sample(self.lake, BROKERS, TOPICS, HOURS, SEED, FROM_S)
        self.truth = json.loads((self.lake / "truth.json").read_text())
        self.rows = {t.name: _rows_in(t) for t in self.lake.iterdir() if t.is_dir()}
        for file in sorted(self.lake.rglob(f"*-1-{HOURS}.parquet")):
            (late / file.relative_to(self.lake).parent).mkdir(parents=True, exist_ok=True)
            file.rename(late / file.relative_to(self.lake))
        self._spoil()
        self.told_before_death = self._die()
        self.latest_after_death = Place(self.out).latest()
        self.progress: list[Progress] = []
        settings = Settings(str(self.lake))
        self.first = run(the_spark(), settings, self.out, self.progress.append)[0]
        self.first_raw = {path.name: path.stat().st_mtime_ns for path in (self.out / "raw").rglob("*.parquet")}
        self.first_files = rows(self.first, "lake_files")
        shutil.copytree(late, self.lake, dirs_exist_ok=True)
        self.second = run(the_spark(), settings, self.out)[0]

    def _spoil(self) -> None:
        """A file that is cut short, one that is there twice, one that lacks a column, and rows of the future."""
        day = next((self.lake / "topic_rates").iterdir())
        good = day / "broker-00-1-1.parquet"
        (day / "broker-00-1-91.parquet").write_bytes(good.read_bytes()[:-40])
        shutil.copy(good, day / "broker-00-1-92.parquet")
        table = pq.read_table(good)
        pq.write_table(table.drop_columns(["topic"]), day / "broker-00-1-93.parquet")
        ahead = table.slice(0, 3).set_column(0, table.schema.field(0), pa.array([2**62] * 3))
        pq.write_table(ahead, day / "broker-00-1-94.parquet")
        self.repeated = table.num_rows

    def _die(self) -> str:
        """A run is killed as soon as it has made something."""
        command = [
            sys.executable,
            "-m",
            "overlane",
            "pipeline",
            "run",
            "--lake",
            str(self.lake),
            "--out",
            str(self.out),
        ]
        brief = [word for item in BRIEF.items() for word in ("--conf", "=".join(item))]
        with subprocess.Popen(
            [*command, "--master", "local[2]", *brief], stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            assert process.stderr is not None
            told = process.stderr.readline()
            os.killpg(process.pid, signal.SIGKILL)
        return told


def _rows_in(table: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in table.rglob("*.parquet"))


def rows(of: Run, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(of.tables / table).to_pylist()
    return found


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    the_spark()
    return Story(tmp_path_factory.mktemp("story"))


def test_a_run_that_was_killed_has_changed_nothing_that_anybody_reads(story: Story) -> None:
    assert "raw_" in story.told_before_death
    assert story.latest_after_death is None
    assert story.first.number == 2


def test_every_table_is_there_as_it_is_declared(story: Story) -> None:
    assert {path.name for path in story.second.tables.iterdir()} == set(TABLES)
    for name, schema in TABLES.items():
        assert pq.read_table(story.second.tables / name).schema.names == schema.fieldNames()
    done = [step.table for step in story.progress if step.state == "completed"]
    assert set(done) > set(TABLES)


def test_a_second_run_reads_only_what_is_new(story: Story) -> None:
    now = {path.name: path.stat().st_mtime_ns for path in (story.out / "raw").rglob("*.parquet")}
    assert story.first_raw.items() <= now.items()
    before = {(row["table"], row["file"]) for row in story.first_files}
    after = rows(story.second, "lake_files")
    assert {row["file"].split("-")[-1] for row in after if (row["table"], row["file"]) not in before} == {
        f"{HOURS}.parquet"
    }
    counted = dict.fromkeys(story.rows, 0)
    for row in after:
        if row["file"].split("-")[-1] not in ("91.parquet", "92.parquet", "93.parquet", "94.parquet"):
            counted[row["table"]] += row["rows"]
    assert counted == story.rows


def test_what_is_wrong_is_quarantined_with_its_reason(story: Story) -> None:
    reasons: dict[str, int] = {}
    for row in rows(story.second, "quarantine"):
        reason = row["reason"].split(":")[0]
        reasons[reason] = reasons.get(reason, 0) + 1
    assert reasons == {
        "unreadable": 1,
        "repeated": story.repeated,
        "column topic is missing": 1,
        "in the future": 3,
    }


def test_peaks_are_within_the_busy_hours(story: Story) -> None:
    found = rows(story.second, "peaks")
    assert found
    assert all(FROM_S + HOUR_S <= peak["start_s"] < peak["end_s"] <= FROM_S + 3 * HOUR_S for peak in found)


def test_means_and_covariance_are_those_that_were_given(story: Story) -> None:
    """Within six standard errors of what so many seconds can tell."""
    load = {row["topic"]: row for row in rows(story.second, "topic_load")}
    seconds = load[story.truth["steady_topics"][0]]["seconds"]
    assert seconds == 4 * 900
    steady = story.truth["steady_topics"]
    numbers = [load[topic]["number"] for topic in steady]
    found = np.zeros((len(load), len(load)))
    for row in rows(story.second, "topic_covariance"):
        found[row["number"], row["first"] : row["first"] + len(row["covariances"])] = row["covariances"]
    np.testing.assert_allclose(found, found.T, rtol=1e-9, atol=1e-12)
    truth = np.array(story.truth["steady_covariance"])
    error = np.sqrt((np.outer(np.diag(truth), np.diag(truth)) + truth**2) / seconds)
    assert (np.abs(found[np.ix_(numbers, numbers)] - truth) < 6 * error).all()
    for place, topic in enumerate(steady):
        assert abs(load[topic]["mean"] - story.truth["peak_mean"][topic]) < 6 * math.sqrt(truth[place, place] / seconds)


def test_every_failure_is_found_to_the_second(story: Story) -> None:
    end_s = HOURS * HOUR_S
    given = {
        ("broker", each["name"], None): [span for span in each["downs"] if span[1] < end_s]
        for each in story.truth["brokers"]
    }
    found: dict[Any, list[list[int]]] = {key: [] for key in given}
    for row in rows(story.second, "intervals"):
        if row["kind"] == "broker" and row["state"] == "down":
            span = [row["start_ns"] // 10**9 - FROM_S, row["end_ns"] // 10**9 - FROM_S]
            found["broker", row["broker"], None].append(span)
    assert {key: sorted(spans) for key, spans in found.items()} == given


def test_failure_probabilities_are_within_their_intervals(story: Story) -> None:
    """Of intervals that hold the truth in 95 of 100 cases, nearly all do."""
    truth = {tuple(each["ends"]): each["failure"] for each in story.truth["links"]}
    links = [row for row in rows(story.second, "reliability") if row["kind"] == "link"]
    assert {(row["broker"], row["peer"]) for row in links} == set(truth)
    held = [row["failure_low"] <= truth[row["broker"], row["peer"]] <= row["failure_high"] for row in links]
    assert sum(held) >= 0.7 * len(held)
    assert all(0 < row["failure"] < 1 for row in links)


def test_links_of_one_conduit_are_a_group(story: Story) -> None:
    groups: dict[int, set[tuple[str, str]]] = {}
    for row in rows(story.second, "failure_groups"):
        groups.setdefault(row["group"], set()).add((row["broker"], row["peer"]))
    assert {tuple(ends) for ends in story.truth["together"]} in groups.values()


def test_the_slow_link_is_where_the_time_went(story: Story) -> None:
    (slow,) = story.truth["slow"]
    slow_hours = set(story.truth["slow_hours"])
    late = [row for row in rows(story.second, "bottlenecks") if row["kind"] == "link" and row["hour_s"] in slow_hours]
    worst = max(late, key=lambda row: row["share"] * row["late_deliveries"])
    assert sorted((worst["broker"], worst["peer"])) == slow
    by_hour = {row["hour_s"]: row["in_time_rate"] for row in rows(story.second, "compliance") if row["scope"] == "all"}
    assert all((rate < 0.95) == (hour_s in slow_hours) for hour_s, rate in by_hour.items())


def test_plans_can_be_made_of_the_tables(story: Story) -> None:
    assert {path.name for path in story.second.plans.iterdir()} == {
        "allocate.json",
        "brokers.json",
        "casebase.json",
        "channels.json",
        "paths.json",
    }
    for kind in ("allocate", "paths", "channels"):
        command = [sys.executable, "-m", "overlane", "plan", kind, str(story.second.plans / f"{kind}.json"), "--json"]
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


def test_there_is_a_policy_for_every_single_and_double_failure(story: Story) -> None:
    states = rows(story.second, "case_base")
    assert len(states) == 1 + BROKERS + BROKERS * (BROKERS - 1) // 2
    for state in states:
        assert not set(dict(state["primary"]).values()) & set(state["failed"])
    costs = {row["mapping"]: row["cost_bps"] for row in rows(story.second, "channel_costs")}
    assert costs["bound"] <= costs["best"] <= costs["present"]
