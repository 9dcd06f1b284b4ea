"""The whole pipeline on a sample: it finds what is true, reads nothing twice, and survives its own death.

How near to the truth it has to come is what docs/pipeline.md says of samples.
"""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from deliveries import Judged, judged
from pipelinestory import BROKERS, FROM_S, HOURS, LATE, SEED, Story, raw_files, rows, the_story

from overlane.pipeline.samples.ground_truth import daily
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import HOUR_S
from sparks import GROUP

pytestmark = [GROUP, pytest.mark.slow]

ERRORS = 6.0
"""Standard errors that means and covariances may be off."""
RARELY = 1e-3
"""How probable it is that good intervals are taken for bad ones."""


@pytest.fixture(scope="module")
def story() -> Story:
    print(f"seed {SEED}")
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
    assert [step.reason for step in story.progress if step.state == "failed"] == []


def test_a_second_run_reads_only_what_is_new(story: Story) -> None:
    assert story.first_raw.items() <= raw_files(story.second).items()
    before = {(row["table"], row["file"]) for row in story.first_files}
    after = rows(story.second, "lake_files")
    new = {row["file"].split("/")[-1] for row in after if (row["table"], row["file"]) not in before}
    assert {name.split("-")[-1] for name in new - {LATE}} == {f"{HOURS}.parquet"}
    assert LATE in new
    assert story.summary.hours == 2, "the last hour and the late one"
    counted = dict.fromkeys(story.rows, 0)
    for row in after:
        if row["file"].split("-")[-1] not in ("91.parquet", "92.parquet", "93.parquet", "94.parquet", "95.parquet"):
            counted[row["table"]] += row["rows"]
    assert counted == story.rows


def test_what_is_wrong_is_quarantined_with_its_reason(story: Story) -> None:
    reasons: dict[str, int] = {}
    for row in rows(story.second, "quarantine"):
        reason = row["reason"].split(":")[0]
        reasons[reason] = reasons.get(reason, 0) + 1
    assert reasons == {
        "unreadable": 2,
        "repeated": story.repeated,
        "column topic is missing": 1,
        "in the future": 3,
    }


def test_peaks_are_within_the_busy_hours(story: Story) -> None:
    found = rows(story.second, "peaks")
    assert found
    assert all(FROM_S + HOUR_S <= peak["start_s"] < peak["end_s"] <= FROM_S + 3 * HOUR_S for peak in found)


def test_means_and_covariance_are_those_that_were_given(story: Story) -> None:
    """Within what so many seconds can tell."""
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
    assert (np.abs(found[np.ix_(numbers, numbers)] - truth) < ERRORS * error).all()
    for place, topic in enumerate(steady):
        off = abs(load[topic]["mean"] - story.truth["peak_mean"][topic])
        assert off < ERRORS * math.sqrt(truth[place, place] / seconds)


def test_every_hour_has_its_share_of_the_peak(story: Story) -> None:
    steady = story.truth["steady_topics"]
    variance = dict(zip(steady, np.diag(story.truth["steady_covariance"]).tolist(), strict=True))
    hours = {(row["topic"], row["hour_s"]): row for row in rows(story.second, "load_hours")}
    for topic in steady:
        for hour_s in range(FROM_S, FROM_S + HOURS * HOUR_S, HOUR_S):
            row, share = hours[topic, hour_s], float(daily(np.array([hour_s]))[0])
            off = abs(row["messages_per_second"] - share * story.truth["peak_mean"][topic])
            assert off < ERRORS * math.sqrt(variance[topic] / row["seconds"])


def test_every_failure_of_a_broker_is_found_to_the_second(story: Story) -> None:
    end_s = HOURS * HOUR_S
    given = {each["name"]: [span for span in each["downs"] if span[1] < end_s] for each in story.truth["brokers"]}
    assert any(given.values())
    found = _downs(story, "broker")
    assert {name: found.get((name, None), []) for name in given} == given


def test_every_failure_of_a_link_is_found_to_the_second(story: Story) -> None:
    """Unless one of its brokers failed at the time, for which the link is not blamed."""
    gone = {each["name"]: each["downs"] for each in story.truth["brokers"]}
    found = _downs(story, "link")
    given = alone = 0
    for link in story.truth["links"]:
        others = [span for end in link["ends"] for span in gone[end]]
        apart = [span for span in link["downs"] if not any(_near(span, other) for other in others)]
        mine = found.get(tuple(link["ends"]), [])
        assert [span for span in mine if not any(_near(span, other) for other in others)] == apart
        given, alone = given + len(link["downs"]), alone + len(apart)
    assert alone > 0.5 * given


