"""The brokers of bench/broker.py and bench/chain.py: requirements, start, and resource usage of each.

Each runs with its defaults, on one address of the loopback interface; any configuration is needed for a measurement,
and has a comment with its reason.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Protocol

from _load import Load, SocketLoad
from _wire import HOST, Bare, Mqtt, Nats
from overlane.local_ports import free_ports

STARTS_WITHIN_S = 30.0
ENDS_WITHIN_S = 10.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Unavailable(Exception):
    """A broker that cannot be measured here; the text says what to do about it."""


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that accepts connections. The one that is nobody has no process."""

    port: int
    load: Load
    pid: int | None = None

    @property
    def cpu_s(self) -> float:
        """Of all its threads, in the kernel and outside, since it started."""
        if self.pid is None:
            return 0.0
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    @property
    def memory_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise Unavailable(f"process {self.pid} is gone")


def busy_ns(pid: int) -> int:
    """What all threads of a process have taken of the processors: finer than `cpu_s`, for what takes little."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def is_alive(pid: int) -> bool:
    """A child that has ended stays in the list until its parent has looked; its threads do not."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return len(tasks) > 1 or state != "Z"


class Peer(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def load(self) -> Load: ...

    def missing(self) -> str | None:
        """What is to be installed before it can run; nothing if it can."""

    def version(self) -> str: ...

    def command(self, port: int, directory: Path) -> list[str]: ...


IN_FLIGHT_MAX = 1_000
"""Unacknowledged messages of a durable subscriber that is to be fast: with the default of any broker it waits for round
trips."""


@dataclass(frozen=True, slots=True)
class Overlane:
    name: str = "Overlane"
    sync: bool = True
    sources: Path | None = None
    """The folder of the package, if it is not the one that is installed: another version, or the compiled build."""
    in_flight: int = 0
    """Unacknowledged messages to or from a client; 0 for the default."""

    @property
    def load(self) -> Load:
        return SocketLoad(Mqtt())

    def missing(self) -> str | None:
        asked = subprocess.run(
            [sys.executable, "-m", "overlane", "broker", "--help"], capture_output=True, check=False, timeout=60
        )
        return None if asked.returncode == 0 else "`overlane broker` does not run here: pip install -e ."

    def version(self) -> str:
        return metadata.version("overlane")

    def command(self, port: int, directory: Path) -> list[str]:
        file = directory / "network.toml"
        addresses = {"mqtt": port, "overlay": free_port(), "admin": free_port()}
        lines = [f'{kind} = "{HOST}:{number}"' for kind, number in addresses.items()]
        limits = ["[limits]", f"in_flight = {self.in_flight}"] if self.in_flight else []
        file.write_text("\n".join([*limits, "[brokers.bench]", *lines, ""]))
        return self.broker(file, "bench", directory / "data")

    def broker(self, file: Path, name: str, data: Path) -> list[str]:
        """The command that runs one broker of a network file."""
        version = [] if self.sources is None else ["env", f"PYTHONPATH={self.sources.absolute()}"]
        command = [*version, sys.executable, "-m", "overlane", "broker", str(file), "--name", name]
        return [*command, "--data", str(data), *([] if self.sync else ["--no-sync"])]


@dataclass(frozen=True, slots=True)
class Mosquitto:
    name: str = "Mosquitto"
    persistent: bool = False

    @property
    def load(self) -> Load:
        return SocketLoad(Mqtt())

    def missing(self) -> str | None:
        return None if self._program() else "mosquitto is not installed: apt-get install mosquitto, or --install"

    def version(self) -> str:
        return _said([self._program() or "", "-h"])

    def command(self, port: int, directory: Path) -> list[str]:
        return self.with_file(directory, self.lines(port, directory))

    def lines(self, port: int, directory: Path) -> list[str]:
        lines = [f"listener {port} {HOST}", "allow_anonymous true"]
        if os.getuid() == 0:
            lines.append("user root")  # or it changes to a user who may not write to the directory
        if self.persistent:
            # Without room for them it drops acknowledged messages for a subscriber that falls behind.
            lines += ["persistence true", f"persistence_location {directory}/", "max_queued_messages 0"]
            lines.append(f"max_inflight_messages {IN_FLIGHT_MAX}")
        return lines

    def with_file(self, directory: Path, lines: Sequence[str]) -> list[str]:
        program = self._program()
        if program is None:
            raise Unavailable(self.missing())
        file = directory / "mosquitto.conf"
        file.write_text("\n".join(lines) + "\n")
        return [program, "-c", str(file)]

    @staticmethod
    def _program() -> str | None:
        beside = f"/usr/sbin:/usr/local/sbin:{Path(sys.executable).parent}"
        return shutil.which("mosquitto") or shutil.which("mosquitto", path=beside)


@dataclass(frozen=True, slots=True)
class NatsServer:
    name: str = "NATS"

    @property
    def load(self) -> Load:
        return SocketLoad(Nats())

    def missing(self) -> str | None:
        return None if self._program() else 'nats-server is not installed: pip install -e ".[bench]"'

    def version(self) -> str:
        return _said([self._program() or "", "--version"])

    def command(self, port: int, directory: Path) -> list[str]:
        del directory
        return [self.program(), "--addr", HOST, "--port", str(port)]

    def program(self) -> str:
        program = self._program()
        if program is None:
            raise Unavailable(self.missing())
        return program

    @staticmethod
    def _program() -> str | None:
        beside = Path(sys.executable).with_name("nats-server")
        return str(beside) if beside.exists() else shutil.which("nats-server")


@dataclass(frozen=True, slots=True)
class ZenohRouter:
    name: str = "Zenoh"

    @property
    def load(self) -> Load:
        from _zenoh_load import ZenohLoad

        return ZenohLoad()

    def missing(self) -> str | None:
        there = importlib.util.find_spec("zenoh") is not None
        return None if there else 'zenoh is not installed: pip install -e ".[bench]"'

    def version(self) -> str:
        return metadata.version("eclipse-zenoh")

    def command(self, port: int, directory: Path) -> list[str]:
        del directory
        return [sys.executable, str(Path(__file__).with_name("_zenoh_router.py")), str(port)]


@dataclass(frozen=True, slots=True)
class Nobody:
    """The load by itself: publishers connected to subscribers, the ceiling of what can be measured."""

    name: str = "no broker"

    @property
    def load(self) -> Load:
        return SocketLoad(Bare())

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return ""

    def command(self, port: int, directory: Path) -> list[str]:
        del port, directory
        return []


@contextmanager
def running(peer: Peer, directory: Path) -> Iterator[Running]:
    """Starts a broker in a directory of its own, and ends it with the block."""
    directory.mkdir(parents=True)
    port = free_port()
    command = peer.command(port, directory)
    if not command:
        yield Running(port, peer.load)
        return
    with started(peer, command, port, directory) as broker:
        yield broker


@contextmanager
def started(peer: Peer, command: Sequence[str], port: int, directory: Path) -> Iterator[Running]:
    """Runs a command in a directory that is there, until it serves clients at the port, and ends it with the block."""
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=directory
        )
    try:
        _await_start(peer, process, port, log)
        yield Running(port, peer.load, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    return free_ports(1)[0]


def _said(command: list[str]) -> str:
    """The version in the first line of what a program says about itself."""
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
    return next((word for word in said.split() if any(sign.isdigit() for sign in word)), "")


def install_mosquitto() -> None:
    as_root = [] if os.getuid() == 0 else ["sudo", "-n"]
    install = [*as_root, "apt-get", "install", "-qq", "-y", "--no-install-recommends", "mosquitto"]
    subprocess.run(install, check=False, stdout=subprocess.DEVNULL)


def _await_start(peer: Peer, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    patience_ends = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
            return
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > patience_ends:
            last = " / ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
            raise Unavailable(f"{peer.name} did not start: {last or 'it says nothing'}")
        time.sleep(0.05)
