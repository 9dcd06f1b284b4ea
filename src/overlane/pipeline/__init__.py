"""The data pipeline on Spark: from the brokers' telemetry to load profiles, reliability, compliance and plans.

Every transformation is a pure function from DataFrames to a DataFrame of a declared schema, one module for each idea;
`definitions` makes a Spark Declarative Pipelines project of them, `running` runs it. Nothing here is imported by a
broker, and Spark is needed only by who runs the pipeline.

`register(spark)` makes topics readable and writable as the format `overlane` (`datasource`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Let this session know the format `overlane`."""
    from overlane.pipeline.datasource import OverlaneDataSource

    spark.dataSource.register(OverlaneDataSource)
