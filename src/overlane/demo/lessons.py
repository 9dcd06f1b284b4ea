"""What the data pipeline learns from the demo: it is run on the telemetry just written, and its tables are read."""

import asyncio
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from overlane.errors import Unavailable
from overlane.network.plan import Plan, read_plan

WITHIN_S = 240.0


@dataclass(frozen=True, slots=True)
class Lessons:
    links: list[dict[str, Any]]
    """Rows of the table of reliability, the worst first."""
    topics: list[dict[str, Any]]
    """Rows of the table of compliance, by topic and hour."""
    plan: Plan


def why_not() -> str | None:
    """Why the pipeline cannot run here, if so."""
    if find_spec("pyspark") is None:
        return "PySpark is not installed: pip install overlane[pipeline]"
    if shutil.which("java") is None:
        return "there is no Java; it takes version 17 or newer"
    return None


async def learn(lake: Path, out: Path, tell: Callable[[str], None]) -> Lessons:
    """Run the pipeline; Unavailable if it does not come to an end."""
    argv = [sys.executable, "-m", "overlane", "pipeline", "run", "--lake", str(lake), "--out", str(out), "--json"]
    process = await asyncio.create_subprocess_exec(*argv, stdout=PIPE, stderr=PIPE, start_new_session=True)
    words: list[str] = []
    try:
        async with asyncio.timeout(WITHIN_S):
            assert process.stderr is not None
            while line := await process.stderr.readline():
                words.append(line.decode(errors="replace").rstrip())
                tell(words[-1])
            status = await process.wait()
    except TimeoutError:
        raise Unavailable("the pipeline", f"is not done after {WITHIN_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status != 0:
        raise Unavailable("the pipeline", "\n".join(words[-5:]) or f"ended with status {status}")
    return await asyncio.to_thread(read_lessons, out / "latest")


def read_lessons(run: Path) -> Lessons:
    """From the tables and plans of a run of the pipeline."""
    reliability = _rows(run / "tables" / "reliability")
    links = sorted((row for row in reliability if row["kind"] == "link"), key=lambda row: -row["failure"])
    compliance = (row for row in _rows(run / "tables" / "compliance") if row["scope"] == "topic")
    topics = sorted(compliance, key=lambda row: (row["topic"], row["hour_s"]))
    plan = read_plan((run / "plans" / "brokers.json").read_bytes())
    return Lessons(links, topics, plan)


def _rows(table: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(table).to_pylist()
    return found
