"""Covariance: of the rates of all topics with each other, exact, in blocks, without any sample leaving the executors.

Topics are numbered and cut into blocks. A task is a pair of blocks over a part of the time. It gets the rows of
`load_series` sorted by time, puts those of a chunk side by side as a matrix, and adds the product of the matrix of one
block with that of the other, which BLAS does. A task holds one product of two blocks and a few seconds of rates,
however long the series are. What the parts of time have found is added up for each pair in the end.

Rates are taken as differences from their mean before they are multiplied, since sums of squares of large numbers lose
what is small. With y = x - m, s the sum of y and T seconds,

    covariance(i, j) = (sum of y_i y_j - s_i s_j / T) / (T - 1)

where s would be zero if m were exact, so the second term only takes away the rounding of m. A topic that is silent in a
chunk has y = -m there. Chunks in which both blocks are silent never reach the task; their seconds are what is missing
from T, and are added in the end.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from scipy.linalg.blas import dgemm, dsyrk

from overlane.pipeline.columns import columns, declare
from overlane.pipeline.grouping import in_groups
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import CHUNK_S

BLOCK = 4_096
"""Topics in a block: a product takes 128 MiB."""
TASKS = 4
STEP_S = 1_024
"""Seconds that are multiplied at once."""
MEANS_FIRST = -1
"""In place of a chunk: the row holds the means of a block."""

Floats = NDArray[np.float64]

_ROWS = columns("task int, one int, other int, chunk_s bigint, first int, number int, rates array<double>")
_PARTS = columns("one int, other int, part string, place int, values array<double>")
_WHOLE = columns("one int, other int, part string, place int, values array<double>, seconds bigint")
_FOUND = columns("number int, first int, covariances array<double>")
_ARROW_PARTS = pa.schema(
    {
        "one": pa.int32(),
        "other": pa.int32(),
        "part": pa.string(),
        "place": pa.int32(),
        "values": pa.list_(pa.float64()),
    }
)
_ARROW_FOUND = pa.schema([("number", pa.int32()), ("first", pa.int32()), ("covariances", pa.list_(pa.float64()))])


def topic_covariance(
    series: DataFrame, topics: DataFrame, chunks: DataFrame, block: int = BLOCK, tasks: int = TASKS
) -> DataFrame:
    """Each topic's covariances with all topics, a row for each block of them."""
    blocks = topics.agg(sf.ceil(sf.count(sf.lit(1)) / block).cast("int").alias("blocks"))
    numbers = topics.select("topic", "number", (sf.col("number") / block).cast("int").alias("block"))
    rates = series.join(sf.broadcast(numbers), "topic").select("chunk_s", "number", "block", "rates")
    means = topics.groupBy((sf.col("number") / block).cast("int").alias("block")).agg(
        sf.expr("transform(array_sort(collect_list(struct(number, mean))), each -> each.mean)").alias("rates")
    )
    parts = declare(_shared_out(rates, means, blocks, block, tasks), _ROWS).mapInArrow(_products(block), _PARTS)
    seconds = chunks.agg(sf.sum(sf.size("seconds")).alias("seconds"))
    whole = parts.crossJoin(sf.broadcast(seconds))
    found = in_groups(whole, _WHOLE, ["one", "other"], _added_up(block), _FOUND)
    return declare(found.join(sf.broadcast(topics.select("number", "topic")), "number"), TABLES["topic_covariance"])


