"""Reliability: the probability that a broker or a link is down, with a confidence interval.

The share of time in which something was down says little after a short observation. If failures and repairs are random,
the share observed over a time T varies as if it had been sampled T / (2 tau) times independently, tau being the mean
time to repair [the variance of a two-state Markov process over time]. With that many samples, and the number of them
that found it down, Jeffreys' prior gives a beta distribution: its mean estimates the probability, its quantiles are the
95 % interval. So a link that has never failed does not get probability 0. Tau is estimated over all brokers, or all
links; without any failure it is one minute.

The mean of a short observation says little: after ten minutes it is 5 % for a link that never failed. Brokers avoid
what is down 1 % of the time, so a plan needs evidence on one side of that:

- If the whole interval is on one side of 1 %, plans use the mean. All that never failed together have one mean: that
  one of them was observed longer is no reason to prefer it.
- Else, if it has failed, plans use the lower bound, and at least the default of the network file.
- Else there is no evidence, and plans do not name it: brokers keep the value of the network file.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from scipy.special import betaincinv

from overlane.pipeline.columns import columns, declare
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import SECOND_NS

REPAIR_S = 60.0
TAIL = 0.025
PRIOR = 0.5
OFTEN_DOWN = 0.01
"""From this on brokers avoid a link or a broker (`core.routing.link_risks`)."""
UNPLANNED = 0.002
"""Default of a link in the network file. What has failed is planned with no less, unless it is known to be better."""

_LOOKS = columns(
    "kind string, broker string, peer string, observed_s double, down_s double, failures bigint, mtbf_s double, "
    "mttr_s double, looks double, bad double, calm_looks double, latency_ms double, latency_p99_ms double, "
    "jitter_ms double, loss double"
)


def reliability(intervals: DataFrame, minutes: DataFrame) -> DataFrame:
    """Every broker and link with its failures; of links also what was measured while they were up."""
    seconds = (sf.col("end_ns") - sf.col("start_ns")) / SECOND_NS
    is_down = sf.col("state") == "down"
    totals = (
        intervals.where("state in ('up', 'down')")
        .groupBy("kind", "broker", "peer")
        .agg(
            sf.sum(seconds).alias("observed_s"),
            sf.sum(sf.when(is_down, seconds).otherwise(0.0)).alias("down_s"),
            sf.count(sf.when(is_down, 1)).alias("failures"),
        )
    )
    repairs = totals.groupBy("kind").agg(
        sf.coalesce(sf.expr("sum(down_s) / nullif(sum(failures), 0)"), sf.lit(REPAIR_S)).alias("repair_s"),
        sf.sum(sf.when(sf.col("failures") == 0, sf.col("observed_s")).otherwise(0.0)).alias("calm_s"),
    )
    looked = (
        totals.join(sf.broadcast(repairs), "kind")
        .selectExpr(
            "*",
            "(observed_s - down_s) / nullif(failures, 0) as mtbf_s",
            "down_s / nullif(failures, 0) as mttr_s",
            "observed_s / (2 * repair_s) as looks",
            "down_s / (2 * repair_s) as bad",
            "calm_s / (2 * repair_s) as calm_looks",
        )
        .join(_measured(minutes), ["kind", "broker", "peer"], "left")
    )
    return declare(looked, _LOOKS).mapInArrow(_judged, TABLES["reliability"])


def _measured(minutes: DataFrame) -> DataFrame:
    """Latency, jitter and loss of links, of both directions together."""
    mean = sf.expr("sum(latency_ns * samples) / nullif(sum(if(latency_ns is null, 0, samples)), 0)")
    return (
        minutes.groupBy(sf.least("broker", "peer").alias("one"), sf.greatest("broker", "peer").alias("other"))
        .agg(
            (mean / 1e6).alias("latency_ms"),
            (sf.percentile_approx("latency_ns", 0.99, 1_000) / 1e6).alias("latency_p99_ms"),
            (sf.avg("jitter_ns") / 1e6).alias("jitter_ms"),
            sf.avg("loss").alias("loss"),
        )
        .select(
            sf.lit("link").alias("kind"),
            sf.col("one").alias("broker"),
            sf.col("other").alias("peer"),
            "latency_ms",
            "latency_p99_ms",
            "jitter_ms",
            "loss",
        )
    )


def planned_failure(mean: Any, low: Any, high: Any) -> Any:
    """The probability that plans use; nan where there is no evidence."""
    is_known = (low >= OFTEN_DOWN) | (high < OFTEN_DOWN)
    return np.where(is_known, mean, np.where(low > 0, np.maximum(low, UNPLANNED), np.nan))


def _judged(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        looks, bad, calm_looks = (batch.column(name).to_numpy() for name in ("looks", "bad", "calm_looks"))
        up, down = looks - bad + PRIOR, bad + PRIOR
        low, high = betaincinv(down, up, TAIL), betaincinv(down, up, 1 - TAIL)
        low[bad == 0] = 0.0  # what never failed may never fail
        mean = down / (up + down)
        found = {name: batch.column(name) for name in _LOOKS.fieldNames() if name not in ("looks", "bad", "calm_looks")}
        found |= {"failure": pa.array(mean), "failure_low": pa.array(low), "failure_high": pa.array(high)}
        is_calm = bad == 0
        shared = np.where(is_calm, PRIOR / (calm_looks + 2 * PRIOR), mean)
        planned = planned_failure(shared, low, high)
        found["failure_planned"] = pa.array(planned, mask=np.isnan(planned))
        yield pa.RecordBatch.from_pydict({name: found[name] for name in TABLES["reliability"].fieldNames()})
