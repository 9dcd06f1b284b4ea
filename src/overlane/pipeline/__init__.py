"""The data pipeline on Spark: computes load profiles, reliability, compliance and plans from telemetry.

Every transformation is a pure function from DataFrames to a DataFrame with a declared schema, one module per topic.
`definitions` registers them as a Spark Declarative Pipelines project, `runner` runs it. Brokers do not import this
package; Spark is needed only to run the pipeline.

`register(spark)` adds the data source `overlane`, which reads and writes topics (`streaming.data_source`).
`create_streams` creates the streams of a query before it is started.
"""

from typing import TYPE_CHECKING

__all__ = [
    "analysis",
    "create_streams",
    "expectations",
    "lake_listing",
    "object_store",
    "output_directory",
    "plans",
    "register",
    "report",
    "runner",
    "samples",
    "session",
    "settings",
    "small_runs",
    "table_files",
]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Register the data source `overlane` in this session."""
    from overlane.pipeline.streaming.data_source import OverlaneDataSource

    spark.dataSource.register(OverlaneDataSource)


def create_streams(**options: str) -> None:
    """Create the streams that a query with these options reads, where they do not exist.

    Spark creates them in the first micro-batch. What is published between `start()` and then is missing, unless the
    streams are created before.
    """
    from overlane.pipeline.streaming.data_source import create_streams as create

    create(options)


def table_files(out: str, table: str) -> list[str]:
    """Addresses of the files of a table of the last run, in a directory or an object store."""
    from overlane.pipeline.object_store import table_files as files

    return files(out, table)
