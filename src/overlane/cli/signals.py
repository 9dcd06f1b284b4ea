"""Signals for commands that must clean up: SIGTERM and SIGHUP cancel the work as Ctrl-C does."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import TypeVar

Result = TypeVar("Result")


async def cancelled_by_signals(work: Coroutine[object, object, Result]) -> Result:
    """Await the work; KeyboardInterrupt once a signal has cancelled it."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
