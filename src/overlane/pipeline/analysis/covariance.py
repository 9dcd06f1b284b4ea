"""Covariance of the rates of all topics: exact, computed in blocks on the executors.

Topics are numbered and divided into blocks. A task is a pair of blocks over a part of the time. It receives the rows of
`load_series` sorted by time, arranges those of a chunk as a matrix, and adds the product of the matrices of both blocks
with BLAS. Its memory is one product of two blocks and a few seconds of rates, however long the series are. The results
of all parts of the time are summed per pair at the end.

Shuffling the rows of a chunk costs more than multiplying them. If one block holds all topics, the task that reads the
rows multiplies whole chunks directly; each row says how many rows its chunk has. Then only products are shuffled, and
the rows of chunks that were split between tasks.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from overlane.pipeline.analysis.block_products import MEANS_FIRST, added_up, lists, products, whole_chunks
from overlane.pipeline.analysis.grouping import map_groups
from overlane.pipeline.columns import columns, declare
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import CHUNK_S

BLOCK = 4_096
"""Topics in a block: a product takes 128 MiB."""
TASKS = 4

_READ = columns("chunk_s bigint, number int, rates binary, topics int, means array<double>")
_RATES = columns("chunk_s bigint, block int, number int, rates binary")
_ROWS = columns(
    "task int, one int, other int, chunk_s bigint, first int, number int, rates binary, means array<double>"
)
_PARTS = columns("one int, other int, part string, place int, values binary")
_WHOLE = columns("one int, other int, part string, place int, values binary, seconds bigint")
_FOUND = columns("number int, first int, covariances array<double>")


def topic_covariance(
    series: DataFrame, topics: DataFrame, chunks: DataFrame, block: int = BLOCK, tasks: int = TASKS
) -> DataFrame:
    """Each topic's covariances with all topics, a row for each block of them."""
    blocks = topics.agg(sf.ceil(sf.count(sf.lit(1)) / block).cast("int").alias("blocks"))
    means = topics.groupBy((sf.col("number") / block).cast("int").alias("block")).agg(
        sf.expr("transform(array_sort(collect_list(struct(number, mean))), each -> each.mean)").alias("means")
    )
    # One of the two joins has nothing to join with. Spark sees that when it comes to it, and reads nothing there.
    numbers = topics.select("topic", "number").crossJoin(sf.broadcast(blocks))
    few, many = (sf.broadcast(numbers.where(f"blocks {some}").select("topic", "number")) for some in ("= 1", "> 1"))
    apart = series.join(many, "topic").select(
        "chunk_s", (sf.col("number") / block).cast("int").alias("block"), "number", "rates"
    )
    rates = _multiplied(series.join(few, "topic"), means, block, tasks).unionByName(apart)
    parts = declare(_shared_out(rates, means, blocks, block, tasks), _ROWS).mapInArrow(products(block), _PARTS)
    seconds = chunks.agg(sf.sum(sf.size("seconds")).alias("seconds"))
    whole = parts.crossJoin(sf.broadcast(seconds))
    found = map_groups(whole, _WHOLE, ["one", "other"], added_up(block), _FOUND)
    return declare(found.join(sf.broadcast(topics.select("number", "topic")), "number"), TABLES["topic_covariance"])


def _multiplied(rows: DataFrame, means: DataFrame, block: int, tasks: int) -> DataFrame:
    """The product of all chunks that are whole where they are read, and the rows of the others."""
    # With the means at the first row of each chunk, every task has them before it needs them.
    first = means.where("block = 0").select(sf.col("means").alias("all_means"))
    read = rows.crossJoin(sf.broadcast(first)).select(
        "chunk_s", "number", "rates", "topics", sf.expr("if(place = 0, all_means, null)").alias("means")
    )
    return declare(read.coalesce(tasks), _READ).mapInArrow(whole_chunks(block), _RATES)


def _shared_out(rates: DataFrame, means: DataFrame, blocks: DataFrame, block: int, tasks: int) -> DataFrame:
    """Every row to all tasks that need it, sorted as they need it; the means of the blocks come first."""
    pairs = "cast(blocks * (blocks + 1) / 2 as int)"
    slices = f"greatest(1, cast(ceil({tasks} / {pairs}) as int))"
    chunks = rates.select("chunk_s", "block", "number", "rates", sf.lit(None).cast("array<double>").alias("means"))
    chunks = chunks.crossJoin(sf.broadcast(blocks))
    chunks = chunks.select("*", sf.expr(f"cast(pmod(chunk_s div {CHUNK_S}, {slices}) as int)").alias("slice"))
    first = means.crossJoin(sf.broadcast(blocks)).select(
        "*",
        sf.explode(sf.expr(f"sequence(0, {slices} - 1)")).alias("slice"),
        sf.lit(MEANS_FIRST).cast("long").alias("chunk_s"),
        sf.lit(-1).alias("number"),
        sf.lit(None).cast("binary").alias("rates"),
    )
    every = chunks.unionByName(first).select("*", sf.explode(sf.expr("sequence(0, blocks - 1)")).alias("partner"))
    every = every.select("*", sf.least("block", "partner").alias("one"), sf.greatest("block", "partner").alias("other"))
    pair = "(other * (other + 1) / 2 + one)"
    placed = every.select(
        "*",
        sf.expr(f"cast({pair} * {slices} + slice as int)").alias("task"),
        (sf.col("block") * block).alias("first"),
    )
    # One partition for each of the tasks; should there be more tasks than that, they share partitions in turn.
    spread = placed.repartitionById(tasks, sf.pmod(sf.col("task"), sf.lit(tasks)).cast("int"))
    return spread.sortWithinPartitions("task", "chunk_s", "first")


def item_covariance(covariance: DataFrame, topics: DataFrame) -> DataFrame:
    """The covariances of items: sums over their topics, which is exact."""
    items = topics.select("item").distinct()
    numbered = items.select("item", sf.expr("cast(row_number() over (order by item) - 1 as int)").alias("item_number"))
    placed = topics.select("number", "item").join(sf.broadcast(numbered), "item")
    firsts = covariance.select("first", sf.size("covariances").alias("length")).distinct()
    across = (
        firsts.join(placed, sf.expr("number >= first and number < first + length"))
        .groupBy("first")
        .agg(sf.expr("transform(array_sort(collect_list(struct(number, item_number))), each -> each.item_number)"))
        .toDF("first", "columns")
    )
    count = numbered.agg(sf.count(sf.lit(1)).cast("int").alias("items"))
    rows = (
        covariance.join(sf.broadcast(placed), "number")
        .join(sf.broadcast(across), "first")
        .crossJoin(sf.broadcast(count))
        .select("item_number", "item", "columns", "covariances", "items")
    )
    given = columns("item_number int, item string, columns array<int>, covariances array<double>, items int")
    return map_groups(rows, given, ["item_number"], _item_row, TABLES["item_covariance"])


def _item_row(rows: Any) -> Any:
    items = rows.column("items")[0].as_py()
    total = np.zeros(items)
    for batch in rows.to_batches():
        total += np.bincount(
            batch.column("columns").flatten().to_numpy(), batch.column("covariances").flatten().to_numpy(), items
        )
    return pa.table(
        {
            "number": rows.column("item_number").slice(0, 1),
            "item": rows.column("item").slice(0, 1),
            "covariances": lists(total[np.newaxis]),
        }
    )
