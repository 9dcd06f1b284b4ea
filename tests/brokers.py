"""Brokers that run, for tests: ours as a process of its own, and Mosquitto where it is installed.

A test that takes `any_broker` runs against both: what our client and our broker agree on should be MQTT, and not a
misunderstanding that they share.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from forked import ForkedBroker, launch
from overlane.local_ports import free_ports

START_WITHIN_S = 60
MOSQUITTO = shutil.which("mosquitto") or shutil.which(
    "mosquitto", path=f"/usr/sbin:/usr/local/sbin:{Path(sys.executable).parent}"
)


def free_port() -> int:
    """One that nothing listens on, and that no connection is given by the system."""
    return free_ports(1)[0]


class RunningBroker:
    """A broker as a process. It keeps its port and its records over `stop` or `kill` and `start`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | ForkedBroker | None = None
        self._log = directory / "log.txt"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        self._process = launch(self.command(), self._log)
        until = time.monotonic() + START_WITHIN_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise AssertionError(f"the broker did not start:\n{self._log.read_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """As an operator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a power cut would."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _answers(self) -> bool:
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self.process_id, number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


class Overlane(RunningBroker):
    """`tables` is what the network file says besides the broker's addresses."""

    def __init__(self, directory: Path, tables: str = "", endpoints: str = "") -> None:
        super().__init__(directory)
        self.admin = f"127.0.0.1:{free_port()}"
        self._head = (
            f'[brokers.here]\nmqtt = "{self.address}"\noverlay = "127.0.0.1:{free_port()}"\nadmin = "{self.admin}"\n'
        )
        self._file = directory / "network.toml"
        self.say(tables, endpoints)

    def say(self, tables: str, endpoints: str = "") -> None:
        """Write the network file anew; a running broker takes it up when it is told to."""
        self._file.write_text(f"{self._head}{endpoints}\n{tables}\n")

    def command(self) -> list[str]:
        data = str(self.directory / "data")
        return [sys.executable, "-m", "overlane.cli.main", "broker", str(self._file), "--name", "here", "--data", data]


class Mosquitto(RunningBroker):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._file = directory / "mosquitto.conf"
        self._file.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {directory}/\nautosave_interval 1\nautosave_on_changes true\nuser root\n"
        )

    def command(self) -> list[str]:
        assert MOSQUITTO is not None
        return [MOSQUITTO, "-c", str(self._file)]


def make_broker(kind: str, directory: Path) -> RunningBroker:
    if kind == "overlane":
        return Overlane(directory)
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    return Mosquitto(directory)


def running(broker: RunningBroker) -> Iterator[RunningBroker]:
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def our_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Our broker, the same for all tests of a module: they must not stop it, and use topics of their own."""
    yield from running(make_broker("overlane", tmp_path_factory.mktemp("overlane")))


@pytest.fixture(scope="module", params=["overlane", "mosquitto"])
def any_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Our broker and Mosquitto in turn, the same for all tests of a module."""
    yield from running(make_broker(request.param, tmp_path_factory.mktemp(request.param)))


@pytest.fixture(params=["overlane", "mosquitto"])
def mortal_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningBroker]:
    """Our broker and Mosquitto in turn, for one test alone, which may stop and start it."""
    yield from running(make_broker(request.param, tmp_path / request.param))


@pytest.fixture
def our_mortal_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """Our broker for one test alone, which may stop, kill and start it."""
    yield from running(make_broker("overlane", tmp_path / "overlane"))
