"""Load: messages per topic over time, and the peaks.

Windows of 15 minutes are the finest resolution kept for all topics; hours and peaks are computed from them. A second
counts as observed if any broker was alive; seconds without a row of a topic are zeros.

Peaks are detected. Windows are sorted by their total load and divided where busy windows differ most from the rest
(Otsu's threshold: maximum variance between the two classes), with at most a quarter of all windows on the busy side. If
those are hardly busier than the average, there is no peak and every window counts.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from overlane.pipeline.analysis.second_masks import second_bit, second_s, window_start
from overlane.pipeline.columns import declare
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import HOUR_S, MINUTE_S, WINDOW_S

PEAK_SHARE_MAX = 0.25
BUSIER_MIN = 1.1
"""Peaks that are busier than the average by less are none."""

COUNTS = ("messages_in", "bytes_in", "messages_overlay", "bytes_overlay", "messages_out", "bytes_out")


def alive(queues: DataFrame, topic_rates: DataFrame) -> DataFrame:
    """The seconds in which each broker has written something."""
    told = queues.select("broker", "at_ns").unionByName(topic_rates.select("broker", "at_ns"))
    seconds = told.select("broker", second_s().alias("second_s"))
    found = seconds.groupBy("broker", window_start(MINUTE_S).alias("minute_s")).agg(
        sf.bit_or(second_bit()).alias("seen")
    )
    return declare(found, TABLES["alive"])


def load_windows(topic_rates: DataFrame) -> DataFrame:
    """What came on each topic at each broker in every window."""
    counted = topic_rates.select("broker", "topic", second_s().alias("second_s"), *COUNTS)
    found = counted.groupBy(window_start(WINDOW_S).alias("window_s"), "broker", "topic").agg(
        *[sf.sum(name).alias(name) for name in COUNTS],
        sf.count(sf.lit(1)).alias("seconds"),
        sf.max("messages_in").alias("messages_in_max"),
    )
    return declare(found, TABLES["load_windows"])


def observed(lives: DataFrame, span_s: int, name: str) -> DataFrame:
    """How many seconds of each span some broker was alive in."""
    minutes = lives.groupBy("minute_s").agg(sf.bit_or("seen").alias("seen"))
    return minutes.groupBy(window_start(span_s, "minute_s").alias(name)).agg(
        sf.sum(sf.bit_count("seen")).alias("seconds")
    )


def load_hours(windows: DataFrame, lives: DataFrame) -> DataFrame:
    """What was published on each topic in every hour, silent seconds counted as zeros."""
    counted = windows.groupBy(window_start(HOUR_S, "window_s").alias("hour_s"), "topic").agg(
        sf.sum("messages_in").alias("messages"), sf.sum("bytes_in").alias("bytes")
    )
    found = counted.join(sf.broadcast(observed(lives, HOUR_S, "hour_s")), "hour_s").select(
        "*", (sf.col("messages") / sf.col("seconds")).alias("messages_per_second")
    )
    return declare(found, TABLES["load_hours"])


def peaks(windows: DataFrame, lives: DataFrame, domain: str) -> DataFrame:
    """The busiest times of the domain, from the start of a first window to the end of a last one."""
    came = windows.groupBy("window_s").agg(sf.sum("messages_in").alias("messages"))
    loads = (
        observed(lives, WINDOW_S, "window_s")
        .join(came, "window_s", "left")
        .select("window_s", "seconds", sf.coalesce("messages", sf.lit(0)).alias("messages"))
        .select("*", (sf.col("messages") / sf.col("seconds")).alias("load"))
    )
    busy = _busiest(loads)
    before = Window.orderBy("window_s")
    periods = busy.select(
        "*",
        sf.coalesce(sf.col("window_s") - sf.lag("window_s").over(before) > WINDOW_S, sf.lit(True))
        .cast("int")
        .alias("begins"),
    ).select("*", sf.sum("begins").over(before).alias("period"))
    found = (
        periods.groupBy("period")
        .agg(
            sf.min("window_s").alias("start_s"),
            (sf.max("window_s") + WINDOW_S).alias("end_s"),
            (sf.sum("messages") / sf.sum("seconds")).alias("messages_per_second"),
        )
        .select("*", sf.lit(domain).alias("domain"))
    )
    return declare(found, TABLES["peaks"])


def _busiest(loads: DataFrame) -> DataFrame:
    busiest_first = Window.orderBy(sf.desc("load"), "window_s")
    so_far = busiest_first.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    every = Window.partitionBy()
    ranked = loads.select(
        "*",
        sf.row_number().over(busiest_first).alias("busy"),
        sf.avg("load").over(so_far).alias("busy_mean"),
        sf.count(sf.lit(1)).over(every).alias("count"),
        sf.avg("load").over(every).alias("mean"),
    )
    # With k of n windows on the busy side, the variance between the sides is k / (n - k) * (busy mean - mean)^2.
    between = sf.when(
        (sf.col("busy") <= sf.ceil(sf.col("count") * PEAK_SHARE_MAX)) & (sf.col("busy") < sf.col("count")),
        sf.col("busy") / (sf.col("count") - sf.col("busy")) * sf.pow(sf.col("busy_mean") - sf.col("mean"), 2),
    ).otherwise(0.0)
    cut = sf.first("busy").over(Window.orderBy(sf.desc("between"), "busy"))
    cut_mean = sf.first("busy_mean").over(Window.orderBy(sf.desc("between"), "busy"))
    judged = ranked.select("*", between.alias("between")).select("*", cut.alias("cut"), cut_mean.alias("cut_mean"))
    stands_out = sf.col("cut_mean") >= BUSIER_MIN * sf.col("mean")
    return judged.where((sf.col("busy") <= sf.col("cut")) | ~stands_out)
