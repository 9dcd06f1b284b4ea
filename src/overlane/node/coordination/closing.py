"""The end of a session with ZooKeeper, for a process that ends: told where that is possible, and never waited for long.

Where ZooKeeper is away, kazoo may block for as long as it likes. A thread of the executor would keep the process alive
for that; this one is a daemon. A session that could not be ended expires.
"""

import asyncio
import threading
from typing import Protocol

WITHIN_S = 2.0


class Closable(Protocol):
    def close(self) -> None: ...


async def close_soon(service: Closable, within_s: float = WITHIN_S) -> bool:
    """Whether it was closed in time."""
    loop = asyncio.get_running_loop()
    is_done = asyncio.Event()

    def close() -> None:
        try:
            service.close()
        finally:
            if not loop.is_closed():
                loop.call_soon_threadsafe(is_done.set)

    threading.Thread(target=close, name="closing-zookeeper", daemon=True).start()
    try:
        async with asyncio.timeout(within_s):
            await is_done.wait()
    except TimeoutError:
        return False
    return True
