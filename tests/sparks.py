"""One Spark for all tests of a process: starting it takes longer than most of them.

Two processes share the tests: `GROUP` has those of whole runs of the pipeline, `PARTS` those of its parts.
"""

import atexit
import os
import shutil
import sys
from contextlib import ExitStack
from functools import cache

import pytest
from pyspark.sql import SparkSession

from overlane.pipeline.session import open_session
from overlane.pipeline.small_runs import SMALL_RUN_CONF
from quickjava import quick_java
from workorder import SPARK, SPARK_PARTS

GROUP = pytest.mark.xdist_group(SPARK)
PARTS = pytest.mark.xdist_group(SPARK_PARTS)


@cache
def the_spark() -> SparkSession:
    need_java()
    stack = ExitStack()
    os.environ |= quick_java()
    session: SparkSession = stack.enter_context(open_session("local[2]", conf=SMALL_RUN_CONF))
    atexit.register(stack.close)
    return session


def the_address() -> str:
    """Where a command finds it, as `--remote`; it asks for the token that is in the environment of this process."""
    return f"sc://{the_spark().client._builder.endpoint}"  # type: ignore[attr-defined]


def need_java() -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")


def pipeline(*words: str) -> list[str]:
    return [sys.executable, "-m", "overlane", "pipeline", *words]


def unmarked() -> dict[str, str]:
    """The environment without the mark of this process's session, which would tell others to use Connect too."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")} | quick_java()
