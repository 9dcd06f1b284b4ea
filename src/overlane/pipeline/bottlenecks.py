"""Bottlenecks: which link or broker spent the time of deliveries that came late.

A late delivery's age is shared out along its path. A link took its mean latency of that hour, as its sender measured
it. What is left was spent in the brokers that sent it on, each as much as waited in its queue for the next link.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from overlane.pipeline.columns import declare
from overlane.pipeline.compliance import ROUTE_SIGN
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.seconds import start_of
from overlane.pipeline.units import HOUR_S, SECOND_NS


def bottlenecks(deliveries: DataFrame, minutes: DataFrame) -> DataFrame:
    """For each hour what links and brokers had to do with late deliveries."""
    late = (
        deliveries.where("in_time = false and size(path) > 1 and weight > 0")
        .withColumn("hour_s", sf.expr(f"at_ns div {HOUR_S * SECOND_NS} * {HOUR_S}"))
        .withColumn("path", sf.array_join("path", ROUTE_SIGN))
        .groupBy("hour_s", "path")
        .agg(sf.sum("weight").alias("late"), sf.expr("sum(age_ns * weight) / sum(weight)").alias("age_ns"))
    )
    hops = late.withColumn("brokers", sf.split("path", ROUTE_SIGN)).withColumn(
        "hop",
        sf.explode(
            sf.expr("transform(sequence(1, size(brokers) - 1), n -> struct(brokers[n - 1] as a, brokers[n] as b))")
        ),
    )
    measured = minutes.groupBy(start_of(HOUR_S, "minute_s").alias("hour_s"), "broker", "peer").agg(
        sf.avg("latency_ns").alias("link_ns"), sf.avg("queue_bytes").alias("queue_bytes")
    )
    placed = (
        hops.select("hour_s", "path", "late", "age_ns", sf.col("hop.a").alias("broker"), sf.col("hop.b").alias("peer"))
        .join(measured, ["hour_s", "broker", "peer"], "left")
        .withColumn("link_ns", sf.coalesce("link_ns", sf.lit(0.0)))
        .withColumn("queue_bytes", sf.coalesce("queue_bytes", sf.lit(0.0)))
    )
    along = placed.groupBy("hour_s", "path").agg(
        sf.sum("link_ns").alias("links_ns"), sf.sum(sf.col("queue_bytes") + 1).alias("queues")
    )
    spent = placed.join(along, ["hour_s", "path"]).withColumn(
        "waited_ns", sf.expr("greatest(0, age_ns - links_ns) * (queue_bytes + 1) / queues")
    )
    parts = sf.expr(
        "array(struct('link' as kind, broker as at, peer as to, link_ns as ns), "
        "struct('broker' as kind, broker as at, cast(null as string) as to, waited_ns as ns))"
    )
    found = (
        spent.withColumn("part", sf.explode(parts))
        .groupBy("part.kind", sf.col("part.at").alias("broker"), sf.col("part.to").alias("peer"), "hour_s")
        .agg(
            sf.sum("late").alias("late_deliveries"),
            (sf.sum(sf.expr("part.ns * late")) / sf.sum("late") / 1e6).alias("spent_ms"),
            (sf.sum(sf.expr("part.ns * late")) / sf.sum(sf.expr("age_ns * late"))).alias("share"),
        )
    )
    return declare(found, TABLES["bottlenecks"])
