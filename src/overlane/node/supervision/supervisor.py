"""All brokers of a file on one machine, each a process of its own that is started again when it dies.

A broker that dies before it was ever ready would die again: its own words say why, and the whole is ended. One that was
ready is started again, at once the first time and after growing pauses if it keeps dying. One that ends of its own
will, because it was told to or has left the overlay, is let go; one that was stopped or killed by hand stays down until
it is started again. Brokers end when their standard input does, so that none outlives its supervisor, however that
ends.

When the file has changed, brokers that it has no more say goodbye to the others first, while these still know them;
then the new ones are started, and all others read the file again.
"""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from overlane.errors import OverlaneError, Unavailable

READY, LINKED = "ready", "linked"
PAUSE_MIN_S, PAUSE_MAX_S = 0.2, 10.0
STEADY_S = 30.0
"""A broker that has lived so long counts as sound again."""
GRACE_S = 10.0
"""How long a broker may take to end before it is killed."""

Tell = Callable[[str, str], None]
"""Takes a broker's name and what there is to say about it."""


class NeverReady(OverlaneError):
    """A broker died before it could serve."""

    error_code = "OVL-212"

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
    life: asyncio.Task[None] | None = None
    """What keeps it alive."""
    restarts: int = 0
    is_serving: bool = False
    """Whether the process of now has said that it is ready, and minds signals."""
    is_leaving: bool = False
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Clear while it is to stay down."""
    was_ended_by_hand: bool = False

    def __post_init__(self) -> None:
        self.wanted.set()

    @property
    def is_done(self) -> bool:
        """Whether it is to run no more."""
        return self.is_leaving

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None


class Supervisor:
    def __init__(self, file: Path, names: list[str], data: Path | None, options: list[str], tell: Tell) -> None:
        self._file = file
        self._data = data
        self._options = options
        self._tell = tell
        self._ending = asyncio.Event()
        self.wards = {name: self._ward(name) for name in names}
        self._lives: set[asyncio.Task[None]] = set()
        self._one_change = asyncio.Lock()

    def _ward(self, name: str) -> Ward:
        return Ward(name, _command(self._file, name, self._data, self._options))

    async def run(self, ready: Callable[[], None]) -> None:
        """Until cancelled. `ready` is called once, when all serve and are linked. NeverReady if one cannot serve."""
        for ward in self.wards.values():
            ward.life = asyncio.create_task(self._keep_alive(ward))
            self._lives.add(ward.life)
        all_ready = asyncio.gather(*(ward.linked.wait() for ward in self.wards.values()))
        try:
            all_ready.add_done_callback(lambda done: None if done.cancelled() else ready())
            while self._lives:
                ended, _ = await asyncio.wait(self._lives, return_when=asyncio.FIRST_COMPLETED)
                self._lives -= ended
                for life in ended:
                    life.result()
        finally:
            self._ending.set()
            all_ready.cancel()
            await asyncio.gather(*(self._end(ward) for ward in self.wards.values()))
            for life in self._lives:
                life.cancel()
            await asyncio.gather(*self._lives, return_exceptions=True)

    async def change(self, names: list[str]) -> None:
        """The file has been changed, and has these brokers now."""
        async with self._one_change:
            if self._ending.is_set():
                return
            gone = [ward for name, ward in self.wards.items() if name not in names]
            await asyncio.gather(*(self._leave(ward) for ward in gone))
            for ward in gone:
                del self.wards[ward.name]
            for ward in self.wards.values():
                if ward.is_serving and ward.process is not None and ward.is_running:
                    ward.process.send_signal(signal.SIGHUP)
            for name in names:
                if name not in self.wards:
                    ward = self.wards[name] = self._ward(name)
                    self._begin(ward)

    # By hand

    async def stop(self, name: str) -> None:
        """End a broker as an operator would; it stays down until it is started again. Unavailable."""
        ward = self._known(name)
        ward.wanted.clear()
        ward.was_ended_by_hand = ward.is_running
        await self._end(ward)

    async def kill(self, name: str) -> None:
        """End a broker as a power cut would; it stays down until it is started again. Unavailable."""
        ward = self._known(name)
        ward.wanted.clear()
        ward.was_ended_by_hand = ward.is_running
        if ward.process is not None and ward.is_running:
            ward.process.kill()
            await ward.process.wait()

    async def restart(self, name: str) -> None:
        """Start a broker that is down, or end it and start it again. Unavailable."""
        ward = self._known(name)
        if ward.is_running:
            await self.stop(name)
        ward.wanted.set()
        if ward.life is None or ward.life.done():
            self._begin(ward)

    def _known(self, name: str) -> Ward:
        if name not in self.wards or self._ending.is_set():
            raise Unavailable(f"broker {name}", "it is not run here")
        return self.wards[name]

    def _begin(self, ward: Ward) -> None:
        ward.life = asyncio.create_task(self._try_to_keep_alive(ward))
        self._lives.add(ward.life)

    # Lives

    async def _try_to_keep_alive(self, ward: Ward) -> None:
        """One that came later and cannot serve is no reason to end the others."""
        try:
            await self._keep_alive(ward)
        except NeverReady as wrong:
            self._tell(ward.name, str(wrong))
            self.wards.pop(ward.name, None)

    async def _leave(self, ward: Ward) -> None:
        ward.is_leaving = True
        ward.wanted.set()
        process = ward.process
        if process is None or process.returncode is not None or not ward.is_serving:
            await self._end(ward)
            return
        assert process.stdin is not None
        process.stdin.write(b"leave\n")
        try:
            await asyncio.wait_for(process.wait(), GRACE_S)
        except TimeoutError:
            await self._end(ward)

    async def _keep_alive(self, ward: Ward) -> None:
        loop = asyncio.get_running_loop()
        pause_s = 0.0
        while True:
            await ward.wanted.wait()
            if ward.is_done:
                return
            started = loop.time()
            words: list[str] = []
            ward.is_serving = False
            process = ward.process = await asyncio.create_subprocess_exec(
                *ward.command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
            )
            await asyncio.gather(self._listen(ward, process), self._echo(ward, process, words))
            status = await process.wait()
            if self._ending.is_set():
                return
            if ward.is_leaving:
                self._tell(ward.name, "has left")
                return
            if ward.was_ended_by_hand:
                ward.was_ended_by_hand = False
                self._tell(ward.name, f"ended with status {status}; stays down until it is started again")
                continue
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
            ward.is_serving |= word == READY
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
