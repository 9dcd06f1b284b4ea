"""Child processes of this process: waiting until one that has been asked to end has ended."""

import asyncio
from asyncio.subprocess import Process

__all__ = ["wait_or_kill"]


async def wait_or_kill(process: Process, within_s: float) -> None:
    """Wait for the end of a process, and kill it if that takes longer than `within_s`."""
    try:
        async with asyncio.timeout(within_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
