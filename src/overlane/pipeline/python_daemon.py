"""Spark's Python daemon, with everything loaded that the Python of the pipeline needs.

Spark forks a Python worker from its daemon for each task that finds none idle, and a worker imports after the fork:
about a second of CPU time each, for a task of milliseconds. What the daemon has loaded, workers have. Executors of a
cluster have Overlane installed in any case: the functions of the pipeline are sent to them by name.
"""

import gc

import numpy
import pandas  # type: ignore[import-untyped]
import pyarrow
import pyarrow.parquet
import pyspark.daemon
import pyspark.worker

from overlane.pipeline import ingest
from overlane.pipeline.analysis import covariance, grouping, reliability
from overlane.pipeline.plans import case_base

LOADED = (
    numpy,
    pandas,
    pyarrow,
    pyarrow.parquet,
    pyspark.worker,
    ingest,
    covariance,
    grouping,
    reliability,
    case_base,
)

if __name__ == "__main__":
    gc.freeze()  # pages that a worker does not write to are not copied
    pyspark.daemon.manager()
