"""Block products: the tasks of the covariance multiply blocks of rates with BLAS.

The mean is subtracted from rates before they are multiplied, since sums of squares of large numbers lose precision.
With y = x - m, s the sum of y, and T seconds,

    covariance(i, j) = (sum of y_i y_j - s_i s_j / T) / (T - 1)

where s would be zero if m were exact; the second term corrects the rounding of m. A topic that is silent in a chunk has
y = -m there. Chunks in which both blocks are silent are not sent to the task; their seconds are added to T at the end.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm, dsyrk

from overlane.pipeline.packed_columns import Floats, packed, unpacked, unpacked_row
from overlane.pipeline.units import CHUNK_S

STEP_S = 4 * CHUNK_S
"""Seconds that are multiplied at once."""
MEANS_FIRST = -2
"""In place of a chunk: the row holds the means of a block."""
MULTIPLIED = -1
"""In place of a chunk: the row is one of a product that was made where the rows were read."""
SUMS, SECONDS = -1, -2
"""In place of a topic: what else there is of such a product."""

_ARROW_PARTS = pa.schema(
    {
        "one": pa.int32(),
        "other": pa.int32(),
        "part": pa.string(),
        "place": pa.int32(),
        "values": pa.binary(),
    }
)
_ARROW_RATES = pa.schema({"chunk_s": pa.int64(), "block": pa.int32(), "number": pa.int32(), "rates": pa.binary()})
_ARROW_FOUND = pa.schema([("number", pa.int32()), ("first", pa.int32()), ("covariances", pa.list_(pa.float64()))])


class _Side:
    """One block's rates, a few seconds of them, less their means."""

    def __init__(self, first: int, means: Floats) -> None:
        self.first = first
        self.means = means
        self.rates = np.zeros((len(means), STEP_S))
        self.sums = np.zeros(len(means))

    def silence(self, start: int, end: int) -> None:
        self.rates[:, start:end] = -self.means[:, np.newaxis]

    def fill(self, start: int, end: int, numbers: NDArray[np.int32], rates: Floats) -> None:
        places = numbers - self.first
        self.rates[places, start:end] = rates - self.means[places, np.newaxis]

    def end_at(self, end: int) -> None:
        """Nothing counts after that."""
        self.rates[:, end:] = 0.0
        self.sums += self.rates.sum(axis=1)


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

    def add_multiplied(self, places: list[int], values: Any) -> None:
        """Rows of a product of the same block twice, and of what belongs to it."""
        for number, value in zip(places, values, strict=True):
            row = unpacked_row(value)
            if number == SUMS:
                self._left.sums += row
            elif number == SECONDS:
                self._seconds += int(row[0])
            else:
                self._sum[number] += row

    def _multiply(self) -> None:
        # Row by row in memory is column by column to BLAS: the transposed views are what it wants, uncopied.
        for side in self._sides:
            side.end_at(self._end)
        left, right = self._left.rates.T, self._right.rates.T
        if self._left is self._right:
            self._sum = dsyrk(1.0, left, 1.0, self._sum, trans=1, lower=1, overwrite_c=1)
        else:
            self._sum = dgemm(1.0, left, right, 1.0, self._sum, trans_a=1, overwrite_c=1)
        self._end = 0

    def told_as_rows(self) -> Iterator[Any]:
        """What another product of the same block can add."""
        if self._end:
            self._multiply()
        yield _rates([SUMS], self._left.sums[np.newaxis])
        yield _rates([SECONDS], np.array([[float(self._seconds)]]))
        for start, rows in _slabs(self._sum):
            yield _rates(range(start, start + len(rows)), rows)

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
        for start, rows in _slabs(self._sum):
            yield self._batch("product", start, rows)

    def _batch(self, part: str, start: int, values: Floats) -> Any:
        rows = len(values)
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(self.one, pa.int32()), rows),
                pa.repeat(pa.scalar(self.other, pa.int32()), rows),
                pa.repeat(pa.scalar(part), rows),
                pa.array(np.arange(start, start + rows, dtype=np.int32)),
                packed(values),
            ],
            schema=_ARROW_PARTS,
        )


