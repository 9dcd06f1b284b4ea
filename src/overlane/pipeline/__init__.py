"""The data pipeline on Spark: computes load profiles, reliability, compliance and plans from telemetry.

Every transformation is a pure function from DataFrames to a DataFrame with a declared schema, one module per topic.
`definitions` registers them as a Spark Declarative Pipelines project, `runner` runs it. Brokers do not import this
package; Spark is needed only to run the pipeline.

`register(spark)` adds the data source `overlane`, which reads and writes topics (`streaming.data_source`).
"""

from typing import TYPE_CHECKING

__all__ = [
    "analysis",
    "output_directory",
    "register",
    "report",
    "runner",
    "samples",
    "session",
    "settings",
    "small_runs",
]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Register the data source `overlane` in this session."""
    from overlane.pipeline.streaming.data_source import OverlaneDataSource

    spark.dataSource.register(OverlaneDataSource)
