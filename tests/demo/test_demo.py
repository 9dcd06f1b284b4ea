"""The demo, as a newcomer runs it: it tells its story, loses nothing, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from overlane.demo.steps import STEPS

DEMO = [sys.executable, "-m", "overlane", "demo", "--no-pipeline"]


@pytest.mark.slow
def test_it_tells_every_step_loses_nothing_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "200"}
    done = subprocess.run(
        [*DEMO, "--step", "3"], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "http://127.0.0.1:" in done.stdout
    for number, step in enumerate(STEPS):
        assert f"{number + 1}/{len(STEPS)}  {step.name}" in done.stdout
    assert "alarms/fire moved after" in done.stdout
    assert "Nothing acknowledged was lost, nothing came twice." in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_it_can_be_ended_at_any_time_and_takes_everything_down(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([*DEMO, "--stay"], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while "normal" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    process.stdout.close()
    assert list(tmp_path.iterdir()) == []
    until = time.monotonic() + 30
    while _mentioning(str(tmp_path)):
        assert time.monotonic() < until
        time.sleep(0.05)


def _mentioning(text: str) -> list[str]:
    """The processes with this in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in entry.read_text():
                found.append(entry.parent.name)
        except OSError:
            continue
    return found