def _slabs(product: Floats) -> Iterator[tuple[int, Floats]]:
    """A product in pieces that are small enough to be sent at once."""
    rows = max(1, (1 << 22) // max(1, product.shape[1]))
    for start in range(0, len(product), rows):
        yield start, product[start : start + rows]


def _rates(places: Iterable[int], values: Floats) -> Any:
    rows = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(MULTIPLIED, pa.int64()), rows),
            pa.repeat(pa.scalar(0, pa.int32()), rows),
            pa.array(places, pa.int32()),
            packed(values),
        ],
        schema=_ARROW_RATES,
    )


def lists(values: Floats) -> Any:
    rows, length = values.shape
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * length), pa.array(values.ravel()))


def whole_chunks(block: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def multiply(batches: Iterator[Any]) -> Iterator[Any]:
        product: _Product | None = None
        held: list[Any] = []
        for batch in batches:
            for part in _chunks(batch):
                if held and held[0].column("chunk_s")[0] != part.column("chunk_s")[0]:
                    yield from _unmultiplied(held)
                    held = []
                held.append(part)
                if sum(each.num_rows for each in held) < part.column("topics")[0].as_py():
                    continue
                if product is None:
                    product = _Product(0, 0, {0: _means(held)}, block)
                for each in held:
                    rates = unpacked(each.column("rates"))
                    product.add(each.column("chunk_s")[0].as_py(), 0, each.column("number").to_numpy(), rates)
                held = []
        yield from _unmultiplied(held)
        if product is not None:
            yield from product.told_as_rows()

    return multiply


def _chunks(batch: Any) -> Iterator[Any]:
    """The stretches of a batch that are of the same chunk."""
    if batch.num_rows:
        chunk = batch.column("chunk_s").to_numpy()
        for start, end in pairwise([0, *(np.flatnonzero(np.diff(chunk)) + 1).tolist(), batch.num_rows]):
            yield batch.slice(start, end - start)


def _means(chunk: list[Any]) -> Floats:
    (found,) = (means for part in chunk for means in part.column("means") if means.is_valid)
    values: Floats = found.values.to_numpy()
    return values


def _unmultiplied(rows: list[Any]) -> Iterator[Any]:
    for part in rows:
        block = pa.repeat(pa.scalar(0, pa.int32()), part.num_rows)
        named = [part.column("chunk_s"), block, part.column("number"), part.column("rates")]
        yield pa.RecordBatch.from_arrays(named, schema=_ARROW_RATES)


def products(block: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
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
                if chunk == MEANS_FIRST:
                    for number in range(here.num_rows):
                        means[here.column("first")[number].as_py() // block] = here.column("means")[
                            number
                        ].values.to_numpy()
                    continue
                if product is None:
                    pair = here.column("one")[0].as_py(), here.column("other")[0].as_py()
                    product = _Product(*pair, means, block)
                places = here.column("number")
                if chunk == MULTIPLIED:
                    product.add_multiplied(places.to_pylist(), here.column("rates"))
                else:
                    product.add(chunk, first, places.to_numpy(), unpacked(here.column("rates")))
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


def added_up(block: int) -> Callable[[Any], Any]:
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
                row = unpacked_row(values[number])
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
                return len(unpacked_row(batch.column("values")[number]))
    return 0


def _covariances(values: Floats, start: int, first: int) -> Any:
    rows = len(values)
    return pa.Table.from_arrays(
        [
            pa.array(np.arange(start, start + rows, dtype=np.int32)),
            pa.repeat(pa.scalar(first, pa.int32()), rows),
            lists(np.ascontiguousarray(values)),
        ],
        schema=_ARROW_FOUND,
    )
