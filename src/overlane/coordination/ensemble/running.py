"""The servers of an ensemble as processes: started, watched, started again when they end, and stopped.

A server that ends is started again after a growing pause; the others serve meanwhile. One that ends before the ensemble
has ever served ends the whole, with the last lines of its log. Servers end with this process, however that ends.
"""

import asyncio
import ctypes
import fcntl
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from overlane.child_processes import wait_or_kill
from overlane.coordination.ensemble.java import java_command, server_jars
from overlane.coordination.ensemble.layout import Ensemble, ZooKeeperServer, open_ensemble, write_server
from overlane.errors import Unavailable

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
PAUSE_MIN_S, PAUSE_MAX_S = 0.1, 5.0
STEADY_S = 30.0
"""A server that has run so long is started again at once."""
GRACE_S = 5.0
POLL_S = 0.1
START_MAX_S = 60.0
LOG_LINES_SHOWN = 8
PR_SET_PDEATHSIG = 1

Report = Callable[[str], None]


async def run_ensemble(folder: Path, count: int, serving: Callable[[str], None], report: Report) -> None:
    """Until cancelled. `serving` is called once, with the addresses. ConfigError, Unavailable."""
    java, jars = java_command(), server_jars()
    ensemble = open_ensemble(folder, count)
    with _lock(folder):
        servers = [_Process(java, jars, folder, ensemble, number, report) for number in range(1, count + 1)]
        tasks = [asyncio.create_task(server.keep_running()) for server in servers]
        waiting = asyncio.create_task(wait_until_serving(ensemble))
        try:
            await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
            for task in (*tasks, waiting):
                if task.done():
                    task.result()
            for server in servers:
                server.is_needed_to_start = False
            serving(ensemble.addresses)
            await asyncio.gather(*tasks)
        finally:
            for task in (*tasks, waiting):
                task.cancel()
            await asyncio.gather(*tasks, waiting, return_exceptions=True)


async def wait_until_serving(ensemble: Ensemble) -> None:
    """Until every server has a leader, or is it. Unavailable after a minute."""
    pending = list(ensemble.servers)
    try:
        async with asyncio.timeout(START_MAX_S):
            while pending:
                pending = [server for server in pending if await mode_of(server) is None]
                await asyncio.sleep(POLL_S if pending else 0)
    except TimeoutError:
        told = ", ".join(server.address for server in pending)
        raise Unavailable("ZooKeeper", f"no answer from {told} within {START_MAX_S:.0f} s") from None


async def mode_of(server: ZooKeeperServer) -> str | None:
    """`leader`, `follower` or `standalone`; None while it does not serve."""
    host, _, port = server.address.partition(":")
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(b"srvr")
                said = (await reader.read()).decode(errors="replace")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    return next((line.split(": ")[1] for line in said.splitlines() if line.startswith("Mode: ")), None)


class _Process:
    def __init__(
        self, java: str, jars: list[Path], folder: Path, ensemble: Ensemble, number: int, report: Report
    ) -> None:
        config = write_server(folder, ensemble, number)
        home = config.parent
        logging = f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}"
        path = ":".join(map(str, jars))
        self._command = [java, *OPTIONS, logging, "-cp", path, MAIN, str(config)]
        self._log = home / "server.log"
        self._name = f"server {number}"
        self._report = report
        self.is_needed_to_start = True

    async def keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = PAUSE_MIN_S
        while True:
            started = loop.time()
            status = await self._run_once()
            if self.is_needed_to_start:
                raise Unavailable(f"ZooKeeper, {self._name}", f"ended with status {status}\n{self._last_lines()}")
            if loop.time() - started > STEADY_S:
                pause_s = PAUSE_MIN_S
            self._report(f"{self._name} ended with status {status}; starts again in {pause_s:.1f} s")
            await asyncio.sleep(pause_s)
            pause_s = min(PAUSE_MAX_S, 2 * pause_s)

    async def _run_once(self) -> int:
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await wait_or_kill(process, GRACE_S)

    def _last_lines(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES_SHOWN:])


def _end_with_parent() -> None:
    """In the child: the kernel ends it when its parent is gone. Linux only; elsewhere it is ended by `terminate`."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Unavailable(str(folder), "its ensemble is running already") from None
        yield
