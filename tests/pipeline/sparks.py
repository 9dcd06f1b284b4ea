"""One Spark for all tests of a process: starting it takes longer than most of them."""

import atexit
import shutil
from contextlib import ExitStack
from functools import cache

import pytest
from pyspark.sql import SparkSession

from overlane.pipeline.session import open_session

GROUP = pytest.mark.xdist_group("spark")

BRIEF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""A few rows are done before code that would be fast has been made for them."""


@cache
def the_spark() -> SparkSession:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    stack = ExitStack()
    session: SparkSession = stack.enter_context(open_session("local[2]", conf=BRIEF))
    atexit.register(stack.close)
    return session
