"""A streaming query as a program of its own, so that it can be killed: what comes on in/# goes out on out/#.

python topic_query.py BROKERS CHECKPOINT for-ever|once
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from overlane.pipeline import register


def main(brokers: str, checkpoint: str, how_long: str) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    spark = builder.config("spark.sql.codegen.wholeStage", "false").getOrCreate()
    register(spark)
    messages = (
        spark.readStream.format("overlane")
        .option("brokers", brokers)
        .option("stream", "query")
        .option("topic", "in/#")
        .option("maxMessages", "60")
        .option("partitions", "2")
        .load()
    )
    answers = messages.select(f.concat(f.lit("out/"), "topic").alias("topic"), "payload").repartition(2, "topic")
    written = answers.writeStream.format("overlane").option("brokers", brokers)
    written = written.option("checkpointLocation", checkpoint)
    written = written.trigger(availableNow=True) if how_long == "once" else written.trigger(processingTime="0 seconds")
    written.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
