"""Live: how much came in time, minute by minute, while it happens; and an alert where a topic falls below its target.

Minutes are of the time when messages were delivered, not of when the telemetry came to be read. A minute is told once,
when nothing of it can be outstanding: brokers close their files every so often, and the watermark waits for that.

Two streaming queries read the same files: one appends to the table of minutes, the other publishes alerts as messages
of a topic, each alert once even if a query is killed and goes on from its checkpoint.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from overlane.pipeline.columns import columns, declare
from overlane.pipeline.datasource import OverlaneDataSource
from overlane.pipeline.landing import files, landed

WINDOW = "1 minute"
LATENESS = "6 minutes"
"""Brokers close their files after five minutes if not told otherwise."""
JUDGED_MIN = 20
"""Fewer deliveries than this are no reason for an alert."""
LOOK_S = 1
WHENEVER_NS = 1 << 62
"""The queries run for long: what is later than their start is not of the future."""

MINUTES = columns(
    "minute_s bigint, topic string, judged bigint, in_time bigint, in_time_rate double, p50_ms double, p99_ms double"
)
ALERTS = columns("topic string, payload string")


def minutes(deliveries: DataFrame, window: str = WINDOW, lateness: str = LATENESS) -> DataFrame:
    """How much of each topic came in time in each minute; ages of a sample, weighted by what it stands for."""
    good = deliveries.where("fault is null and in_time is not null")
    timed = good.withColumn("at", sf.timestamp_micros(sf.expr("at_ns div 1000")))
    found = (
        timed.withWatermark("at", lateness)
        .groupBy(sf.window("at", window), "topic")
        .agg(
            sf.sum("weight").cast("bigint").alias("judged"),
            sf.sum(sf.when(sf.col("in_time"), sf.col("weight")).otherwise(0)).cast("bigint").alias("in_time"),
            (sf.percentile_approx("age_ns", 0.5) / 1e6).alias("p50_ms"),
            (sf.percentile_approx("age_ns", 0.99) / 1e6).alias("p99_ms"),
        )
        .withColumn("minute_s", sf.unix_seconds("window.start"))
        .withColumn("in_time_rate", sf.col("in_time") / sf.col("judged"))
    )
    return declare(found, MINUTES)


def alerts(found: DataFrame, target: float, topic: str) -> DataFrame:
    """A message for every minute in which a topic was below its target."""
    below = found.where((sf.col("in_time_rate") < target) & (sf.col("judged") >= JUDGED_MIN))
    told = sf.struct("topic", "minute_s", "in_time_rate", sf.lit(target).alias("target"), "judged", "p99_ms")
    return declare(below.select(sf.to_json(told).alias("payload"), sf.lit(topic).alias("topic")), ALERTS)


def watch(
    spark: SparkSession,
    lake: str,
    out: Path,
    target: float,
    topic: str,
    reaching: Mapping[str, str] | None,
    *,
    window: str = WINDOW,
    lateness: str = LATENESS,
    once: bool = False,
) -> list[Any]:
    """Start the queries; `reaching` are the options of who publishes alerts, None: nobody does."""

    def found() -> DataFrame:
        return minutes(landed(files(spark, lake, "deliveries"), "deliveries", WHENEVER_NS), window, lateness)

    when: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "5 seconds"}
    place = out.absolute() / "live"
    queries = [
        found()
        .writeStream.format("parquet")
        .queryName("minutes")
        .option("checkpointLocation", (place / "state" / "minutes").as_uri())
        .trigger(**when)
        .start((place / "minutes").as_uri())
    ]
    if reaching is not None:
        spark.dataSource.register(OverlaneDataSource)
        queries.append(
            alerts(found(), target, topic)
            .coalesce(1)
            .writeStream.format("overlane")
            .queryName("alerts")
            .options(**reaching)
            .option("checkpointLocation", (place / "state" / "alerts").as_uri())
            .trigger(**when)
            .start()
        )
    return queries


def follow(queries: Sequence[Any]) -> None:
    """Wait until all of them have ended; what ends one by force is raised at once, whatever becomes of the others."""
    waiting = list(queries)
    while waiting:
        waiting = [query for query in waiting if not query.awaitTermination(LOOK_S)]
