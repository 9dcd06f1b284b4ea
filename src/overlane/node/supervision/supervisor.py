"""Supervisor: all brokers of a file on one machine, each a process that is restarted when it fails.

A broker that fails before it was ever ready would fail again: its output gives the reason, and the supervisor ends. A
broker that was ready is restarted, at once the first time and with growing pauses if it keeps failing. A broker that
ends normally, on request or because it has left the overlay, is not restarted; one that was stopped or killed by an
operator stays down until it is started again. Brokers end when their standard input closes, so that none outlives its
supervisor.

When the file has changed, brokers that were removed from it leave the overlay first, while the others still know them;
then the new ones are started, and all others read the file again.
"""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from overlane.child_processes import wait_or_kill
from overlane.errors import OverlaneError, Unavailable

READY, LINKED, WAITING = "ready", "linked", "waiting"
"""What a broker says of itself on standard output, at the beginning of a line."""
PAUSE_MIN_S, PAUSE_MAX_S = 0.2, 10.0
STEADY_S = 30.0
"""A broker that has lived so long counts as sound again."""
GRACE_S = 10.0
"""How long a broker may take to end before it is killed."""
NAMED_MAX = 5
"""So many of those that are waited for are named."""

Tell = Callable[[str, str], None]
"""Called with the name of a broker and a message about it."""


class NeverReady(OverlaneError):
    """A broker died before it could serve."""

    error_code = "OVL-212"

    def __init__(self, name: str, status: int, words: str, command: str = "broker") -> None:
        super().__init__(f"{command} {name} ended with status {status} before it was ready\n{words}".rstrip())
        self.name = name