def _shared_out(rates: DataFrame, means: DataFrame, blocks: DataFrame, block: int, tasks: int) -> DataFrame:
    """Every row to all tasks that need it, sorted as they need it; the means of the blocks come first."""
    pairs = "cast(blocks * (blocks + 1) / 2 as int)"
    slices = f"greatest(1, cast(ceil({tasks} / {pairs}) as int))"
    chunks = rates.select("chunk_s", "block", "number", "rates").crossJoin(sf.broadcast(blocks))
    chunks = chunks.select("*", sf.expr(f"cast(pmod(chunk_s div {CHUNK_S}, {slices}) as int)").alias("slice"))
    first = means.crossJoin(sf.broadcast(blocks)).select(
        "*",
        sf.explode(sf.expr(f"sequence(0, {slices} - 1)")).alias("slice"),
        sf.lit(MEANS_FIRST).cast("long").alias("chunk_s"),
        sf.lit(-1).alias("number"),
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


class _Side:
    """One block's rates, a few seconds of them, less their means."""

    def __init__(self, first: int, means: Floats) -> None:
        self.first = first
        self.means = means
        self.rates = np.empty((STEP_S, len(means)))
        self.sums = np.zeros(len(means))

    def silence(self, start: int, end: int) -> None:
        self.rates[start:end] = -self.means

    def fill(self, start: int, end: int, numbers: NDArray[np.int32], rates: Floats) -> None:
        places = numbers - self.first
        self.rates[start:end, places] = rates.T - self.means[places]

    def add_up(self, end: int) -> None:
        self.sums += self.rates[:end].sum(axis=0)


class _Product:
    """The product of two blocks over all chunks that it is given; the same block twice is multiplied once."""

    def __init__(self, one: int, other: int, means: dict[int, Floats], block: int) -> None:
        self.one, self.other = one, other
        self._left = _Side(one * block, means[one])
        self._right = self._left if one == other else _Side(other * block, means[other])
        self._sides = [self._left] if one == other else [self._left, self._right]
        self._sum = np.zeros((len(self._left.means), len(self._right.means)), order="F")
        self._at = 0
        self._end = 0
        self._chunk: int | None = None
        self._seconds = 0

    def add(self, chunk: int, first: int, numbers: NDArray[np.int32], rates: Floats) -> None:
        length = rates.shape[1]
        if chunk != self._chunk:
            self._chunk = chunk
            if self._end + length > STEP_S:
                self._multiply()
            self._at, self._end = self._end, self._end + length
            self._seconds += length
            for side in self._sides:
                side.silence(self._at, self._end)
        side = self._left if first == self._left.first else self._right
        side.fill(self._at, self._end, numbers, rates)

    def _multiply(self) -> None:
        # Row by row in memory is column by column to BLAS: the transposed views are what it wants, uncopied.
        left, right = self._left.rates[: self._end].T, self._right.rates[: self._end].T
        if self._left is self._right:
            self._sum = dsyrk(1.0, left, 1.0, self._sum, lower=1, overwrite_c=1)
        else:
            self._sum = dgemm(1.0, left, right, 1.0, self._sum, trans_b=1, overwrite_c=1)
        for side in self._sides:
            side.add_up(self._end)
        self._end = 0

    def told(self) -> Iterator[Any]:
        if self._end:
            self._multiply()
        for part, values in (
            ("means one", self._left.means),
            ("means other", self._right.means),
            ("sums one", self._left.sums),
            ("sums other", self._right.sums),
            ("seconds", np.array([float(self._seconds)])),
        ):
            yield self._batch(part, 0, values[np.newaxis])
        rows = max(1, (1 << 22) // max(1, self._sum.shape[1]))
        for start in range(0, len(self._sum), rows):
            yield self._batch("product", start, self._sum[start : start + rows])

    def _batch(self, part: str, start: int, values: Floats) -> Any:
        rows = len(values)
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(self.one, pa.int32()), rows),
                pa.repeat(pa.scalar(self.other, pa.int32()), rows),
                pa.repeat(pa.scalar(part), rows),
                pa.array(np.arange(start, start + rows, dtype=np.int32)),
                _lists(np.ascontiguousarray(values)),
            ],
            schema=_ARROW_PARTS,
        )


def _lists(values: Floats) -> Any:
    rows, length = values.shape
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * length), pa.array(values.ravel()))


