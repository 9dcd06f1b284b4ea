"""Grouped Python functions that declarative pipelines allow.

Spark's own grouped functions request the columns of tables that the pipeline has not computed yet. So rows are sorted
by their key, and the stream of rows is split where the key changes. A function gets one whole group at a time.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from overlane.pipeline.columns import declare

GroupFunction = Callable[[Any], Any]
"""From pyarrow.Table to pyarrow.Table."""


def map_groups(
    frame: DataFrame, given: StructType, keys: list[str], function: GroupFunction, found: StructType
) -> DataFrame:
    """Apply the function to each group of rows with the same keys. Keys must not be null."""
    together = declare(frame, given).repartition(*keys).sortWithinPartitions(*keys)
    return declare(together, given).mapInArrow(_each(keys, function), found)


def map_all(frame: DataFrame, given: StructType, function: GroupFunction, found: StructType) -> DataFrame:
    """Apply the function to all rows together; not called if there are none."""
    return declare(declare(frame, given).repartition(1), given).mapInArrow(_each([], function), found)


def _each(keys: list[str], function: GroupFunction) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def stream(batches: Iterator[Any]) -> Iterator[Any]:
        held: list[Any] = []
        for batch in batches:
            for number, part in enumerate(_cut(batch, keys)):
                if held and (number > 0 or not _same(held[-1], part, keys)):
                    yield from function(pa.Table.from_batches(held)).to_batches()
                    held = []
                held.append(part)
        if held:
            yield from function(pa.Table.from_batches(held)).to_batches()

    return stream


def _cut(batch: Any, keys: list[str]) -> Iterator[Any]:
    """Runs of rows with the same keys."""
    if batch.num_rows == 0:
        return
    changes = np.zeros(batch.num_rows - 1, dtype=np.bool_)
    for key in keys:
        column = batch.column(key)
        changes |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(cuts):
        yield batch.slice(start, end - start)


def _same(one: Any, other: Any, keys: list[str]) -> bool:
    return all(one.column(key)[0] == other.column(key)[0] for key in keys)
