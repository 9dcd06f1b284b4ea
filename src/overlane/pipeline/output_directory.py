"""The output directory of the pipeline, accessible to driver and executors.

    <out>/raw/<table>/            ingested rows, extended by every run
    <out>/state/                  checkpoints: which files were ingested
    <out>/runs/0003/tables/<name> the tables of one run
    <out>/runs/0003/plans/*.json  problem files for `overlane plan`
    <out>/runs/0003/run.json      summary of the run
    <out>/latest                  symbolic link to the last completed run

A run writes to its own directory; `latest` is switched to it when it is complete. Readers see the tables of one run,
never a mixture, and a failed run changes nothing that is read.
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
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
    def plans(self) -> Path:
        return self.path / "plans"

    @property
    def summary_file(self) -> Path:
        return self.path / "run.json"


class OutputDirectory:
    def __init__(self, out: str | Path) -> None:
        self.path = Path(out).absolute()
        self.database = f"overlane_{sha256(str(self.path).encode()).hexdigest()[:12]}"
        """Name of the database in the catalogue, unique to this directory."""

    @property
    def state(self) -> Path:
        return self.path / "state"

    def raw(self, name: str) -> Path:
        return self.path / "raw" / name

    def latest(self) -> Run | None:
        """The last completed run."""
        link = self.path / "latest"
        return Run(link.resolve()) if link.is_dir() else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclusive access; Unavailable while another run has it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Unavailable(str(self.path), "another pipeline run is writing to it") from None
            yield

    def begin(self) -> Run:
        """Create the directory of a new run. The number of a failed run is not used again."""
        number = max((run.number for run in self._runs()), default=0) + 1
        run = Run(self.path / "runs" / f"{number:04d}")
        run.tables.mkdir(parents=True)
        run.plans.mkdir()
        return run

    def complete(self, run: Run) -> None:
        """Make this the latest run, and remove old ones."""
        link = self.path / ".latest"
        link.unlink(missing_ok=True)
        link.symlink_to(run.path.relative_to(self.path))
        link.replace(self.path / "latest")
        for old in sorted(self._runs(), key=lambda each: each.number)[:-RUNS_KEPT]:
            shutil.rmtree(old.path, ignore_errors=True)

    def _runs(self) -> list[Run]:
        return [Run(path) for path in (self.path / "runs").glob("[0-9]*")]
