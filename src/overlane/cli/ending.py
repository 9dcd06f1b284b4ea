"""The end of commands that have much to take down: SIGTERM and SIGHUP end them as Ctrl-C does, after all of it."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import TypeVar

Given = TypeVar("Given")


async def ended_by_signals(work: Coroutine[object, object, Given]) -> Given:
    """KeyboardInterrupt if it was ended."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
