"""A place where the commands of one page are run, as somebody would who reads it from top to bottom.

Each page has a directory of its own, with the examples and the files that the page shows. Every broker has ports of its
own in all network files there, and in commands they stand for those that a reader would have: 1883 for the first broker
of the file, 8001 for its admin API, and so on. Commands that go on until Ctrl-C do so while the next ones run, until
another overlay is started or the page ends. Where a page speaks of running brokers and has started none, two cities do.

What takes long is shortened: three seconds of simulations and trials, two overlays to soak, an hour of telemetry.
What would be installed is there, and it is only looked whether it is.
"""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec
from doccommands import GOES_ON, Command
from docpages import PROJECT, Page

from brokers import free_port
from overlane.network import Endpoint, Network, format_network, parse_network, read_network
from waiting import eventually

WITHIN_S = 120
HOST = "127.0.0.1"
FIRST_MQTT, FIRST_ADMIN, MONITOR = 1883, 8001, 8080

ONE_CITY = "[brokers.seattle]\n"
TWO_CITIES = """
[brokers.seattle]
[brokers.denver]
[[links]]
ends = ["seattle", "denver"]
latency = "14ms"
[topics."alarms/#"]
deadline = "60ms"
"""
ONE_MORE_CITY = """
[brokers.boise]
[[links]]
ends = ["seattle", "boise"]
latency = "9ms"
"""

STAND_INS = {"pass": "echo 'a secret of bob'", "sensors": "printf '%s\\n' 20.1 20.2 20.3"}
"""Programs of the reader, whose output our commands take."""

SHORTENED = (
    (re.compile(r"^(overlane simulate .*?)( --duration \S+)?( --json)?$"), r"\1 --duration 3s\3"),
    (re.compile(r"--soak \d+ --jobs \d+ --duration 3s"), "--soak 2 --jobs 2"),
    (re.compile(r"--soak \d+ --soak-of (\w+) --duration 3s"), r"--soak 2 --soak-of \1"),
    (re.compile(r"^(overlane testbed .*)$"), r"\1 --duration 3s"),
    (
        re.compile(r"^(overlane pipeline sample --lake \S+) --brokers \d+ --topics \d+ --days \d+"),
        r"\1 --brokers 3 --topics 5 --days 0.05",
    ),
    (re.compile(r"^pip install "), "pip install --dry-run --no-index --no-deps "),
    (re.compile(r"^python3 -m venv "), "python3 -m venv --without-pip "),
    (re.compile(r"(?<= )/(var/lib|srv|backups)/"), r"\1/"),
    (re.compile(r"\bcurl "), "curl --fail "),
)

_AN_OVERLAY = re.compile(r"overlane (up|broker) (\S+)")
_OF_AN_OVERLAY = re.compile(r"\b(188\d|800\d|8080)\b|network\.toml|broker\.db", re.IGNORECASE)
_PORT = re.compile(r"\b(188\d|800\d|8080)\b")
_SHOWN = {"up": "^ready", "broker": "^ready", "join": "^ready", "monitor": "http://"}


@dataclass
class Running:
    command: Command
    process: "subprocess.Popen[bytes]"
    log: Path

    def said(self) -> str:
        return self.log.read_text(errors="replace")


