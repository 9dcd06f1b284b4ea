"""Covariance in blocks is the covariance: the same numbers as numpy's, whatever the blocks and tasks."""

from collections.abc import Collection
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from overlane.pipeline.analysis.covariance import item_covariance, topic_covariance
from overlane.pipeline.columns import declare
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import CHUNK_S
from sparks import PARTS, the_spark

pytestmark = [PARTS, pytest.mark.slow]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return the_spark()


SEED = 11


def series(
    rates: NDArray[np.float64], spark: SparkSession, silent: Collection[tuple[int, int]] = ()
) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Tables of given rates, one row of them per second; chunks of ten seconds, the last one shorter."""
    seconds, topics = rates.shape
    cuts = [*range(0, seconds, 10), seconds]
    rows, chunks = [], []
    for number, (start, end) in enumerate(pairwise(cuts)):
        chunk_s = number * CHUNK_S
        chunks.append((chunk_s, list(range(end - start))))
        heard = [topic for topic in range(topics) if (number, topic) not in silent]
        for place, topic in enumerate(heard):
            values = rates[start:end, topic]
            told = (values.tobytes(), float(values.sum()), 0.0, place, len(heard))
            rows.append((chunk_s, f"t{topic:03d}", *told))
    means = rates.mean(axis=0)
    load = [(n, f"t{n:03d}", f"item{n % 3}", float(means[n]), 0.0, 0.0, seconds) for n in range(topics)]
    return (
        spark.createDataFrame(rows, TABLES["load_series"]),
        spark.createDataFrame(load, TABLES["topic_load"]),
        spark.createDataFrame(chunks, TABLES["load_chunks"]),
    )


def matrix(found: DataFrame, topics: int) -> NDArray[np.float64]:
    every = np.full((topics, topics), np.nan)
    for row in found.collect():
        every[row.number, row.first : row.first + len(row.covariances)] = row.covariances
    return every


@pytest.mark.parametrize(("block", "tasks"), [(100, 1), (100, 4), (5, 4), (4, 3)])
def test_blocks_and_tasks_change_nothing_in_the_covariance(spark: SparkSession, block: int, tasks: int) -> None:
    rng = np.random.default_rng(SEED)
    rates = rng.standard_normal((57, 3)) @ rng.standard_normal((3, 13)) + rng.standard_normal((57, 13)) + 50
    found = topic_covariance(*series(rates, spark), block, tasks)
    np.testing.assert_allclose(matrix(found, 13), np.cov(rates.T), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pieces", [1, 3])
def test_whole_chunks_and_chunks_in_pieces_make_the_same_covariance(spark: SparkSession, pieces: int) -> None:
    """In one piece they are multiplied where they are read; of rows in any order none has its chunk beside it."""
    rng = np.random.default_rng(SEED)
    rates = rng.poisson(5, (2_530, 6)).astype(np.float64)
    silent = {(0, 1), (2, 4), (200, 5)}
    for chunk, topic in silent:
        rates[chunk * 10 : chunk * 10 + 10, topic] = 0
    rows, load, chunks = series(rates, spark, silent)
    arranged = rows.coalesce(1) if pieces == 1 else rows.repartition(pieces, "topic")
    found = topic_covariance(arranged, load, chunks, 10, 2)
    np.testing.assert_allclose(matrix(found, 6), np.cov(rates.T), rtol=1e-11, atol=1e-12)


def test_what_is_small_is_not_lost_beside_a_large_mean(spark: SparkSession) -> None:
    rng = np.random.default_rng(SEED)
    rates = 1e9 + rng.standard_normal((200, 4))
    found = topic_covariance(*series(rates, spark), 2, 2)
    np.testing.assert_allclose(matrix(found, 4), np.cov(rates.T), rtol=1e-6)


def test_chunks_without_a_row_are_zeros(spark: SparkSession) -> None:
    rng = np.random.default_rng(SEED)
    rates = rng.poisson(3, (40, 6)).astype(np.float64)
    silent = {(0, 1), (2, 1), (2, 4), *((3, topic) for topic in range(6)), *((1, topic) for topic in range(3))}
    for chunk, topic in silent:
        rates[chunk * 10 : chunk * 10 + 10, topic] = 0
    found = topic_covariance(*series(rates, spark, silent), 3, 4)
    np.testing.assert_allclose(matrix(found, 6), np.cov(rates.T), rtol=1e-12, atol=1e-12)


def test_items_vary_as_the_sums_of_their_topics(spark: SparkSession) -> None:
    rng = np.random.default_rng(SEED)
    rates = rng.standard_normal((30, 7)) + 10
    rows, load, chunks = series(rates, spark)
    topics = declare(topic_covariance(rows, load, chunks, 4, 2), TABLES["topic_covariance"])
    found = item_covariance(topics, load).collect()
    sums = np.stack([rates[:, number::3].sum(axis=1) for number in range(3)])
    assert [row.item for row in sorted(found, key=lambda row: row.number)] == ["item0", "item1", "item2"]
    expected = np.cov(sums)
    for row in found:
        np.testing.assert_allclose(row.covariances, expected[row.number], rtol=1e-11, atol=1e-11)
