"""The same pipeline here and on a standalone cluster, through Spark Connect: the same tables, row for row.

Here they were made in two runs, the second of which read only what was new; there they are made in one. One run serves
both: its Connect server is the driver, and its executors are those of the cluster. A whole run costs too much for two;
that a driver of the command's own finds the cluster, and the executors its Python, is shown by a single table.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest
from pipelinestory import the_story

from overlane.pipeline.schemas import TABLES
from overlane.pipeline.small_runs import SMALL_RUN_CONF
from sparks import GROUP, pipeline, unmarked
from waiting import eventually

pytestmark = [GROUP, pytest.mark.slow]

SPARK = Path(pyspark.__file__).parent
WAIT_S = 300
INGESTED = "events"
JAVA = SMALL_RUN_CONF["spark.driver.extraJavaOptions"]


@dataclass(frozen=True)
class Made:
    here: Path
    there: Path
    executors: list[Path]
    """Where each worker has kept what its executors said."""
    ingested: dict[str, int]
    """Rows of each file that executors have ingested for a driver of the process's own, on the same cluster."""
    expected: dict[str, int]


@contextmanager
def started(log: Path, ready: str, *command: str) -> Iterator[str]:
    """A process that has said that it is ready, and what it said."""
    here = {
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": JAVA,
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("w") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=subprocess.STDOUT, cwd=log.parent, env={**unmarked(), **here}
        )
    try:

        def says() -> re.Match[str] | None:
            assert process.poll() is None, log.read_text()
            return re.search(ready, log.read_text())

        yield eventually(says, ready, WAIT_S, log.read_text).group(1)
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    story, path = the_story(), tmp_path_factory.mktemp("clusters")
    with ExitStack() as stack:
        master = _cluster(stack, path)
        with ExitStack() as serving:
            server = _connect_server(serving, path, master)
            said_by(pipeline("run", "--lake", str(story.lake), "--out", str(path / "out"), "--remote", server))
        executors = sorted(path.glob("work*/app-*/*/stderr"))
        own_driver = [sys.executable, str(Path(__file__).with_name("cluster_ingest.py"))]
        ingested = json.loads(said_by([*own_driver, master, f"file://{story.lake}", INGESTED]))
    expected = {
        str(file.relative_to(story.lake / INGESTED)): pq.read_metadata(file).num_rows
        for file in (story.lake / INGESTED).rglob("*.parquet")
    }
    return Made(story.second.tables, path / "out" / "latest" / "tables", executors, ingested, expected)


def _cluster(stack: ExitStack, path: Path) -> str:
    """A master and two workers of one core each."""
    deploy, spark_class = "org.apache.spark.deploy", str(SPARK / "bin" / "spark-class")
    own = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    at = r"Starting Spark master at (spark://\S+)"
    master = stack.enter_context(started(path / "master.log", at, spark_class, f"{deploy}.master.Master", *own))
    for number in (1, 2):
        work = ("--cores", "1", "--memory", "1g", "--work-dir", str(path / f"work{number}"), master)
        worker = (spark_class, f"{deploy}.worker.Worker", *own, *work)
        stack.enter_context(started(path / f"worker{number}.log", r"(Successfully registered)", *worker))
    return master


def _connect_server(stack: ExitStack, path: Path, master: str) -> str:
    conf = (
        "spark.executor.memory=800m",
        f"spark.executor.extraJavaOptions={JAVA}",
        "spark.driver.host=127.0.0.1",
        "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.connect.grpc.binding.port=0",
        "spark.ui.enabled=false",
        f"spark.driver.extraJavaOptions={JAVA}",
    )
    settings = [word for each in conf for word in ("--conf", each)]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    submit = (str(SPARK / "bin" / "spark-submit"), "--master", master, *settings)
    ready = r"Spark Connect server started at: \S+:(\d+)"
    port = stack.enter_context(started(path / "connect.log", ready, *submit, "--class", server, "spark-internal"))
    return f"sc://127.0.0.1:{port}"


def said_by(command: list[str]) -> str:
    done = subprocess.run(command, env=unmarked(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(path: Path) -> list[tuple[Any, ...]]:
    table = pq.read_table(path)
    return sorted((tuple(_plain(row[name]) for name in table.schema.names) for row in table.to_pylist()), key=_order)


def _plain(value: Any) -> Any:
    """Maps come as lists of pairs, in any order."""
    return sorted(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value


def _order(row: tuple[Any, ...]) -> str:
    # Sums are of floating point and end in another digit when they are added up in another order.
    return str([f"{value:.6g}" if isinstance(value, float) else value for value in row if not isinstance(value, list)])


def test_both_workers_have_computed(made: Made) -> None:
    assert {path.parents[2].name for path in made.executors} == {"work1", "work2"}


def test_executors_of_a_cluster_compute_for_a_driver_of_the_process_s_own_too(made: Made) -> None:
    assert made.expected
    assert made.ingested == made.expected


@pytest.mark.parametrize("table", sorted(TABLES))
def test_the_same_tables_come_out_wherever_the_pipeline_runs(made: Made, table: str) -> None:
    here, there = rows(made.here / table), rows(made.there / table)
    assert len(here) == len(there)
    for one, two in zip(here, there, strict=True):
        assert len(one) == len(two)
        for left, right in zip(one, two, strict=True):
            _compare(left, right)


def _compare(left: Any, right: Any) -> None:
    """Sums of floating point may end in another digit, in the text of a problem too; all else is the same."""
    if isinstance(left, str) and left.startswith("{"):
        _compare(json.loads(left), json.loads(right))
    elif isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            _compare(left[key], right[key])
    elif isinstance(left, list):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            _compare(one, other)
    elif isinstance(left, float):
        assert left == pytest.approx(right, rel=1e-9, abs=1e-9)
    else:
        assert left == right
