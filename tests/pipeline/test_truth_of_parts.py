"""Truths that a few hours of six brokers cannot tell: intervals of many links, and a day with its odd hours."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from overlane.pipeline.analysis.compliance import anomalies, compliance, latency_bins
from overlane.pipeline.analysis.reliability import reliability
from overlane.pipeline.samples.ground_truth import down_spans
from overlane.pipeline.samples.sample import write_sample
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import HOUR_S, SECOND_NS
from sparks import PARTS, the_spark

pytestmark = [PARTS, pytest.mark.slow]

SEED = 11
RARELY = 1e-3
LINKS = 600


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return the_spark()


def spans(link: int, downs: list[tuple[int, int]], until_s: int) -> list[tuple[Any, ...]]:
    """A link's rows of `intervals`."""
    edges = [0, *(edge for down in downs for edge in down), until_s]
    states = ["up" if number % 2 == 0 else "down" for number in range(len(edges) - 1)]
    return [
        ("link", f"{link:04d}", "z", state, start * SECOND_NS, end * SECOND_NS)
        for state, (start, end) in zip(states, pairwise(edges), strict=True)
        if start < end
    ]


@pytest.mark.parametrize("hours", [4, 48])
def test_intervals_hold_the_true_probability_in_95_of_100_cases(spark: SparkSession, hours: int) -> None:
    """Of links that are as reliable as those of a sample, young ones as well as old ones."""
    from scipy.stats import binom  # takes a second to load, which no other worker needs

    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    truth = rng.uniform(0.002, 0.03, LINKS)
    until_s = hours * HOUR_S
    rows = [
        row for link, failure in enumerate(truth) for row in spans(link, down_spans(failure, until_s, rng), until_s)
    ]
    given = spark.createDataFrame(rows, TABLES["intervals"])
    found = reliability(given, spark.createDataFrame([], TABLES["link_minutes"])).collect()
    assert len(found) == LINKS
    held = sum(row.failure_low <= truth[int(row.broker)] <= row.failure_high for row in found)
    assert held >= binom.ppf(RARELY, LINKS, 0.95), f"{held} of {LINKS}"
    # Nor is it so by telling nothing: of intervals that are twice as wide as they need be, all would hold.
    assert held <= binom.ppf(1 - RARELY, LINKS, 0.98), f"{held} of {LINKS}"


def test_the_odd_hours_are_those_in_which_something_was_slow(spark: SparkSession, tmp_path: Path) -> None:
    """And the odd routes are those that led over it; no hour is odd without a reason."""
    print(f"seed {SEED}")
    write_sample(tmp_path, 4, 20, 16, SEED)
    truth = json.loads((tmp_path / "truth.json").read_text())
    (slow,), slow_broker = truth["slow"], truth["slow_broker"]
    told = compliance(latency_bins(spark.read.parquet(str(tmp_path / "deliveries")))).persist()
    try:
        found = anomalies(told).collect()
        routes = {(row.origin, row.broker): row.path.split(">") for row in told.where("scope = 'route'").collect()}
    finally:
        told.unpersist()
    hours = {*truth["slow_hours"], *truth["slow_broker_hours"]}
    assert len(hours) == 4
    assert {(row.hour_s, row.measure) for row in found if row.scope == "all"} == {
        (hour_s, measure) for hour_s in hours for measure in ("in_time_rate", "p99_ms")
    }
    assert {(row.origin, row.broker, row.hour_s) for row in found if row.scope == "route"} == {
        (*ends, hour_s)
        for ends, way in routes.items()
        for hour_s in hours
        if (hour_s in truth["slow_hours"] and any(sorted(hop) == slow for hop in pairwise(way)))
        or (hour_s in truth["slow_broker_hours"] and slow_broker in way[:-1])
    }
    assert {row.hour_s for row in found if row.scope == "topic"} <= hours
    assert all((row.value > row.usual) == (row.measure == "p99_ms") for row in found)