def _downs(story: Story, kind: str) -> dict[tuple[str, str | None], list[list[int]]]:
    """In seconds since the beginning."""
    found: dict[tuple[str, str | None], list[list[int]]] = {}
    for row in rows(story.second, "intervals"):
        if row["kind"] == kind and row["state"] == "down":
            span = [row["start_ns"] // 10**9 - FROM_S, row["end_ns"] // 10**9 - FROM_S]
            found.setdefault((row["broker"], row["peer"]), []).append(span)
    return {key: sorted(spans) for key, spans in found.items()}


def _near(one: list[int], other: list[int]) -> bool:
    return one[0] <= other[1] + 15 and other[0] <= one[1] + 15


def test_failure_probabilities_are_within_their_intervals(story: Story) -> None:
    """As many as there must be where 95 of 100 hold; links that share a conduit have failed as one."""
    from scipy.stats import binom  # takes a second to load, which no other worker needs

    truth = {tuple(each["ends"]): each["failure"] for each in story.truth["links"]}
    links = {(row["broker"], row["peer"]): row for row in rows(story.second, "reliability") if row["kind"] == "link"}
    assert links.keys() == truth.keys()
    assert all(0 < row["failure"] < 1 for row in links.values())
    apart = links.keys() - {tuple(ends) for ends in story.truth["together"][1:]}
    held = sum(links[link]["failure_low"] <= truth[link] <= links[link]["failure_high"] for link in apart)
    assert held >= binom.ppf(RARELY, len(apart), 0.95), f"{held} of {len(apart)}, seed {SEED}"


def test_latencies_of_links_are_those_that_were_given(story: Story) -> None:
    slow = {tuple(ends) for ends in story.truth["slow"]}
    found = {(row["broker"], row["peer"]): row for row in rows(story.second, "reliability") if row["kind"] == "link"}
    for link in story.truth["links"]:
        if tuple(link["ends"]) not in slow:
            assert found[tuple(link["ends"])]["latency_ms"] == pytest.approx(link["latency_ms"], rel=0.01)


def test_links_of_one_conduit_are_a_group(story: Story) -> None:
    groups: dict[int, set[tuple[str, str]]] = {}
    for row in rows(story.second, "failure_groups"):
        groups.setdefault(row["group"], set()).add((row["broker"], row["peer"]))
    assert {tuple(ends) for ends in story.truth["together"]} in groups.values()


def test_interest_is_that_of_those_who_subscribed_in_what_was_published(story: Story) -> None:
    given = {(one["broker"], one["topic"]): one for one in story.truth["interest"]}
    found = {(row["broker"], row["topic"]): row for row in rows(story.second, "interest")}
    assert {key: row["subscribers"] for key, row in found.items()} == {
        key: one["subscribers"] for key, one in given.items()
    }
    for key, row in found.items():
        one, rate = given[key], row["messages_per_second"]
        assert abs(rate - one["messages_per_second"]) < ERRORS * one["messages_per_second_error"], key
        assert row["bps"] == pytest.approx(8 * one["size_bytes"] * rate, rel=1e-9)


def test_brokers_have_in_common_what_both_of_them_want(story: Story) -> None:
    found = {(row["broker"], row["peer"]): row for row in rows(story.second, "interest_overlap")}
    assert len({one["topics"] for one in story.truth["interest_overlap"]}) > 1
    assert {ends: (row["topics"], row["jaccard"]) for ends, row in found.items()} == {
        (one["broker"], one["peer"]): (one["topics"], pytest.approx(one["jaccard"], rel=1e-12))
        for one in story.truth["interest_overlap"]
    }
    wanted = {(one["broker"], one["topic"]): one for one in story.truth["interest"]}
    for (broker, peer), row in found.items():
        both = [one for (who, topic), one in wanted.items() if who == broker and (peer, topic) in wanted]
        given_bps = sum(8 * one["size_bytes"] * one["messages_per_second"] for one in both)
        error_bps = sum(8 * one["size_bytes"] * one["messages_per_second_error"] for one in both)
        assert abs(row["bps"] - given_bps) < ERRORS * error_bps


@pytest.fixture(scope="module")
def exact(story: Story) -> Judged:
    """What the files of the lake say, counted without Spark and without bins."""
    return judged(story.lake)


def test_percentiles_and_rates_of_every_hour_topic_route_and_hop_are_right(story: Story, exact: Judged) -> None:
    found = rows(story.second, "compliance")
    assert {_series(row) for row in found} == exact.by_hour.keys()
    for row in found:
        right = exact.by_hour[_series(row)]
        assert (row["deliveries"], row["judged"], row["in_time"]) == (right.deliveries, right.judged, right.in_time)
        assert row["in_time_rate"] == right.in_time / right.judged
        for name, share in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("p999_ms", 0.999)):
            assert row[name] == pytest.approx(right.percentile_ms(share), rel=0.01), (name, row)


