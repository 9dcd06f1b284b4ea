"""`overlane up`: every broker of a file at once, where they are, and that none is left behind."""

import os
import signal
import time
from pathlib import Path

import pytest

from overlays import Member, RealOverlay, Up, all_up
from waiting import eventually

pytestmark = pytest.mark.slow


def is_linked(one: Member, other: str) -> bool:
    """Also while the other one is suspected, as it is when the machine has other things to do for a moment."""
    answer = one.ask("/links")
    assert isinstance(answer, dict)
    return any(link["peer"] == other and link["state"] in {"up", "suspect"} for link in answer["items"])


def process_of(directory: Path, name: str) -> int:
    return int((directory / "data" / name / "broker.lock").read_text())


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_all_brokers_of_a_file_are_shown_when_they_are_linked_and_end_with_ctrl_c(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, {"a-b": 'latency = "1ms"'})
    with all_up(net.file, tmp_path) as up:
        lines = up.log.read_text().splitlines()
        for name, member in net.members.items():
            assert [name, member.mqtt, member.overlay, member.admin] in [line.split() for line in lines]
        assert lines[-1] == "ready"
        assert is_linked(net["a"], "b")
        assert is_linked(net["b"], "a")
        processes = [process_of(tmp_path, name) for name in net.members]
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(30) == 0
        assert not any(map(is_there, processes))
        assert "Traceback" not in up.log.read_text()


@pytest.mark.parametrize("after_s", [0.0, 0.2, 0.5, 0.8])
def test_sigterm_while_brokers_start_ends_all_without_a_traceback_and_without_ready(
    tmp_path: Path, after_s: float
) -> None:
    net = RealOverlay(tmp_path, {"a-b": 'latency = "1ms"'})
    up = Up(net.file, tmp_path)
    children = Path(f"/proc/{up.process.pid}/task/{up.process.pid}/children")
    started = eventually(lambda: children.read_text().split(), "brokers")
    time.sleep(after_s)  # a moment of their start: which one, does not matter
    up.process.terminate()
    assert up.process.wait(30) == 0
    said = up.log.read_text()
    assert "Traceback" not in said
    assert said.split("stopping\n")[1:] == [""]
    assert not any(is_there(int(process)) for process in started)


def test_a_broker_that_is_killed_is_there_again_with_its_links(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, {"a-b": 'latency = "1ms"'})
    with all_up(net.file, tmp_path) as up:
        before = process_of(tmp_path, "a")
        os.kill(before, signal.SIGKILL)
        up.wait_until(lambda: "a  linked again" in up.log.read_text(), "linked again")
        assert process_of(tmp_path, "a") != before
        up.wait_until(lambda: is_linked(net["b"], "a"), "known to its neighbour")