class Stage:
    def __init__(self, directory: Path, page: Page) -> None:
        self.directory = directory
        self._ports: dict[str, dict[str, int]] = {}
        self._order: list[str] = []
        self._monitor_port = 0
        self._running: list[Running] = []
        self._lay_out(page)
        path = f"{directory / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}

    def _lay_out(self, page: Page) -> None:
        for folder in ("bin", "examples", "srv", "backups"):
            (self.directory / folder).mkdir()
        for name, script in STAND_INS.items():
            program = self.directory / "bin" / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        for example in (PROJECT / "examples").iterdir():
            if example.is_dir():
                (self.directory / "examples" / example.name).symlink_to(example)
        (self.directory / ".venv").symlink_to(sys.prefix)
        cities = PROJECT / "examples" / "five-cities.toml"
        self._write("examples/five-cities.toml", read_network(cities))
        for name, text in {
            "net.toml": ONE_CITY,
            "network.toml": TWO_CITIES,
            "NETWORK.toml": cities.read_text() + ONE_MORE_CITY,
        }.items():
            self._write(name, parse_network(text))
        for name, text in page.files().items():
            if name.endswith(".toml"):
                self._write(name, parse_network(text))
            else:
                (self.directory / name).write_text(text)

    def _write(self, name: str, network: Network) -> None:
        """The network as a file, with the addresses that its brokers have here."""
        brokers = []
        for broker in network.brokers:
            ports = self._ports.setdefault(broker.name, {kind: free_port() for kind in ("mqtt", "overlay", "admin")})
            where = {kind: Endpoint(HOST, port) for kind, port in ports.items()}
            listeners = {"mqtt": where.pop("mqtt")}
            brokers.append(msgspec.structs.replace(broker, listeners=listeners, **where))
        self._order = [broker.name for broker in brokers]
        gateways = [msgspec.structs.replace(one, to=self._with_ports(one.to)) for one in network.gateways]
        self._order = []
        text = format_network(msgspec.structs.replace(network, brokers=tuple(brokers), gateways=tuple(gateways)))
        (self.directory / name).write_text(text)

    def run(self, command: Command) -> None:
        """What it takes that the page does not say, and then the command, which must do well."""
        if found := _AN_OVERLAY.match(command.text):
            self.end()
            self._order = [one.name for one in read_network(self.directory / found[2]).brokers]
        elif _OF_AN_OVERLAY.search(command.text) and not self._order:
            self.run(Command(command.page, command.line, "overlane up network.toml --chaos"))
            (self.directory / "broker.db").symlink_to(self.directory / "overlane-data" / "seattle" / "broker.db")
        text = self._here(command.text)
        if GOES_ON.match(command.text):
            self._start(command, text)
        else:
            self._finish(command, text)
        if command.text.startswith("overlane leave"):
            self._has_left()

    def _here(self, text: str) -> str:
        for pattern, short in SHORTENED:
            text = pattern.sub(short, text)
        if "--monitor" in text:
            self._monitor_port = free_port()
            return f"{text} --monitor-at {HOST}:{self._monitor_port}"
        if text.startswith("overlane monitor"):
            return f"{text} --at {HOST}:{free_port()}"
        return self._with_ports(text)

    def _with_ports(self, text: str) -> str:
        return _PORT.sub(lambda match: str(self._port(int(match[0]))), text)

    def _port(self, written: int) -> int:
        if written == MONITOR:
            return self._monitor_port
        kind, first = ("admin", FIRST_ADMIN) if written >= FIRST_ADMIN else ("mqtt", FIRST_MQTT)
        return self._ports[self._order[written - first]][kind]

    def _finish(self, command: Command, text: str) -> None:
        until = time.monotonic() + WITHIN_S
        while True:
            status, said = self._typed(command, text) if command.types else self._untyped(command, text)
            assert status == 0, f"{command}\nended with {status}: {text}\n{said}"
            if command.shows in said:
                return
            assert time.monotonic() < until, f"{command}\ndoes not show {command.shows}:\n{said}"

    def _untyped(self, command: Command, text: str) -> tuple[int, str]:
        process = self._process(text, subprocess.PIPE)
        try:
            output, _ = process.communicate(timeout=WITHIN_S)
        except subprocess.TimeoutExpired:
            self._kill(process)
            raise AssertionError(f"{command}\ndid not come to an end: {text}") from None
        return process.returncode, output.decode()

    def _typed(self, command: Command, text: str) -> tuple[int, str]:
        """On a terminal, with the answer typed at every question; its status and what it said."""
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.directory)
            os.execvpe("bash", ["bash", "-o", "pipefail", "-c", text], self._environment)
        said, until = "", time.monotonic() + WITHIN_S
        with os.fdopen(terminal, "r+b", buffering=0) as both, contextlib.suppress(OSError):  # EIO: nobody is there
            while select.select([both], [], [], max(0.0, until - time.monotonic()))[0] and (chunk := both.read(4096)):
                said += chunk.decode()
                if said.endswith(": "):
                    both.write(f"{command.types}\n".encode())
        with contextlib.suppress(ProcessLookupError):
            if time.monotonic() > until:
                os.killpg(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said

    def _start(self, command: Command, text: str) -> None:
        log = self.directory / f"log-{len(list(self.directory.glob('log-*')))}.txt"
        clients = self._clients()
        with log.open("wb") as file:
            running = Running(command, self._process(f"exec {text}", file), log)
        self._running.append(running)
        shown = _SHOWN.get(command.text.split()[1])
        if shown is not None:
            self._eventually(running, lambda: re.search(shown, running.said(), re.MULTILINE) is not None)
        else:
            self._eventually(running, lambda: self._clients() > clients)

    def _process(self, text: str, output: int | IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", text],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _eventually(self, running: Running, is_so: Callable[[], bool]) -> None:
        def look() -> bool:
            is_found = is_so()
            assert is_found or running.process.poll() is None, f"{running.command}\nhas ended:\n{running.said()}"
            return is_found

        eventually(look, f"{running.command} is as it should be", WITHIN_S, running.said)

    def _clients(self) -> int:
        """Those that the brokers know, altogether."""
        total = 0
        for name in self._order:
            with contextlib.suppress(OSError):
                address = f"http://{HOST}:{self._ports[name]['admin']}/clients?limit=1"
                with urllib.request.urlopen(address, timeout=WITHIN_S) as answer:
                    total += json.load(answer)["total"]
        return total

    def end(self) -> None:
        """Ctrl-C to everything that still runs, the youngest first; ours end well."""
        self._order = []
        bad = []
        try:
            while self._running:
                running = self._running.pop()
                process = running.process
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                try:
                    status = process.wait(WITHIN_S)
                except subprocess.TimeoutExpired:
                    status = None
                self._kill(process)
                if status != 0 and running.command.text.startswith("overlane"):
                    bad.append(f"{running.command}\nended with {status} on Ctrl-C:\n{running.said()}")
        finally:
            self.end_at_once()
        assert bad == [], "\n".join(bad)

    def end_at_once(self) -> None:
        while self._running:
            self._kill(self._running.pop().process)

    def _has_left(self) -> None:
        """A broker that was told to leave ends by itself."""
        left = next(one for one in self._running if one.command.text.startswith("overlane join"))
        assert left.process.wait(WITHIN_S) == 0, left.said()
        self._running.remove(left)

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
