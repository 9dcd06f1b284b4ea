"""All brokers of a file on one machine, each a process of its own that is started again when it dies.

A broker that dies before it was ever ready would die again: its own words say why, and the whole is ended. One that was
ready is started again, at once the first time and after growing pauses if it keeps dying. One that ends of its own
will, because it was told to or has left the overlay, is let go. Brokers end when their
standard input does, so that none outlives its supervisor, however that ends.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

READY, LINKED = "ready", "linked"
PAUSE_MIN_S, PAUSE_MAX_S = 0.2, 10.0
STEADY_S = 30.0
"""A broker that has lived so long counts as sound again."""
GRACE_S = 10.0
"""How long a broker may take to end before it is killed."""

Tell = Callable[[str, str], None]
"""Takes a broker's name and what there is to say about it."""


class NeverReady(Exception):
    """A broker died before it could serve."""

    def __init__(self, name: str, status: int, words: str) -> None:
        super().__init__(f"broker {name} ended with status {status} before it was ready\n{words}".rstrip())
        self.name = name


@dataclass(slots=True)
class Ward:
    """One broker under supervision."""

    name: str
    command: list[str]
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    linked: asyncio.Event = field(default_factory=asyncio.Event)
    process: Process | None = None
    restarts: int = 0


class Supervisor:
    def __init__(self, file: Path, names: list[str], data: Path | None, options: list[str], tell: Tell) -> None:
        self._tell = tell
        self._ending = asyncio.Event()
        self.wards = [Ward(name, _command(file, name, data, options)) for name in names]

    async def run(self, ready: Callable[[], None]) -> None:
        """Until cancelled. `ready` is called once, when all serve and are linked. NeverReady if one cannot serve."""
        lives = [asyncio.create_task(self._keep_alive(ward)) for ward in self.wards]
        all_ready = asyncio.gather(*(ward.linked.wait() for ward in self.wards))
        try:
            all_ready.add_done_callback(lambda done: None if done.cancelled() else ready())
            await asyncio.gather(*lives)
        finally:
            self._ending.set()
            all_ready.cancel()
            await asyncio.gather(*(self._end(ward) for ward in self.wards))
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)

    async def _keep_alive(self, ward: Ward) -> None:
        loop = asyncio.get_running_loop()
        pause_s = 0.0
        while True:
            started = loop.time()
            words: list[str] = []
            process = ward.process = await asyncio.create_subprocess_exec(
                *ward.command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
            )
            await asyncio.gather(self._listen(ward, process), self._echo(ward, process, words))
            status = await process.wait()
            if self._ending.is_set():
                return
            if status == 0:
                self._tell(ward.name, "has ended")
                return
            if not ward.ready.is_set():
                raise NeverReady(ward.name, status, "\n".join(words))
            if loop.time() - started > STEADY_S:
                pause_s = 0.0
            ward.restarts += 1
            self._tell(
                ward.name, f"ended with status {status}; starts again" + (f" in {pause_s:.1f} s" if pause_s else "")
            )
            await asyncio.sleep(pause_s)
            pause_s = min(PAUSE_MAX_S, max(PAUSE_MIN_S, 2 * pause_s))

    async def _listen(self, ward: Ward, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            text = line.decode(errors="replace").rstrip()
            word = text.split(" ", 1)[0]
            reached = {READY: ward.ready, LINKED: ward.linked}.get(word)
            if reached is None:
                self._tell(ward.name, text)
            elif reached.is_set():
                self._tell(ward.name, f"{word} again")
            else:
                reached.set()

    async def _echo(self, ward: Ward, process: Process, words: list[str]) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            text = line.decode(errors="replace").rstrip()
            if ward.ready.is_set():
                self._tell(ward.name, text)
            else:
                words.append(text)

    async def _end(self, ward: Ward) -> None:
        process = ward.process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), GRACE_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def _command(file: Path, name: str, data: Path | None, options: list[str]) -> list[str]:
    where = [] if data is None else ["--data", str(data / name)]
    return [sys.executable, "-m", "overlane", "broker", str(file), "--name", name, "--supervised", *where, *options]