def _series(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("scope", "topic", "origin", "broker", "path", "hour_s"))


def test_the_worst_offenders_are_those_with_the_most_late_deliveries(story: Story, exact: Judged) -> None:
    for scope in ("topic", "route", "hop"):
        found = sorted((row for row in rows(story.second, "offenders") if row["scope"] == scope), key=_rank)
        assert [row["rank"] for row in found] == list(range(1, len(found) + 1))
        told = [((row["topic"], row["origin"], row["broker"]), row["missed"]) for row in found]
        assert dict(told) == exact.missed(scope)
        assert [missed for _, missed in told] == sorted((missed for _, missed in told), reverse=True)


def _rank(row: dict[str, Any]) -> int:
    rank: int = row["rank"]
    return rank


def test_nothing_is_late_that_did_not_pass_what_is_slow(story: Story, exact: Judged) -> None:
    (slow,), slow_broker = story.truth["slow"], story.truth["slow_broker"]
    worst = [row for row in rows(story.second, "offenders") if row["scope"] == "route"]
    missed = 0
    for row in worst:
        way = exact.ways[row["origin"], row["broker"]]
        if slow_broker in way[:-1] or any(sorted(hop) == slow for hop in pairwise(way)):
            missed += row["missed"]
    assert missed >= 0.99 * sum(row["missed"] for row in worst) > 0
    slow_hours = {*story.truth["slow_hours"], *story.truth["slow_broker_hours"]}
    by_hour = {row["hour_s"]: row["in_time_rate"] for row in rows(story.second, "compliance") if row["scope"] == "all"}
    assert all((rate < 0.95) == (hour_s in slow_hours) for hour_s, rate in by_hour.items())


def test_the_slow_link_is_where_the_time_went(story: Story) -> None:
    (slow,) = story.truth["slow"]
    (given,) = (link for link in story.truth["links"] if link["ends"] == slow)
    for hour_s in story.truth["slow_hours"]:
        worst = _worst(story, hour_s)
        assert worst["kind"] == "link"
        assert sorted((worst["broker"], worst["peer"])) == slow
        assert worst["spent_ms"] == pytest.approx(story.truth["slower"] * given["latency_ms"], rel=0.02)
        assert worst["share"] > 0.5


def test_the_slow_broker_is_where_the_time_went(story: Story) -> None:
    for hour_s in story.truth["slow_broker_hours"]:
        worst = _worst(story, hour_s)
        assert (worst["kind"], worst["broker"]) == ("broker", story.truth["slow_broker"])
        assert worst["spent_ms"] == pytest.approx(story.truth["slow_broker_ms"], rel=0.05)
        assert worst["share"] > 0.5


def _worst(story: Story, hour_s: int) -> dict[str, Any]:
    """What spent the most of an hour, broker or link."""
    hour = [row for row in rows(story.second, "bottlenecks") if row["hour_s"] == hour_s]
    return max(hour, key=lambda row: row["spent_ms"] * row["late_deliveries"])


def test_plans_can_be_made_of_the_tables(story: Story) -> None:
    """That the commands solve them is in `test_pipeline_lessons`."""
    assert {path.name for path in story.second.plans.iterdir()} == {
        "allocate.json",
        "brokers.json",
        "casebase.json",
        "channels.json",
        "paths.json",
    }


def test_there_is_a_policy_for_every_single_and_double_failure(story: Story) -> None:
    states = rows(story.second, "case_base")
    assert len(states) == 1 + BROKERS + BROKERS * (BROKERS - 1) // 2
    for state in states:
        assert not set(dict(state["primary"]).values()) & set(state["failed"])
    costs = {row["mapping"]: row["cost_bps"] for row in rows(story.second, "channel_costs")}
    assert costs["bound"] <= costs["best"] <= costs["present"]
