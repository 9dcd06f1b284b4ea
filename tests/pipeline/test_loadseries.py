"""The series of a chunk of time, without Spark: which row a topic has does not depend on what came first."""

from random import Random

import numpy as np
import pyarrow as pa

from overlane.pipeline.analysis.load_series import chunk_series

ROWS = [
    {"chunk_s": 300, "topic": topic, "second": second, "rate": float(second + len(topic)), "seconds": None}
    for topic in ("plant/1", "plant/10", "fleet", "b")
    for second in (0, 2)
]
CHUNK = {"chunk_s": 300, "topic": None, "second": 0, "rate": 0.0, "seconds": [0, 1, 2]}
SCHEMA = pa.schema(
    {
        "chunk_s": pa.int64(),
        "topic": pa.string(),
        "second": pa.int32(),
        "rate": pa.float64(),
        "seconds": pa.list_(pa.int32()),
    }
)


def test_a_chunk_has_the_same_rows_in_whatever_order_its_rates_come() -> None:
    rows = [*ROWS, CHUNK]
    for seed in range(5):
        Random(seed).shuffle(rows)
        found = chunk_series(pa.Table.from_pylist(rows, SCHEMA)).to_pylist()
        assert [(row["topic"], row["place"], row["topics"]) for row in found] == [
            ("b", 0, 4),
            ("fleet", 1, 4),
            ("plant/1", 2, 4),
            ("plant/10", 3, 4),
        ], f"seed {seed}"
        assert [np.frombuffer(row["rates"]).tolist() for row in found] == [[1, 0, 3], [5, 0, 7], [7, 0, 9], [8, 0, 10]]
        assert [row["total"] for row in found] == [4, 12, 16, 18]
