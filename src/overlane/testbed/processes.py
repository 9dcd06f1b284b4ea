"""The broker processes of a trial.

They exit when their standard input closes, so none is left behind.

The counters of a broker are lost when it ends, so they are read before it is killed, and summed over all its
incarnations. A broker that has left for good and joins again starts with an empty store, in a new directory.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path

from overlane.child_processes import wait_or_kill
from overlane.errors import Unavailable
from overlane.network import format_network
from overlane.testbed.environment import Environment

START_S = 60.0
GRACE_S = 10.0
COUNTED = ("messages_sent", "control_bytes_sent")
"""Of the counters that a broker's overlay has."""


class Processes:
    """All brokers of a ground; `directory` holds their file, records and logs."""

    def __init__(self, environment: Environment, directory: Path) -> None:
        self._environment = environment
        self._directory = directory
        self.file = directory / "network.toml"
        self.file.write_text(format_network(environment.network))
        self._running: dict[str, Process] = {}
        self._leaving: dict[str, Process] = {}
        self._doors: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # who leaves is out before it comes in
        self._departures: Counter[str] = Counter()
        self._counted_before: Counter[str] = Counter()

    async def start_all(self) -> None:
        """All that are there at the start; Unavailable if they do not all come up and link."""
        network = self._environment.network
        absent = network.absent_at_start()
        names = [broker.name for broker in network.brokers if broker.name not in absent]
        for name in names:
            await self.start(name)
        try:
            async with asyncio.timeout(START_S):
                await asyncio.gather(*(self._told(name, "linked") for name in names))
        except TimeoutError:
            missing = [name for name in names if "linked" not in self._words(name)]
            raise Unavailable("the brokers", f"{', '.join(missing)} not linked within {START_S:g} s") from None

    async def linked(self, name: str) -> None:
        """Until it has met a neighbour; Unavailable if it ends before."""
        await self._told(name, "linked")

    async def start(self, name: str) -> None:
        """Nothing if it runs. Who is leaving has left first."""
        async with self._doors[name]:
            if not self.is_running(name):
                self._running[name] = await self._begin(name)

    async def _begin(self, name: str) -> Process:
        argv = [sys.executable, "-m", "overlane", "broker", str(self.file), "--name", name, "--supervised"]
        argv += ["--data", str(self._home(name)), "--log-level", "warning", *self._environment.broker_options]
        with self._log(name).open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *self._environment.command(name, argv), stdin=PIPE, stdout=log, stderr=log, start_new_session=True
            )

    async def kill(self, name: str) -> None:
        """As a power cut would."""
        self._counted_before += await self._counters(name)
        process = self._running.pop(name, None)
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def leave(self, name: str) -> None:
        """It leaves the overlay, and ends when all brokers know. Nothing happens if it does not run."""
        async with self._doors[name]:
            if self.is_running(name):
                self._counted_before += await self._counters(name)
                process = self._leaving[name] = self._running.pop(name)
                await self._say_goodbye(process)
                self._departures[name] += 1
                del self._leaving[name]

    async def _say_goodbye(self, process: Process) -> None:
        assert process.stdin is not None
        process.stdin.write(b"leave\n")
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await process.wait()
        await self._end(process)

    def is_running(self, name: str) -> bool:
        return (process := self._running.get(name)) is not None and process.returncode is None

    async def stop(self, name: str) -> None:
        """Orderly; nothing if it does not run."""
        self._counted_before += await self._counters(name)
        if (process := self._running.pop(name, None)) is not None:
            await self._end(process)

    async def end(self) -> None:
        """All of them, orderly: what they have recorded of themselves is on disk then."""
        await asyncio.gather(*(self._end(process) for process in self._running.values()))
        self._running.clear()

    async def _end(self, process: Process) -> None:
        if process.returncode is None:
            process.terminate()
            await wait_or_kill(process, GRACE_S)

    def end_at_once(self) -> None:
        for process in [*self._running.values(), *self._leaving.values()]:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()

    # Their output

    async def counters(self) -> Counter[str]:
        """Of all brokers and all their lives, so far."""
        found = await asyncio.gather(*(self._counters(name) for name in self._running))
        return sum(found, Counter(self._counted_before))

    async def _counters(self, name: str) -> Counter[str]:
        try:
            text = (await asyncio.to_thread(self._environment.admin_request, name, "GET", "/metrics")).decode()
        except Unavailable:
            return Counter()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return Counter({one: int(float(values.get(f"overlane_overlay_{one}_total", "0"))) for one in COUNTED})

    def records(self) -> list[Path]:
        """The data directories of all brokers, also of those that have left."""
        names = [broker.name for broker in self._environment.network.brokers]
        return [self._home(name, number) for name in names for number in range(self._departures[name] + 1)]

    def _home(self, name: str, departures: int | None = None) -> Path:
        number = self._departures[name] if departures is None else departures
        return self._directory / (f"{name}@{number}" if number else name)

    async def _told(self, name: str, word: str) -> None:
        """Waits until the broker has printed a word; Unavailable if it ends before."""
        while word not in (text := self._words(name)):
            process = self._running.get(name)
            if process is None or process.returncode is not None:
                status = "before it was ready" if process is None else f"with status {process.returncode}"
                raise Unavailable(f"broker {name}", f"ended {status}\n{text.rstrip()}")
            await asyncio.sleep(0.05)

    def _words(self, name: str) -> str:
        return self._log(name).read_text(errors="replace")

    def _log(self, name: str) -> Path:
        home = self._home(name)
        return home.with_name(f"{home.name}.log")
