"""The process that converts journals to files: `python -m overlane.telemetry.publisher`, started by a broker.

For each journal: lock it, read it, write its file under a hidden name, give the file its name, remove the journal. If
this is interrupted anywhere, the journal still exists, and repeating it creates the same file.

It is killed together with the broker: so after the end of a broker no process writes into its directories. Remaining
journals are converted at the broker's next start.
"""

import ctypes
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from overlane.errors import Unavailable
from overlane.telemetry.arrow import stay_without_pandas
from overlane.telemetry.journal import FileName, abandoned, lock
from overlane.telemetry.journal_reader import read_journal
from overlane.telemetry.lake import Lake
from overlane.telemetry.publishing import LINGER_S, Job, Published

PR_SET_PDEATHSIG = 1
"""prctl(2)."""


class _Progress:
    """What has been done of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.done: list[str] = []
        self.files_made = self.files_removed = self.bytes_removed = 0
        self.rows_lost: dict[str, int] = {}
        self.warnings: list[str] = []
        self.trouble: list[str] = []
        self.number = 0
        self._lake: Lake | None = None

    def run(self) -> Published:
        try:
            lake = self._lake = Lake(self.job.where, self.job.broker, self.job.lake_bytes)
        except Unavailable as wrong:
            return Published(invalid=wrong.reason)
        try:
            if lake.bytes is None:
                self._look(lake)
            for name in self.job.journals:
                self._publish(lake, name)
            self._trim(lake)
        except (OSError, pa.ArrowException) as wrong:
            self.trouble.insert(0, str(wrong))
        return self._answer(lake)

    def _answer(self, lake: Lake) -> Published:
        return Published(
            lake.bytes,
            self.number,
            tuple(self.done),
            self.files_made,
            self.files_removed,
            self.bytes_removed,
            self.rows_lost,
            tuple(self.warnings),
            "; ".join(self.trouble),
        )

    def _look(self, lake: Lake) -> None:
        spool = Path(self.job.spool)
        journals = {path.name for path in spool.iterdir()}
        lake.look(lambda name: name.journal in journals and not abandoned(spool / name.journal))
        same = [file.name.number for file in lake.files if file.name.incarnation == self.job.incarnation]
        self.number = max(same, default=0)

    def _publish(self, lake: Lake, journal: str) -> None:
        name, path = FileName.of_journal(journal), Path(self.job.spool) / journal
        with suppress(FileNotFoundError), path.open("rb") as file:
            if not lock(file):
                if path.exists():
                    self.trouble.append(f"another process uses {journal}")
                    return
            elif name is not None:
                self._put(lake, file, name)
            path.unlink(missing_ok=True)
        self.done.append(journal)

    def _put(self, lake: Lake, file: Any, name: FileName) -> None:
        try:
            found = read_journal(file, name)
        except ValueError as damaged:
            self.warnings.append(f"a journal of telemetry cannot be read and is dropped: {damaged}")
            return
        if found.lost:
            self.rows_lost[name.table] = self.rows_lost.get(name.table, 0) + found.lost
        if found.rows.num_rows:
            try:
                lake.put(name, found.rows)
            except FileNotFoundError as gone:
                raise NotADirectoryError(str(gone)) from None  # the lake's directory, and not the journal
            self.files_made += 1

    def _trim(self, lake: Lake) -> None:
        spooled = self.job.spool_bytes + sum(_size(Path(self.job.spool) / name) for name in self.job.journals)
        room = self.job.disk_bytes_max - spooled
        if lake.bytes is None or lake.bytes <= room:
            return
        self._look(lake)
        while lake.bytes > room and (gone := lake.remove_oldest()) is not None:
            self.files_removed += 1
            self.bytes_removed += gone.bytes


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def execute(job: Job) -> Published:
    return _Progress(job).run()


def end_with(broker: int) -> None:
    """Let this process be killed when the thread ends that has started it. Where the system has no such thing (it is
    Linux's), only what is done between two jobs ends with the broker."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != broker:
        sys.exit()  # it had ended before


def main(broker: int) -> None:
    """Jobs of the broker with this process identifier from standard input, answers to standard output."""
    end_with(broker)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which still has rows to be written
    stay_without_pandas()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else gets between the answers
    # Unbuffered: a job that was read ahead would not be seen by select.
    with os.fdopen(sys.stdin.fileno(), "rb", buffering=0) as jobs:
        while select.select([jobs], [], [], LINGER_S)[0] and (line := jobs.readline()):
            try:
                answer = execute(msgspec.json.decode(line, type=Job))
            except Exception as defect:
                answer = Published(trouble=f"{type(defect).__name__}: {defect}")
            answers.write(msgspec.json.encode(answer) + b"\n")
            answers.flush()


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the broker is gone
        main(int(sys.argv[1]))
