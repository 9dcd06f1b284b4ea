"""Publishing: no row is lost or doubled, whoever is killed and whenever."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from lakes import Desk, event, files, rows

from overlane.errors import Unavailable
from overlane.telemetry import lake as lakes
from overlane.telemetry import publisher
from overlane.telemetry.journal import FileName, Journal
from overlane.telemetry.publisher import execute
from overlane.telemetry.publishing import Job, Published, TelemetryPublisher, check_lake
from waiting import eventually


class Killed(BaseException):
    """As by kill -9: nothing that follows is done, not even what tidies up."""


class Deadline:
    """Kills at the n-th step that changes something on disk, before it is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
        self.left = steps
        for owner, name in ((Path, "unlink"), (lakes, "_sync"), (lakes.Lake, "put"), (publisher, "read_journal")):
            self._wrap(monkeypatch, owner, name)
        system = lakes.opened

        def opened(where: str) -> tuple[Any, str]:
            found, root = system(where)
            return _System(found, self), root

        monkeypatch.setattr(lakes, "opened", opened)

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        method = getattr(owner, name)

        def step(*given: Any, **named: Any) -> Any:
            self.step()
            return method(*given, **named)

        monkeypatch.setattr(owner, name, step)

    def step(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1


class _System:
    """A file system whose steps are counted."""

    def __init__(self, system: Any, deadline: Deadline) -> None:
        self._system = system
        self._deadline = deadline

    def __getattr__(self, name: str) -> Any:
        if name in ("create_dir", "open_output_stream", "move", "delete_file"):
            self._deadline.step()
        return getattr(self._system, name)


def peers(lake: Path) -> list[str]:
    return [row["peer"] for row in rows(lake, "events")]


def test_wherever_the_child_is_killed_every_row_is_in_the_lake_once_after_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for steps in range(100):
        directory = tmp_path / str(steps)
        desk = Desk(directory)
        for number in range(3):
            desk.record(event(number, f"row {number}"))
            desk.filing.seal_all()
        with monkeypatch.context() as patch:
            Deadline(patch, steps)
            try:
                desk.filing.publish()
                is_done = True
            except Killed:
                is_done = False
        assert len(peers(desk.lake)) == len(set(peers(desk.lake))), f"killed before step {steps}"
        next_life = Desk(directory, incarnation=2)
        next_life.close()
        assert peers(desk.lake) == ["row 0", "row 1", "row 2"], f"killed before step {steps}"
        assert files(desk.spool) == []
        assert [name for name in files(desk.lake) if name.endswith(".part")] == []
        if is_done:
            break
    assert is_done
    assert steps > 15


@pytest.fixture
def child() -> Iterator[TelemetryPublisher]:
    made = TelemetryPublisher()
    yield made
    made.close()


def test_a_child_that_is_killed_is_replaced_and_its_work_done_again(tmp_path: Path, child: TelemetryPublisher) -> None:
    desk = Desk(tmp_path, publish=child)
    desk.record(event(0, "one"))
    desk.close()
    first = child.process_id
    assert first is not None
    desk.record(event(1, "two"))
    desk.close()
    assert child.process_id == first  # while there is work, one process does it
    os.kill(first, signal.SIGKILL)
    desk.record(event(2, "three"))
    desk.close()
    assert child.process_id not in (None, first)
    assert peers(desk.lake) == ["one", "two", "three"]
    assert files(desk.spool) == []


def test_a_child_of_a_broker_with_real_time_priority_has_none(tmp_path: Path, child: TelemetryPublisher) -> None:
    desk = Desk(tmp_path, publish=child)
    desk.record(event(0, "one"))
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        pytest.skip("real-time priority takes root")
    try:
        desk.close()
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    assert child.process_id is not None
    assert os.sched_getscheduler(child.process_id) == os.SCHED_OTHER


def test_a_child_that_cannot_start_costs_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path, publish=TelemetryPublisher())
    desk.record(event(0, "one"))
    with monkeypatch.context() as patch:
        patch.setattr("overlane.telemetry.publishing.CHILD", "overlane.telemetry.nowhere")
        with pytest.raises(OSError, match="ended with status 1"):
            desk.close()
    assert desk.filing.is_behind
    desk.filing._publish = execute
    desk.filing.publish()
    assert peers(desk.lake) == ["one"]


def test_a_journal_that_another_process_publishes_is_left_to_it(tmp_path: Path) -> None:
    name = FileName("2024-10-04", 1, 1, "events", "seattle")
    (tmp_path / "lake").mkdir()
    other = Journal(tmp_path, name)
    other.append([event(0, "mine")])
    job = Job(str(tmp_path / "lake"), "seattle", str(tmp_path), (name.journal,), lake_bytes=0, disk_bytes_max=2**30)
    answer = execute(job)
    assert (answer.done, answer.trouble) == ((), f"another process uses {name.journal}")
    other.close()
    assert execute(job).done == (name.journal,)
    assert peers(tmp_path / "lake") == ["mine"]


def test_a_lake_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.record(event(0, "one"))
    desk.filing.seal_all()
    spool = desk.spool.rename(tmp_path / "spool")
    desk.lake.rmdir()
    (journal,) = files(spool)
    job = Job(str(desk.lake), "seattle", str(spool), (journal,), lake_bytes=0, disk_bytes_max=2**30)
    answer = execute(job)
    assert (answer.done, answer.files_made) == ((), 0)
    assert "No such file or directory" in answer.trouble
    assert not desk.lake.exists()
    desk.lake.mkdir()
    assert execute(job).done == (journal,)
    assert peers(desk.lake) == ["one"]


BROKER = """
import sys
from overlane.telemetry.publishing import Job, TelemetryPublisher
TelemetryPublisher()(Job(*sys.argv[1:4], (sys.argv[4],), lake_bytes=0, disk_bytes_max=2**30))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems end children between two jobs only")
def test_a_child_at_work_ends_with_its_broker(tmp_path: Path) -> None:
    """Its journal is a pipe from which nothing comes: it would be at work for ever."""
    name = FileName("2024-10-04", 1, 1, "events", "seattle").journal
    os.mkfifo(tmp_path / name)
    broker = subprocess.Popen([sys.executable, "-c", BROKER, str(tmp_path), "seattle", str(tmp_path), name])
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children")
    pipes: list[int] = []

    def is_at_work() -> bool:
        with suppress(OSError):  # nobody has opened it to read yet
            pipes.append(os.open(tmp_path / name, os.O_WRONLY | os.O_NONBLOCK))
        return bool(pipes)

    try:
        eventually(is_at_work, "at work", 60.0)
        (child,) = children.read_text().split()
    finally:
        broker.kill()
        broker.wait()
    eventually(lambda: not Path(f"/proc/{child}").exists(), "ended", 60.0)
    os.close(pipes[0])


def test_an_address_that_means_nothing_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="telemetry in nowhere://lake"):
        check_lake("nowhere://lake", "seattle", str(tmp_path), execute)


def test_a_directory_needs_no_child_to_be_accepted(tmp_path: Path) -> None:
    def publish(job: Job) -> Published:
        raise AssertionError(job)

    check_lake(str(tmp_path), "seattle", str(tmp_path), publish)
    Desk(tmp_path, publish=publish)
