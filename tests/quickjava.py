"""Java that starts quickly: what it loads of Spark is loaded and verified once, and kept in an archive.

Half of the time in which a small Spark starts goes into classes. The first test that wants the archive has it made: a
Spark is started, analyses all tables and writes a few rows by way of Python, and at its end Java writes down the
classes that it had. All others map it, whichever process they are of: drivers, masters, workers, executors. An archive
that does not fit, of another Java or other paths, Java passes over. It lies in pytest's cache, where `make clean` finds
it, and serves the next run of the tests too.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[1]
KEPT = PROJECT / ".pytest_cache" / "java"
WITHIN_S = 600.0

SIMPLE = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""What is computed is over before code would have been compiled for it."""

_TYPICAL = """
import sys
from overlane.pipeline.small_runs import SMALL_RUN_CONF
from overlane.pipeline.session import open_session
from overlane.pipeline.settings import PipelineSettings

own = "spark.driver.extraJavaOptions"
archived = f"{SMALL_RUN_CONF[own]} -XX:ArchiveClassesAtExit={sys.argv[1]}"
with open_session("local[1]", conf={**SMALL_RUN_CONF, own: archived}) as spark:
    from overlane.pipeline.runner import dry_run

    rows = spark.range(9).selectExpr("id", "id % 2 AS half").mapInArrow(lambda batches: batches, "id long, half long")
    rows.groupBy("half").count().write.parquet(sys.argv[2] + "/rows")
    spark.read.parquet(sys.argv[2] + "/rows").join(rows, "half").count()
    dry_run(spark, PipelineSettings(sys.argv[2]))
"""


@cache
def quick_java() -> dict[str, str]:
    """An environment for whoever starts Java."""
    if shutil.which("java") is None:
        return {}
    kept = _archive()
    # Java would say on its standard output that an archive does not fit.
    mapped = f" -XX:SharedArchiveFile={kept} -Xlog:disable" if kept.exists() else ""
    return {"JAVA_TOOL_OPTIONS": SIMPLE + mapped}


def _archive() -> Path:
    """Made by one process, for which others wait."""
    import pyspark

    java = Path(shutil.which("java") or "").resolve()
    known_by = f"{java} {java.stat().st_mtime_ns} {pyspark.__file__} {pyspark.__version__}"
    kept = KEPT / f"{hashlib.sha256(known_by.encode()).hexdigest()[:16]}.jsa"
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            _make(kept)
    return kept


def _make(kept: Path) -> None:
    work = kept.with_suffix(".work")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    made = work / "classes.jsa"
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "JAVA_TOOL_"))}
    command = [sys.executable, "-c", _TYPICAL, str(made), str(work)]
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    if made.exists():  # not every Java can
        made.rename(kept)
    shutil.rmtree(work)
