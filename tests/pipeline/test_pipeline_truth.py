"""The whole pipeline on a sample: it finds what is true, reads nothing twice, and survives its own death."""

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pipelinestory import BROKERS, FROM_S, HOURS, Story, rows, the_story
from sparks import GROUP

from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import HOUR_S

pytestmark = [GROUP, pytest.mark.slow]


@pytest.fixture(scope="module")
def story() -> Story:
    return the_story()


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
