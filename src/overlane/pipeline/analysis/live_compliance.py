"""Live compliance: share of messages in time per minute, while it happens, and alerts below a target.

Minutes refer to the time of delivery, not to the time when telemetry is read. A minute is emitted once, when no
telemetry of it can be outstanding: the watermark waits until brokers have closed their files.

Two streaming queries read the same files. One appends to the table of minutes, the other publishes alerts on a topic,
each alert exactly once even if the query is killed and resumes from its checkpoint.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from overlane.pipeline.columns import columns, declare
from overlane.pipeline.ingest import ingest_files, lake_files
from overlane.pipeline.streaming.data_source import OverlaneDataSource

WINDOW = "1 minute"
LATENESS = "6 minutes"
"""Brokers close their files after five minutes by default."""
JUDGED_MIN = 20
"""No alert for fewer deliveries than this."""
POLL_S = 1
NO_LIMIT_NS = 1 << 62
"""The queries run for a long time: a row later than their start is not in the future."""

MINUTES = columns(
    "minute_s bigint, topic string, judged bigint, in_time bigint, in_time_rate double, p50_ms double, p99_ms double"
)
ALERTS = columns("topic string, payload string")


def minutes(deliveries: DataFrame, window: str = WINDOW, lateness: str = LATENESS) -> DataFrame:
    """Share of messages in time per topic and minute, weighted by what each sampled delivery stands for."""
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
    """A message for each minute in which a topic was below the target."""
    below = found.where((sf.col("in_time_rate") < target) & (sf.col("judged") >= JUDGED_MIN))
    alert = sf.struct("topic", "minute_s", "in_time_rate", sf.lit(target).alias("target"), "judged", "p99_ms")
    return declare(below.select(sf.to_json(alert).alias("payload"), sf.lit(topic).alias("topic")), ALERTS)


def watch(
    spark: SparkSession,
    lake: str,
    out: Path,
    target: float,
    topic: str,
    broker_options: Mapping[str, str] | None,
    *,
    window: str = WINDOW,
    lateness: str = LATENESS,
    once: bool = False,
) -> list[Any]:
    """Start the queries. `broker_options`: how to reach the brokers that publish alerts; None: no alerts."""

    def found() -> DataFrame:
        return minutes(ingest_files(lake_files(spark, lake, "deliveries"), "deliveries", NO_LIMIT_NS), window, lateness)

    when: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "5 seconds"}
    directory = out.absolute() / "live"
    queries = [
        found()
        .writeStream.format("parquet")
        .queryName("minutes")
        .option("checkpointLocation", (directory / "state" / "minutes").as_uri())
        .trigger(**when)
        .start((directory / "minutes").as_uri())
    ]
    if broker_options is not None:
        spark.dataSource.register(OverlaneDataSource)
        queries.append(
            alerts(found(), target, topic)
            .coalesce(1)
            .writeStream.format("overlane")
            .queryName("alerts")
            .options(**broker_options)
            .option("checkpointLocation", (directory / "state" / "alerts").as_uri())
            .trigger(**when)
            .start()
        )
    return queries


def await_queries(queries: Sequence[Any], meanwhile: Callable[[], None] = lambda: None) -> None:
    """Wait until all queries have ended; the failure of one is raised at once."""
    waiting = list(queries)
    while waiting:
        meanwhile()
        waiting = [query for query in waiting if not query.awaitTermination(POLL_S)]
