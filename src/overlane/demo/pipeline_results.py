"""Runs the data pipeline on the telemetry of the demo, and reads its tables."""

import asyncio
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from overlane.errors import Unavailable
from overlane.extras import is_installed, missing_extra
from overlane.network.plan import Plan, read_plan

WITHIN_S = 600.0


@dataclass(frozen=True, slots=True)
class PipelineResults:
    links: list[dict[str, Any]]
    """Rows of the table `reliability`, worst first."""
    topics: list[dict[str, Any]]
    """Rows of the table `compliance`, by topic and hour."""
    plan: Plan


def why_not() -> str | None:
    """Why the pipeline cannot run here; None if it can."""
    if not is_installed("pyspark"):
        return missing_extra("pyspark", "pipeline")
    if shutil.which("java") is None:
        return "Java 17 or newer is not installed"
    return None


async def run_pipeline(lake: Path, out: Path, tell: Callable[[str], None]) -> PipelineResults:
    """Run the pipeline; Unavailable if it fails or takes too long."""
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
        raise Unavailable("the pipeline", f"not finished after {WITHIN_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status != 0:
        raise Unavailable("the pipeline", "\n".join(words[-5:]) or f"ended with status {status}")
    return await asyncio.to_thread(read_results, out / "latest")


def read_results(run: Path) -> PipelineResults:
    """Read the tables and the plan of a run."""
    reliability = _rows(run / "tables" / "reliability")
    links = sorted((row for row in reliability if row["kind"] == "link"), key=lambda row: -row["failure"])
    compliance = (row for row in _rows(run / "tables" / "compliance") if row["scope"] == "topic")
    topics = sorted(compliance, key=lambda row: (row["topic"], row["hour_s"]))
    plan = read_plan((run / "plans" / "brokers.json").read_bytes())
    return PipelineResults(links, topics, plan)


def _rows(table: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq  # where the pipeline has run, it is there

    found: list[dict[str, Any]] = pq.read_table(table).to_pylist()
    return found
