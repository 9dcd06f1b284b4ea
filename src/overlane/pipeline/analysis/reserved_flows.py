"""Reserved flows: what was reserved beside what was used, and the token bucket that the traffic would have fitted.

Brokers record every ten seconds for each advertised flow how deep a bucket had to be at several rates. A depth covers
the traffic of the intervals in which less was enough. The proposal is the least of these rates whose bucket, covering
`COVERED` of the bytes, drains within `DRAIN_S`, or holds two messages: a smaller rate would delay messages for longer,
a higher one would be set aside in vain.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from overlane.pipeline.columns import declare
from overlane.pipeline.schemas import TABLES

COVERED = 0.999
DRAIN_S = 0.1

_FLOW = ("broker", "filter")


def reserved_flows(rows: DataFrame) -> DataFrame:
    seconds = sf.sum("interval_ns") / 1e9
    used = rows.groupBy(*_FLOW).agg(
        seconds.alias("seconds"),
        sf.max_by("advertised", "at_ns").alias("advertised"),
        (sf.sum(sf.col("reserved") * sf.col("interval_ns")) / sf.sum("interval_ns")).alias("reserved"),
        (sf.sum("link_bytes") / seconds).alias("used"),
        sf.sum("messages").alias("messages"),
        sf.sum("excess_messages").alias("excess_messages"),
        sf.max("size_max").alias("size_max"),
    )
    found = used.join(_buckets(rows), [*_FLOW], "left").select(
        "*", sf.when(sf.col("reserved") > 0, sf.col("used") / sf.col("reserved")).alias("share")
    )
    return declare(found, TABLES["reserved_flows"])


def _buckets(rows: DataFrame) -> DataFrame:
    """The bucket that is proposed for each flow."""
    latest = rows.groupBy(*_FLOW).agg(sf.max_by("rates", "at_ns").alias("latest"), sf.max("size_max").alias("largest"))
    each = (
        rows.where("messages > 0")
        .join(sf.broadcast(latest), [*_FLOW])
        .where("rates = latest")
        .select(*_FLOW, "largest", "payload_bytes", sf.explode(sf.arrays_zip("rates", "depths")).alias("at"))
        .select(*_FLOW, "largest", "payload_bytes", "at.rates", "at.depths")
    )
    of_rate = Window.partitionBy(*_FLOW, "rates")
    so_far = of_rate.orderBy("depths").rangeBetween(Window.unboundedPreceding, Window.currentRow)
    covering = (
        each.select(
            "*",
            sf.sum("payload_bytes").over(so_far).alias("covered"),
            sf.sum("payload_bytes").over(of_rate).alias("all"),
        )
        .where(sf.col("covered") >= COVERED * sf.col("all"))
        .groupBy(*_FLOW, "rates", "largest")
        .agg(sf.min("depths").alias("depth"))
    )
    is_enough = sf.col("depth") <= sf.greatest(sf.col("rates") * DRAIN_S, 2 * sf.col("largest"))
    first = sf.row_number().over(
        Window.partitionBy(*_FLOW).orderBy(sf.desc(is_enough), sf.when(is_enough, sf.col("rates")), sf.desc("rates"))
    )
    return (
        covering.select("*", first.alias("place"))
        .where("place = 1")
        .select(*_FLOW, sf.col("rates").alias("rate"), sf.col("depth").alias("bucket"))
    )
