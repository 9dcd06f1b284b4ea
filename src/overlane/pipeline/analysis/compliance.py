"""Compliance: share of messages in time, latency percentiles, worst offenders and anomalies.

Ages are counted in histogram bins, each two percent wider than the previous one: counts add up over hours, topics and
routes, and percentiles are accurate to one percent. Deliveries are a sample; each row stands for `weight` deliveries,
and all counts here are weighted.
"""

import math
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from overlane.pipeline.columns import declare
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import HOUR_S, SECOND_NS

WIDER = 1.02
PERCENTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
ROUTE_SIGN = ">"
OFFENDERS = 100
HISTORY_H = 7 * 24
HISTORY_MIN_H = 6
ODD_SCORE = 5.0
DELIVERIES_MIN = 50

SCOPES: dict[str, tuple[str, ...]] = {
    "all": (),
    "topic": ("topic",),
    "route": ("origin", "broker", "path"),
    "hop": ("origin", "broker"),
}
"""The key columns of each scope. For a hop, `origin` and `broker` are the two ends of the link."""


def latency_bins(deliveries: DataFrame) -> DataFrame:
    """How many deliveries of each topic, route and hour were how old."""
    age = sf.greatest(sf.col("age_ns"), sf.lit(1)).cast("double")
    found = deliveries.groupBy(
        sf.expr(f"at_ns div {HOUR_S * SECOND_NS} * {HOUR_S}").alias("hour_s"),
        "topic",
        "origin",
        "broker",
        sf.array_join("path", ROUTE_SIGN).alias("path"),
        sf.floor(sf.log(age) / math.log(WIDER)).cast("int").alias("bin"),
    ).agg(
        sf.sum("weight").alias("deliveries"),
        sf.coalesce(sf.sum(sf.when(sf.col("in_time").isNotNull(), sf.col("weight"))), sf.lit(0)).alias("judged"),
        sf.coalesce(sf.sum(sf.when(sf.col("in_time"), sf.col("weight"))), sf.lit(0)).alias("in_time"),
    )
    return declare(found, TABLES["latency_bins"])


def compliance(bins: DataFrame) -> DataFrame:
    """In-time rate and percentiles of everything, by hour."""
    parts = [
        declare(_scoped(_percentiles(_of(scope, bins), (*keys, "hour_s")), scope, keys), TABLES["compliance"])
        for scope, keys in SCOPES.items()
    ]
    return reduce(lambda one, other: one.unionByName(other), parts)


def offenders(bins: DataFrame) -> DataFrame:
    """The topics, routes and hops with the most deliveries that came late."""
    parts = []
    for scope in ("topic", "route", "hop"):
        keys = tuple(key for key in SCOPES[scope] if key != "path")
        told = _scoped(_percentiles(_of(scope, bins), keys), scope, keys).select(
            "*", (sf.col("judged") - sf.col("in_time")).alias("missed")
        )
        worst_first = Window.orderBy(sf.desc("missed"), *keys)
        ranked = told.where("missed > 0").select("*", sf.row_number().over(worst_first).alias("rank"))
        parts.append(declare(ranked.where(f"rank <= {OFFENDERS}"), TABLES["offenders"]))
    return reduce(lambda one, other: one.unionByName(other), parts)


def _of(scope: str, bins: DataFrame) -> DataFrame:
    if scope != "hop":
        return bins
    passed = bins.where("path is not null").select("*", sf.split("path", ROUTE_SIGN).alias("brokers"))
    hops = sf.expr(
        "transform(sequence(1, size(brokers) - 1), n -> struct(brokers[n - 1] as origin, brokers[n] as end))"
    )
    return (
        passed.where("size(brokers) > 1")
        .select("*", sf.explode(hops).alias("hop"))
        .select("hour_s", "bin", "deliveries", "judged", "in_time", "hop.origin", sf.col("hop.end").alias("broker"))
    )


def _percentiles(bins: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    counts = ("deliveries", "judged", "in_time")
    sums = bins.groupBy(*keys, "bin").agg(*[sf.sum(name).alias(name) for name in counts])
    up_to = Window.partitionBy(*keys).orderBy("bin")
    all_of = Window.partitionBy(*keys)
    ranked = sums.select(
        "*", sf.sum("deliveries").over(up_to).alias("up_to"), sf.sum("deliveries").over(all_of).alias("of")
    )
    found = ranked.groupBy(*keys).agg(
        *[sf.sum(name).alias(name) for name in counts],
        *[
            _age_ms(sf.min(sf.when(sf.col("up_to") >= sf.col("of") * share, sf.col("bin")))).alias(name)
            for name, share in PERCENTILES.items()
        ],
    )
    return found.select("*", sf.expr("in_time / nullif(judged, 0)").alias("in_time_rate"))


def _age_ms(of_bin: Column) -> Column:
    return sf.pow(sf.lit(WIDER), of_bin + 0.5) / 1e6


def _scoped(told: DataFrame, scope: str, keys: tuple[str, ...]) -> DataFrame:
    """With the columns of all scopes: those that are not keys of this one are empty."""
    missing = [name for name in ("topic", "origin", "broker", "path") if name not in keys]
    return told.select(
        "*", sf.lit(scope).alias("scope"), *[sf.lit(None).cast("string").alias(name) for name in missing]
    )


def anomalies(told: DataFrame) -> DataFrame:
    """Hours that are unlike the week before them: many times the usual deviation away from the median."""
    series = ["scope", "topic", "origin", "broker", "path"]
    hours = told.where(f"scope <> 'hop' and deliveries >= {DELIVERIES_MIN}")
    measured = hours.select(
        *series,
        "hour_s",
        sf.explode(
            sf.expr(
                "array(struct('in_time_rate' as measure, in_time_rate as value, 0.005D as least), "
                "struct('p99_ms' as measure, p99_ms as value, 0.04D * p99_ms as least))"
            )
        ).alias("of"),
    ).select(*series, "hour_s", "of.*")
    before = Window.partitionBy(*series, "measure").orderBy("hour_s").rangeBetween(-HISTORY_H * HOUR_S, -HOUR_S)
    judged = (
        measured.where("value is not null")
        .select(
            "*",
            sf.percentile_approx("value", 0.5).over(before).alias("usual"),
            sf.count("value").over(before).alias("hours"),
        )
        .select("*", sf.abs(sf.col("value") - sf.col("usual")).alias("off"))
        .select("*", sf.percentile_approx("off", 0.5).over(before).alias("deviation"))
        # 1.4826 median deviations are a standard deviation, where values are normal.
        .select("*", sf.expr("(value - usual) / greatest(1.4826D * coalesce(deviation, 0D), least)").alias("score"))
        .where(f"hours >= {HISTORY_MIN_H} and abs(score) >= {ODD_SCORE}")
    )
    return declare(judged, TABLES["anomalies"])
