"""The tables, as `spark-pipelines` reads them; what `overlane pipeline run` has as options is configuration here.

spark.overlane.lake         where brokers write telemetry, as an address that Spark reads; it must be given
spark.overlane.domain       --domain
spark.overlane.itemLevels   --item-levels
spark.overlane.capacity     --capacity
spark.overlane.channels     --channels
"""

import time

from pyspark.sql import SparkSession

from overlane.pipeline.definitions import define
from overlane.pipeline.settings import read_settings

spark = SparkSession.active()
define(spark, read_settings(lambda name: spark.conf.get(f"spark.overlane.{name}", None)), time.time_ns())
