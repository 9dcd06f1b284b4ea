"""One Spark for all tests of a process: starting it takes longer than most of them."""

import atexit
import shutil
from contextlib import ExitStack
from functools import cache

import pytest
from pyspark.sql import SparkSession

from overlane.pipeline.session import open_session

GROUP = pytest.mark.xdist_group("spark")


@cache
def the_spark() -> SparkSession:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    stack = ExitStack()
    session: SparkSession = stack.enter_context(open_session("local[2]", conf={"spark.sql.shuffle.partitions": "2"}))
    atexit.register(stack.close)
    return session
