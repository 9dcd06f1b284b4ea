"""SIGTERM and SIGINT: told in the event loop, and known from the moment they come.

A handler of the event loop runs only in the next iteration. A process that replaces itself before that would forget the
signal, and go on: so it does when it was stopped, another host has taken over, and it is told to end and continued.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType

_NUMBERS = (signal.SIGTERM, signal.SIGINT)
_told: list[int] = []
"""The signals that have come: those of a process, so there is one list."""


def heed_end_signals(loop: asyncio.AbstractEventLoop, end_soon: Callable[[], None]) -> None:
    """Call `end_soon` in the loop when one comes, in place of what was called before."""

    def come(number: int, _frame: FrameType | None) -> None:
        if loop.is_closed():  # whoever has used it goes on without it
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        _told.append(number)
        loop.call_soon_threadsafe(end_soon)

    for number in _NUMBERS:
        signal.signal(number, come)


def was_told_to_end() -> bool:
    return bool(_told)
