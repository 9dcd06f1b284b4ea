"""Hour files: a table of a run as files that each belong to one hour, so that a run can replace some hours.

    <directory>/1767603600-0003-0.parquet    hour, run that wrote it, number

A table that is not divided by hours has the hour 0. Spark writes a table by hours to a staging directory, with a column
that becomes the directory (`_hour=1767603600/part-....parquet`); the files are then moved here under their names.
"""

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from overlane.pipeline.output_directory import share_file

PARTITION = "_hour"
UNDIVIDED = 0
EMPTY = "-empty.parquet"
"""How the file of a table without rows ends: it is there for the columns, and not taken over."""
SUFFIX = ".parquet"


class HourFiles:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __iter__(self) -> Iterator[tuple[int, Path]]:
        if self.directory.is_dir():
            for path in sorted(self.directory.iterdir()):
                if path.suffix == SUFFIX:
                    yield int(path.name.partition("-")[0]), path

    def hours(self) -> set[int]:
        return {hour_s for hour_s, _ in self}

    def of_hours(self, hours: Iterable[int]) -> list[Path]:
        wanted = set(hours)
        return [path for hour_s, path in self if hour_s in wanted]

    def share_from(self, before: "HourFiles", is_kept: Callable[[int], bool]) -> None:
        """Take over the files of an earlier run whose hours are still valid."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for hour_s, path in before:
            if is_kept(hour_s) and not path.name.endswith(EMPTY):
                share_file(path, self.directory / path.name)

    def move_from(self, staging: Path, run: int, parts: Collection[str] | None = None) -> set[int]:
        """Move what Spark has written (`parts` of it, relative to the staging directory); gives its hours."""
        self.directory.mkdir(parents=True, exist_ok=True)
        found = set()
        written = staging.rglob(f"*{SUFFIX}") if parts is None else (staging / part for part in parts)
        for part in sorted(written):
            name, _, value = part.parent.name.partition("=")
            hour_s = int(value) if name == PARTITION else UNDIVIDED
            found.add(hour_s)
            part.rename(self.free(hour_s, run))
        shutil.rmtree(staging, ignore_errors=True)
        return found

    def free(self, hour_s: int, run: int) -> Path:
        """A name for another file."""
        number = 0
        while (path := self.directory / f"{hour_s}-{run:04d}-{number}{SUFFIX}").exists():
            number += 1
        return path
