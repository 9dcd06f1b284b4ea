"""The Spark session: local, on a standalone cluster, or on an existing Spark Connect server.

Declarative pipelines run through Spark Connect. Without a server address, a server is started inside the driver: it
listens on loopback on a port chosen by the system, and requires a random token. The output of Spark goes to a file.
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
from overlane.extras import missing_extra

JAVA_PACKAGE = "openjdk-17-jre-headless"
LOCAL = "local[*]"
LOOPBACK = "127.0.0.1"
OWN_DRIVER_RETRIES = 4
"""About four seconds; Spark's default takes ten minutes."""

SESSION_CONF: dict[str, str] = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.broadcastTimeout": "86400",  # a small table may wait long for its turn beside a large one
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.pipelines.execution.maxConcurrentFlows": "4",
    "spark.sql.pipelines.maxFlowRetryAttempts": "0",
}
"""Settings of the session; they apply on a remote server too."""

_WHOLE_STAGE, _FACTORY_MODE = "spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_DRIVER_CONF: dict[str, str] = {
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
    """A Spark Connect session, closed at the end. Unavailable if Spark or Java is missing or does not answer."""
    try:
        import pyspark.sql.connect.session as connect
        from pyspark.sql.connect.client.retries import DefaultPolicy
    except ImportError as missing:
        raise Unavailable("Spark", missing_extra((missing.name or "pyspark").split(".")[0], "pipeline")) from None
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    wanted = {**SESSION_CONF, **(conf or {})}
    if remote is not None:
        with _connected(connect, remote, wanted) as spark:
            yield spark
        return
    with _server(master or LOCAL, wanted, log) as port, _connected(connect, f"sc://localhost:{port}", wanted) as spark:
        # Our own driver will not come back if it has ended: few retries.
        spark.client.set_retry_policies([DefaultPolicy(max_retries=OWN_DRIVER_RETRIES)])
        yield spark


@contextmanager
def _connected(connect: Any, address: str, wanted: Mapping[str, str]) -> Iterator[Any]:
    from pyspark.errors import PySparkException

    try:
        spark = connect.SparkSession.builder.remote(address).create()
        for name, value in wanted.items():
            if name.startswith("spark.sql."):
                with suppress(PySparkException):  # a server may forbid it
                    spark.conf.set(name, value)
    except Exception as refused:  # grpc and Spark exceptions share no base class
        raise Unavailable(f"Spark at {address}", str(refused).splitlines()[0]) from None
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def compiling(spark: Any) -> Iterator[Any]:
    """The session itself if it compiles queries, else another one of the same server that does."""
    from pyspark.errors import PySparkException

    other = None
    if spark.conf.get(_WHOLE_STAGE) == "false":
        with suppress(PySparkException):  # a server of an earlier version
            other = spark.cloneSession()
    if other is None:
        yield spark
        return
    other.client.set_retry_policies(spark.client.get_retry_policies())
    try:
        other.conf.set(_WHOLE_STAGE, "true")
        other.conf.set(_FACTORY_MODE, "FALLBACK")
        yield other
    finally:
        with suppress(Exception):  # the server may have ended
            other.client.release_session()
        other.client.close()  # not other.stop(), which ends a server of our own


@contextmanager
def _server(master: str, wanted: Mapping[str, str], log: Path | None) -> Iterator[int]:
    """Start a driver with a Connect server; yields its port."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise Unavailable("Spark", f"requires Java 17 or newer; install the package {JAVA_PACKAGE}")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_CONNECT_AUTHENTICATE_TOKEN", secrets.token_hex(16))
    os.environ["SPARK_LOCAL_REMOTE"] = "1"
    with tempfile.TemporaryDirectory(prefix="overlane-spark-") as scratch:
        every = {
            **_DRIVER_CONF,
            "spark.local.dir": scratch,
            **wanted,
            **_scratch_conf(scratch, wanted.get(_JAVA_OPTIONS, "")),
            "spark.master": master,
        }
        if master.startswith("local") or LOOPBACK in master:
            every |= {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        given = SparkConf(loadDefaults=False).setAll(list(every.items()))
        with (log or Path(scratch) / "spark.log").open("ab") as output:
            try:
                gateway = launch_gateway(given, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
                context = SparkContext(conf=given, gateway=gateway)
            except Exception as refused:
                raise Unavailable(f"Spark on {master}", f"{str(refused).splitlines()[0]}; see {output.name}") from None
            try:
                SparkSession(context)
                service = "org.apache.spark.sql.connect.service.SparkConnectService$"
                yield getattr(getattr(context._jvm, service), "MODULE$").localPort()
            except Exception:
                if gateway.proc.poll() is None:
                    raise
                raise Unavailable(f"Spark on {master}", "its driver ended unexpectedly") from None
            finally:
                _stop(context, gateway, SparkContext, SparkSession)


def _scratch_conf(scratch: str, java_options: str) -> dict[str, str]:
    log_config = Path(__file__).with_name("log4j2.properties")
    return {
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile=file:{log_config} {java_options}".strip(),
    }


def _stop(context: Any, gateway: Any, kind: Any, session: Any) -> None:
    """Stop the driver, so that a second one can start in the same process."""
    session._instantiatedSession = None
    with suppress(Exception):  # it may have ended already
        context.stop()
    with suppress(Exception):
        gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    kind._gateway = kind._jvm = None
    os.environ.pop("SPARK_LOCAL_REMOTE", None)
