"""Overlays of real brokers, each a process of its own, for tests."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from brokers import free_port
from forked import ForkedBroker, launch
from waiting import WITHIN_S, eventually

START_WITHIN_S = 60.0
SECURE = """
[security]
certificate = "{directory}/{name}.pem"
key = "{directory}/{name}.key"
client_ca = "{directory}/{ca}.pem"
overlay_tls = true
"""


class Member:
    """One broker of an overlay."""

    def __init__(self, file: Path, name: str, directory: Path, options: tuple[str, ...]) -> None:
        self.name = name
        self.mqtt = f"127.0.0.1:{free_port()}"
        self.overlay = f"127.0.0.1:{free_port()}"
        self.admin = f"127.0.0.1:{free_port()}"
        self._file = file
        self._directory = directory
        self._options = options
        self.program: tuple[str, ...] = ("-m", "overlane")
        """What Python is to run."""
        self.log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | ForkedBroker | None = None

    def table(self) -> str:
        return f'[brokers.{self.name}]\nmqtt = "{self.mqtt}"\noverlay = "{self.overlay}"\nadmin = "{self.admin}"\n'

    def use(self, file: Path) -> None:
        """Another network file than that of the others."""
        self._file = file

    def start(self) -> None:
        words = ("--name", self.name, "--data", str(self._directory / self.name), *self._options)
        self._process = launch([sys.executable, *self.program, "broker", str(self._file), *words], self.log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        status = self._process.wait(20)
        self._process = None
        return status

    def reload(self) -> None:
        """Read the file again, and be done with it."""
        times = self.log.read_text().count("reloaded")
        os.kill(self.process_id, signal.SIGHUP)
        eventually(
            lambda: self.log.read_text().count("reloaded") > times, "read again", START_WITHIN_S, self.log.read_text
        )

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ask(self, path: str, method: str = "GET", body: object = None) -> object:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"http://{self.admin}{path}", data, {"content-type": "application/json"}, method=method)
        with urlopen(request, timeout=WITHIN_S) as answer:
            content = answer.read()
        return json.loads(content) if content else None


class RealOverlay:
    """Brokers and links: what the file says of each link, by pairs such as "a-b", and whatever else it says.

    `is_recorded`: they write telemetry, as they do unless they are told otherwise. A process of Arrow makes files of
    it after ten seconds, at the end and at the next start, and takes more time than most of these brokers."""

    def __init__(
        self,
        directory: Path,
        links: dict[str, str],
        tables: str = "",
        options: tuple[str, ...] = (),
        *,
        is_recorded: bool = False,
    ) -> None:
        self.file = directory / "network.toml"
        names = sorted({name for pair in links for name in pair.split("-")})
        self.members = {name: Member(self.file, name, directory, options) for name in names}
        text = "\n".join(member.table() for member in self.members.values())
        for pair, lines in links.items():
            one, other = pair.split("-")
            text += f'\n[[links]]\nends = ["{one}", "{other}"]\n{lines}\n'
        self.file.write_text(text + tables + ("" if is_recorded else "\n[telemetry]\nenabled = false\n"))

    def secure(self, cas: dict[str, str]) -> None:
        """Each gets a file of its own, as on several machines: the certificates beside it are each one's own."""
        common, directory = self.file.read_text(), self.file.parent
        for name, member in self.members.items():
            own = directory / f"{name}.toml"
            own.write_text(common + SECURE.format(directory=directory, name=name, ca=cas[name]))
            member.use(own)

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def start(self) -> None:
        for member in self.members.values():
            member.start()
        self.wait_until(lambda: all("linked" in member.log.read_text() for member in self.members.values()), "linked")

    def end(self) -> None:
        for member in self.members.values():
            member.kill()

    def wait_until(self, holds: Callable[[], bool], what: str, within_s: float = START_WITHIN_S) -> None:
        eventually(holds, what, within_s, self.logs)

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n{member.log.read_text()[-3000:]}" for name, member in self.members.items())


@contextmanager
def overlay(
    directory: Path,
    links: dict[str, str],
    tables: str = "",
    options: tuple[str, ...] = (),
    *,
    is_recorded: bool = False,
) -> Iterator[RealOverlay]:
    net = RealOverlay(directory, links, tables, options, is_recorded=is_recorded)
    try:
        net.start()
        yield net
    finally:
        net.end()


class Up:
    """`overlane up`."""

    def __init__(self, file: Path, directory: Path) -> None:
        self.log = directory / "up.log"
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "overlane", "up", str(file), "--data", str(directory / "data")]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def reload(self) -> None:
        os.kill(self.process.pid, signal.SIGHUP)

    def wait_until(self, holds: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
        def look() -> bool:
            is_found = holds()
            assert is_found or self.process.poll() is None, self.log.read_text()
            return is_found

        eventually(look, what, within_s, self.log.read_text)


@contextmanager
def all_up(file: Path, directory: Path) -> Iterator[Up]:
    up = Up(file, directory)
    try:
        up.wait_until(lambda: "ready" in up.log.read_text().split(), "ready")
        yield up
    finally:
        up.process.terminate()
        try:
            up.process.wait(30)
        finally:
            up.process.kill()
            up.process.wait()
