"""Runs the launcher's commands when the leader wants another number of routing brokers; again while they fail.

One command runs at a time: another number is launched when the command before has ended. A command goes on when the
leader ends, since the leader may be one of the brokers that it ends; the next leader runs it again with the same
number.
"""

import asyncio
import logging
import subprocess
import tempfile

from overlane.coordination.launching import launch_commands
from overlane.network.schema import RoutingTier

RETRY_S = 30.0
LOOK_EVERY_S = 0.1
OUTPUT_SHOWN = 400

log = logging.getLogger("overlane.coordination")


class Launcher:
    def __init__(self, tier: RoutingTier) -> None:
        self.tier = tier
        self._wanted: int | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def want(self, count: int) -> None:
        """The leader wants so many; called by the leader alone."""
        if count == self._wanted:
            return
        self._wanted = count
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._follow())

    def deposed(self) -> None:
        """Another leads: should this broker lead again, it launches anew."""
        self._wanted = None

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _follow(self) -> None:
        while self._changed.is_set():
            self._changed.clear()
            if self._wanted is not None:
                await self._launch(self._wanted)

    async def _launch(self, count: int) -> None:
        """Until it has succeeded, or another number is wanted."""
        tier = self.tier
        for command in launch_commands(
            tier.launcher,
            count,
            count_max=tier.brokers_max,
            command=tier.command,
            unit=tier.unit,
            resource=tier.resource,
            namespace=tier.namespace,
        ):
            while (failure := await _run(command)) is not None:
                log.error("%s: %s; again in %.0f s", " ".join(command)[:OUTPUT_SHOWN], failure, RETRY_S)
                try:
                    async with asyncio.timeout(RETRY_S):
                        await self._changed.wait()
                    return
                except TimeoutError:
                    if self._wanted != count:
                        return


async def _run(command: list[str]) -> str | None:
    """What went wrong, if anything."""
    with tempfile.TemporaryFile() as said:
        # Not asyncio's: that kills a process which runs when the loop ends. Not a pipe either: brokers that the command
        # has started may keep it open, and who writes to one that nobody reads any more is ended.
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
            )
        except OSError as error:
            return error.strerror or str(error)
        while (status := process.poll()) is None:
            await asyncio.sleep(LOOK_EVERY_S)
        if status == 0:
            return None
        said.seek(0)
        return f"status {status} {said.read().decode(errors='replace').strip()[:OUTPUT_SHOWN]}"
