"""A story of the pipeline, once for all tests of a process: it takes several runs of everything."""

import atexit
import json
import os
import shutil
import signal
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overlane.pipeline.output_directory import OutputDirectory, Run
from overlane.pipeline.runner import Progress, run
from overlane.pipeline.samples.sample import START_S, write_sample
from overlane.pipeline.settings import PipelineSettings
from overlane.pipeline.units import HOUR_S
from sparks import pipeline, the_spark, unmarked

SEED = 5
BROKERS, TOPICS, HOURS = 6, 60, 4
LATE = "broker-01-1-2.parquet"
"""Files of an hour that the first run has computed without them."""
FROM_S = START_S + 8 * HOUR_S
"""Eight o'clock: the peak begins an hour later."""


class Story:
    """A lake of a few hours, a run that was killed, one that was not, and one after more telemetry had come."""

    def __init__(self, path: Path) -> None:
        self.lake, self.out, late = path / "lake", path / "out", path / "late"
        write_sample(self.lake, BROKERS, TOPICS, HOURS, SEED, FROM_S)
        self.truth = json.loads((self.lake / "truth.json").read_text())
        self.rows = {t.name: _rows_in(t) for t in self.lake.iterdir() if t.is_dir()}
        for file in sorted([*self.lake.rglob(f"*-1-{HOURS}.parquet"), *self.lake.rglob(LATE)]):
            (late / file.relative_to(self.lake).parent).mkdir(parents=True, exist_ok=True)
            file.rename(late / file.relative_to(self.lake))
        self._spoil()
        self.told_before_death = self._die()
        self.latest_after_death = OutputDirectory(self.out).latest()
        self.progress: list[Progress] = []
        settings = PipelineSettings(str(self.lake))
        self.first = run(the_spark(), settings, self.out, self.progress.append)[0]
        self.first_raw = raw_files(self.first)
        self.first_files = rows(self.first, "lake_files")
        shutil.copytree(late, self.lake, dirs_exist_ok=True)
        self.second, self.summary = run(the_spark(), settings, self.out)

    def _spoil(self) -> None:
        """Files that are cut short, there twice, without a column, empty, and with rows of the future."""
        day = next((self.lake / "topic_rates").iterdir())
        good = day / "broker-00-1-1.parquet"
        (day / "broker-00-1-91.parquet").write_bytes(good.read_bytes()[:-40])
        shutil.copy(good, day / "broker-00-1-92.parquet")
        table = pq.read_table(good)
        pq.write_table(table.drop_columns(["topic"]), day / "broker-00-1-93.parquet")
        ahead = table.slice(0, 3).set_column(0, table.schema.field(0), pa.array([2**62] * 3))
        pq.write_table(ahead, day / "broker-00-1-94.parquet")
        (day / "broker-00-1-95.parquet").touch()
        self.repeated = table.num_rows

    def _die(self) -> str:
        """A run is killed as soon as it has made something."""
        command = pipeline("run", "--lake", str(self.lake), "--out", str(self.out), "--master", "local[2]")
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=unmarked(), start_new_session=True
        ) as process:
            assert process.stderr is not None
            told = process.stderr.readline()
            os.killpg(process.pid, signal.SIGKILL)
        return told


def raw_files(of: Run) -> dict[str, int]:
    """When each file of ingested rows was written."""
    return {str(path.relative_to(of.raw)): path.stat().st_mtime_ns for path in of.raw.rglob("*.parquet")}


def _rows_in(table: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in table.rglob("*.parquet"))


def rows(of: Run, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(of.tables / table).to_pylist()
    return found


@cache
def the_story() -> Story:
    the_spark()
    path = Path(tempfile.mkdtemp(prefix="overlane-story-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Story(path)
