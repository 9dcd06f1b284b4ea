"""Covariance of many topics on Spark compared with numpy in one process, on the same numbers in one run.

    python bench/covariance.py [--topics 2000] [--seconds 100000] [--memory 4g] [--without-numpy] [--rounds 1]

The rates are normal numbers in Parquet files, in the format of `load_series`: five minutes of a topic per row. Spark
reads them, computes and writes the covariance, block by block. Numpy has them in memory and calls `numpy.cov`, with all
cores; the time to read the same files with Arrow is reported separately. Prints the times, their ratio, the largest
difference between the two results in units of the largest entry, and the maximum memory of the processes of Spark.
Writes bench/out/covariance.json.
"""

import argparse
import json
import os
import resource
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from overlane.pipeline.analysis.covariance import topic_covariance
from overlane.pipeline.packed_columns import packed, unpacked
from overlane.pipeline.session import open_session
from overlane.pipeline.units import CHUNK_S

OUT = Path(__file__).parent / "out"
SEED = 1
MEAN = 100.0


def write_series(path: Path, topics: int, seconds: int) -> None:
    """Tables load_series, topic_load and load_chunks of normal rates with one common cause."""
    rng = np.random.default_rng(SEED)
    names = pa.array([f"topic-{number:06d}" for number in range(topics)])
    loading = rng.uniform(0, 2, topics)
    total = np.zeros(topics)
    (path / "load_series").mkdir(parents=True)
    chunks = []
    for number, start in enumerate(range(0, seconds, CHUNK_S)):
        length = min(CHUNK_S, seconds - start)
        rates = MEAN + rng.standard_normal((topics, length)) + loading[:, np.newaxis] * rng.standard_normal(length)
        total += rates.sum(axis=1)
        rows = {
            "chunk_s": pa.array(np.full(topics, number * CHUNK_S)),
            "topic": names,
            "rates": packed(rates),
            "place": pa.array(np.arange(topics, dtype=np.int32)),
            "topics": pa.array(np.full(topics, topics, dtype=np.int32)),
        }
        pq.write_table(pa.table(rows), path / "load_series" / f"{number:06d}.parquet", compression="none")
        chunks.append({"chunk_s": number * CHUNK_S, "seconds": list(range(length))})
    for name, table in (
        (
            "topic_load",
            pa.table({"number": pa.array(np.arange(topics, dtype=np.int32)), "topic": names, "mean": total / seconds}),
        ),
        (
            "load_chunks",
            pa.Table.from_pylist(chunks, pa.schema({"chunk_s": pa.int64(), "seconds": pa.list_(pa.int32())})),
        ),
    ):
        (path / name).mkdir()
        pq.write_table(table, path / name / "part.parquet")


def read_matrix(path: Path, topics: int, seconds: int) -> Any:
    matrix = np.empty((topics, seconds))
    at = 0
    for file in sorted((path / "load_series").iterdir()):
        rates = unpacked(pq.read_table(file, columns=["rates"]).column("rates").combine_chunks())
        matrix[:, at : at + rates.shape[1]] = rates
        at += rates.shape[1]
    return matrix


class Memory(threading.Thread):
    """The most that this process's children had in memory at once, looked at a few times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most_bytes = 0
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.25):
            self.most_bytes = max(self.most_bytes, _children_bytes(os.getpid()))

    def end(self) -> int:
        self._ended.set()
        self.join()
        return self.most_bytes


def _children_bytes(parent: int) -> int:
    """Of all processes below this one, what they do not share."""
    parents, sizes = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after_name = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(entry.name)] = int(after_name[1])
                resident, shared = (entry / "statm").read_text().split()[1:3]
            except (FileNotFoundError, ProcessLookupError):
                continue
            sizes[int(entry.name)] = (int(resident) - int(shared)) * resource.getpagesize()
    below = {parent}
    for _ in range(8):
        below |= {child for child, above in parents.items() if above in below}
    return sum(sizes.get(process, 0) for process in below - {parent})


def with_spark(path: Path, memory: str, rounds: int) -> tuple[list[float], int]:
    took_s = []
    with open_session(conf={"spark.driver.memory": memory, "spark.local.dir": str(path)}) as spark:
        spark.range(1).count()
        watched = Memory()
        watched.start()
        for _ in range(rounds):
            begin_s = time.perf_counter()
            series, topics, chunks = (
                spark.read.parquet(str(path / name)) for name in ("load_series", "topic_load", "load_chunks")
            )
            found = topic_covariance(series, topics, chunks, tasks=max(4, os.cpu_count() or 1))
            found.write.mode("overwrite").parquet(str(path / "found"))
            took_s.append(time.perf_counter() - begin_s)
    return took_s, watched.end()


def difference(path: Path, truth: Any) -> float:
    worst = 0.0
    for batch in pq.ParquetDataset(path / "found").read(columns=["number", "first", "covariances"]).to_batches(64):
        for row in batch.to_pylist():
            right = truth[row["number"], row["first"] : row["first"] + len(row["covariances"])]
            worst = max(worst, float(np.abs(right - row["covariances"]).max()))
    return worst / float(np.abs(truth).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--seconds", type=int, default=100_000)
    parser.add_argument("--memory", default="4g", help="of the driver of Spark")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--without-numpy", action="store_true", help="where the samples do not fit in memory")
    given = parser.parse_args()
    path = Path(tempfile.mkdtemp(prefix="overlane-covariance-"))
    told: dict[str, Any] = {"topics": given.topics, "seconds": given.seconds}
    try:
        write_series(path, given.topics, given.seconds)
        told["spark_s"], told["spark_bytes_max"] = with_spark(path, given.memory, given.rounds)
        if not given.without_numpy:
            begin_s = time.perf_counter()
            matrix = read_matrix(path, given.topics, given.seconds)
            told["read_s"] = time.perf_counter() - begin_s
            told["numpy_s"] = []
            for _ in range(given.rounds):
                begin_s = time.perf_counter()
                truth = np.cov(matrix)
                told["numpy_s"].append(time.perf_counter() - begin_s)
            told["ratio"] = min(told["spark_s"]) / min(told["numpy_s"])
            told["difference"] = difference(path, truth)
    finally:
        shutil.rmtree(path)
    OUT.mkdir(exist_ok=True)
    (OUT / "covariance.json").write_text(json.dumps(told, indent=1))
    table = Table("", "", title=f"Covariance of {given.topics:,} topics x {given.seconds:,} seconds", show_header=False)
    for name, value in told.items():
        table.add_row(name, ", ".join(f"{each:.4g}" for each in (value if isinstance(value, list) else [value])))
    Console().print(table)


if __name__ == "__main__":
    main()
