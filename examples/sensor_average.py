"""The average of each sensor's values per minute, written back as a topic.

Sensors publish numbers on sensors/NAME; this publishes on averages/NAME, when a minute is over, messages such as
{"start": "2026-03-01T12:00:00Z", "average": 21.5, "values": 60}. End it and start it again with the same --checkpoint:
nothing is counted twice, no minute is left out, and none is published twice.

    overlane up examples/five-cities.toml &
    python examples/sensor_average.py --brokers 127.0.0.1:8001 --checkpoint averages
    overlane sub 127.0.0.1 'averages/#' &
    overlane pub 127.0.0.1 sensors/boiler --qos 1 --message 21.5

Several brokers of an overlay are given as --brokers 127.0.0.1:8001,127.0.0.1:8002. Then what was published at each is
read from it, all in parallel, and all brokers at which sensors publish must be named.
"""

import argparse
import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from overlane.pipeline import register


def averages(messages: DataFrame, window: str, patience: str) -> DataFrame:
    """Messages of sensors -> messages with the averages of their windows. `patience`: how late a value may come."""
    values = messages.select(
        f.substring_index("topic", "/", -1).alias("sensor"),
        "time",
        f.expr("try_cast(cast(payload AS string) AS double)").alias("value"),
    )
    per_window = (
        values.where("value IS NOT NULL")
        .withWatermark("time", patience)
        .groupBy(f.window("time", window), "sensor")
        .agg(f.avg("value").alias("average"), f.count("value").alias("values"))
    )
    start = f.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return per_window.select(
        f.concat(f.lit("averages/"), "sensor").alias("topic"),
        f.to_json(f.struct(start.alias("start"), "average", "values")).alias("payload"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--brokers", default="127.0.0.1:8001", help="admin addresses, separated by commas")
    parser.add_argument("--checkpoint", required=True, help="a directory where the query remembers how far it is")
    parser.add_argument("--window", default="1 minute")
    parser.add_argument("--patience", default="10 seconds")
    parser.add_argument("--once", action="store_true", help="end when all that is there has been read")
    options = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need the package too
    spark = (
        SparkSession.builder.appName("sensor-average")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    register(spark)
    messages = (
        spark.readStream.format("overlane")
        .option("brokers", options.brokers)
        .option("stream", "sensor-average")
        .option("topic", "sensors/+")
        .load()
    )
    written = (
        averages(messages, options.window, options.patience)
        .writeStream.format("overlane")
        .option("brokers", options.brokers)
        .option("checkpointLocation", options.checkpoint)
    )
    written = written.trigger(availableNow=True) if options.once else written.trigger(processingTime="5 seconds")
    written.start().awaitTermination()


if __name__ == "__main__":
    main()
