"""Brevity: settings of Spark for so little telemetry that starting takes longer than counting.

A large lake wants code that was compiled for its queries, plans that are made anew when the sizes of tables are known,
and many partitions. A small one is done before any of that pays: on two cores half of the time of its run went into
compiling. How much there is, is looked up where lake and tables are directories of this machine; elsewhere it is taken
for much.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

SMALL_BYTES = 16 << 20
"""Of Parquet: about a million rows. From there on what was compiled has paid."""

_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""With the simple compiler alone Java keeps room for 48 MiB of code, which all of Spark overflows; then it ends."""

BRIEF: dict[str, str] = {
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
CASE_TASKS = 8


def is_small(lake: str, out: Path | None = None) -> bool:
    """Whether what there is to read, and what has landed before, is little."""
    place = urlsplit(lake)
    if place.scheme not in ("", "file"):
        return False
    left = SMALL_BYTES
    for directory in (Path(unquote(place.path)), *([out / "raw"] if out is not None else [])):
        for size in _sizes(directory):
            left -= size
            if left < 0:
                return False
    return True


def _sizes(directory: Path) -> Iterator[int]:
    for where, _, names in os.walk(directory):
        for name in names:
            try:
                yield (Path(where) / name).stat().st_size
            except FileNotFoundError:  # a broker has made room meanwhile
                continue
