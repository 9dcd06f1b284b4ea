"""The tables of the pipeline, registered with Spark Declarative Pipelines.

Six streaming tables ingest the files of the lake, each file once. All other tables are materialized views. Spark
derives the order from the dependencies. It checks only once per second whether a dependency is complete, so small
tables are computed again rather than waited for.
"""

from collections.abc import Callable

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from overlane.pipeline import ingest, quarantine
from overlane.pipeline.analysis import (
    bottlenecks,
    clock_skew,
    co_failures,
    compliance,
    covariance,
    interest,
    intervals,
    load,
    load_series,
    reliability,
)
from overlane.pipeline.plans import case_base, channels
from overlane.pipeline.schemas import INGESTED, TABLES
from overlane.pipeline.settings import Settings
from overlane.telemetry.schema import SCHEMAS

RAW = {table: f"raw_{table}" for table in SCHEMAS}
"""The streaming table of each table of the lake."""

INGEST_CONF = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4",  # whole files
    "spark.sql.files.ignoreMissingFiles": "true",  # a broker may remove its oldest meanwhile
}


def define(spark: SparkSession, settings: Settings, now_ns: int) -> list[str]:
    """Define everything with the registry that is active, and give the names."""
    for table in RAW:
        _define_raw(spark, table, settings, now_ns)
    makers = _makers(spark, settings)
    for name, maker in makers.items():
        view = dp.materialized_view(name=name, schema=TABLES[name], format="parquet")  # type: ignore[call-overload]
        view(maker)
    return [*RAW.values(), *makers]


def _define_raw(spark: SparkSession, table: str, settings: Settings, now_ns: int) -> None:
    def rows() -> DataFrame:
        return ingest.ingest_files(ingest.lake_files(spark, settings.lake, table), table, now_ns)

    declared = dp.table(  # type: ignore[call-overload]
        name=RAW[table], schema=INGESTED[table], spark_conf=INGEST_CONF, format="parquet"
    )
    declared(rows)


def _makers(spark: SparkSession, settings: Settings) -> dict[str, Callable[[], DataFrame]]:
    of = spark.read.table

    def raw() -> dict[str, DataFrame]:
        return {table: of(name) for table, name in RAW.items()}

    def counted(table: str) -> DataFrame:
        return quarantine.good(of(RAW[table]), table, of("repeats"))

    def good(table: str) -> DataFrame:
        return clock_skew.corrected(counted(table), table, of("clock_offsets"))

    def chunks() -> DataFrame:
        return load_series.load_chunks(of("alive"), of("peaks"))

    def items() -> DataFrame:
        return load_series.item_load(of("topic_load"), of("item_covariance"))

    def problem() -> DataFrame:
        return case_base.planning_problem(items(), of("item_covariance"), of("alive"), settings.capacity)

    return {
        "lake_files": lambda: quarantine.lake_files(raw()),
        "repeats": lambda: quarantine.repeats(raw(), of("lake_files")),
        "quarantine": lambda: quarantine.quarantine(raw(), of("repeats")),
        "clock_offsets": lambda: clock_skew.clock_offsets(counted("links")),
        "alive": lambda: load.alive(good("queues"), good("topic_rates")),
        "load_windows": lambda: load.load_windows(good("topic_rates")),
        "load_hours": lambda: load.load_hours(of("load_windows"), of("alive")),
        "peaks": lambda: load.peaks(of("load_windows"), of("alive"), settings.domain),
        "load_chunks": chunks,
        "load_series": lambda: load_series.load_series(good("topic_rates"), of("peaks"), chunks()),
        "topic_load": lambda: load_series.topic_load(
            of("load_series"), of("load_chunks"), of("load_windows"), settings.item_levels
        ),
        "topic_covariance": lambda: covariance.topic_covariance(
            of("load_series"),
            of("topic_load"),
            of("load_chunks"),
            settings.covariance_block,
            settings.covariance_tasks,
        ),
        "item_covariance": lambda: covariance.item_covariance(of("topic_covariance"), of("topic_load")),
        "item_load": items,
        "link_minutes": lambda: intervals.link_minutes(good("links")),
        "intervals": lambda: intervals.intervals(of("alive"), of("link_minutes"), good("events")),
        "reliability": lambda: reliability.reliability(of("intervals"), of("link_minutes")),
        "failure_pairs": lambda: co_failures.failure_pairs(of("intervals")),
        "failure_groups": lambda: co_failures.failure_groups(of("failure_pairs"), of("intervals")),
        "latency_bins": lambda: compliance.latency_bins(good("deliveries")),
        "compliance": lambda: compliance.compliance(of("latency_bins")),
        "offenders": lambda: compliance.offenders(of("latency_bins")),
        "anomalies": lambda: compliance.anomalies(of("compliance")),
        "bottlenecks": lambda: bottlenecks.bottlenecks(good("deliveries"), of("link_minutes")),
        "interest": lambda: interest.interest(good("interests"), of("load_windows"), of("alive")),
        "interest_overlap": lambda: interest.interest_overlap(of("interest")),
        "channel_plan": lambda: channels.channel_plan(of("interest"), settings.channels),
        "channels": lambda: channels.channels(of("channel_plan")),
        "channel_costs": lambda: channels.channel_costs(of("channel_plan")),
        "planning_problem": problem,
        "normal_plan": lambda: case_base.normal(problem()),
        "case_base": lambda: case_base.case_base(of("planning_problem"), of("normal_plan"), settings.case_tasks),
    }
