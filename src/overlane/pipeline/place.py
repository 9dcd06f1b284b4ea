"""Where the pipeline keeps its tables: a directory that driver and executors see alike.

    <out>/raw/<table>/            what landed, grown by every run
    <out>/state/                  which files have landed
    <out>/runs/0003/tables/<name> the tables of one run
    <out>/runs/0003/plans/*.json  what `overlane plan` reads
    <out>/runs/0003/run.json      when it was, and how much
    <out>/latest                  a link to the last run that was completed

A run writes into a directory of its own, and `latest` is turned to it when all of it is there. Whoever reads finds the
tables of one run or of another, never of both, and a run that died has changed nothing that anybody reads.
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from overlane.errors import Unavailable

KEPT = 3


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
    def about(self) -> Path:
        return self.path / "run.json"


class Place:
    def __init__(self, out: str | Path) -> None:
        self.path = Path(out).absolute()
        self.database = f"overlane_{sha256(str(self.path).encode()).hexdigest()[:12]}"
        """In the catalogue, which others may use too."""

    @property
    def state(self) -> Path:
        return self.path / "state"

    def raw(self, name: str) -> Path:
        return self.path / "raw" / name

    def latest(self) -> Run | None:
        """The last run that was completed."""
        link = self.path / "latest"
        return Run(link.resolve()) if link.is_dir() else None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Unavailable while another run is at it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Unavailable(str(self.path), "another run of the pipeline is writing there") from None
            yield

    def begin(self) -> Run:
        """The directory of a new run. What a run that died has left is no run, and its number is not used again."""
        number = max((run.number for run in self._runs()), default=0) + 1
        run = Run(self.path / "runs" / f"{number:04d}")
        run.tables.mkdir(parents=True)
        run.plans.mkdir()
        return run

    def complete(self, run: Run) -> None:
        """Make this the run that is read, and remove old ones."""
        link = self.path / ".latest"
        link.unlink(missing_ok=True)
        link.symlink_to(run.path.relative_to(self.path))
        link.replace(self.path / "latest")
        for old in sorted(self._runs(), key=lambda each: each.number)[:-KEPT]:
            shutil.rmtree(old.path, ignore_errors=True)

    def _runs(self) -> list[Run]:
        return [Run(path) for path in (self.path / "runs").glob("[0-9]*")]
