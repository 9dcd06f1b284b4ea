"""A forked broker behaves as one that was started as a program: arguments, log, signals, exit status."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from brokers import free_port
from forked import ForkedBroker, launch
from waiting import eventually

COMMAND = (sys.executable, "-m", "overlane", "broker")


def network(directory: Path) -> Path:
    file = directory / "network.toml"
    addresses = "".join(f'{kind} = "127.0.0.1:{free_port()}"\n' for kind in ("mqtt", "overlay", "admin"))
    file.write_text(f"[brokers.here]\n{addresses}")
    return file


def test_it_runs_and_ends_as_a_program_does(tmp_path: Path) -> None:
    log = tmp_path / "log"
    broker = launch([*COMMAND, str(network(tmp_path)), "--name", "here", "--in-memory"], log)
    assert isinstance(broker, ForkedBroker)
    try:
        eventually(lambda: "linked" in log.read_text(), "ready", 60.0, log.read_text)
        assert broker.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            broker.wait(0.01)
        opened = Path(f"/proc/{broker.pid}/fd")
        assert [(opened / number).readlink() for number in "012"] == [Path(os.devnull), log, log]
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(60) == broker.poll() == 0
    finally:
        broker.kill()
    assert log.read_text().splitlines()[-1].endswith("shutting down")


def test_its_errors_are_those_of_the_command(tmp_path: Path) -> None:
    words = [str(tmp_path / "none.toml"), "--name", "here"]
    log = tmp_path / "log"
    status = launch([*COMMAND, *words], log).wait(60)
    program = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=60, check=False)
    assert (status, log.read_text()) == (program.returncode, program.stdout + program.stderr)


def test_a_killed_one_has_the_status_of_its_signal(tmp_path: Path) -> None:
    broker = launch([*COMMAND, str(network(tmp_path)), "--name", "here", "--in-memory"], tmp_path / "log")
    broker.kill()
    assert broker.wait(60) == -signal.SIGKILL


def test_other_programs_and_other_paths_of_modules_are_not_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = launch([sys.executable, "-c", "print('said')"], tmp_path / "log")
    assert other.wait(60) == 0
    assert (tmp_path / "log").read_text() == "said\n"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = [*COMMAND, str(tmp_path / "none.toml")]
    broker = launch(command, tmp_path / "log")
    assert isinstance(broker, subprocess.Popen)
    broker.wait(60)
