"""The session: a Spark that suits a laptop, a cluster, or one that runs somewhere already.

Declarative pipelines are driven through Spark Connect. Where no server is named one is started inside the driver, of
this machine alone: it listens on the loopback interface, on a port that the system chooses, and asks for a token that
nobody else has. The same holds whether the driver computes itself or on a standalone cluster. What Spark has to say
goes to a file.
"""

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from overlane.errors import Unavailable

JAVA_PACKAGE = "openjdk-17-jre-headless"
LOCAL = "local[*]"
LOOPBACK = "127.0.0.1"
OWN_DRIVER_RETRIES = 4
"""Within about four seconds; as many as Spark has by default take ten minutes."""

LAPTOP: dict[str, str] = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.broadcastTimeout": "86400",  # what is small waits for its turn beside what is large: no failure
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.pipelines.execution.maxConcurrentFlows": "4",
    "spark.sql.pipelines.maxFlowRetryAttempts": "0",
}
"""Of the session: they hold on a server of somebody else too."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_DRIVER: dict[str, str] = {
    "spark.app.name": "overlane-pipeline",
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": LOOPBACK,
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.python.worker.reuse": "true",
}


@contextmanager
def open_session(
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Iterator[Any]:
    """A session of Spark Connect, ended in the end. Unavailable where Spark or Java is missing or does not answer."""
    try:
        import pyspark.sql.connect.session as connect
        from pyspark.sql.connect.client.retries import DefaultPolicy
    except ImportError as missing:
        raise Unavailable("Spark", f"{missing}; it comes with pip install 'overlane[pipeline]'") from None
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    wanted = {**LAPTOP, **(conf or {})}
    if remote is not None:
        with _connected(connect, remote, wanted) as spark:
            yield spark
        return
    with _server(master or LOCAL, wanted, log) as port, _connected(connect, f"sc://localhost:{port}", wanted) as spark:
        # A driver of one's own that does not answer has ended: no other one will come, as behind a service's address.
        spark.client.set_retry_policies([DefaultPolicy(max_retries=OWN_DRIVER_RETRIES)])
        yield spark


@contextmanager
def _connected(connect: Any, address: str, wanted: Mapping[str, str]) -> Iterator[Any]:
    from pyspark.errors import PySparkException

    try:
        spark = connect.SparkSession.builder.remote(address).create()
        for name, value in wanted.items():
            if name.startswith("spark.sql."):
                with suppress(PySparkException):  # what a server does not let others set is its own business
                    spark.conf.set(name, value)
    except Exception as refused:  # grpc's and Spark's own have nothing in common
        raise Unavailable(f"Spark at {address}", str(refused).splitlines()[0]) from None
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _server(master: str, wanted: Mapping[str, str], log: Path | None) -> Iterator[int]:
    """A driver with a Connect server in it, and its port."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise Unavailable("Spark", f"needs Java 17 or newer: install the package {JAVA_PACKAGE}")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_CONNECT_AUTHENTICATE_TOKEN", secrets.token_hex(16))
    os.environ["SPARK_LOCAL_REMOTE"] = "1"
    with tempfile.TemporaryDirectory(prefix="overlane-spark-") as scratch:
        every = {
            **_DRIVER,
            "spark.local.dir": scratch,
            **wanted,
            **_places(scratch, wanted.get(_JAVA_OPTIONS, "")),
            "spark.master": master,
        }
        if master.startswith("local") or LOOPBACK in master:
            every |= {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        given = SparkConf(loadDefaults=False).setAll(list(every.items()))
        with (log or Path(scratch) / "spark.log").open("ab") as said:
            try:
                gateway = launch_gateway(given, {"stdout": said, "stderr": said})  # type: ignore[no-untyped-call]
                context = SparkContext(conf=given, gateway=gateway)
            except Exception as refused:
                raise Unavailable(f"Spark on {master}", f"{str(refused).splitlines()[0]}; see {said.name}") from None
            try:
                SparkSession(context)
                service = "org.apache.spark.sql.connect.service.SparkConnectService$"
                yield getattr(getattr(context._jvm, service), "MODULE$").localPort()
            except Exception:
                if gateway.proc.poll() is None:
                    raise
                raise Unavailable(f"Spark on {master}", "its driver ended in the middle of the work") from None
            finally:
                _end(context, gateway, SparkContext, SparkSession)


def _places(scratch: str, java_options: str) -> dict[str, str]:
    quiet = Path(__file__).with_name("log4j2.properties")
    return {
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile=file:{quiet} {java_options}".strip(),
    }


def _end(context: Any, gateway: Any, kind: Any, session: Any) -> None:
    """Without this a second driver in the same process would look for the first one."""
    session._instantiatedSession = None
    with suppress(Exception):  # it is going anyway, and may be gone
        context.stop()
    with suppress(Exception):
        gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    kind._gateway = kind._jvm = None
    os.environ.pop("SPARK_LOCAL_REMOTE", None)
