"""The mirrors that a host has of other brokers: a process for each, started in advance, kept alive while it is wanted.

They end when their standard input closes, so that none outlives its host. One that has to begin anew as a mirror ends
with `DEPOSED` and is started at once; one that fails, after growing pauses.
"""

import asyncio
import logging
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Coroutine

from overlane.child_processes import wait_or_kill
from overlane.node.recovery.hosted import Hosted

DEPOSED = os.EX_TEMPFAIL
"""The status of a process whose broker is continued elsewhere: it is to be started again, as a mirror."""
PAUSE_MIN_S, PAUSE_MAX_S = 0.2, 10.0
STEADY_S = 30.0
GRACE_S = 10.0

log = logging.getLogger("overlane.recovery")


class Children:
    def __init__(self, command: Callable[[Hosted], list[str]]) -> None:
        self._command = command
        self._lives: dict[Hosted, asyncio.Task[None]] = {}
        self._starting: dict[Hosted, asyncio.Task[Process]] = {}
        self._processes: dict[Hosted, Process] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def want(self, hosted: frozenset[Hosted]) -> None:
        """These and no others. One whose description has changed is started anew when it has ended."""
        brokers = {one.broker for one in hosted}
        for one in list(self._lives):
            if one.broker not in brokers:
                log.info("the copy of %s is no longer needed here", one.broker)
                self._spawn(self._stop(one))
        running = {one.broker for one in self._lives}
        for one in sorted(hosted, key=lambda hosted: hosted.broker):
            if one.broker not in running:
                log.info("keeping a copy of %s", one.broker)
                self._lives[one] = asyncio.get_running_loop().create_task(self._keep_alive(one))

    async def end(self) -> None:
        await asyncio.gather(*(self._stop(one) for one in list(self._lives)), *self._ending)

    def _spawn(self, stopping: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(stopping)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _keep_alive(self, hosted: Hosted) -> None:
        loop = asyncio.get_running_loop()
        pause_s = PAUSE_MIN_S
        while True:
            started = loop.time()
            try:
                process = self._processes[hosted] = await self._start(hosted)
            except OSError as error:
                why = error.strerror or str(error)
            else:
                status = await process.wait()
                if status == DEPOSED:
                    continue
                why = f"status {status}"
            if loop.time() - started > STEADY_S:
                pause_s = PAUSE_MIN_S
            log.error("the copy of %s has ended: %s; starts again in %.1f s", hosted.broker, why, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(PAUSE_MAX_S, 2 * pause_s)

    async def _start(self, hosted: Hosted) -> Process:
        """Goes on if whoever waits for it is cancelled: half-way, the process would be killed instead of ended."""
        starting = self._starting[hosted] = asyncio.get_running_loop().create_task(
            asyncio.create_subprocess_exec(*self._command(hosted), stdin=PIPE, start_new_session=True)
        )
        await asyncio.shield(asyncio.wait([starting]))
        del self._starting[hosted]
        return starting.result()

    async def _stop(self, hosted: Hosted) -> None:
        self._lives.pop(hosted).cancel()
        process = self._processes.pop(hosted, None)
        if (starting := self._starting.pop(hosted, None)) is not None:
            await asyncio.wait([starting])
            process = None if starting.exception() else starting.result()
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        await wait_or_kill(process, GRACE_S)
