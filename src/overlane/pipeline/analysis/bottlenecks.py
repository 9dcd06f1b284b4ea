"""Bottlenecks: the links and brokers where late deliveries spent their time.

The age of a late delivery is distributed along its path. A link gets its mean latency of that hour, as measured by its
sender. The rest is divided among the forwarding brokers in proportion to their queues for the next link.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from overlane.pipeline.analysis.compliance import ROUTE_SIGN
from overlane.pipeline.analysis.second_masks import window_start
from overlane.pipeline.columns import declare
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import HOUR_S, SECOND_NS


def bottlenecks(deliveries: DataFrame, minutes: DataFrame) -> DataFrame:
    """For each hour what links and brokers had to do with late deliveries."""
    late = (
        deliveries.where("in_time = false and size(path) > 1 and weight > 0")
        .groupBy(
            sf.expr(f"at_ns div {HOUR_S * SECOND_NS} * {HOUR_S}").alias("hour_s"),
            sf.array_join("path", ROUTE_SIGN).alias("path"),
        )
        .agg(sf.sum("weight").alias("late"), sf.expr("sum(age_ns * weight) / sum(weight)").alias("age_ns"))
    )
    hops = late.select("*", sf.split("path", ROUTE_SIGN).alias("brokers")).select(
        "*",
        sf.explode(
            sf.expr("transform(sequence(1, size(brokers) - 1), n -> struct(brokers[n - 1] as a, brokers[n] as b))")
        ).alias("hop"),
    )
    measured = minutes.groupBy(window_start(HOUR_S, "minute_s").alias("hour_s"), "broker", "peer").agg(
        sf.avg("latency_ns").alias("link_ns"), sf.avg("queue_bytes").alias("queue_bytes")
    )
    placed = (
        hops.select("hour_s", "path", "late", "age_ns", sf.col("hop.a").alias("broker"), sf.col("hop.b").alias("peer"))
        .join(measured, ["hour_s", "broker", "peer"], "left")
        .select(
            *("hour_s", "path", "late", "age_ns", "broker", "peer"),
            *[sf.coalesce(name, sf.lit(0.0)).alias(name) for name in ("link_ns", "queue_bytes")],
        )
    )
    along = placed.groupBy("hour_s", "path").agg(
        sf.sum("link_ns").alias("links_ns"), sf.sum(sf.col("queue_bytes") + 1).alias("queues")
    )
    spent = placed.join(along, ["hour_s", "path"]).select(
        "*", sf.expr("greatest(0, age_ns - links_ns) * (queue_bytes + 1) / queues").alias("waited_ns")
    )
    parts = sf.expr(
        "array(struct('link' as kind, broker as at, peer as to, link_ns as ns), "
        "struct('broker' as kind, broker as at, cast(null as string) as to, waited_ns as ns))"
    )
    found = (
        spent.select("*", sf.explode(parts).alias("part"))
        .groupBy("part.kind", sf.col("part.at").alias("broker"), sf.col("part.to").alias("peer"), "hour_s")
        .agg(
            sf.sum("late").alias("late_deliveries"),
            (sf.sum(sf.expr("part.ns * late")) / sf.sum("late") / 1e6).alias("spent_ms"),
            (sf.sum(sf.expr("part.ns * late")) / sf.sum(sf.expr("age_ns * late"))).alias("share"),
        )
    )
    return declare(found, TABLES["bottlenecks"])
