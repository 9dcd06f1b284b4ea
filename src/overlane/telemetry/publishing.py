"""Publishing: journals are converted to files of the lake, in a separate process.

Arrow takes as much memory as the rest of a broker, and is needed for a moment every few minutes. So brokers do not load
it: they send a `Job` to a child process, which answers with `Published`, as lines of JSON over pipes. The child exits
when there is no job for a while, and with the thread of the broker that sends jobs.

Broker and child may be killed at any moment. A journal is removed only after its file has its final name, and it always
becomes the file of that name: unanswered jobs are simply sent again.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from subprocess import DEVNULL, PIPE, Popen
from typing import BinaryIO

import msgspec
from msgspec import structs

from overlane.errors import Unavailable

LINGER_S = 5.0
"""How long a child waits for another job: files that are made every few seconds are made by one process."""

CHILD = "overlane.telemetry.publisher"


class Job(msgspec.Struct, frozen=True):
    where: str
    """The lake: a directory or an address."""
    broker: str
    spool: str
    journals: tuple[str, ...] = ()
    """File names of journals, in the order in which they are to be published."""
    incarnation: int = 0
    lake_bytes: int | None = None
    """Size of this broker's files in the lake; None if it is not known, and to be found out."""
    spool_bytes: int = 0
    """Size of the journals that are not in `journals`."""
    disk_bytes_max: int = 0


class Published(msgspec.Struct, frozen=True):
    lake_bytes: int | None = None
    number: int = 0
    """The greatest number of a file of that incarnation, where that was looked for."""
    done: tuple[str, ...] = ()
    """Journals that are gone: published, empty or unreadable."""
    files_made: int = 0
    files_removed: int = 0
    bytes_removed: int = 0
    rows_lost: dict[str, int] = {}
    """Rows that did not match the schema, by table."""
    warnings: tuple[str, ...] = ()
    trouble: str = ""
    """Why the rest could not be done; it is to be tried again."""
    invalid: str = ""
    """Why the lake can never be written to."""


Publish = Callable[[Job], Published]


class TelemetryPublisher:
    """Runs jobs in a child process, one after the other. For one thread."""

    def __init__(self) -> None:
        self._child: Popen[bytes] | None = None

    def __call__(self, job: Job) -> Published:
        """OSError if the child ended without an answer: then it is not known what has been done."""
        if self._child is not None:
            if (answer := self._ask(self._child, job)) is not None:
                return answer
            # It has ended while it waited, or was killed at work: nobody knows what is in the lake.
            self._end_child()
            job = structs.replace(job, lake_bytes=None)
        self._child = Popen(
            # Nothing else is inherited: every descriptor is opened to be closed on exec. To close them one by one would
            # hold up the broker that has thousands of connections.
            [sys.executable, "-m", CHILD, str(os.getpid())],
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            close_fds=False,
        )
        _leave_real_time(self._child.pid)
        if (answer := self._ask(self._child, job)) is not None:
            return answer
        raise ChildProcessError(f"the process that writes telemetry ended with status {self._end_child()}")

    @property
    def process_id(self) -> int | None:
        """Of the child that was used last."""
        return None if self._child is None else self._child.pid

    def reap(self) -> None:
        """Let go of a child that has ended."""
        if self._child is not None and self._child.poll() is not None:
            self._end_child()

    def close(self) -> None:
        """There are no more jobs."""
        self._end_child()

    def _ask(self, child: Popen[bytes], job: Job) -> Published | None:
        """None if it has ended."""
        write, read = _pipes(child)
        try:
            write.write(msgspec.json.encode(job) + b"\n")
            write.flush()
        except BrokenPipeError:
            return None
        line = read.readline()
        return msgspec.json.decode(line, type=Published) if line.endswith(b"\n") else None

    def _end_child(self) -> int | None:
        child, self._child = self._child, None
        if child is None:
            return None
        write, read = _pipes(child)
        read.close()
        with suppress(BrokenPipeError):
            write.close()
        return child.wait()


def _leave_real_time(process_id: int) -> None:
    """A broker may run with real-time priority (`chrt`), which a child inherits: this one is never urgent."""
    if hasattr(os, "sched_setscheduler"):
        with suppress(OSError):
            os.sched_setscheduler(process_id, os.SCHED_OTHER, os.sched_param(0))


def _pipes(child: Popen[bytes]) -> tuple[BinaryIO, BinaryIO]:
    assert child.stdin is not None
    assert child.stdout is not None
    return child.stdin, child.stdout  # type: ignore[return-value]


def check_lake(where: str, broker: str, spool: str, publish: Publish) -> None:
    """Unavailable if nothing can ever be written there. Whether it can be reached now is no matter."""
    if "://" not in where:
        return
    try:
        wrong = publish(Job(where, broker, spool, lake_bytes=0)).invalid
    except OSError as error:
        wrong = str(error)
    if wrong:
        raise Unavailable(f"telemetry in {where}", wrong)
