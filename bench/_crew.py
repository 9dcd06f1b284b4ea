"""Processes that generate load together: all prepare, then all start at the same moment.

A role is the work of one process. It prepares (connects, subscribes, builds its messages), waits for the start, and
gets the window in which to work: all work from its start to its end, and everything after the first part, the warm-up,
is measured. CLOCK_MONOTONIC is the same for all processes of a machine.
"""

import multiprocessing
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Protocol, Self, TypeVar

R = TypeVar("R")
READY_WITHIN_S = 60.0
DONE_WITHIN_S = 60.0
"""Beyond the end of the window."""
LEAD_S = 0.1
"""From the word go to the start, so that all have heard it."""
_PROCESSES = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Window:
    """In seconds of the monotonic clock."""

    start: float
    measured_from: float
    end: float


@dataclass(frozen=True, slots=True)
class Failed:
    why: str


class Gate:
    """Where a role stops until all are ready."""

    def __init__(self, line: Connection) -> None:
        self._line = line

    def wait(self) -> Window:
        self._line.send(None)
        window = self._line.recv()
        if not isinstance(window, Window):
            raise SystemExit
        time.sleep(max(0.0, window.start - time.monotonic()))
        return window


class Role(Protocol):
    def __call__(self, gate: Gate) -> object: ...


class LoadFailed(Exception):
    """A process of the load could not do its part; the text says why."""


class Crew:
    """Some roles, each in its own process; leaving the block ends them."""

    def __init__(self, roles: Iterable[Role]) -> None:
        self._lines: list[Connection] = []
        self._processes = []
        for role in roles:
            ours, theirs = _PROCESSES.Pipe()
            process = _PROCESSES.Process(target=_perform, args=(role, theirs), daemon=True)
            process.start()
            theirs.close()
            self._lines.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Self:
        self._hear_all(READY_WITHIN_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in self._lines:
            line.close()
        for process in self._processes:
            process.join(2)
            if process.is_alive():
                process.kill()
                process.join()

    def work(self, warm_s: float, measured_s: float) -> list[object]:
        """Says go; returns what each role found, in the order of the roles; nothing of one that is at its next gate."""
        start = time.monotonic() + LEAD_S
        window = Window(start, start + warm_s, start + warm_s + measured_s)
        for line in self._lines:
            line.send(window)
        return self._hear_all(LEAD_S + warm_s + measured_s + DONE_WITHIN_S)

    def _hear_all(self, within_s: float) -> list[object]:
        heard: dict[Connection, object] = {}
        patience_ends = time.monotonic() + within_s
        while len(heard) < len(self._lines):
            silent = [line for line in self._lines if line not in heard]
            speaking = wait(silent, max(0.0, patience_ends - time.monotonic()))
            if not speaking:
                self._give_up("the load did not get on")
            for line in silent:
                if line in speaking:
                    heard[line] = self._hear(line)
        return [heard[line] for line in self._lines]

    def _hear(self, line: Connection) -> object:
        try:
            said: object = line.recv()
        except EOFError:
            said = Failed("a process of the load has ended without a word")
        if isinstance(said, Failed):
            self._give_up(said.why)
        return said

    def _give_up(self, why: str) -> None:
        self.__exit__(None, None, None)
        raise LoadFailed(why)


def perform(roles: Sequence[Role], warm_s: float, measured_s: float) -> list[object]:
    with Crew(roles) as crew:
        return crew.work(warm_s, measured_s)


def of(kind: type[R], found: Iterable[object]) -> list[R]:
    """Those of one kind among the results."""
    return [one for one in found if isinstance(one, kind)]


def _perform(role: Role, line: Connection) -> None:
    try:
        said = role(Gate(line))
    except (SystemExit, EOFError, KeyboardInterrupt):
        return
    except Exception as error:  # told to whoever started us
        said = Failed(f"{type(role).__name__}: {type(error).__name__}: {error}")
    with suppress(BrokenPipeError):  # who has given up does not listen
        line.send(said)
