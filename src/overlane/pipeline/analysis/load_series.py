"""Load series: the rates of topics at peaks, per second, with zeros where nothing arrived.

A chunk is five minutes. Its seconds are those in which a broker was alive: an unobserved second is not a zero. Each row
is one topic in one chunk; a topic that was silent in the whole chunk has no row.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from overlane.pipeline.analysis.grouping import map_groups
from overlane.pipeline.analysis.item_topics import item_of
from overlane.pipeline.analysis.second_masks import second_s, seconds_in, window_start
from overlane.pipeline.columns import columns, declare
from overlane.pipeline.packed_columns import packed
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import CHUNK_S, SECOND_NS, WINDOW_S

_RATES = columns("chunk_s bigint, topic string, second int, rate double, seconds array<int>")
"""A rate, or, without a topic, the seconds of the chunk."""
_SERIES = pa.schema(
    [
        ("chunk_s", pa.int64()),
        ("topic", pa.string()),
        ("rates", pa.binary()),
        ("total", pa.float64()),
        ("squares", pa.float64()),
        ("place", pa.int32()),
        ("topics", pa.int32()),
    ]
)


def peak_windows(peaks: DataFrame) -> DataFrame:
    """The windows that the peaks are made of."""
    return peaks.select(sf.explode(sf.expr(f"sequence(start_s, end_s - {WINDOW_S}, {WINDOW_S}L)")).alias("window_s"))


def load_chunks(lives: DataFrame, peaks: DataFrame) -> DataFrame:
    """The chunks of all peaks, each with the seconds of it that were observed."""
    minutes = lives.groupBy("minute_s").agg(sf.bit_or("seen").alias("seen"))
    within = minutes.select("*", window_start(WINDOW_S, "minute_s").alias("window_s")).join(
        sf.broadcast(peak_windows(peaks)), "window_s", "left_semi"
    )
    found = (
        within.select("*", window_start(CHUNK_S, "minute_s").alias("chunk_s"))
        .select("*", (sf.col("minute_s") - sf.col("chunk_s")).cast("int").alias("offset"))
        .select("*", sf.transform(seconds_in("seen"), lambda second: second + sf.col("offset")).alias("seconds"))
        .groupBy("chunk_s")
        .agg(sf.array_sort(sf.flatten(sf.collect_list("seconds"))).alias("seconds"))
    )
    return declare(found, TABLES["load_chunks"])


def load_series(topic_rates: DataFrame, peaks: DataFrame, chunks: DataFrame) -> DataFrame:
    """The rates of every topic at peaks, of all brokers together."""
    published = topic_rates.where("messages_in > 0").select(
        "topic",
        second_s().alias("second_s"),
        (sf.col("messages_in") * sf.lit(float(SECOND_NS)) / sf.col("interval_ns")).alias("rate"),
    )
    rates = (
        published.select("*", window_start(WINDOW_S).alias("window_s"))
        .join(sf.broadcast(peak_windows(peaks)), "window_s", "left_semi")
        .select(
            "*",
            window_start(CHUNK_S).alias("chunk_s"),
            sf.expr(f"cast(pmod(second_s, {CHUNK_S}) as int)").alias("second"),
        )
    )
    told = rates.select("chunk_s", "topic", "second", "rate", sf.lit(None).cast("array<int>").alias("seconds"))
    looked = chunks.selectExpr("chunk_s", "cast(null as string) as topic", "0 as second", "0D as rate", "seconds")
    return map_groups(told.unionByName(looked), _RATES, ["chunk_s"], chunk_series, TABLES["load_series"])


def chunk_series(told: Any) -> Any:
    """The series of one chunk, from its rates in any order."""
    chunk, rates = told.filter(pc.is_null(told.column("topic"))), told.filter(pc.is_valid(told.column("topic")))
    if rates.num_rows == 0 or chunk.num_rows == 0 or len(chunk.column("seconds")[0]) == 0:
        return _SERIES.empty_table()
    seconds = chunk.column("seconds")[0].values.to_numpy()
    coded = rates.column("topic").combine_chunks().dictionary_encode()
    in_order = pc.sort_indices(coded.dictionary).to_numpy()
    topics = len(in_order)
    topic = np.argsort(in_order)[coded.indices.to_numpy()]
    flat = topic.astype(np.int64) * CHUNK_S + rates.column("second").to_numpy()
    dense = np.bincount(flat, rates.column("rate").to_numpy(), topics * CHUNK_S).reshape(topics, CHUNK_S)
    kept = dense[:, seconds].astype(np.float64, copy=False)
    return pa.Table.from_arrays(
        [
            pa.repeat(rates.column("chunk_s")[0], topics),
            coded.dictionary.take(pa.array(in_order)),
            packed(kept),
            pa.array(kept.sum(axis=1)),
            pa.array(np.square(kept).sum(axis=1)),
            pa.array(np.arange(topics, dtype=np.int32)),
            pa.repeat(pa.scalar(topics, pa.int32()), topics),
        ],
        schema=_SERIES,
    )


def topic_load(
    series: DataFrame,
    chunks: DataFrame,
    windows: DataFrame,
    item_levels: int,
    filters: Sequence[tuple[str, str]] = (),
) -> DataFrame:
    """Every topic of the peaks with its number, its mean rate, and the item that it belongs to."""
    seconds = chunks.agg(sf.sum(sf.size("seconds")).alias("seconds"))
    sums = series.groupBy("topic").agg(sf.sum("total").alias("total"), sf.sum("squares").alias("squares"))
    sizes = windows.groupBy("topic").agg(sf.expr("sum(bytes_in) / nullif(sum(messages_in), 0)").alias("size_bytes"))
    found = (
        sums.join(sizes, "topic", "left")
        .crossJoin(seconds)
        .select(
            "*",
            (sf.row_number().over(Window.orderBy("topic")) - 1).alias("number"),
            item_of("topic", filters, item_levels).alias("item"),
            (sf.col("total") / sf.col("seconds")).alias("mean"),
            sf.expr("(squares - total * total / seconds) / nullif(seconds - 1, 0)").alias("variance"),
            sf.expr("total / seconds * size_bytes").alias("bytes_mean"),
        )
    )
    return declare(found, TABLES["topic_load"])


def item_load(topics: DataFrame, covariance: DataFrame) -> DataFrame:
    """Items, each with the mean of its topics together; the variance is from their covariance."""
    items = topics.groupBy("item").agg(sf.count(sf.lit(1)).alias("topics"), sf.sum("mean").alias("mean"))
    numbered = items.select("*", (sf.row_number().over(Window.orderBy("item")) - 1).alias("number"))
    variances = covariance.select("number", sf.expr("covariances[number]").alias("variance"))
    return declare(numbered.join(variances, "number"), TABLES["item_load"])
