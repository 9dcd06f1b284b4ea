"""The output directory of the pipeline, accessible to driver and executors.

    <out>/runs/0003/tables/<name>   the tables of one run
    <out>/runs/0003/raw/<table>     the rows of the lake that were ingested up to this run, by hour
    <out>/runs/0003/plans/*.json    problem files for `overlane plan`
    <out>/runs/0003/run.json        summary of the run
    <out>/latest                    symbolic link to the last completed run

A run writes to its own directory; `latest` is switched to it when it is complete. Readers see the tables of one run,
never a mixture, and a failed run changes nothing that is read.

A run continues the last completed one: files that are still valid are hard links to its files, so they take no space
and no time. Deleting an old run removes only what no later run has.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from overlane.errors import Unavailable

RUNS_KEPT = 3


@dataclass(frozen=True, slots=True)
class Run:
    path: Path

    @property
    def number(self) -> int:
        return int(self.path.name)

    @property
    def tables(self) -> Path:
        return self.path / "tables"

    @property
    def raw(self) -> Path:
        return self.path / "raw"

    @property
    def plans(self) -> Path:
        return self.path / "plans"

    @property
    def staging(self) -> Path:
        """What Spark writes before it is moved to its place."""
        return self.path / "staging"

    @property
    def summary_file(self) -> Path:
        return self.path / "run.json"


class OutputDirectory:
    def __init__(self, out: str | Path) -> None:
        self.path = Path(out).absolute()
        self._is_locked = False

    @property
    def spark_log(self) -> Path:
        """Removed when a run succeeds."""
        return self.path / "spark.log"

    def latest(self) -> Run | None:
        """The last completed run."""
        link = self.path / "latest"
        return Run(link.resolve()) if link.is_dir() else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclusive access; Unavailable while another run has it. May be nested."""
        if self._is_locked:
            yield
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as refused:
            raise Unavailable(str(self.path), refused.strerror or "cannot be created") from None
        if (self.path / "state").is_dir():
            raise Unavailable(str(self.path), "was written by an earlier version; delete it, or give another --out")
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Unavailable(str(self.path), "another pipeline run is writing to it") from None
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    def begin(self) -> Run:
        """Create the directory of a new run. The number of a failed run is not used again."""
        number = max((run.number for run in self._runs()), default=0) + 1
        run = Run(self.path / "runs" / f"{number:04d}")
        for directory in (run.tables, run.raw, run.plans, run.staging):
            directory.mkdir(parents=True)
        return run

    def complete(self, run: Run) -> None:
        """Make this the latest run, and remove old ones."""
        shutil.rmtree(run.staging, ignore_errors=True)
        link = self.path / ".latest"
        link.unlink(missing_ok=True)
        link.symlink_to(run.path.relative_to(self.path))
        link.replace(self.path / "latest")
        for old in sorted(self._runs(), key=lambda each: each.number)[:-RUNS_KEPT]:
            shutil.rmtree(old.path, ignore_errors=True)

    def _runs(self) -> list[Run]:
        return [Run(path) for path in (self.path / "runs").glob("[0-9]*")]


def spark_path(path: Path) -> str:
    """The address of a file or directory as Spark reads it: Hadoop does not decode `%20`."""
    return f"file://{path.absolute()}"


def share_file(old: Path, new: Path) -> None:
    """The same file under another name; a copy where the file system has no hard links."""
    try:
        os.link(old, new)
    except OSError:
        shutil.copy2(old, new)
