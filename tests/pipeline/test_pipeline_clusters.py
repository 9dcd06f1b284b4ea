"""The same pipeline on a standalone cluster and through Spark Connect: the same tables, row for row."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest
from sparks import BRIEF, GROUP

from overlane.pipeline.sample import START_S, write_sample
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import HOUR_S

pytestmark = [GROUP, pytest.mark.slow, pytest.mark.long]

SPARK = Path(pyspark.__file__).parent
WAIT_S = 300
SEED = 3


@contextmanager
def started(log: Path, ready: str, *command: str) -> Iterator[str]:
    """A process that has said that it is ready, and what it said."""
    here = {"SPARK_HOME": str(SPARK), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("w") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=subprocess.STDOUT, cwd=log.parent, env={**os.environ, **here}
        )
    try:
        end_s = time.monotonic() + WAIT_S
        while not (found := re.search(ready, log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end_s, log.read_text()
            time.sleep(0.2)
        yield found.group(1)
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where the tables are, by how they were made."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    path = tmp_path_factory.mktemp("clusters")
    write_sample(path / "lake", 4, 20, 3, SEED, START_S + 8 * HOUR_S)
    spark_class, submit = str(SPARK / "bin" / "spark-class"), str(SPARK / "bin" / "spark-submit")
    with ExitStack() as stack:
        deploy = "org.apache.spark.deploy"
        own = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        at = r"Starting Spark master at (spark://\S+)"
        master = stack.enter_context(started(path / "master.log", at, spark_class, f"{deploy}.master.Master", *own))
        for number in (1, 2):
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(path / f"work{number}"), master)
            worker = (spark_class, f"{deploy}.worker.Worker", *own, *work)
            stack.enter_context(started(path / f"worker{number}.log", r"(Successfully registered)", *worker))
        _pipeline(path, "cluster", "--master", master, "--conf", "spark.executor.memory=800m")
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    conf = (
        "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.connect.grpc.binding.port=0",
        "spark.ui.enabled=false",
    )
    settings = [word for each in conf for word in ("--conf", each)]
    command = (submit, "--master", "local[2]", *settings, "--class", server, "spark-internal")
    with started(path / "connect.log", r"Spark Connect server started at: \S+:(\d+)", *command) as port:
        _pipeline(path, "connect", "--remote", f"sc://127.0.0.1:{port}")
    return {name: path / name / "latest" / "tables" for name in ("cluster", "connect")}


def _pipeline(path: Path, name: str, *where: str) -> None:
    brief = [word for item in BRIEF.items() for word in ("--conf", "=".join(item))]
    command = [sys.executable, "-m", "overlane", "pipeline", "run", "--json", *where, *brief]
    done = subprocess.run(
        [*command, "--lake", str(path / "lake"), "--out", str(path / name)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def rows(path: Path) -> list[tuple[Any, ...]]:
    table = pq.read_table(path)
    return sorted((tuple(_plain(row[name]) for name in table.schema.names) for row in table.to_pylist()), key=_order)


def _plain(value: Any) -> Any:
    """Maps come as lists of pairs, in any order."""
    return sorted(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value


def _order(row: tuple[Any, ...]) -> str:
    # Sums are of floating point and end in another digit when they are added up in another order.
    return str([f"{value:.6g}" if isinstance(value, float) else value for value in row if not isinstance(value, list)])


@pytest.mark.parametrize("table", sorted(TABLES))
def test_the_same_tables_come_out_wherever_the_pipeline_runs(runs: dict[str, Path], table: str) -> None:
    here, there = rows(runs["cluster"] / table), rows(runs["connect"] / table)
    assert len(here) == len(there)
    for one, two in zip(here, there, strict=True):
        assert len(one) == len(two)
        for left, right in zip(one, two, strict=True):
            assert left == pytest.approx(right, rel=1e-9, abs=1e-9) if _is_float(left) else left == right


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, list) and bool(value) and isinstance(value[0], float))
