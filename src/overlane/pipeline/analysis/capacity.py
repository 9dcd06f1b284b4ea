"""Capacity of brokers from measurement: the highest rate at which messages did not stay too long in a broker.

The time that deliveries spent in brokers is their age without the latency of the links of their path, divided among the
forwarding brokers in proportion to their queues for the next link, as for bottlenecks. It is counted in bins (10 %
wide), by the rate of the broker in the same quarter hour: messages that arrived there, from clients and from other
brokers for its clients, in bins that are 10 % wide too. Counts add up over hours.

The capacity of a broker is the highest rate at which the 99th percentile of this time was within the budget. If it was
not at a higher rate, the broker is known to have no more. Otherwise it may have more, and the rate is a lower bound. A
slow hour at a low rate says nothing of the load, and is left out: the broker did better at a higher one.
"""

import math

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from overlane.pipeline.analysis.compliance import ROUTE_SIGN
from overlane.pipeline.columns import declare
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import HOUR_S, SECOND_NS, WINDOW_S

WIDER = 1.1
SHARE = 0.99
AGE_NS = 100_000
"""Ages that differ by less are one: the latency of the links is still to be subtracted."""
DELIVERIES_MIN = 200
"""With fewer deliveries at a rate, the percentile says little."""


def residence_bins(deliveries: DataFrame, minutes: DataFrame, windows: DataFrame) -> DataFrame:
    """How many deliveries stayed how long in each broker, by its rate."""
    aged = (
        deliveries.where("size(path) > 1 and weight > 0")
        .groupBy(
            sf.expr(f"at_ns div {WINDOW_S * SECOND_NS} * {WINDOW_S}").alias("window_s"),
            sf.array_join("path", ROUTE_SIGN).alias("path"),
            sf.expr(f"age_ns div {AGE_NS}").alias("age"),
        )
        .agg(sf.sum("weight").alias("deliveries"), sf.expr("sum(age_ns * weight) / sum(weight)").alias("age_ns"))
    )
    hops = (
        aged.select("window_s", "path")
        .distinct()
        .select("*", sf.split("path", ROUTE_SIGN).alias("brokers"))
        .select(
            *("window_s", "path"),
            sf.explode(
                sf.expr("transform(sequence(1, size(brokers) - 1), n -> struct(brokers[n - 1] as a, brokers[n] as b))")
            ).alias("hop"),
        )
        .select("window_s", "path", sf.col("hop.a").alias("broker"), sf.col("hop.b").alias("peer"))
    )
    measured = minutes.groupBy(
        sf.expr(f"minute_s div {WINDOW_S} * {WINDOW_S}").alias("window_s"), "broker", "peer"
    ).agg(sf.avg("latency_ns").alias("link_ns"), sf.avg("queue_bytes").alias("queue_bytes"))
    # Without the latency of a link, nothing is known of the rest of its path.
    placed = hops.join(measured.where("link_ns is not null"), ["window_s", "broker", "peer"], "left")
    along = Window.partitionBy("window_s", "path")
    shared = placed.select(
        *("window_s", "path", "broker"),
        sf.sum("link_ns").over(along).alias("links_ns"),
        (sf.col("queue_bytes") + 1).alias("own"),
        sf.sum(sf.col("queue_bytes") + 1).over(along).alias("every"),
        (sf.count("link_ns").over(along) == sf.count(sf.lit(1)).over(along)).alias("is_known"),
    ).where("is_known")
    rates = windows.groupBy("window_s", "broker").agg(
        (sf.sum(sf.col("messages_in") + sf.col("messages_overlay")) / WINDOW_S).alias("rate")
    )
    stayed = aged.join(shared, ["window_s", "path"]).select(
        *("window_s", "broker", "deliveries"),
        (sf.greatest(sf.col("age_ns") - sf.col("links_ns"), sf.lit(0.0)) * sf.col("own") / sf.col("every")).alias("ns"),
    )
    found = (
        stayed.join(rates.where("rate > 0"), ["window_s", "broker"])
        .groupBy(
            sf.expr(f"window_s div {HOUR_S} * {HOUR_S}").alias("hour_s"),
            "broker",
            sf.floor(sf.log("rate") / math.log(WIDER)).cast("int").alias("rate"),
            _bin(sf.col("ns")).alias("bin"),
        )
        .agg(sf.sum("deliveries").alias("deliveries"))
    )
    return declare(found, TABLES["residence_bins"])


def capacity(bins: DataFrame, budget_ms: float) -> DataFrame:
    """The highest rate of each broker within the budget, and the lowest above it that was not."""
    sums = bins.groupBy("broker", "rate", "bin").agg(sf.sum("deliveries").alias("deliveries"))
    at_rate = Window.partitionBy("broker", "rate")
    ranked = sums.select(
        "*",
        sf.sum("deliveries").over(at_rate.orderBy("bin")).alias("up_to"),
        sf.sum("deliveries").over(at_rate).alias("of"),
    )
    rated = (
        ranked.where(f"of >= {DELIVERIES_MIN} and up_to >= {SHARE}D * of")
        .groupBy("broker", "rate")
        .agg((_middle(sf.min("bin"), 0.5) / 1e6).alias("p99_ms"), sf.first("of").alias("deliveries"))
    )
    within = rated.where(sf.col("p99_ms") <= budget_ms).groupBy("broker").agg(sf.max("rate").alias("highest"))
    found = (
        rated.join(within, "broker")
        .groupBy("broker", "highest")
        .agg(
            sf.max(sf.when(sf.col("rate") == sf.col("highest"), sf.col("p99_ms"))).alias("p99_ms"),
            sf.max(sf.when(sf.col("rate") == sf.col("highest"), sf.col("deliveries"))).alias("deliveries"),
            sf.min(sf.when(sf.col("rate") > sf.col("highest"), _middle(sf.col("rate"), 0.0))).alias("exceeded_at"),
        )
        .select("*", _middle(sf.col("highest"), 0.5).alias("messages_per_second"))
    )
    return declare(found, TABLES["capacity"])


def _bin(value: Column) -> Column:
    return sf.floor(sf.log(sf.greatest(value, sf.lit(1.0))) / math.log(WIDER)).cast("int")


def _middle(of_bin: Column, offset: float) -> Column:
    return sf.pow(sf.lit(WIDER), of_bin + offset)
