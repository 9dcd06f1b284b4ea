"""Runs the launcher's commands when the leader wants another number of routing brokers; again while they fail."""

import asyncio
import logging

from overlane.coordination.launching import launch_commands
from overlane.network.schema import RoutingTier

RETRY_S = 30.0
OUTPUT_SHOWN = 400

log = logging.getLogger("overlane.coordination")


class Launcher:
    def __init__(self, tier: RoutingTier) -> None:
        self.tier = tier
        self._done: int | None = None
        self._task: asyncio.Task[None] | None = None

    def want(self, count: int) -> None:
        """The leader wants so many; called by the leader alone."""
        if count == self._done:
            return
        self._done = count
        self.end()
        self._task = asyncio.get_running_loop().create_task(self._launch(count))

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _launch(self, count: int) -> None:
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
                await asyncio.sleep(RETRY_S)


async def _run(command: list[str]) -> str | None:
    """What went wrong, if anything."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return error.strerror or str(error)
    try:
        _, said = await process.communicate()
    except asyncio.CancelledError:
        process.terminate()
        raise
    if process.returncode == 0:
        return None
    return f"status {process.returncode} {said.decode(errors='replace').strip()[:OUTPUT_SHOWN]}"