@dataclass(slots=True)
class SupervisedBroker:
    """One broker process and its desired state."""

    name: str
    command: list[str]
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    linked: asyncio.Event = field(default_factory=asyncio.Event)
    awaits: str = "to start"
    """What it has to do before it is linked, as it said last."""
    starting: asyncio.Task[Process] | None = None
    process: Process | None = None
    life: asyncio.Task[None] | None = None
    """The task that restarts it."""
    restarts: int = 0
    is_serving: bool = False
    """Whether the current process has reported that it is ready, and handles signals."""
    is_leaving: bool = False
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Clear while it must stay down."""
    was_ended_by_hand: bool = False

    def __post_init__(self) -> None:
        self.wanted.set()

    @property
    def is_done(self) -> bool:
        """Whether it must not be restarted."""
        return self.is_leaving

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None


class Supervisor:
    def __init__(
        self,
        file: Path,
        names: list[str],
        data: Path | None,
        options: list[str],
        tell: Tell,
        words: Callable[[str], list[str]] | None = None,
        command: str = "broker",
    ) -> None:
        """`words` of the command that runs a broker, by its name, where it is not run by the file. `command`: what
        they are, `gateway` if not brokers; gateways store nothing."""
        self._file = file
        self._data = data
        self._options = options
        self._tell = tell
        self._command = command
        self._words = words if words is not None else lambda name: [str(file), "--name", name]
        self._ending = asyncio.Event()
        self.brokers = {name: self._supervised(name) for name in names}
        self._running: set[asyncio.Task[None]] = set()
        self._one_change = asyncio.Lock()

    def _supervised(self, name: str) -> SupervisedBroker:
        words = _command(self._command, self._words(name), name, self._data, self._options)
        return SupervisedBroker(name, words)

    async def run(self, ready: Callable[[], None]) -> None:
        """Until cancelled. `ready` is called once, when all serve and are linked. NeverReady if one cannot serve."""
        for broker in self.brokers.values():
            broker.life = asyncio.create_task(self._keep_alive(broker))
            self._running.add(broker.life)
        if self._command != "broker":
            # There may be none now, and some when the file has changed.
            self._running.add(asyncio.create_task(_for_ever()))
        announcing = asyncio.create_task(self._announce(ready))
        try:
            while self._running:
                ended, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                self._running -= ended
                for life in ended:
                    life.result()
        finally:
            self._ending.set()
            announcing.cancel()
            await asyncio.gather(*(self._end(broker) for broker in self.brokers.values()))
            for life in self._running:
                life.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _announce(self, ready: Callable[[], None]) -> None:
        for broker in list(self.brokers.values()):
            await broker.linked.wait()
        ready()

    def awaited(self) -> str:
        """Which brokers do not serve or are not linked yet, and why; "" if all are."""
        missing = [broker for broker in self.brokers.values() if not broker.linked.is_set()]
        shown = [f"{broker.name} ({broker.awaits})" for broker in missing[:NAMED_MAX]]
        more = [f"{len(missing) - NAMED_MAX} more"] if len(missing) > NAMED_MAX else []
        return ", ".join(shown + more)

    def kill_all(self) -> None:
        """End at once what has not ended yet."""
        for broker in self.brokers.values():
            if broker.process is not None and broker.is_running:
                broker.process.kill()

    async def change(self, names: list[str]) -> None:
        """The file has been changed, and has these brokers now."""
        async with self._one_change:
            if self._ending.is_set():
                return
            await self._let_go([broker for name, broker in self.brokers.items() if name not in names])
            for broker in self.brokers.values():
                if broker.is_serving and broker.process is not None and broker.is_running:
                    broker.process.send_signal(signal.SIGHUP)
            self._add(names)

    async def set_names(self, names: list[str]) -> None:
        """Other brokers are to run than before; those that stay are not disturbed."""
        async with self._one_change:
            if self._ending.is_set():
                return
            await self._let_go([broker for name, broker in self.brokers.items() if name not in names])
            self._add(names)

    async def _let_go(self, gone: list[SupervisedBroker]) -> None:
        await asyncio.gather(*(self._leave(broker) for broker in gone))
        for broker in gone:
            del self.brokers[broker.name]

    def _add(self, names: list[str]) -> None:
        for name in names:
            if name not in self.brokers:
                broker = self.brokers[name] = self._supervised(name)
                self._begin(broker)

    # By hand

    async def stop(self, name: str) -> None:
        """End a broker as an operator would; it stays down until it is started again. Unavailable."""
        broker = self._known(name)
        broker.wanted.clear()
        broker.was_ended_by_hand = broker.is_running
        await self._end(broker)

    async def kill(self, name: str) -> None:
        """End a broker as a power cut would; it stays down until it is started again. Unavailable."""
        broker = self._known(name)
        broker.wanted.clear()
        broker.was_ended_by_hand = broker.is_running
        if broker.process is not None and broker.is_running:
            broker.process.kill()
            await broker.process.wait()

    async def restart(self, name: str) -> None:
        """Start a broker that is down, or end it and start it again. Unavailable."""
        broker = self._known(name)
        if broker.is_running:
            await self.stop(name)
        broker.wanted.set()
        if broker.life is None or broker.life.done():
            self._begin(broker)

    def _known(self, name: str) -> SupervisedBroker:
        if name not in self.brokers or self._ending.is_set():
            raise Unavailable(f"broker {name}", "it is not run here")
        return self.brokers[name]

    def _begin(self, broker: SupervisedBroker) -> None:
        broker.life = asyncio.create_task(self._try_to_keep_alive(broker))
        self._running.add(broker.life)

    # Lives

    async def _try_to_keep_alive(self, broker: SupervisedBroker) -> None:
        """One that came later and cannot serve is no reason to end the others."""
        try:
            await self._keep_alive(broker)
        except NeverReady as wrong:
            self._tell(broker.name, str(wrong))
            self.brokers.pop(broker.name, None)

    async def _leave(self, broker: SupervisedBroker) -> None:
        broker.is_leaving = True
        broker.wanted.set()
        process = broker.process
        if process is None or process.returncode is not None or not broker.is_serving:
            await self._end(broker)
            return
        assert process.stdin is not None
        process.stdin.write(b"leave\n")
        try:
            async with asyncio.timeout(GRACE_S):
                await process.wait()
        except TimeoutError:
            await self._end(broker)

    async def _keep_alive(self, broker: SupervisedBroker) -> None:
        loop = asyncio.get_running_loop()
        pause_s = 0.0
        while True:
            await broker.wanted.wait()
            if broker.is_done:
                return
            started = loop.time()
            words: list[str] = []
            broker.is_serving = False
            # Not cancelled half-way: a process that nobody knows would be left behind.
            broker.starting = asyncio.create_task(_started(broker.command))
            process = broker.process = await asyncio.shield(broker.starting)
            await asyncio.gather(self._listen(broker, process), self._echo(broker, process, words))
            status = await process.wait()
            if self._ending.is_set():
                return
            if broker.is_leaving:
                self._tell(broker.name, "has left")
                return
            if broker.was_ended_by_hand:
                broker.was_ended_by_hand = False
                self._tell(broker.name, f"ended with status {status}; stays down until it is started again")
                continue
            if status == 0:
                self._tell(broker.name, "has ended")
                return
            if not broker.ready.is_set():
                raise NeverReady(broker.name, status, "\n".join(words), self._command)
            if loop.time() - started > STEADY_S:
                pause_s = 0.0
            broker.restarts += 1
            self._tell(
                broker.name, f"ended with status {status}; starts again" + (f" in {pause_s:.1f} s" if pause_s else "")
            )
            await asyncio.sleep(pause_s)
            pause_s = min(PAUSE_MAX_S, max(PAUSE_MIN_S, 2 * pause_s))

    async def _listen(self, broker: SupervisedBroker, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            text = line.decode(errors="replace").rstrip()
            word = text.split(" ", 1)[0]
            broker.is_serving |= word == READY
            reached = {READY: broker.ready, LINKED: broker.linked}.get(word)
            if word == READY:
                broker.awaits = "to link"
            if word == WAITING:
                broker.awaits = text.removeprefix(WAITING).strip()
            elif reached is None:
                self._tell(broker.name, text)
            elif reached.is_set():
                self._tell(broker.name, f"{word} again")
            else:
                reached.set()

    async def _echo(self, broker: SupervisedBroker, process: Process, words: list[str]) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            text = line.decode(errors="replace").rstrip()
            if broker.ready.is_set():
                self._tell(broker.name, text)
            else:
                words.append(text)
                broker.awaits = f"to start; it says: {text}"

    async def _end(self, broker: SupervisedBroker) -> None:
        if broker.starting is not None:
            broker.process = await asyncio.shield(broker.starting)
        process = broker.process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        await wait_or_kill(process, GRACE_S)


async def _started(command: list[str]) -> Process:
    return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True)


async def _for_ever() -> None:
    await asyncio.Event().wait()


def _command(command: str, words: list[str], name: str, data: Path | None, options: list[str]) -> list[str]:
    where = [] if data is None else ["--data", str(data / name)]
    return [sys.executable, "-m", "overlane", command, *words, "--supervised", *where, *options]