def _products(block: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def multiply(batches: Iterator[Any]) -> Iterator[Any]:
        task: int | None = None
        product: _Product | None = None
        means: dict[int, Floats] = {}
        for batch in batches:
            for start, end in _steps(batch):
                here = batch.slice(start, end - start)
                if here.column("task")[0].as_py() != task:
                    if product is not None:
                        yield from product.told()
                    task, product, means = here.column("task")[0].as_py(), None, {}
                first = here.column("first")[0].as_py()
                chunk = here.column("chunk_s")[0].as_py()
                rates = here.column("rates").flatten().to_numpy()
                if chunk == MEANS_FIRST:
                    for number in range(here.num_rows):
                        means[here.column("first")[number].as_py() // block] = here.column("rates")[
                            number
                        ].values.to_numpy()
                    continue
                if product is None:
                    pair = here.column("one")[0].as_py(), here.column("other")[0].as_py()
                    product = _Product(*pair, means, block)
                numbers = here.column("number").to_numpy()
                product.add(chunk, first, numbers, rates.reshape(here.num_rows, -1))
        if product is not None:
            yield from product.told()

    return multiply


def _steps(batch: Any) -> Iterator[tuple[int, int]]:
    """Stretches of rows of the same task, chunk and block."""
    keys = [batch.column(name).to_numpy() for name in ("task", "chunk_s", "first")]
    is_means = keys[1] == MEANS_FIRST
    changes = np.zeros(batch.num_rows - 1, dtype=np.bool_)
    for number, key in enumerate(keys):
        differs = key[1:] != key[:-1]
        # Rows of means are of any block: they are read one by one.
        changes |= differs & ~(is_means[1:] & is_means[:-1]) if number == 2 else differs
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
    yield from pairwise(cuts)


def _added_up(block: int) -> Callable[[Any], Any]:
    def add_up(parts: Any) -> Any:
        one, other = parts.column("one")[0].as_py(), parts.column("other")[0].as_py()
        total_s = parts.column("seconds")[0].as_py()
        found: dict[str, Floats] = {}
        product: Floats | None = None
        for batch in parts.to_batches():
            names = batch.column("part").to_pylist()
            places = batch.column("place").to_numpy()
            values = batch.column("values")
            for number, name in enumerate(names):
                row = values[number].values.to_numpy()
                if name.startswith("means"):
                    found[name] = row
                    continue
                if name != "product":
                    found[name] = found.get(name, 0.0) + row
                    continue
                if product is None:
                    rows = len(found["means one"]) if "means one" in found else int(_rows(parts, "means one"))
                    product = np.zeros((rows, len(row)))
                product[places[number]] += row
        if product is None:
            return _ARROW_FOUND.empty_table()
        if one == other:
            product = np.tril(product) + np.tril(product, -1).T
        unseen_s = total_s - found["seconds"][0]
        left, right = found["means one"], found["means other"]
        product += unseen_s * np.outer(left, right)
        sums = found["sums one"] - unseen_s * left, found["sums other"] - unseen_s * right
        covariances = (product - np.outer(*sums) / total_s) / max(1, total_s - 1)
        here = _covariances(covariances, one * block, other * block)
        if one == other:
            return here
        return pa.concat_tables([here, _covariances(covariances.T, other * block, one * block)])

    return add_up


def _rows(parts: Any, name: str) -> int:
    for batch in parts.to_batches():
        for number, part in enumerate(batch.column("part").to_pylist()):
            if part == name:
                return len(batch.column("values")[number])
    return 0


def _covariances(values: Floats, start: int, first: int) -> Any:
    rows = len(values)
    return pa.Table.from_arrays(
        [
            pa.array(np.arange(start, start + rows, dtype=np.int32)),
            pa.repeat(pa.scalar(first, pa.int32()), rows),
            _lists(np.ascontiguousarray(values)),
        ],
        schema=_ARROW_FOUND,
    )


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
    return in_groups(rows, given, ["item_number"], _item_row, TABLES["item_covariance"])


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
            "covariances": _lists(total[np.newaxis]),
        }
    )
