"""Brokers that start quickly: each is forked from a process that has loaded the code of a broker.

Most of the CPU time that a broker takes to start goes into imports: 0.5 of 0.6 seconds, and the tests start hundreds
of brokers. What is forked is the command, `overlane broker`, with its own arguments, environment, signals and standard
streams. That it starts from nothing as well is shown by whoever runs it otherwise: `overlane up`, the demo, the
commands of the documents, brokers with faults.
"""

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

COMMANDS = ("broker", "gateway")
BEGINNINGS = tuple(
    (sys.executable, "-m", module, command) for module in ("overlane", "overlane.cli.main") for command in COMMANDS
)
"""How commands begin that can be forked."""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["overlane.cli.brokers.broker", "overlane.cli.brokers.gateway", "overlane.cli.plain_options"]
)
_PATH = os.environ.get("PYTHONPATH")


def launch(command: Sequence[str], log: Path) -> "subprocess.Popen[bytes] | ForkedBroker":
    """Start it, forked if that is the same; what it prints is added to the log. With another PYTHONPATH than that of
    the tests other modules may be loaded."""
    for start in BEGINNINGS:
        if tuple(command[: len(start)]) == start and os.environ.get("PYTHONPATH") == _PATH:
            return ForkedBroker(command[len(start) :], log, start[-1])
    with log.open("ab") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


class ForkedBroker:
    """As much of `subprocess.Popen` as tests use. `words`: the arguments of `overlane broker`, or another command."""

    def __init__(self, words: Sequence[str], log: Path, command: str = "broker") -> None:
        self.args = ["overlane", command, *words]
        log.touch()
        # A daemon: it does not outlive the tests.
        self._process = _FORKS.Process(target=_run, args=(self.args, str(log), dict(os.environ)), daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(command: list[str], log: str, environment: dict[str, str]) -> None:
    from overlane.cli.start import run

    os.environ.clear()
    os.environ.update(environment)
    with Path(os.devnull).open("rb") as nothing, Path(log).open("ab") as output:
        os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.argv = command
    try:
        run()
    finally:
        atexit._run_exitfuncs()  # forks end without them; a broker's last lines of its log are among them
