"""Waiting for what is to come: it is looked for again and again, and what never came is told with what was there."""

import asyncio
import time
from collections.abc import Callable
from typing import Literal, TypeVar

WITHIN_S = 20.0
EVERY_S = 0.01

Found = TypeVar("Found")


def eventually(
    look: Callable[[], Found | Literal[False] | None],
    what: str = "",
    within_s: float = WITHIN_S,
    said: Callable[[], str] = str,
) -> Found:
    """What `look` gives as soon as it is something; `said` tells more when it has not come to that."""
    until = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < until, f"it has not come to this within {within_s:g} s: {what}\n{said()}"
        time.sleep(EVERY_S)
    return found


async def eventually_async(holds: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
    """The same while others in the loop go on."""
    until = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until, f"it has not come to this within {within_s:g} s: {what}"
        await asyncio.sleep(EVERY_S)
