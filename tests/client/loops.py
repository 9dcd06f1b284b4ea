"""Tests as coroutines, with an end."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")

WITHIN_S = 60


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run the test in an event loop of its own. One that hangs fails."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def story() -> None:
            async with asyncio.timeout(WITHIN_S):
                await test(*args, **kwargs)

        asyncio.run(story())

    return run


async def until(is_so: Callable[[], bool]) -> None:
    """Look until it is so. The test's own end is the limit."""
    while not is_so():
        await asyncio.sleep(0.005)
